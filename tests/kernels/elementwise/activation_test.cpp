// Activations: values by hand, backends against the reference, its derivative against finite differences, edges.
#include "bantam/kernels/elementwise/activation.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "bantam/kernels/elementwise/activation_reference.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::activation_test {
namespace {

using kernels::Activation;

constexpr Activation kAll[] = {
    Activation::none, Activation::relu,       Activation::relu6,        Activation::leaky_relu, Activation::gelu,
    Activation::silu, Activation::sigmoid,    Activation::tanh,         Activation::elu,        Activation::selu,
    Activation::mish, Activation::hard_swish, Activation::hard_sigmoid, Activation::softplus};
static_assert(std::size(kAll) == bantam::kActivationKinds);
constexpr float kSlope = 0.25f;

class ActivationTest : public DeviceTest {
 protected:
  std::vector<float> forward(Activation a, const std::vector<float>& x, DType dtype) {
    const auto count = static_cast<std::int64_t>(x.size());
    const DeviceBuffer in(device(), x, dtype), out(device(), count, dtype);
    BANTAM_KERNEL(exec(), activation_forward, a, kSlope, count, dtype, in.data(), out.data());
    return out.download();
  }
  std::vector<float> grad(Activation a, const std::vector<float>& saved, const std::vector<float>& dy, DType dtype) {
    const auto count = static_cast<std::int64_t>(saved.size());
    const DeviceBuffer s(device(), saved, dtype), up(device(), dy, dtype), down(device(), count, dtype);
    BANTAM_KERNEL(exec(), activation_grad, a, kSlope, count, dtype, s.data(), up.data(), down.data());
    return down.download();
  }
  /// From the bits of a masked forward.
  std::vector<float> masked_grad(kernels::ActivationFunction f, const std::vector<float>& x,
                                 const std::vector<float>& dy, DType dtype) {
    const auto count = static_cast<std::int64_t>(x.size());
    const DeviceBuffer in(device(), x, dtype), out(device(), count, dtype), up(device(), dy, dtype);
    const DeviceArray<std::uint8_t> mask(device(), std::vector<std::uint8_t>(kernels::activation_mask_bytes(count)));
    BANTAM_KERNEL(exec(), masked_activation_forward, f, count, dtype, in.data(), nullptr, out.data(), mask.data());
    BANTAM_KERNEL(exec(), masked_activation_grad, f, count, dtype, mask.data(), up.data(), up.data());
    return up.download();
  }
};

// A few operations in float32 (exp, erf and division are good to 2 or 3 units), then one rounding to the type.
double tolerance(DType dtype) { return unit_roundoff(dtype) + 16 * unit_roundoff(DType::float32); }

TEST_P(ActivationTest, ValuesByHand) {
  const std::vector<float> x = {-2, -0.5f, 0, 1, 7};
  const auto expect = [&](Activation a, const std::vector<double>& y) {
    SCOPED_TRACE(std::string(to_string(a)));
    expect_close(forward(a, x, DType::float32), y, tolerance(DType::float32));
  };
  expect(Activation::none, {-2, -0.5, 0, 1, 7});
  expect(Activation::relu, {0, 0, 0, 1, 7});
  expect(Activation::relu6, {0, 0, 0, 1, 6});
  expect(Activation::leaky_relu, {-0.5, -0.125, 0, 1, 7});
  expect(Activation::gelu, {-0.0455002638963584, -0.1542687694089980, 0, 0.8413447460685429, 6.9999999999910409});
  expect(Activation::silu, {-0.2384058440442351, -0.1887703343990727, 0, 0.7310585786300049, 6.9936223946164260});
  expect(Activation::sigmoid, {0.1192029220221176, 0.3775406687981454, 0.5, 0.7310585786300049, 0.9990889488055994});
  expect(Activation::tanh, {-0.9640275800758169, -0.4621171572600098, 0, 0.7615941559557649, 0.9999983369439447});
  expect(Activation::elu, {-0.21616617919084682, -0.09836733507184164, 0, 1, 7});
  expect(Activation::selu, {-1.520166468595695, -0.6917581878028713, 0, 1.0507009873554805, 7.354906911488364});
  expect(Activation::mish, {-0.2525014826957089, -0.22074377465173, 0, 0.8650983882673103, 6.999988379809741});
  expect(Activation::hard_swish, {-1.0 / 3, -1.25 / 6, 0, 4.0 / 6, 7});
  expect(Activation::hard_sigmoid, {1.0 / 6, 2.5 / 6, 0.5, 4.0 / 6, 1});
  expect(Activation::softplus,
         {0.1269280110429725, 0.4740769841801067, 0.6931471805599453, 1.3132616875182228, 7.000911466453774});
}

// torch.nn.functional of PyTorch 2.5.1 in double; elu with alpha 0.25.
TEST_P(ActivationTest, PyTorchsValuesAndDerivatives) {
  const std::vector<float> x = {-25, -4, -1.5f, -0.25f, 0.5f, 2.5f, 25}, ones(x.size(), 1.0f);
  const auto check = [&](Activation a, const std::vector<double>& y, const std::vector<double>& slopes) {
    SCOPED_TRACE(std::string(to_string(a)));
    const std::vector<float> actual = forward(a, x, DType::float32);
    expect_close(actual, y, tolerance(DType::float32));
    const std::vector<float>& saved = kernels::activation_grad_reads_input(a) ? x : actual;
    expect_close(grad(a, saved, ones, DType::float32), slopes, tolerance(DType::float32));
  };
  check(Activation::elu, {-0.25, -0.2454210903, -0.19421746, -0.05529980423, 0.5, 2.5, 25},
        {3.471985966e-12, 0.004578909722, 0.05578254004, 0.1947001958, 1, 1, 1});
  check(Activation::selu,
        {-1.758099341, -1.725898628, -1.365814353, -0.3888901975, 0.5253504937, 2.626752468, 26.26752468},
        {2.441638495e-11, 0.03220071266, 0.3922849875, 1.369209143, 1.050700987, 1.050700987, 1.050700987});
  check(Activation::mish,
        {-3.471985966e-10, -0.07259174079, -0.2980997422, -0.1299269637, 0.3752452113, 2.471392305, 25},
        {-3.333106528e-10, -0.05377320979, -0.06409781589, 0.4398156017, 0.8864243754, 1.04112953, 1});
  check(Activation::hard_swish, {0, 0, -0.375, -0.1145833333, 0.2916666667, 2.291666667, 25},
        {0, 0, 0, 0.4166666667, 0.6666666667, 1.333333333, 1});
  check(Activation::hard_sigmoid, {0, 0, 0.25, 0.4583333333, 0.5833333333, 0.9166666667, 1},
        {0, 0, 0.1666666716, 0.1666666716, 0.1666666716, 0.1666666716, 0});
  check(Activation::softplus,
        {1.388794386e-11, 0.01814992792, 0.201413278, 0.5759394199, 0.9740769842, 2.578889734, 25},
        {1.388794386e-11, 0.01798620996, 0.1824255238, 0.4378234991, 0.6224593312, 0.92414182, 1});
}

TEST_P(ActivationTest, GradientsAtTheKinks) {
  const std::vector<float> y = {-1, 0, 3, 6, 7}, dy = {2, 2, 2, 2, 2};
  EXPECT_EQ(grad(Activation::relu, y, dy, DType::float32), (std::vector<float>{0, 0, 2, 2, 2}));
  EXPECT_EQ(grad(Activation::relu6, y, dy, DType::float32), (std::vector<float>{0, 0, 2, 0, 0}));
  EXPECT_EQ(grad(Activation::leaky_relu, y, dy, DType::float32), (std::vector<float>{0.5f, 0.5f, 2, 2, 2}));
}

// PyTorch's slopes (of hard_swish since 2.8: those of the flat sides); of elu and selu that of the exponential side.
TEST_P(ActivationTest, CornersOfExponentialAndHardOnes) {
  const auto check = [&](Activation a, const std::vector<float>& corners, const std::vector<float>& slopes) {
    const std::vector<float> dy(corners.size(), 1);
    for (const DType dtype : kernel_dtypes()) {
      SCOPED_TRACE(std::string(to_string(a)) + " " + std::string(to_string(dtype)));
      const std::vector<float> saved = kernels::activation_grad_reads_input(a) ? corners : forward(a, corners, dtype);
      std::vector<float> expected;
      for (const float slope : slopes) expected.push_back(rounded(slope, dtype));
      EXPECT_EQ(grad(a, saved, dy, dtype), expected);
    }
    for (std::size_t i = 0; i < corners.size(); ++i)
      EXPECT_FLOAT_EQ(kernels::reference::activation_derivative(a, kSlope, corners[i]), slopes[i]) << to_string(a);
  };
  check(Activation::elu, {0.0f, -0.0f}, {kSlope, kSlope});
  const auto below = static_cast<float>(kSeluScale * kSeluSlope);
  check(Activation::selu, {0.0f, -0.0f}, {below, below});
  check(Activation::hard_swish, {-3, 3}, {0, 1});
  check(Activation::hard_sigmoid, {-3, 3}, {0, 0});
}

// The slopes of PyTorch and TensorFlow: at a corner, that of the flatter side; -0 is 0.
TEST_P(ActivationTest, CornersHaveTheFlatterSlopeInEveryForm) {
  const std::vector<float> corners = {0.0f, -0.0f, 6.0f}, dy = {1, 1, 1};
  const auto count = static_cast<std::int64_t>(corners.size());
  const auto check = [&](Activation a, const std::vector<float>& slopes) {
    const kernels::ActivationFunction f{a, kSlope};
    std::vector<float> of_reference(corners.size()), of_line;
    kernels::reference::activation_grad(a, kSlope, count, corners.data(), dy.data(), of_reference.data());
    for (const float x : corners) of_line.push_back(kernels::PiecewiseLinear::of(f).derivative(x));
    EXPECT_EQ(of_reference, slopes);
    EXPECT_EQ(of_line, slopes);
    for (const DType dtype : kernel_dtypes()) {
      SCOPED_TRACE(std::string(to_string(a)) + " " + std::string(to_string(dtype)));
      EXPECT_EQ(grad(a, forward(a, corners, dtype), dy, dtype), slopes);
      EXPECT_EQ(masked_grad(f, corners, dy, dtype), slopes);
    }
  };
  check(Activation::none, {1, 1, 1});
  check(Activation::relu, {0, 0, 1});
  check(Activation::relu6, {0, 0, 0});
  check(Activation::leaky_relu, {kSlope, kSlope, 1});
}

TEST_P(ActivationTest, ForwardIsTheReference) {
  for (const Activation a : kAll) {
    for (const DType dtype : kernel_dtypes()) {
      for (const std::int64_t count : odd_counts()) {
        SCOPED_TRACE(std::string(to_string(a)) + " " + std::string(to_string(dtype)) + " " + std::to_string(count));
        const std::vector<float> x = random_values(count, 5, dtype, -8, 8);
        std::vector<double> y(x.size());
        kernels::reference::activation_forward(a, double{kSlope}, count, to_double(x).data(), y.data());
        const std::vector<float> actual = forward(a, x, dtype);
        expect_close(actual, y, tolerance(dtype));
        if (count >= 127) {
          EXPECT_LE(relative_error(actual, y), tolerance(dtype));
        }
      }
    }
  }
}

/// Outputs that an activation can have, for those whose gradient reads y.
std::vector<float> saved_values(Activation a, std::int64_t count, DType dtype) {
  if (a == Activation::sigmoid) return random_values(count, 6, dtype, 0.05f, 0.95f);
  if (a == Activation::tanh) return random_values(count, 6, dtype, -0.95f, 0.95f);
  if (a == Activation::hard_sigmoid) return random_values(count, 6, dtype, 0, 1);
  if (a == Activation::softplus) return random_values(count, 6, dtype, 0, 8);
  return random_values(count, 6, dtype, -8, 8);
}

TEST_P(ActivationTest, GradientIsTheReference) {
  for (const Activation a : kAll) {
    for (const DType dtype : kernel_dtypes()) {
      for (const std::int64_t count : odd_counts()) {
        SCOPED_TRACE(std::string(to_string(a)) + " " + std::string(to_string(dtype)) + " " + std::to_string(count));
        const std::vector<float> saved = saved_values(a, count, dtype), dy = random_values(count, 7, dtype);
        std::vector<double> dx(saved.size());
        kernels::reference::activation_grad(a, double{kSlope}, count, to_double(saved).data(), to_double(dy).data(),
                                            dx.data());
        const std::vector<float> actual = grad(a, saved, dy, dtype);
        expect_close(actual, dx, tolerance(dtype));
        if (count >= 127) {
          EXPECT_LE(relative_error(actual, dx), tolerance(dtype));
        }
      }
    }
  }
}

TEST_P(ActivationTest, LargeInputsStayFiniteAndNanStaysNan) {
  const std::vector<float> x = {-1e4f, -100, -88, -87, 88, 100, 1e4f};
  for (const Activation a : kAll) {
    SCOPED_TRACE(std::string(to_string(a)));
    std::vector<double> y(x.size());
    kernels::reference::activation_forward(a, double{kSlope}, 7, to_double(x).data(), y.data());
    expect_close(forward(a, x, DType::float32), y, tolerance(DType::float32));
    const std::vector<float> saved = kernels::activation_grad_reads_input(a) ? x : forward(a, x, DType::float32);
    for (const float d : grad(a, saved, std::vector<float>(7, 1), DType::float32)) EXPECT_TRUE(std::isfinite(d));
    EXPECT_TRUE(std::isnan(forward(a, {std::numeric_limits<float>::quiet_NaN()}, DType::float32)[0]));
  }
}

TEST_P(ActivationTest, InfinityHasItsLimit) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Activation a : kAll) {
    const double limit = kernels::reference::activate(a, double{kSlope}, double{kInfinity});
    EXPECT_EQ(forward(a, {kInfinity}, DType::float32)[0], static_cast<float>(limit)) << to_string(a);
  }
}

TEST_P(ActivationTest, OutputsMayAliasInputs) {
  const std::int64_t count = 1003;
  for (const DType dtype : kernel_dtypes()) {
    const std::vector<float> x = random_values(count, 8, dtype, -3, 3), dy = random_values(count, 9, dtype);
    for (const Activation a : kAll) {
      const DeviceBuffer in(device(), x, dtype), up(device(), dy, dtype);
      BANTAM_KERNEL(exec(), activation_grad, a, kSlope, count, dtype, in.data(), up.data(), up.data());
      BANTAM_KERNEL(exec(), activation_forward, a, kSlope, count, dtype, in.data(), in.data());
      EXPECT_EQ(in.download(), forward(a, x, dtype)) << to_string(a);
      EXPECT_EQ(up.download(), grad(a, x, dy, dtype)) << to_string(a);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ActivationTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(ActivationReference, SlopeIsTheDerivative) {
  // Away from the kinks at 0 and 6, which a step of 1e-5 does not cross.
  const std::vector<double> x = {-4.5, -2, -0.75, -0.1, 0.3, 1.1, 2.5, 5.5, 6.5};
  for (const Activation a : kAll) {
    SCOPED_TRACE(std::string(to_string(a)));
    std::vector<double> gradient;
    for (const double v : x) {
      const double y = kernels::reference::activate(a, 0.25, v);
      const double saved = kernels::activation_grad_reads_input(a) ? v : y;
      gradient.push_back(1.5 * kernels::reference::activation_slope(a, 0.25, saved));
    }
    expect_gradient(x, gradient, [&](const std::vector<double>& at) {
      double sum = 0;
      for (const double v : at) sum += 1.5 * kernels::reference::activate(a, 0.25, v);
      return sum;
    });
  }
}

TEST(ActivationCpu, BitsDoNotDependOnThreads) {
  const std::int64_t count = 200001;
  const std::vector<float> x = random_values(count, 10, DType::float32, -8, 8);
  for (const Activation a : kAll) {
    std::vector<std::vector<std::uint8_t>> results;
    for (const int threads : {1, 2, 3}) {
      KernelDevice device(Device::cpu(), threads);
      const DeviceBuffer in(device, x, DType::float32), out(device, count, DType::float32);
      kernels::cpu::activation_forward(device.exec(), a, kSlope, count, DType::float32, in.data(), out.data());
      results.push_back(out.download_bytes());
    }
    EXPECT_EQ(results[0], results[1]) << to_string(a);
    EXPECT_EQ(results[0], results[2]) << to_string(a);
  }
}

TEST(ActivationNames, ComeBackAndUnknownOnesAreNamed) {
  for (const Activation a : kAll) EXPECT_EQ(kernels::parse_activation(to_string(a)), a);
  try {
    kernels::parse_activation("rellu");
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'rellu'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("leaky_relu"), std::string::npos);
  }
}

}  // namespace
}  // namespace bantam::testing::activation_test

// Bias and activation in one pass: by hand, against the reference on every device, masks, in place, determinism.
#include "bantam/kernels/elementwise/bias_activation.h"

#include <cmath>
#include <cstring>
#include <string>

#include "bantam/kernels/elementwise/bias_reference.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/elementwise/piecewise.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::bias_activation_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class BiasActivationTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BiasActivationTest, ::testing::ValuesIn(test_devices()), device_test_name);

constexpr ActivationFunction kFunctions[] = {
    {Activation::relu},       {Activation::relu6},   {Activation::leaky_relu, 0.25f},
    {Activation::gelu},       {Activation::silu},    {Activation::mish},
    {Activation::hard_swish}, {Activation::sigmoid}, {Activation::tanh},
    {Activation::elu, 0.5f},  {Activation::selu},    {Activation::hard_sigmoid},
    {Activation::softplus}};

// Rows that end within a byte of the mask, whole-vector and mixed channel counts; one part and many parts.
constexpr BiasShape kShapes[] = {{1, 1},    {5, 3},    {40, 8},    {33, 20},   {100, 64},  {70, 65},
                                 {1, 4097}, {9000, 1}, {7000, 64}, {30000, 3}, {2000, 260}};

/// One function, shape and type with its values. x + b is far from corners, where a rounding would choose the slope.
struct Case {
  Case(ActivationFunction function, const BiasShape& sizes, DType type)
      : f(function), shape(sizes), dtype(type), b(random_values(sizes.channels, 2, type, -0.5f, 0.5f)) {
    x = random_values(sizes.elements(), 1, type, -4, 4);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float sum = x[i] + b[i % b.size()];
      for (const float corner : {-3.0f, 0.0f, 3.0f, 6.0f})
        if (std::abs(sum - corner) < 0.125f) x[i] = rounded(x[i] + 0.25f, type);
    }
    dy = random_values(sizes.elements(), 3, type, 0.5f, 1.5f);
  }
  std::int64_t elements() const { return shape.elements(); }
  std::string name() const {
    return std::string(to_string(f.kind)) + " " + std::to_string(shape.rows) + "x" + std::to_string(shape.channels) +
           " " + std::string(to_string(dtype));
  }
  ActivationFunction f;
  BiasShape shape;
  DType dtype;
  std::vector<float> b, x, dy;
};

struct Results {
  std::vector<float> y, dx, db;
  std::vector<std::uint8_t> mask;

  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = mask;
    for (const std::vector<float>* values : {&y, &dx, &db}) {
      const std::size_t at = all.size();
      all.resize(at + 4 * values->size());
      if (!values->empty()) std::memcpy(all.data() + at, values->data(), 4 * values->size());
    }
    return all;
  }
};

/// Forward and backward; `start` is what db is added to.
Results run(KernelDevice& device, const Case& c, const std::vector<float>* start = nullptr) {
  const DeviceBuffer x(device, c.x, c.dtype), b(device, c.b, c.dtype), dy(device, c.dy, c.dtype);
  GuardedBuffer y(device, c.elements(), c.dtype), dx(device, c.elements(), c.dtype);
  GuardedBuffer db(device, start != nullptr ? *start : std::vector<float>(c.b.size(), 1e30f));
  GuardedBytes mask(device, activation_mask_bytes(c.elements()));
  GuardedBytes workspace(device, bias_activation_grad_workspace_bytes(c.shape, device.exec().device.kind));
  const bool piecewise = is_piecewise(c.f.kind), reads_input = activation_grad_reads_input(c.f.kind);
  BANTAM_KERNEL(device.exec(), bias_activation_forward, c.f, c.shape, c.dtype, x.data(), b.data(), y.data(),
                piecewise ? mask.as<std::uint8_t>() : nullptr);
  BiasActivationGradInputs in{.dy = dy.data()};
  if (piecewise)
    in.mask = mask.as<std::uint8_t>();
  else if (reads_input)
    in.x = x.data(), in.b = b.data();
  else
    in.y = y.data();
  BANTAM_KERNEL(device.exec(), bias_activation_grad, c.f, c.shape, c.dtype, in,
                {.dx = dx.data(), .db = db.as<float>(), .accumulate = start != nullptr}, workspace.workspace());
  Results out{y.download(), dx.download(), db.download(), {}};
  if (piecewise) out.mask = mask.download_bytes();
  // In place: the same.
  BANTAM_KERNEL(device.exec(), bias_activation_grad, c.f, c.shape, c.dtype, in,
                {.dx = dy.data(), .db = db.as<float>(), .accumulate = false}, workspace.workspace());
  EXPECT_EQ(dy.download(), out.dx);
  BANTAM_KERNEL(device.exec(), bias_activation_forward, c.f, c.shape, c.dtype, x.data(), b.data(), x.data(), nullptr);
  EXPECT_EQ(x.download(), out.y);
  return out;
}

TEST_P(BiasActivationTest, ByHand) {
  Case c({Activation::relu}, {.rows = 3, .channels = 3}, DType::float32);
  c.x = {-3, 1, 2, 4, -5, 6, 1, 1, -9};
  c.b = {1, -1, 0.5f};
  c.dy = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<float> start = {100, 200, 300};
  const Results r = run(device(), c, &start);
  EXPECT_EQ(r.y, (std::vector<float>{0, 0, 2.5f, 5, 0, 6.5f, 2, 0, 0}));
  EXPECT_EQ(r.mask, (std::vector<std::uint8_t>{0b01101100, 0}));
  EXPECT_EQ(r.dx, (std::vector<float>{0, 0, 3, 4, 0, 6, 7, 0, 0}));
  EXPECT_EQ(r.db, (std::vector<float>{111, 200, 309}));
  c.f = {Activation::leaky_relu, 0.5f};
  EXPECT_EQ(run(device(), c).db, (std::vector<float>{11.5f, 1 + 2.5f + 4, 9 + 4.5f}));
  c.f = {Activation::hard_swish};  // slopes at -2, 0 and 2.5 of the first row: 1/3·x + 1/2
  const std::vector<float> dx = run(device(), c).dx;
  EXPECT_NEAR(dx[0], -2.0 / 3 + 0.5, 1e-6);
  EXPECT_NEAR(dx[1], 2 * 0.5, 1e-6);
  EXPECT_NEAR(dx[2], 3 * (2.5 / 3 + 0.5), 1e-6);
}

/// Of relu also without a mask: y is above 0 where the sum is.
TEST_P(BiasActivationTest, TheOutputTellsReluSlopesAsItsMaskDoes) {
  for (const DType dtype : kFloatingTypes) {
    for (const BiasShape& shape : kShapes) {
      const Case c({Activation::relu}, shape, dtype);
      SCOPED_TRACE(c.name());
      const Results masked = run(device(), c);
      const DeviceBuffer y(device(), masked.y, dtype), dy(device(), c.dy, dtype);
      GuardedBuffer dx(device(), c.elements(), dtype), db(device(), shape.channels, DType::float32);
      GuardedBytes workspace(device(), bias_activation_grad_workspace_bytes(shape, exec().device.kind));
      BANTAM_KERNEL(exec(), bias_activation_grad, c.f, shape, dtype, {.dy = dy.data(), .y = y.data()},
                    {.dx = dx.data(), .db = db.as<float>()}, workspace.workspace());
      EXPECT_EQ(dx.download(), masked.dx);
      EXPECT_EQ(db.download(), masked.db);
    }
  }
}

/// Slopes are the gradient of dy = 1, of functions whose gradient reads its input; in place, too.
TEST_P(BiasActivationTest, SlopesAreTheGradientOfOne) {
  for (const ActivationFunction f : kFunctions) {
    if (!activation_grad_reads_input(f.kind)) continue;
    for (const DType dtype : kFloatingTypes) {
      for (const BiasShape& shape : kShapes) {
        if (shape.rows > 1000 && f.kind != Activation::gelu) continue;
        Case c(f, shape, dtype);
        c.dy.assign(c.dy.size(), 1.0f);
        SCOPED_TRACE(c.name());
        const DeviceBuffer x(device(), c.x, dtype), b(device(), c.b, dtype);
        const GuardedBuffer d(device(), c.elements(), dtype);
        BANTAM_KERNEL(exec(), bias_activation_slopes, f, shape, dtype, x.data(), b.data(), d.data());
        EXPECT_EQ(d.download(), run(device(), c).dx);
        BANTAM_KERNEL(exec(), bias_activation_slopes, f, shape, dtype, x.data(), b.data(), x.data());
        EXPECT_EQ(x.download(), d.download());
      }
    }
  }
  Case c({Activation::hard_swish}, {.rows = 1, .channels = 4}, DType::float32);  // x/3 + 1/2 between -3 and 3
  const DeviceBuffer x(device(), {-4, 0, 1, 2}, DType::float32), b(device(), {0, 0, 0.5f, 2}, DType::float32);
  const DeviceBuffer d(device(), std::int64_t{4}, DType::float32);
  BANTAM_KERNEL(exec(), bias_activation_slopes, c.f, c.shape, c.dtype, x.data(), b.data(), d.data());
  const std::vector<float> slopes = d.download();
  for (const auto& [i, expected] : {std::pair{0, 0.0f}, {1, 0.5f}, {2, 1.0f}, {3, 1.0f}})
    EXPECT_NEAR(slopes[static_cast<std::size_t>(i)], expected, 1e-6) << i;
}

TEST_P(BiasActivationTest, MatchesReference) {
  for (const ActivationFunction f : kFunctions) {
    for (const DType dtype : kFloatingTypes) {
      for (const BiasShape& shape : kShapes) {
        // Many parts are the same for all functions of a kind.
        if (shape.rows > 1000 && f.kind != Activation::relu && f.kind != Activation::silu) continue;
        const Case c(f, shape, dtype);
        SCOPED_TRACE(c.name());
        const std::vector<float> start = random_values(shape.channels, 4);
        const Results r = run(device(), c, &start);
        const auto y = reference::bias_activation_forward(f, shape, as_double(c.x), as_double(c.b));
        expect_close(r.y, y, sum_tolerance(dtype, 2) + 4 * unit_roundoff(DType::float32));
        auto expected = reference::bias_activation_grad(f, shape, as_double(c.x), as_double(c.b), as_double(c.dy));
        // Where f' is a function of the rounded y, that rounding counts, too; |f''| and dy are below 2.
        const double slope = 4 * unit_roundoff(dtype) + 32 * unit_roundoff(DType::float32);
        expect_close(r.dx, expected.dx, slope);
        for (std::size_t i = 0; i < start.size(); ++i) expected.db[i] += start[i];
        const double terms = static_cast<double>(shape.rows);
        const double bound = activation_grad_reads_input(f.kind) || is_piecewise(f.kind)
                                 ? sum_tolerance(DType::float32, std::min<std::int64_t>(shape.rows, 512)) + slope / 64
                                 : slope;
        for (std::size_t i = 0; i < start.size(); ++i)
          ASSERT_NEAR(r.db[i], expected.db[i], bound * 2 * terms + 1e-6) << "channel " << i;
      }
    }
  }
}

TEST_P(BiasActivationTest, MaskSaysWhereTheSlopeIsOne) {
  for (const ActivationFunction f : kFunctions) {
    if (!is_piecewise(f.kind)) continue;
    for (const BiasShape& shape : kShapes) {
      const Case c(f, shape, DType::float16);
      SCOPED_TRACE(c.name());
      const Results r = run(device(), c);
      for (std::size_t i = 0; i < 8 * r.mask.size(); ++i) {
        const bool rises = i < c.x.size() && PiecewiseLinear::of(f).rises(c.x[i] + c.b[i % c.b.size()]);
        ASSERT_EQ((r.mask[i / 8] >> (i % 8) & 1) != 0, rises) << "element " << i;
      }
    }
  }
}

// A GPU's grid goes round several times, and each time by a number of elements that ends within a row.
TEST_P(BiasActivationTest, EveryElementOfALargeArrayHasItsChannelsBias) {
  for (const std::int64_t channels : {7, 24}) {
    const BiasShape shape{.rows = (9 << 20) / channels, .channels = channels};
    const std::vector<float> bias = random_values(channels, 2);
    const DeviceBuffer x(device(), std::vector<float>(static_cast<std::size_t>(shape.elements())), DType::float32);
    const DeviceBuffer b(device(), bias, DType::float32);
    BANTAM_KERNEL(exec(), bias_activation_forward, ActivationFunction{Activation::leaky_relu, 1.0f}, shape,
                  DType::float32, x.data(), b.data(), x.data(), nullptr);
    const std::vector<float> y = x.download();
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i) wrong += y[i] == bias[i % bias.size()] ? 0 : 1;
    EXPECT_EQ(wrong, 0) << channels << " channels";
  }
}

TEST_P(BiasActivationTest, WithoutRowsTheSumIsZero) {
  const BiasShape shape{.rows = 0, .channels = 5};
  GuardedBuffer db(device(), std::vector<float>{1, 2, 3, 4, 5});
  const auto grad = [&](bool accumulate) {
    BANTAM_KERNEL(exec(), bias_activation_grad, ActivationFunction{Activation::gelu}, shape, DType::float32, {},
                  {.dx = nullptr, .db = db.as<float>(), .accumulate = accumulate}, {});
    return db.download();
  };
  EXPECT_EQ(grad(true), (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(grad(false), (std::vector<float>(5, 0.0f)));
}

TEST_P(BiasActivationTest, UnalignedAddressesHaveTheSameValues) {
  const BiasShape shape{.rows = 50, .channels = 24};
  for (const DType dtype : kFloatingTypes) {
    for (const Activation kind : {Activation::relu, Activation::silu}) {
      const Case c({kind}, shape, dtype);
      SCOPED_TRACE(c.name());
      std::vector<float> shifted_x = c.x, shifted_b = c.b;
      shifted_x.insert(shifted_x.begin(), 0.0f);
      shifted_b.insert(shifted_b.begin(), 0.0f);
      const DeviceBuffer x(device(), shifted_x, dtype), b(device(), shifted_b, dtype);
      GuardedBuffer y(device(), c.elements(), dtype);
      BANTAM_KERNEL(exec(), bias_activation_forward, c.f, shape, dtype, x.as<std::uint8_t>() + size_of(dtype),
                    b.as<std::uint8_t>() + size_of(dtype), y.data(), nullptr);
      EXPECT_EQ(y.download(), run(device(), c).y);
    }
  }
}

// The reference's gradients, in double, against central differences of the sum of dy·y.
TEST(BiasActivationReferenceTest, FiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (const ActivationFunction f : kFunctions) {
    const Case c(f, {.rows = 4, .channels = 5}, DType::float32);
    SCOPED_TRACE(c.name());
    const std::vector<double> x = as_double(c.x), b = as_double(c.b), dy = as_double(c.dy);
    const auto total = [&](const std::vector<double>& at_x, const std::vector<double>& at_b) {
      const std::vector<double> y = reference::bias_activation_forward(f, c.shape, at_x, at_b);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const auto difference = [&](std::vector<double> values, std::size_t i, const auto& value) {
      const double before = values[i];
      values[i] = before + kStep;
      const double up = value(values);
      values[i] = before - kStep;
      return (up - value(values)) / (2 * kStep);
    };
    const auto expected = reference::bias_activation_grad(f, c.shape, x, b, dy);
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(expected.dx[i], difference(x, i, [&](const auto& v) { return total(v, b); }), 1e-8) << i;
    for (std::size_t i = 0; i < b.size(); ++i)
      EXPECT_NEAR(expected.db[i], difference(b, i, [&](const auto& v) { return total(x, v); }), 1e-8) << i;
  }
}

TEST(BiasActivationCpuTest, SameBitsForAllThreads) {
  for (const Activation kind : {Activation::relu, Activation::gelu, Activation::sigmoid}) {
    const Case c({kind}, {.rows = 5003, .channels = 40}, DType::float32);
    expect_same_bits_for_all_threads([&](KernelDevice& device) { return run(device, c).bytes(); });
  }
}

}  // namespace
}  // namespace bantam::kernels::bias_activation_test

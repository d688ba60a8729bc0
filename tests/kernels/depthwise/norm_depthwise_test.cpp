// Depthwise convolution between batch norms: every device against the unfused composition of references in double,
// forward and all gradients; large means; accumulation, missing gradients, determinism, on any number of threads.
#include "bantam/kernels/depthwise/norm_depthwise.h"

#include "bantam/kernels/depthwise/depthwise_conv2d_reference.h"
#include "bantam/kernels/depthwise/norm_depthwise_parts.h"
#include "bantam/kernels/norm/batch_norm_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::norm_depthwise_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = DepthwiseConv2dShape;

constexpr float kEpsilon = 1e-3f;
constexpr RunningUpdate kUpdate{.rate = 0.25f, .unbiased = true};

class NormDepthwiseTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NormDepthwiseTest, ::testing::ValuesIn(test_devices()), device_test_name);

S shape(std::int64_t batch, std::int64_t size, std::int64_t channels, std::int64_t stride,
        std::array<std::int64_t, 4> pad = {1, 1, 1, 1}) {
  return {.batch = batch,
          .in_h = size,
          .in_w = size + 1,
          .channels = channels,
          .kernel_h = 3,
          .kernel_w = 3,
          .stride_h = stride,
          .stride_w = stride,
          .pad_top = pad[0],
          .pad_bottom = pad[1],
          .pad_left = pad[2],
          .pad_right = pad[3]};
}

/// Rows whose ring does not fit the CPU's stack.
S wide_shape(std::int64_t stride) {
  S s = shape(1, 4, 8, stride);
  s.in_w = 2400;
  return s;
}

// Channels that fill less and more than a block; sizes around strips and chunks; paddings same, none and asymmetric;
// one part and many; strips that fill rows and strips
// that do not; wide rows.
const S kShapes[] = {shape(2, 9, 8, 1),
                     shape(2, 10, 8, 2, {0, 1, 0, 1}),
                     shape(1, 7, 24, 1, {0, 0, 0, 0}),
                     shape(1, 11, 40, 2),
                     shape(3, 8, 64, 1, {2, 1, 0, 2}),
                     shape(1, 13, 264, 2, {1, 0, 2, 1}),
                     shape(2, 2, 16, 1),
                     shape(9, 37, 64, 2),
                     shape(16, 32, 24, 1),
                     shape(4, 56, 32, 1),
                     shape(2, 7, 1032, 1),
                     shape(1, 3, 32, 2),
                     shape(64, 14, 136, 2),
                     shape(1, 30, 16, 1, {2, 2, 2, 2}),
                     shape(16, 27, 144, 1),
                     shape(5, 27, 96, 2),
                     shape(2, 6, 192, 1),
                     shape(1, 12, 72, 2, {0, 1, 0, 1}),
                     wide_shape(1),
                     wide_shape(2)};

/// Inputs; statistics of x as forward would have them.
struct Inputs {
  Inputs(const S& s, DType dtype, ActivationFunction f, float mean_of_x = 0.5f)
      : activation(f),
        x(random_values(s.x_elements(), 1, dtype, mean_of_x - 2, mean_of_x + 2)),
        w(random_values(s.w_elements(), 2, dtype)),
        dy(random_values(s.y_elements(), 3, dtype)),
        running_mean(random_values(s.channels, 8)),
        running_variance(random_values(s.channels, 9, DType::float32, 0.5f, 2.0f)) {
    for (std::uint64_t i = 0; i < 4; ++i)
      vectors[i] =
          random_values(s.channels, 4 + i, DType::float32, i % 2 == 0 ? 0.5f : -1.0f, i % 2 == 0 ? 2.0f : 1.0f);
    const auto batch = reference::batch_norm_forward_training<double>(norm_before(s), as_double(x), {}, kEpsilon);
    mean.assign(batch.mean.begin(), batch.mean.end());
    inv_std.assign(batch.inv_std.begin(), batch.inv_std.end());
  }
  reference::Affine<double> affine(int which) const {
    return {as_double(vectors[2 * which]), as_double(vectors[2 * which + 1]), activation};
  }
  ActivationFunction activation;
  std::vector<float> x, w, dy, running_mean, running_variance, mean, inv_std;
  std::vector<float> vectors[4];  ///< scale and shift before, scale and shift after
};

/// Forward, then backward over its output and statistics.
struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const Inputs& in, const float* start = nullptr)
      : y(device, s.y_elements(), dtype),
        dx(device, s.x_elements(), dtype),
        dw(device, s.w_elements(), DType::float32),
        mean(device, s.channels, DType::float32),
        inv_std(device, s.channels, DType::float32),
        running_mean(device, in.running_mean),
        running_variance(device, in.running_variance) {
    const DeviceBuffer x(device, in.x, dtype), w(device, in.w, dtype), dy(device, in.dy, dtype);
    const DeviceBuffer x_mean(device, in.mean, DType::float32), x_inv_std(device, in.inv_std, DType::float32);
    std::vector<std::unique_ptr<DeviceBuffer>> vectors;
    for (int i = 0; i < 4; ++i) {
      vectors.push_back(std::make_unique<DeviceBuffer>(device, in.vectors[i], DType::float32));
      gradients.push_back(std::make_unique<GuardedBuffer>(device, s.channels, DType::float32));
      if (start) gradients.back()->upload(std::vector<float>(static_cast<std::size_t>(s.channels), *start).data());
    }
    if (start) dw.upload(std::vector<float>(static_cast<std::size_t>(s.w_elements()), *start).data());
    const auto operand = [&](const void* data, int which, const float* m, const float* i) {
      return NormOperand{
          .x = data,
          .affine = {vectors[2 * which]->as<float>(), vectors[2 * which + 1]->as<float>(), in.activation},
          .mean = m,
          .inv_std = i};
    };
    const auto norm_gradients = [&](int which) {
      return VectorGradients{gradients[2 * which]->as<float>(), gradients[2 * which + 1]->as<float>(),
                             start != nullptr};
    };
    GuardedBytes workspace(device, norm_depthwise_workspace_bytes(s, dtype, device.exec().device.kind));
    const NormOperand before = operand(x.data(), 0, x_mean.as<float>(), x_inv_std.as<float>());
    BANTAM_KERNEL(device.exec(), norm_depthwise_forward, s, dtype, before, w.data(), y.data(),
                  {.epsilon = kEpsilon,
                   .update = kUpdate,
                   .running_mean = running_mean.as<float>(),
                   .running_variance = running_variance.as<float>(),
                   .mean = mean.as<float>(),
                   .inv_std = inv_std.as<float>()},
                  workspace.workspace());
    const NormOperand second = operand(y.data(), 1, mean.as<float>(), inv_std.as<float>());
    const NormDepthwiseInputs inputs{.x = before, .w = w.data(), .y = second, .dy = dy.data()};
    const NormDepthwiseGradients to{.dx = dx.data(),
                                    .dw = dw.as<float>(),
                                    .accumulate = start != nullptr,
                                    .before = norm_gradients(0),
                                    .after = norm_gradients(1)};
    BANTAM_KERNEL(device.exec(), norm_depthwise_backward, s, dtype, inputs, to, workspace.workspace());
    device.synchronize();
  }
  std::vector<std::vector<float>> all() const {
    std::vector<std::vector<float>> values{y.download(),
                                           dx.download(),
                                           dw.download(),
                                           mean.download(),
                                           inv_std.download(),
                                           running_mean.download(),
                                           running_variance.download()};
    for (const auto& gradient : gradients) values.push_back(gradient->download());
    return values;
  }
  GuardedBuffer y, dx, dw, mean, inv_std, running_mean, running_variance;
  std::vector<std::unique_ptr<GuardedBuffer>> gradients;  ///< dscale and dshift before, dscale and dshift after
};

/// a as the convolution reads it: rounded to `dtype`.
std::vector<double> seen(const S& s, const Inputs& in, DType dtype) {
  const reference::Affine<double> affine = in.affine(0);
  std::vector<double> a(in.x.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::size_t c = i % static_cast<std::size_t>(s.channels);
    const double normalised = (static_cast<double>(in.x[i]) - in.mean[c]) * in.inv_std[c];
    a[i] = rounded(static_cast<float>(affine(c, normalised)), dtype);
  }
  return a;
}

void expect_forward(const S& s, DType dtype, const Inputs& in, const Results& r) {
  const std::vector<float> y = r.y.download();
  EXPECT_LT(relative_error(y, reference::depthwise_conv2d_forward(s, seen(s, in, dtype), as_double(in.w))),
            sum_tolerance(dtype, 9));
  // The statistics are those of what was written.
  const auto batch = reference::batch_norm_forward_training<double>(norm_after(s), as_double(y), {}, kEpsilon);
  EXPECT_LT(relative_error(r.mean.download(), batch.mean), 1e-5);
  EXPECT_LT(relative_error(r.inv_std.download(), batch.inv_std), 1e-5);
  std::vector<double> running_mean = as_double(in.running_mean), running_variance = as_double(in.running_variance);
  reference::batch_norm_update_running(norm_after(s), batch, kUpdate, running_mean, running_variance);
  EXPECT_LT(relative_error(r.running_mean.download(), running_mean), 1e-5);
  EXPECT_LT(relative_error(r.running_variance.download(), running_variance), 1e-5);
}

/// ‖actual - expected‖ of a norm's gradient, relative to the norm of the terms that were added: of dz·x̂ or dz.
double error_by_terms(const std::vector<float>& actual, const std::vector<double>& expected, const S& s,
                      const Inputs& in, const std::vector<double>& dy, bool products) {
  const reference::Affine<double> affine = in.affine(0);
  double terms = 0, difference = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t c = i % static_cast<std::size_t>(s.channels);
    const double normalised = (static_cast<double>(in.x[i]) - in.mean[c]) * in.inv_std[c];
    const double term = dy[i] * affine.derivative(c, normalised) * (products ? normalised : 1);
    terms += term * term;
  }
  for (std::size_t c = 0; c < expected.size(); ++c) difference += (actual[c] - expected[c]) * (actual[c] - expected[c]);
  return std::sqrt(difference / terms);
}

void expect_backward(const S& s, DType dtype, const Inputs& in, const Results& r) {
  const auto statistics = [](const GuardedBuffer& buffer) { return as_double(buffer.download()); };
  const auto second = reference::batch_norm_backward_training<double>(
      norm_after(s), statistics(r.y), as_double(in.dy), in.affine(1), statistics(r.mean), statistics(r.inv_std));
  const auto dz = reference::depthwise_conv2d_grad_input(s, second.dx, as_double(in.w));
  const auto before = reference::batch_norm_backward_training<double>(norm_before(s), as_double(in.x), dz, in.affine(0),
                                                                      as_double(in.mean), as_double(in.inv_std));
  // What lies between the passes may be rounded; sums of at most a few hundred terms are added part by part.
  const double between = sum_tolerance(dtype, 9), sums = between + sum_tolerance(DType::float32, 256);
  EXPECT_LT(relative_error(r.dx.download(), before.dx), 2 * between);
  EXPECT_LT(relative_error(r.dw.download(), reference::depthwise_conv2d_grad_weight(s, seen(s, in, dtype), second.dx)),
            sums);
  // These two cancel (the gradient after a norm has no mean): their error is that of the terms.
  EXPECT_LT(error_by_terms(r.gradients[0]->download(), before.dscale, s, in, dz, true), sums);
  EXPECT_LT(error_by_terms(r.gradients[1]->download(), before.dshift, s, in, dz, false), sums);
  EXPECT_LT(relative_error(r.gradients[2]->download(), second.dscale), sums);
  EXPECT_LT(relative_error(r.gradients[3]->download(), second.dshift), sums);
}

TEST_P(NormDepthwiseTest, MatchesTheUnfusedReference) {
  for (const DType dtype : kFloatingTypes)
    for (const Activation kind : {Activation::relu, Activation::relu6})
      for (const S& s : kShapes) {
        if (kind == Activation::relu6 && s.y_elements() > 20000) continue;  // the same kernels with another bound
        SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << to_string(kind) << " n" << s.batch << " "
                                          << s.in_h << "x" << s.in_w << "x" << s.channels << " s" << s.stride_h);
        const Inputs in(s, dtype, {kind});
        const Results r(device(), s, dtype, in);
        expect_forward(s, dtype, in, r);
        expect_backward(s, dtype, in, r);
      }
}

TEST_P(NormDepthwiseTest, LargeMeansCostNoDigits) {
  // Every tap 1, values near 1000: y's mean is three thousand times its deviation.
  const S s = shape(4, 24, 32, 1, {0, 0, 0, 0});
  Inputs in(s, DType::float32, {Activation::relu});
  in.w.assign(in.w.size(), 1.0f);
  in.vectors[0].assign(in.vectors[0].size(), 1.0f);
  in.vectors[1].assign(in.vectors[1].size(), 1000.0f);
  const Results r(device(), s, DType::float32, in);
  const auto batch =
      reference::batch_norm_forward_training<double>(norm_after(s), as_double(r.y.download()), {}, kEpsilon);
  EXPECT_LT(relative_error(r.inv_std.download(), batch.inv_std), 1e-5);
}

TEST_P(NormDepthwiseTest, Accumulates) {
  for (const S& s : {shape(2, 6, 24, 1), shape(16, 32, 24, 2)}) {
    const Inputs in(s, DType::float32, {Activation::relu});
    const float start = 3.0f;
    const auto plain = Results(device(), s, DType::float32, in).all(),
               added = Results(device(), s, DType::float32, in, &start).all();
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const bool adds = i == 2 || i >= 7;  // dw and the norms' gradients
      for (std::size_t k = 0; k < plain[i].size(); ++k)
        ASSERT_NEAR(added[i][k], plain[i][k] + (adds ? start : 0.0f), 1e-6 * (3 + std::abs(plain[i][k])));
    }
  }
}

TEST_P(NormDepthwiseTest, SameBitsEveryTime) {
  for (const S& s : {shape(16, 32, 24, 1), shape(16, 32, 24, 2)}) {
    const Inputs in(s, DType::float16, {Activation::relu6});
    EXPECT_EQ(Results(device(), s, DType::float16, in).all(), Results(device(), s, DType::float16, in).all());
  }
}

TEST(NormDepthwiseCpu, SameBitsForAllThreads) {
  for (const S& s : {shape(16, 32, 24, 1), shape(3, 33, 144, 2), shape(2, 7, 1032, 1), wide_shape(1)}) {
    const Inputs in(s, DType::float32, {Activation::relu});
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      std::vector<std::uint8_t> bytes;
      for (const std::vector<float>& values : Results(device, s, DType::float32, in).all()) {
        const auto* first = reinterpret_cast<const std::uint8_t*>(values.data());
        bytes.insert(bytes.end(), first, first + values.size() * sizeof(float));
      }
      return bytes;
    });
  }
}

TEST(NormDepthwiseShapes, AreThoseThatTheKernelsSupport) {
  const ActivationFunction relu{Activation::relu};
  EXPECT_TRUE(norm_depthwise_supports(shape(2, 9, 8, 2), relu, {Activation::relu6}));
  EXPECT_FALSE(norm_depthwise_supports(shape(2, 9, 12, 1), relu, relu)) << "channels in eights";
  EXPECT_FALSE(norm_depthwise_supports(shape(2, 9, 8, 3), relu, relu)) << "strides 1 and 2";
  EXPECT_FALSE(norm_depthwise_supports(shape(2, 9, 8, 1), relu, {})) << "an activation after each norm";
  EXPECT_FALSE(norm_depthwise_supports(shape(2, 9, 8, 1), {Activation::leaky_relu}, relu));
}

}  // namespace
}  // namespace bantam::kernels::norm_depthwise_test

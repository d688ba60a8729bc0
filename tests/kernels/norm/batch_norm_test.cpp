// Batch normalisation: hand values, every device and activation against the reference in double, large means, aliasing.
#include "bantam/kernels/norm/batch_norm.h"

#include "bantam/kernels/norm/batch_norm_reference.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::batch_norm_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

constexpr float kEpsilon = 1e-3f;

class BatchNormTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BatchNormTest, ::testing::ValuesIn(test_devices()), device_test_name);

// Few and many rows; scalar, vector and mixed channel counts; one part, more parts than tiles, as many as there can be.
constexpr BatchNormShape kShapes[] = {{2, 1},      {6, 3},     {40, 8},    {33, 20},   {64, 32},
                                      {100, 64},   {70, 65},   {7000, 64}, {30000, 3}, {3, 600},
                                      {2000, 260}, {8192, 40}, {9000, 1},  {5, 4099},  {40000, 8}};

std::string name(const BatchNormShape& s, DType dtype) {
  return (::testing::Message() << to_string(dtype) << " " << s.rows << "x" << s.channels).GetString();
}

struct Inputs {
  Inputs(const BatchNormShape& s, DType dtype, float low = -2.0f, float high = 3.0f)
      : x(random_values(s.rows * s.channels, 1, dtype, low, high)),
        dy(random_values(s.rows * s.channels, 2, dtype)),
        scale(random_values(s.channels, 3, DType::float32, 0.5f, 2.0f)),
        shift(random_values(s.channels, 4)),
        running_mean(random_values(s.channels, 5)),
        running_variance(random_values(s.channels, 6, DType::float32, 0.5f, 2.0f)) {}
  std::vector<float> x, dy, scale, shift, running_mean, running_variance;
};

struct Options {
  bool affine = true;
  bool running = true;
  bool in_place = false;
  RunningUpdate update{};
  ActivationFunction activation{};
};

/// Training forward on a device.
struct Forward {
  Forward(KernelDevice& device, const BatchNormShape& s, DType dtype, const Inputs& in, Options options = {})
      : y(device, s.rows * s.channels, dtype),
        mean(device, s.channels, DType::float32),
        inv_std(device, s.channels, DType::float32),
        running_mean(device, in.running_mean),
        running_variance(device, in.running_variance) {
    const DeviceBuffer x(device, in.x, dtype), scale(device, in.scale, DType::float32),
        shift(device, in.shift, DType::float32);
    GuardedBytes workspace(device, batch_norm_workspace_bytes(s, dtype, device.exec().device.kind));
    if (options.in_place) copy_bytes(y.data(), x.data(), x.bytes(), device.stream());
    const BatchNormAffine affine{options.affine ? scale.as<float>() : nullptr,
                                 options.affine ? shift.as<float>() : nullptr, options.activation};
    const StatisticsOutput statistics{.epsilon = kEpsilon,
                                      .update = options.update,
                                      .running_mean = options.running ? running_mean.as<float>() : nullptr,
                                      .running_variance = options.running ? running_variance.as<float>() : nullptr,
                                      .mean = mean.as<float>(),
                                      .inv_std = inv_std.as<float>()};
    BANTAM_KERNEL(device.exec(), batch_norm_forward_training, s, dtype, options.in_place ? y.data() : x.data(), affine,
                  y.data(), statistics, workspace.workspace());
    GuardedBuffer again(device, s.rows * s.channels, dtype);
    BANTAM_KERNEL(device.exec(), batch_norm_apply, s, dtype, x.data(), affine, mean.as<float>(), inv_std.as<float>(),
                  again.data());
    device.synchronize();
    EXPECT_EQ(again.download_bytes(), y.download_bytes());  // bit for bit, whatever the test is about
  }
  GuardedBuffer y, mean, inv_std, running_mean, running_variance;
};

/// Backward on a device, from statistics rounded to float32.
struct Backward {
  Backward(KernelDevice& device, const BatchNormShape& s, DType dtype, const Inputs& in,
           const std::vector<double>& mean, const std::vector<double>& inv_std, bool in_place = false,
           const std::vector<float>* start = nullptr, ActivationFunction activation = {})
      : dx(device, s.rows * s.channels, dtype),
        dscale(device, s.channels, DType::float32),
        dshift(device, s.channels, DType::float32) {
    const DeviceBuffer x(device, in.x, dtype), dy(device, in.dy, dtype), scale(device, in.scale, DType::float32),
        shift(device, in.shift, DType::float32);
    const DeviceBuffer saved_mean(device, {mean.begin(), mean.end()}, DType::float32);
    const DeviceBuffer saved_inv_std(device, {inv_std.begin(), inv_std.end()}, DType::float32);
    GuardedBytes workspace(device, batch_norm_workspace_bytes(s, dtype, device.exec().device.kind));
    if (start) dscale.upload(start->data());
    if (start) dshift.upload(start->data());
    if (in_place) copy_bytes(dx.data(), dy.data(), dy.bytes(), device.stream());
    const NormOperand norm{.x = x.data(),
                           .affine = {scale.as<float>(), shift.as<float>(), activation},
                           .mean = saved_mean.as<float>(),
                           .inv_std = saved_inv_std.as<float>()};
    const NormGradients to{
        .dx = dx.data(), .dscale = dscale.as<float>(), .dshift = dshift.as<float>(), .accumulate = start != nullptr};
    BANTAM_KERNEL(device.exec(), batch_norm_backward_training, s, dtype, norm, in_place ? dx.data() : dy.data(), to,
                  workspace.workspace());
    device.synchronize();
  }
  GuardedBuffer dx, dscale, dshift;
};

reference::Affine<double> affine_of(const Inputs& in, ActivationFunction activation = {}) {
  return {as_double(in.scale), as_double(in.shift), activation};
}

reference::BatchNormTraining<double> expected_forward(const BatchNormShape& s, const Inputs& in, bool affine = true) {
  return reference::batch_norm_forward_training<double>(s, as_double(in.x),
                                                        affine ? affine_of(in) : reference::Affine<double>{}, kEpsilon);
}

TEST_P(BatchNormTest, HandComputed) {
  // Channel 0: 1, 3 (mean 2, variance 1); channel 1: -4, 4 (mean 0, variance 16). ε = 0.001.
  Inputs in({2, 2}, DType::float32);
  in.x = {1, -4, 3, 4};
  in.scale = {2, 1};
  in.shift = {10, 0};
  in.running_mean = {0, 0};
  in.running_variance = {1, 1};
  const Forward r(device(), {2, 2}, DType::float32, in, {.update = {.rate = 0.5f, .unbiased = true}});
  const float a = 1 / std::sqrt(1.001f), b = 1 / std::sqrt(16.001f);
  const std::vector<float> y = r.y.download(), expected{10 - 2 * a, -4 * b, 10 + 2 * a, 4 * b};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], expected[i], 1e-6 * 16);  // one rounding of numbers below 16
  EXPECT_EQ(r.mean.download(), (std::vector<float>{2, 0}));
  EXPECT_EQ(r.running_mean.download(), (std::vector<float>{1, 0}));
  EXPECT_EQ(r.running_variance.download(), (std::vector<float>{1.5, 16.5}));  // (1 + 2)/2, (1 + 32)/2
  const Forward biased(device(), {2, 2}, DType::float32, in, {.update = {.rate = 0.5f, .unbiased = false}});
  EXPECT_EQ(biased.running_variance.download(), (std::vector<float>{1, 8.5}));
}

/// A batch of fewer samples moves running statistics by its share; in a warm-up the rate depends on the updates so far.
TEST_P(BatchNormTest, RunningStatisticsMoveByShareAndWarmUp) {
  Inputs in({2, 2}, DType::float32);
  in.x = {1, -4, 3, 4};
  in.running_mean = {0, 8};
  in.running_variance = {1, 1};
  const auto running_mean = [&](const RunningUpdate& update) {
    return Forward(device(), {2, 2}, DType::float32, in, {.update = update}).running_mean.download();
  };
  EXPECT_EQ(running_mean({.rate = 0.5f, .share = 0.25f}), (std::vector<float>{0.25, 7}));
  for (const auto& [updates, rate] : {std::pair(0, 1.0f), {10, 0.5f}, {30, 0.25f}, {1000, 0.125f}}) {
    GuardedBuffer count(device(), 1, DType::int64);
    const std::int64_t value = updates;
    count.upload(&value);
    const RunningUpdate update{.rate = 0.125f, .updates = static_cast<const std::int64_t*>(count.data())};
    EXPECT_EQ(running_mean(update), (std::vector<float>{2 * rate, 8 * (1 - rate)})) << updates;
  }
}

TEST_P(BatchNormTest, ForwardMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const BatchNormShape& s : kShapes) {
      for (const bool affine : {true, false}) {
        SCOPED_TRACE(name(s, dtype));
        const Inputs in(s, dtype);
        const Forward r(device(), s, dtype, in, {.affine = affine, .running = affine});
        const auto expected = expected_forward(s, in, affine);
        // Sums run in blocks of at most 512 rows. With a variance near ε (2 or 3 rows) errors of the mean weigh up to
        // 1/√ε = 32 times more.
        const double tolerance =
            sum_tolerance(DType::float32, std::min<std::int64_t>(s.rows, 512)) * (s.rows < 8 ? 32 : 1);
        EXPECT_LT(relative_error(r.mean.download(), expected.mean), tolerance);
        EXPECT_LT(relative_error(r.inv_std.download(), expected.inv_std), tolerance);
        EXPECT_LT(relative_error(r.y.download(), expected.y), unit_roundoff(dtype) + tolerance);
        if (!affine) {
          EXPECT_EQ(r.running_mean.download(), in.running_mean);
          continue;
        }
        auto running_mean = as_double(in.running_mean), running_variance = as_double(in.running_variance);
        reference::batch_norm_update_running(s, expected, RunningUpdate{}, running_mean, running_variance);
        EXPECT_LT(relative_error(r.running_mean.download(), running_mean), tolerance);
        EXPECT_LT(relative_error(r.running_variance.download(), running_variance), tolerance);
      }
    }
  }
}

TEST_P(BatchNormTest, BackwardMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const BatchNormShape& s : kShapes) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      const auto statistics = expected_forward(s, in);
      const auto expected = reference::batch_norm_backward_training(s, as_double(in.x), as_double(in.dy), affine_of(in),
                                                                    statistics.mean, statistics.inv_std);
      const Backward r(device(), s, dtype, in, statistics.mean, statistics.inv_std);
      const double tolerance = sum_tolerance(DType::float32, std::min<std::int64_t>(s.rows, 512));
      // dx is what remains of terms as large as scale·inv_std·dy: with few rows a small difference (of 2 rows it all
      // but vanishes).
      double terms = 0, remains = 0;
      for (std::size_t i = 0; i < in.dy.size(); ++i) {
        const std::size_t c = i % in.scale.size();
        terms += std::pow(in.scale[c] * statistics.inv_std[c] * in.dy[i], 2);
        remains += std::pow(expected.dx[i], 2);
      }
      const double cancellation = std::max(1.0, std::sqrt(terms / remains));
      EXPECT_LT(relative_error(r.dshift.download(), expected.dshift), tolerance);
      EXPECT_LT(relative_error(r.dscale.download(), expected.dscale), tolerance);
      EXPECT_LT(relative_error(r.dx.download(), expected.dx), unit_roundoff(dtype) + tolerance * cancellation);
    }
  }
}

TEST_P(BatchNormTest, LargeMeanKeepsTheVariance) {
  // Mean 1e4, standard deviation 1: E[x²] - E[x]² in float32 would lose all digits (1e8·2^-24 = 6). Uniform values of
  // width √12.
  for (const BatchNormShape s : {BatchNormShape{20000, 5}, BatchNormShape{4096, 64}, BatchNormShape{300, 32}}) {
    Inputs in(s, DType::float32, 1e4f - 1.7320508f, 1e4f + 1.7320508f);
    const Forward r(device(), s, DType::float32, in);
    const auto expected = expected_forward(s, in);
    EXPECT_LT(relative_error(r.mean.download(), expected.mean), 4 * unit_roundoff(DType::float32));
    // A mean that is off by 2^-24·1e4 = 6e-4 shifts the variance by its square only; sums of squares add their own
    // error.
    EXPECT_LT(relative_error(r.inv_std.download(), expected.inv_std), 1e-5);
    EXPECT_LT(relative_error(r.y.download(), expected.y), 1e-3);  // the saved mean is rounded by up to 5e-4
  }
}

TEST_P(BatchNormTest, OutputsMayAliasInputs) {
  for (const DType dtype : kFloatingTypes) {
    for (const BatchNormShape& s : {BatchNormShape{50, 3}, BatchNormShape{70, 65}, BatchNormShape{7000, 64}}) {
      const Inputs in(s, dtype);
      EXPECT_EQ(Forward(device(), s, dtype, in, {.in_place = true}).y.download_bytes(),
                Forward(device(), s, dtype, in).y.download_bytes());
      const auto statistics = expected_forward(s, in);
      const Backward apart(device(), s, dtype, in, statistics.mean, statistics.inv_std);
      const Backward in_place(device(), s, dtype, in, statistics.mean, statistics.inv_std, true);
      EXPECT_EQ(in_place.dx.download_bytes(), apart.dx.download_bytes());
      EXPECT_EQ(in_place.dscale.download_bytes(), apart.dscale.download_bytes());
    }
  }
}

TEST_P(BatchNormTest, GradientsAccumulateAndMayBeLeftOut) {
  const BatchNormShape s{7000, 20};
  const Inputs in(s, DType::float32);
  const auto statistics = expected_forward(s, in);
  const std::vector<float> start = random_values(s.channels, 8);
  const Backward fresh(device(), s, DType::float32, in, statistics.mean, statistics.inv_std);
  const Backward added(device(), s, DType::float32, in, statistics.mean, statistics.inv_std, false, &start);
  std::vector<double> dscale = as_double(fresh.dscale.download()), dshift = as_double(fresh.dshift.download());
  for (std::size_t c = 0; c < start.size(); ++c) dscale[c] += start[c], dshift[c] += start[c];
  EXPECT_LT(relative_error(added.dscale.download(), dscale), 2 * unit_roundoff(DType::float32));
  EXPECT_LT(relative_error(added.dshift.download(), dshift), 2 * unit_roundoff(DType::float32));

  const DeviceBuffer x(device(), in.x, DType::float32), dy(device(), in.dy, DType::float32);
  const DeviceBuffer mean(device(), {statistics.mean.begin(), statistics.mean.end()}, DType::float32);
  const DeviceBuffer inv_std(device(), {statistics.inv_std.begin(), statistics.inv_std.end()}, DType::float32);
  GuardedBytes workspace(device(), batch_norm_workspace_bytes(s, DType::float32, GetParam().kind));
  GuardedBuffer dx(device(), s.rows * s.channels, DType::float32), only(device(), s.channels, DType::float32);
  const NormOperand norm{.x = x.data(), .affine = {}, .mean = mean.as<float>(), .inv_std = inv_std.as<float>()};
  BANTAM_KERNEL(exec(), batch_norm_backward_training, s, DType::float32, norm, dy.data(), {.dshift = only.as<float>()},
                workspace.workspace());
  EXPECT_EQ(only.download(), fresh.dshift.download());
  BANTAM_KERNEL(exec(), batch_norm_backward_training, s, DType::float32, norm, dy.data(), {.dx = dx.data()},
                workspace.workspace());
  const auto expected = reference::batch_norm_backward_training(s, as_double(in.x), as_double(in.dy), {},
                                                                statistics.mean, statistics.inv_std);
  EXPECT_LT(relative_error(dx.download(), expected.dx), sum_tolerance(DType::float32, 512));
}

TEST_P(BatchNormTest, InferenceMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const BatchNormShape& s : kShapes) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      const DeviceBuffer x(device(), in.x, dtype), scale(device(), in.scale, DType::float32),
          shift(device(), in.shift, DType::float32);
      const DeviceBuffer mean(device(), in.running_mean, DType::float32),
          variance(device(), in.running_variance, DType::float32);
      GuardedBuffer y(device(), s.rows * s.channels, dtype);
      const RunningStatistics running{.mean = mean.as<float>(), .variance = variance.as<float>(), .epsilon = kEpsilon};
      BANTAM_KERNEL(exec(), batch_norm_forward_inference, s, dtype, x.data(),
                    {.scale = scale.as<float>(), .shift = shift.as<float>()}, running, y.data());
      const auto expected = reference::batch_norm_forward_inference<double>(
          s, as_double(in.x), affine_of(in), kEpsilon, as_double(in.running_mean), as_double(in.running_variance));
      EXPECT_LT(relative_error(y.download(), expected), sum_tolerance(dtype, 4));
      BANTAM_KERNEL(exec(), batch_norm_forward_inference, s, dtype, x.data(), {}, running,
                    x.data());  // without scale and shift, in place
      const auto plain = reference::batch_norm_forward_inference<double>(
          s, as_double(in.x), {}, kEpsilon, as_double(in.running_mean), as_double(in.running_variance));
      EXPECT_LT(relative_error(x.download(), plain), sum_tolerance(dtype, 4));
    }
  }
}

std::vector<std::uint8_t> all_bytes(KernelDevice& device, const BatchNormShape& s, DType dtype) {
  const Inputs in(s, dtype);
  const auto statistics = expected_forward(s, in);
  const Forward forward(device, s, dtype, in);
  const Backward backward(device, s, dtype, in, statistics.mean, statistics.inv_std);
  std::vector<std::uint8_t> all;
  for (const GuardedBuffer* buffer : {&forward.y, &forward.mean, &forward.inv_std, &forward.running_mean,
                                      &forward.running_variance, &backward.dx, &backward.dscale, &backward.dshift}) {
    const std::vector<std::uint8_t> more = buffer->download_bytes();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST_P(BatchNormTest, SameBitsEveryTime) {
  for (const BatchNormShape& s : kShapes) {
    EXPECT_EQ(all_bytes(device(), s, DType::float16), all_bytes(device(), s, DType::float16));
  }
}

TEST(BatchNormCpuTest, SameBitsForAllThreads) {
  for (const BatchNormShape& s : kShapes) {
    expect_same_bits_for_all_threads([&](KernelDevice& device) { return all_bytes(device, s, DType::float32); });
  }
}

constexpr ActivationFunction kActivations[] = {
    {Activation::relu},    {Activation::relu6},      {Activation::leaky_relu, 0.25f},
    {Activation::gelu},    {Activation::silu},       {Activation::sigmoid},
    {Activation::tanh},    {Activation::elu, 0.5f},  {Activation::selu},
    {Activation::mish},    {Activation::hard_swish}, {Activation::hard_sigmoid},
    {Activation::softplus}};

TEST_P(BatchNormTest, ActivationsMatchReference) {
  for (const ActivationFunction f : kActivations) {
    for (const DType dtype : kFloatingTypes) {
      for (const BatchNormShape& s : {BatchNormShape{40, 8}, BatchNormShape{33, 20}, BatchNormShape{9000, 3}}) {
        SCOPED_TRACE(name(s, dtype) + " " + std::string(to_string(f.kind)));
        const Inputs in(s, dtype);
        const auto affine = affine_of(in, f);
        const auto expected = reference::batch_norm_forward_training<double>(s, as_double(in.x), affine, kEpsilon);
        const double tolerance = sum_tolerance(DType::float32, std::min<std::int64_t>(s.rows, 512));
        const Forward forward(device(), s, dtype, in, {.activation = f});
        EXPECT_LT(relative_error(forward.y.download(), expected.y), unit_roundoff(dtype) + tolerance);
        const auto gradients = reference::batch_norm_backward_training(s, as_double(in.x), as_double(in.dy), affine,
                                                                       expected.mean, expected.inv_std);
        const Backward backward(device(), s, dtype, in, expected.mean, expected.inv_std, false, nullptr, f);
        // Sums of dz cancel by up to the root of the number of rows.
        const double sums = tolerance * std::sqrt(static_cast<double>(s.rows));
        EXPECT_LT(relative_error(backward.dshift.download(), gradients.dshift), sums);
        EXPECT_LT(relative_error(backward.dscale.download(), gradients.dscale), sums);
        EXPECT_LT(relative_error(backward.dx.download(), gradients.dx), unit_roundoff(dtype) + sums);
      }
    }
  }
}

TEST_P(BatchNormTest, ReluByHand) {
  // As HandComputed, with ε so small that it does not show: z is 8 and 12 in channel 0, -1 and 1 in channel 1.
  Inputs in({2, 2}, DType::float32);
  in.x = {1, -4, 3, 4};
  in.scale = {2, 1};
  in.shift = {10, 0};
  in.dy = {1, 5, 3, 7};
  const Forward r(device(), {2, 2}, DType::float32, in, {.activation = {Activation::relu}});
  const std::vector<float> y = r.y.download();
  EXPECT_NEAR(y[0], 8, 2e-3);
  EXPECT_EQ(y[1], 0);
  EXPECT_NEAR(y[3], 1, 1e-3);
  // dz: channel 0 as dy; channel 1 (0, 7), x̂ = ∓1: dshift 7, dscale 7; dx = 1/4·(dz - 3.5 - x̂·3.5) = 0.
  const Backward b(device(), {2, 2}, DType::float32, in, {2, 0}, {1, 0.25}, false, nullptr, {Activation::relu});
  EXPECT_EQ(b.dshift.download(), (std::vector<float>{4, 7}));
  EXPECT_EQ(b.dscale.download(), (std::vector<float>{2, 7}));
  EXPECT_EQ(b.dx.download(), (std::vector<float>{0, 0, 0, 0}));
}

TEST_P(BatchNormTest, LeakyReluHasItsSlopeAtTheCorner) {
  // Normalised -1, 0, 1: f' is 1/4, 1/4 and 1.
  Inputs in({3, 1}, DType::float32);
  in.x = {1, 2, 3};
  in.scale = {1};
  in.shift = {0};
  in.dy = {4, 4, 4};
  const Backward b(device(), {3, 1}, DType::float32, in, {2}, {1}, false, nullptr, {Activation::leaky_relu, 0.25f});
  EXPECT_EQ(b.dshift.download(), (std::vector<float>{1 + 1 + 4}));
  EXPECT_EQ(b.dscale.download(), (std::vector<float>{-1 + 4}));
}

/// Backward of inference on a device; without `sums` only dx is wanted.
struct InferenceBackward {
  InferenceBackward(KernelDevice& device, const BatchNormShape& s, DType dtype, const Inputs& in,
                    ActivationFunction activation = {}, bool sums = true, bool in_place = false,
                    const std::vector<float>* start = nullptr)
      : dx(device, s.rows * s.channels, dtype),
        dscale(device, s.channels, DType::float32),
        dshift(device, s.channels, DType::float32) {
    const DeviceBuffer x(device, in.x, dtype), dy(device, in.dy, dtype), scale(device, in.scale, DType::float32),
        shift(device, in.shift, DType::float32), mean(device, in.running_mean, DType::float32),
        variance(device, in.running_variance, DType::float32);
    if (start) dscale.upload(start->data());
    if (start) dshift.upload(start->data());
    if (in_place) copy_bytes(dx.data(), dy.data(), dy.bytes(), device.stream());
    const NormGradients to{.dx = dx.data(),
                           .dscale = sums ? dscale.as<float>() : nullptr,
                           .dshift = sums ? dshift.as<float>() : nullptr,
                           .accumulate = start != nullptr};
    GuardedBytes workspace(device, batch_norm_inference_workspace_bytes(s, to, device.exec().device.kind));
    const bool reads_x = sums || activation.kind != Activation::none;
    BANTAM_KERNEL(device.exec(), batch_norm_backward_inference, s, dtype, reads_x ? x.data() : nullptr,
                  {scale.as<float>(), shift.as<float>(), activation},
                  {.mean = mean.as<float>(), .variance = variance.as<float>(), .epsilon = kEpsilon},
                  in_place ? dx.data() : dy.data(), to, workspace.workspace());
    device.synchronize();
  }
  GuardedBuffer dx, dscale, dshift;
};

reference::BatchNormGradients<double> expected_inference_backward(const BatchNormShape& s, const Inputs& in,
                                                                  ActivationFunction f = {}) {
  return reference::batch_norm_backward_inference<double>(s, as_double(in.x), as_double(in.dy), affine_of(in, f),
                                                          kEpsilon, as_double(in.running_mean),
                                                          as_double(in.running_variance));
}

TEST_P(BatchNormTest, InferenceBackwardMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const BatchNormShape& s : kShapes) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      const auto expected = expected_inference_backward(s, in);
      const InferenceBackward r(device(), s, dtype, in), plain(device(), s, dtype, in, {}, false),
          in_place(device(), s, dtype, in, {}, false, true);
      EXPECT_LT(relative_error(r.dx.download(), expected.dx), sum_tolerance(dtype, 4));
      const double tolerance = sum_tolerance(DType::float32, std::min<std::int64_t>(s.rows, 512));
      EXPECT_LT(relative_error(r.dscale.download(), expected.dscale), tolerance);
      EXPECT_LT(relative_error(r.dshift.download(), expected.dshift), tolerance);
      EXPECT_EQ(plain.dx.download_bytes(), r.dx.download_bytes()) << "dx does not need x without an activation";
      EXPECT_EQ(in_place.dx.download_bytes(), r.dx.download_bytes());
    }
  }
}

TEST_P(BatchNormTest, InferenceBackwardWithActivations) {
  const BatchNormShape s{70, 24};
  const Inputs in(s, DType::float32);
  const std::vector<float> start = random_values(s.channels, 9);
  for (const ActivationFunction f :
       {ActivationFunction{Activation::leaky_relu, 0.25f}, ActivationFunction{Activation::silu},
        ActivationFunction{Activation::tanh}, ActivationFunction{Activation::hard_swish}}) {
    SCOPED_TRACE(std::string(to_string(f.kind)));
    auto expected = expected_inference_backward(s, in, f);
    for (std::size_t c = 0; c < start.size(); ++c) {
      expected.dscale[c] += start[c];
      expected.dshift[c] += start[c];
    }
    const InferenceBackward r(device(), s, DType::float32, in, f, true, true, &start);
    const InferenceBackward without_sums(device(), s, DType::float32, in, f, false);
    // A derivative of an activation in float32 is good to some 16 units in the last place.
    EXPECT_LT(relative_error(r.dx.download(), expected.dx), sum_tolerance(DType::float32, 64));
    EXPECT_LT(relative_error(r.dscale.download(), expected.dscale), sum_tolerance(DType::float32, 512));
    EXPECT_LT(relative_error(r.dshift.download(), expected.dshift), sum_tolerance(DType::float32, 512));
    EXPECT_EQ(without_sums.dx.download_bytes(), r.dx.download_bytes());
  }
}

TEST(BatchNormCpuTest, InferenceBackwardHasTheSameBitsForAllThreads) {
  const BatchNormShape s{7000, 64};
  const Inputs in(s, DType::float32);
  expect_same_bits_for_all_threads([&](KernelDevice& device) {
    const InferenceBackward r(device, s, DType::float32, in, {Activation::relu});
    std::vector<std::uint8_t> all = r.dx.download_bytes();
    for (const std::uint8_t byte : r.dscale.download_bytes()) all.push_back(byte);
    return all;
  });
}

TEST(BatchNormReferenceTest, InferenceGradientsAreTheDerivatives) {
  const BatchNormShape s{7, 3};
  const Inputs in(s, DType::float32);
  const auto x = as_double(in.x), dy = as_double(in.dy), mean = as_double(in.running_mean),
             variance = as_double(in.running_variance);
  for (const ActivationFunction f : {ActivationFunction{}, ActivationFunction{Activation::gelu}}) {
    const auto affine = affine_of(in, f);
    const auto loss = [&](const auto& at_x, const auto& at_scale, const auto& at_shift) {
      const auto y =
          reference::batch_norm_forward_inference<double>(s, at_x, {at_scale, at_shift, f}, kEpsilon, mean, variance);
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const auto g = expected_inference_backward(s, in, f);
    expect_gradient(x, g.dx, [&](const auto& v) { return loss(v, affine.scale, affine.shift); });
    expect_gradient(affine.scale, g.dscale, [&](const auto& v) { return loss(x, v, affine.shift); });
    expect_gradient(affine.shift, g.dshift, [&](const auto& v) { return loss(x, affine.scale, v); });
  }
}

TEST(BatchNormReferenceTest, GradientsAreTheDerivatives) {
  const BatchNormShape s{7, 3};
  const Inputs in(s, DType::float32);
  const auto x = as_double(in.x), dy = as_double(in.dy);
  for (const ActivationFunction f : {ActivationFunction{}, ActivationFunction{Activation::relu},
                                     ActivationFunction{Activation::gelu}, ActivationFunction{Activation::tanh}}) {
    SCOPED_TRACE(std::string(to_string(f.kind)));
    const auto affine = affine_of(in, f);
    const auto loss = [&](const auto& at_x, const auto& at_scale, const auto& at_shift) {
      const auto y = reference::batch_norm_forward_training<double>(s, at_x, {at_scale, at_shift, f}, kEpsilon).y;
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const auto statistics = expected_forward(s, in);
    const auto g = reference::batch_norm_backward_training(s, x, dy, affine, statistics.mean, statistics.inv_std);
    expect_gradient(x, g.dx, [&](const auto& v) { return loss(v, affine.scale, affine.shift); });
    expect_gradient(affine.scale, g.dscale, [&](const auto& v) { return loss(x, v, affine.shift); });
    expect_gradient(affine.shift, g.dshift, [&](const auto& v) { return loss(x, affine.scale, v); });
  }
}

}  // namespace
}  // namespace bantam::kernels::batch_norm_test

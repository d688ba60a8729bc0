// Batch norm over several ranks' batches, here parts of one: hand values, statistics and input gradients of the parts
// against the reference over the whole.
#include "bantam/kernels/norm/sync_norm.h"

#include <cmath>
#include <numeric>

#include "bantam/kernels/norm/batch_norm_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::sync_norm_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

constexpr float kEpsilon = 1e-3f;

class SyncNormTest : public DeviceTest {
 protected:
  /// What a part of a batch tells, added to `sum`.
  void add_message(const BatchNormShape& part, const std::vector<float>& mean, const std::vector<float>& variance,
                   std::vector<double>& sum) {
    const DeviceArray<float> m(device(), mean), v(device(), variance);
    const DeviceArray<double> message(device(), std::vector<double>(sum.size(), -1));
    BANTAM_KERNEL(exec(), pack_moments, part.channels, part.rows, m.data(), v.data(), message.data());
    const std::vector<double> found = message.download();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += found[i];
  }
  struct Found {
    std::vector<float> mean, inv_std, running_mean, running_variance;
    float inv_rows = 0;
  };
  Found unpack(std::int64_t channels, const std::vector<double>& message, RunningUpdate update) {
    const DeviceArray<double> sum(device(), message);
    const std::vector<float> zeros(static_cast<std::size_t>(channels)), ones(zeros.size(), 1.0f);
    const DeviceArray<float> mean(device(), zeros), inv_std(device(), zeros), running_mean(device(), zeros),
        running_variance(device(), ones), inv_rows(device(), {0.0f});
    const StatisticsOutput statistics{.epsilon = kEpsilon,
                                      .update = update,
                                      .running_mean = running_mean.data(),
                                      .running_variance = running_variance.data(),
                                      .mean = mean.data(),
                                      .inv_std = inv_std.data()};
    BANTAM_KERNEL(exec(), unpack_moments, channels, sum.data(), statistics, inv_rows.data());
    return {mean.download(), inv_std.download(), running_mean.download(), running_variance.download(),
            inv_rows.download()[0]};
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SyncNormTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST_P(SyncNormTest, MomentsAreWhatAHandComputes) {
  // Rows 1, 3 (mean 2, variance 1) and 8 (mean 8, variance 0): 3 rows, Σ = 12, Σ of squares = 74; mean 4, variance
  // 74/3 - 16 = 26/3, unbiased 13.
  std::vector<double> sum(3);
  add_message({2, 1}, {2}, {1}, sum);
  EXPECT_EQ(sum, (std::vector<double>{2, 4, 10}));
  add_message({1, 1}, {8}, {0}, sum);
  EXPECT_EQ(sum, (std::vector<double>{3, 12, 74}));
  const Found found = unpack(1, sum, {.rate = 0.5f, .unbiased = true});
  EXPECT_EQ(found.mean[0], 4.0f);
  EXPECT_FLOAT_EQ(found.inv_std[0], static_cast<float>(1 / std::sqrt(26.0 / 3 + 1e-3)));
  EXPECT_EQ(found.running_mean[0], 2.0f);
  EXPECT_FLOAT_EQ(found.running_variance[0], 7.0f);
  EXPECT_EQ(found.inv_rows, 1.0f / 3);
  EXPECT_FLOAT_EQ(unpack(1, sum, {.rate = 1.0f, .unbiased = false}).running_variance[0], static_cast<float>(26.0 / 3));
}

TEST_P(SyncNormTest, AConstantBatchHasNoVariance) {
  std::vector<double> sum(3);
  for (int part = 0; part < 7; ++part) add_message({3, 1}, {1234.567f}, {0}, sum);
  EXPECT_NEAR(unpack(1, sum, {}).inv_std[0], 1 / std::sqrt(kEpsilon), 1e-3);
}

/// Rows of a batch, of which ranks have parts of unlike sizes.
struct Parts {
  std::int64_t channels = 0;
  std::vector<std::int64_t> rows;
  std::int64_t all() const { return std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); }
};

const Parts kParts[] = {{3, {4, 4}}, {8, {100, 100}}, {20, {7, 5, 9}}, {64, {500, 500, 500, 400}}, {65, {33, 31}}};

TEST_P(SyncNormTest, PartsHaveTheStatisticsOfTheWhole) {
  for (const Parts& parts : kParts) {
    const BatchNormShape whole{parts.all(), parts.channels};
    // A mean of 40 deviations: what the messages' differences must stand.
    const std::vector<float> x = random_values(whole.rows * whole.channels, 1, DType::float32, 39.0f, 41.0f);
    const auto expected = reference::batch_norm_forward_training<double>(whole, as_double(x), {}, kEpsilon);
    std::vector<double> sum(static_cast<std::size_t>(norm_message_elements(parts.channels)));
    std::int64_t first = 0;
    for (const std::int64_t rows : parts.rows) {
      const std::vector<float> own(x.begin() + first * parts.channels, x.begin() + (first + rows) * parts.channels);
      const auto part =
          reference::batch_norm_forward_training<double>({rows, parts.channels}, as_double(own), {}, kEpsilon);
      add_message({rows, parts.channels}, {part.mean.begin(), part.mean.end()},
                  {part.variance.begin(), part.variance.end()}, sum);
      first += rows;
    }
    const Found found = unpack(parts.channels, sum, {.rate = 1.0f});
    EXPECT_LT(relative_error(found.mean, expected.mean), 0x1p-23);
    // A part's mean is rounded to 2^-19 of 40: of a variance of 1/3 that is 2 · 40 · 2^-19 at most.
    EXPECT_LT(relative_error(found.inv_std, expected.inv_std), 3e-4);
    auto mean = std::vector<double>(expected.mean.size()), variance = mean;
    reference::batch_norm_update_running(whole, expected, {.rate = 1.0f}, mean, variance);
    EXPECT_LT(relative_error(found.running_mean, mean), 0x1p-23);
    EXPECT_LT(relative_error(found.running_variance, variance), 6e-4);
    EXPECT_FLOAT_EQ(found.inv_rows, 1.0f / static_cast<float>(whole.rows));
  }
}

TEST_P(SyncNormTest, PartsHaveTheInputGradientOfTheWhole) {
  for (const DType dtype : kFloatingTypes) {
    for (const Parts& parts : kParts) {
      for (const ActivationFunction f :
           {ActivationFunction{}, ActivationFunction{Activation::relu}, ActivationFunction{Activation::gelu}}) {
        const BatchNormShape whole{parts.all(), parts.channels};
        const std::int64_t count = whole.rows * whole.channels;
        const std::vector<float> x = random_values(count, 1, dtype, -2.0f, 3.0f), dy = random_values(count, 2, dtype),
                                 scale = random_values(parts.channels, 3, DType::float32, 0.5f, 2.0f),
                                 shift = random_values(parts.channels, 4);
        const reference::Affine<double> affine{as_double(scale), as_double(shift), f};
        const auto statistics = reference::batch_norm_forward_training<double>(whole, as_double(x), affine, kEpsilon);
        const auto expected = reference::batch_norm_backward_training(whole, as_double(x), as_double(dy), affine,
                                                                      statistics.mean, statistics.inv_std);
        std::vector<float> sums(expected.dshift.begin(), expected.dshift.end());
        sums.insert(sums.end(), expected.dscale.begin(), expected.dscale.end());
        sums.resize(static_cast<std::size_t>(4 * parts.channels));
        const DeviceBuffer mean(device(), {statistics.mean.begin(), statistics.mean.end()}, DType::float32),
            inv_std(device(), {statistics.inv_std.begin(), statistics.inv_std.end()}, DType::float32),
            scales(device(), scale, DType::float32), shifts(device(), shift, DType::float32);
        const DeviceArray<float> inv_rows(device(), {1.0f / static_cast<float>(whole.rows)});
        std::vector<float> found;
        for (const bool in_place : {false, true}) {
          found.clear();
          std::int64_t first = 0;
          for (const std::int64_t rows : parts.rows) {
            const auto slice = [&](const std::vector<float>& from) {
              return std::vector<float>(from.begin() + first * parts.channels,
                                        from.begin() + (first + rows) * parts.channels);
            };
            const DeviceBuffer own_x(device(), slice(x), dtype), own_dy(device(), slice(dy), dtype);
            const DeviceArray<float> room(device(), sums);
            GuardedBuffer dx(device(), rows * parts.channels, dtype);
            if (in_place) copy_bytes(dx.data(), own_dy.data(), own_dy.bytes(), device().stream());
            const NormOperand norm{.x = own_x.data(),
                                   .affine = {scales.as<float>(), shifts.as<float>(), f},
                                   .mean = mean.as<float>(),
                                   .inv_std = inv_std.as<float>()};
            BANTAM_KERNEL(exec(), sync_norm_input_gradient, BatchNormShape{rows, parts.channels}, dtype, norm,
                          in_place ? dx.data() : own_dy.data(), inv_rows.data(), room.data(), dx.data());
            device().synchronize();
            const std::vector<float> part = dx.download();
            found.insert(found.end(), part.begin(), part.end());
            first += rows;
          }
          EXPECT_LT(relative_error(found, expected.dx), unit_roundoff(dtype) + sum_tolerance(DType::float32, 32))
              << to_string(dtype) << ", " << parts.channels << " channels";
        }
      }
    }
  }
}

}  // namespace
}  // namespace bantam::kernels::sync_norm_test

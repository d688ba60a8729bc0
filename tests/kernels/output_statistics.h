// Calls of kernels that compute the batch statistics of their output, and the check of the statistics against what the
// output holds.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/common/statistics_output.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/guarded_workspace.h"

namespace bantam::testing {

/// An output (rows, channels) and the statistics of its channels; the running ones start at 1.
struct OutputStatistics {
  static constexpr float kEpsilon = 1e-3f, kRate = 0.25f;

  std::vector<float> y, mean, inv_std, running_mean, running_variance;
  bool operator==(const OutputStatistics&) const = default;

  /// Those of what y holds. Sums of float32 terms relative to a value of the channel: some 10 roundings a value in a
  /// row are left of the order that kernels add in, and the square of the origin's distance, of a few deviations.
  void expect_of_y() const {
    constexpr double kTolerance = 4e-5;
    const std::size_t channels = mean.size(), rows = y.size() / channels;
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (std::size_t row = 0; row < rows; ++row) sum += y[row * channels + c];
      const double expected = sum / static_cast<double>(rows);
      for (std::size_t row = 0; row < rows; ++row) {
        const double apart = y[row * channels + c] - expected;
        squares += apart * apart;
      }
      const double variance = squares / static_cast<double>(rows), inverse = 1 / std::sqrt(variance + kEpsilon);
      const double unbiased = rows > 1 ? squares / static_cast<double>(rows - 1) : variance;
      const double off = kTolerance * std::sqrt(variance) + 1e-7 * std::abs(expected) + 1e-7;
      ASSERT_NEAR(mean[c], expected, off) << "channel " << c;
      ASSERT_NEAR(inv_std[c], inverse, kTolerance * inverse) << "channel " << c;
      ASSERT_NEAR(running_mean[c], 1 + kRate * (expected - 1), off + 1e-7) << "channel " << c;
      ASSERT_NEAR(running_variance[c], 1 + kRate * (unbiased - 1), kTolerance * (1 + unbiased)) << "channel " << c;
    }
  }
};

/// What call(y, statistics, workspace) writes. `moves`: running statistics are moved; `wanted`: statistics are.
template <class Call>
OutputStatistics output_statistics(KernelDevice& device, std::int64_t elements, std::int64_t channels, DType dtype,
                                   std::size_t workspace_bytes, bool moves, bool wanted, Call&& call) {
  const std::vector<float> ones(static_cast<std::size_t>(channels), 1.0f);
  DeviceBuffer y(device, elements, dtype), mean(device, channels, DType::float32),
      inv_std(device, channels, DType::float32), running_mean(device, ones, DType::float32),
      running_variance(device, ones, DType::float32);
  GuardedWorkspace workspace(device, workspace_bytes);
  const kernels::StatisticsOutput statistics{.epsilon = OutputStatistics::kEpsilon,
                                             .update = {.rate = OutputStatistics::kRate, .unbiased = true},
                                             .running_mean = moves ? running_mean.as<float>() : nullptr,
                                             .running_variance = moves ? running_variance.as<float>() : nullptr,
                                             .mean = wanted ? mean.as<float>() : nullptr,
                                             .inv_std = wanted ? inv_std.as<float>() : nullptr};
  call(y.data(), statistics, workspace.get());
  device.synchronize();
  workspace.expect_guard_intact();
  return {y.download(), mean.download(), inv_std.download(), running_mean.download(), running_variance.download()};
}

}  // namespace bantam::testing

// Fitted constants, and the roofline.
#include "bantam/engine/plan/kernel_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace bantam {
namespace {

using kernels::KernelKind;

/// Shares of the device's rates that kernels of a kind reach.
struct Reached {
  double bytes, flops;
};

// All fitted constants of the cost model. Fitted to captured steps in mixed_float16 on an H200 (copy rate 4.0·10^12
// bytes/s, 7.9·10^14 operations/s), ms measured (and predicted): resnet50 at batch 256 27.8 (27.8), mobilenet_v1 at 256
// 8.29 (8.27), resnet18_cifar at 512 5.16 (5.22), separable_cnn at 16, 128, 1024 and 4096 0.0357 (0.0349), 0.0521
// (0.0447), 0.148 (0.123) and 0.468 (0.391). What recompute adds to resnet50 at 256, in per cent: 12 segments that end
// blocks, at 6,011 MiB, 6.5 and 7.5 (7.6); 14 segments, at 3,830 MiB, 14.0 and 14.3 (14.7). docs/PLANNING.md says how
// to measure anew.

/// For a kernel to begin and to end, in a captured chain.
constexpr double kPassSeconds = 2.8e-6;

/// By kind.
constexpr std::array<Reached, kernels::kKernelKinds> kReached = {{
    {.bytes = 1.00, .flops = 1.00},  // pass
    {.bytes = 0.90, .flops = 0.80},  // product
    {.bytes = 0.90, .flops = 0.70},  // convolution
    {.bytes = 0.78, .flops = 0.60},  // stencil
    {.bytes = 0.58, .flops = 0.60},  // fused
    {.bytes = 0.90, .flops = 0.20},  // attention: 256 x 197 tokens, 6 heads of 64: 92.5 us (98), backward 256 (245)
}};

}  // namespace

DeviceRates typical_rates(const DeviceProfile& profile, Precision precision) {
  return {.bytes_per_s = profile.copy_bytes_per_s,
          .flops_per_s = profile.flops_per_s(precision.compute()),
          .estimate = !profile.measured};
}

DeviceRates typical_rates(Device device, Precision precision) { return typical_rates(profile_of(device), precision); }

std::string predicted_percent(double share, bool estimate, int decimals) {
  const double percent = 100 * share;
  if (!estimate) return fmt::format("{:+.{}f} %", percent, decimals);
  return fmt::format("{:+.{}f} ± {:.{}f} %", percent, decimals, kEstimateShare * std::abs(percent), decimals);
}

double predict_seconds(const kernels::KernelWork& work, const DeviceRates& rates) {
  const Reached reached = kReached[static_cast<std::size_t>(work.kind)];
  const std::int64_t operations = work.matrix_flops > 0 ? work.matrix_flops : work.flops;
  const double bytes = static_cast<double>(work.bytes) / (reached.bytes * rates.bytes_per_s),
               flops = static_cast<double>(operations) / (reached.flops * rates.flops_per_s);
  return work.passes * kPassSeconds + std::max(bytes, flops);
}

double predict_seconds(const kernels::KernelLog& log, const DeviceRates& rates) {
  double seconds = 0;
  for (const kernels::KernelEntry& entry : log.entries()) seconds += predict_seconds(entry.work, rates);
  return seconds;
}

}  // namespace bantam

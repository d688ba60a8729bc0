// Fitted constants, and the roofline.
#include "bantam/engine/plan/kernel_cost.h"

#include <algorithm>
#include <array>

#include "bantam/memory/device/device_profile.h"

namespace bantam {
namespace {

using kernels::KernelKind;

/// Shares of the device's rates that kernels of a kind reach.
struct Reached {
  double bytes, flops;
};

constexpr double kPassSeconds = 2.5e-6;  // for a kernel to begin and to end, in a captured chain

constexpr std::array<Reached, kernels::kKernelKinds> kReached = {{
    {1.00, 1.00},  // pass
    {0.90, 0.80},  // product
    {0.90, 0.60},  // convolution
    {0.78, 0.60},  // stencil
    {0.62, 0.60},  // fused
}};

}  // namespace

DeviceRates typical_rates(Device device, Precision precision) {
  const DeviceProfile profile = profile_of(device);
  return {.bytes_per_s = profile.copy_bytes_per_s, .flops_per_s = profile.flops_per_s(precision.compute())};
}

double predict_seconds(const kernels::KernelWork& work, const DeviceRates& rates) {
  const Reached reached = kReached[static_cast<std::size_t>(work.kind)];
  const double bytes = static_cast<double>(work.bytes) / (reached.bytes * rates.bytes_per_s),
               flops = static_cast<double>(work.matrix_flops) / (reached.flops * rates.flops_per_s);
  return work.passes * kPassSeconds + std::max(bytes, flops);
}

double predict_seconds(const kernels::KernelLog& log, const DeviceRates& rates) {
  double seconds = 0;
  for (const kernels::KernelEntry& entry : log.entries()) seconds += predict_seconds(entry.work, rates);
  return seconds;
}

}  // namespace bantam

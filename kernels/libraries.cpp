// Which libraries a device uses.
#include "bantam/kernels/common/cpu/libraries.h"

#include "bantam/base/error.h"
#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/kernels/common/dispatch.h"
#if defined(BANTAM_WITH_CUDA)
#include "bantam/kernels/common/cuda/libraries.h"
#endif

namespace bantam::kernels {

std::unique_ptr<DeviceLibraries> make_device_libraries(Device device) {
  if (device.meta) return nullptr;
  if (device.is_cpu()) return std::make_unique<cpu::Libraries>();
#if defined(BANTAM_WITH_CUDA)
  return cuda::make_libraries(device);
#else
  throw DeviceError("device " + to_string(device) + " was asked for, but this build of Bantam has no CUDA backend");
#endif
}

AlgorithmChoices* algorithm_choices(DeviceLibraries* libraries) {
#if defined(BANTAM_WITH_CUDA)
  if (auto* const cuda = dynamic_cast<cuda::Libraries*>(libraries)) return &cuda->algorithms();
#endif
  (void)libraries;
  return nullptr;
}

}  // namespace bantam::kernels

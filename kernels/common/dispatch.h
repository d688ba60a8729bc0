// How a kernel call reaches its backend, and the library handles that backends keep for a device.
#pragma once

#include <functional>
#include <memory>

#include "bantam/base/error.h"
#include "bantam/kernels/common/exec.h"
#include "bantam/kernels/common/kernel_log.h"

namespace bantam::kernels {

/// Library handles and caches of one device (oneDNN primitives; cuBLASLt and cuDNN handles). Opaque above this floor.
class DeviceLibraries {
 public:
  virtual ~DeviceLibraries() = default;
  /// Loads now what would be loaded at its first use, and calls `loaded` with each library's name. Libraries that are
  /// not installed are passed over.
  virtual void load(const std::function<void(const char*)>& loaded) { (void)loaded; }
};

/// Made by the Runtime, once a device. Throws DeviceError where the device does not exist. Null for meta devices.
std::unique_ptr<DeviceLibraries> make_device_libraries(Device device);

}  // namespace bantam::kernels

/// Declares kernel `name`, a function of the type `Type`, on the CPU and on CUDA, and its twin in `kernels::work`,
/// which notes a call's bytes and operations and runs nothing. Stands in namespace bantam::kernels.
#define BANTAM_DECLARE_KERNEL(Type, name) \
  namespace cuda {                        \
  Type name;                              \
  }                                       \
  BANTAM_DECLARE_CPU_KERNEL(Type, name)

/// Declares a kernel that only the CPU has, and its twin.
#define BANTAM_DECLARE_CPU_KERNEL(Type, name) \
  namespace cpu {                             \
  Type name;                                  \
  }                                           \
  namespace work {                            \
  Type name;                                  \
  }

/// Logs the call's work, then runs the CPU kernel or, on a CUDA device, `on_cuda`, which may name `bantam_exec_`.
/// Internal to the two below.
#define BANTAM_DISPATCH(exec, name, on_cuda, ...)               \
  do {                                                          \
    const ::bantam::kernels::Exec& bantam_exec_ = (exec);       \
    if (bantam_exec_.log != nullptr) {                          \
      ::bantam::kernels::work::name(bantam_exec_, __VA_ARGS__); \
    }                                                           \
    if (bantam_exec_.device.is_cpu()) {                         \
      ::bantam::kernels::cpu::name(bantam_exec_, __VA_ARGS__);  \
    } else if (bantam_exec_.device.is_cuda()) {                 \
      on_cuda;                                                  \
    }                                                           \
  } while (false)

/// Calls kernel `name` of the backend that `exec.device` names, with `exec` as the first argument and, on CUDA, its
/// device current; on a meta device nothing runs. Where there is an `exec.log`, `kernels::work` notes the call's work
/// in it first (arguments are then evaluated twice). The one place where backends are chosen.
#if defined(BANTAM_WITH_CUDA)
#define BANTAM_KERNEL(exec, name, ...)                                                        \
  BANTAM_DISPATCH(exec, name, const ::bantam::DeviceScope bantam_scope_(bantam_exec_.device); \
                  ::bantam::kernels::cuda::name(bantam_exec_, __VA_ARGS__), __VA_ARGS__)
#else
#define BANTAM_KERNEL(exec, name, ...) \
  BANTAM_DISPATCH(exec, name, throw ::bantam::DeviceError("this build of Bantam has no CUDA backend"), __VA_ARGS__)
#endif

/// Calls a kernel that only the CPU has, as BANTAM_KERNEL; on CUDA throws DeviceError.
#define BANTAM_CPU_KERNEL(exec, name, ...) \
  BANTAM_DISPATCH(exec, name, throw ::bantam::DeviceError(#name " runs on the CPU alone"), __VA_ARGS__)

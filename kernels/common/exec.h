// Where and in what order a kernel runs: what each kernel call gets besides its operands.
#pragma once

#include <cstddef>

#include "bantam/base/api.h"
#include "bantam/memory/device/device.h"

BANTAM_API_BEGIN
namespace bantam::kernels {

class BANTAM_INTERNAL DeviceLibraries;
class BANTAM_INTERNAL KernelLog;

/// Where a kernel runs. Kernels never allocate: callers pass outputs and workspace.
struct Exec {
  Device device;
  Stream stream;
  int threads = 1;  ///< CPU: threads of parts of a kernel; results do not depend on it
  DeviceLibraries* libraries = nullptr;
  KernelLog* log = nullptr;  ///< gets the work of each call; null: none is noted
  const char* owner = "";    ///< layer path, for the log
};

/// Scratch memory on the kernel's device, aligned to 256. Contents are undefined before and after.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

}  // namespace bantam::kernels
BANTAM_API_END

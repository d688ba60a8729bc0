// ActivityTrace: the kernels that a GPU ran, with their times, recorded by CUPTI.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/memory/device/device.h"

namespace bantam {

/// A kernel, copy or memset of the device.
struct DeviceActivity {
  std::int64_t begin_ns = 0, end_ns = 0;  ///< by the device's clock
  std::string name;                       ///< the kernel's mangled name, "copy" or "memset"
};

/// Why activities cannot be traced here (no CUPTI library, a build without its headers); "" where they can.
std::string activity_trace_unavailable();

/// Traces all activities of this process's GPUs from its construction until `stop`. One at a time.
class ActivityTrace {
 public:
  /// Throws DeviceError, saying why, where nothing can be traced.
  ActivityTrace();
  ~ActivityTrace();
  ActivityTrace(const ActivityTrace&) = delete;
  ActivityTrace& operator=(const ActivityTrace&) = delete;

  /// The activities since, in the order in which they began. Work that shall be in it must be done (synchronize).
  std::vector<DeviceActivity> stop();

 private:
  bool running_ = true;
};

/// Kernels, copies and memsets that the capture under way on `stream` (CapturedWork) has recorded so far; 0 where none
/// is. Throws CudaError.
std::int64_t captured_activities(Stream stream);

}  // namespace bantam

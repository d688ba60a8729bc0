// TraceRange: a named range of the host's calls for a device, as profilers show it (NVTX).
#pragma once

#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// Puts the thread's calls within the scope under `name` in Nsight Systems and Nsight Compute (`--nvtx-include`).
/// Ranges nest. Nothing on other devices than CUDA's; a few nanoseconds where no tool is attached.
class TraceRange {
 public:
  TraceRange(Device device, const char* name) : on_(device.is_cuda()) {
    if (on_) cuda_backend::range_push(name);
  }
  ~TraceRange() {
    if (on_) cuda_backend::range_pop();
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  bool on_;
};

}  // namespace bantam

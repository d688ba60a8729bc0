// The backend's trace, started and stopped once.
#include "bantam/memory/device/activity_trace.h"

#include <algorithm>

#include "bantam/base/error.h"
#include "bantam/memory/device/cuda_backend.h"

namespace bantam {

std::string activity_trace_unavailable() { return cuda_backend::trace_unavailable(); }

ActivityTrace::ActivityTrace() {
  if (const std::string reason = activity_trace_unavailable(); !reason.empty())
    throw DeviceError("kernels cannot be traced: " + reason);
  cuda_backend::trace_start();
}

ActivityTrace::~ActivityTrace() {
  try {
    if (running_) (void)cuda_backend::trace_stop();
  } catch (const Error&) {  // a destructor must not throw; whoever wants the result calls stop
  }
}

std::vector<DeviceActivity> ActivityTrace::stop() {
  running_ = false;
  std::vector<DeviceActivity> activities = cuda_backend::trace_stop();
  std::ranges::stable_sort(activities, {}, &DeviceActivity::begin_ns);
  return activities;
}

std::int64_t captured_activities(Stream stream) {
  return stream.device.is_cuda() ? cuda_backend::captured_activities(stream.device.index, stream.handle) : 0;
}

}  // namespace bantam

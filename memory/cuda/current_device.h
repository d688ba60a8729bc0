// Internal: another current device of the calling thread, for a scope.
#pragma once

#include "bantam/memory/device/cuda_backend.h"

namespace bantam::cuda_backend {

/// Throws CudaError where the device cannot be set; the one before comes back at the end of the scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : previous_(exchange_device(device)) {}
  ~CurrentDevice() { restore_device(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_;
};

}  // namespace bantam::cuda_backend

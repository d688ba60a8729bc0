// Loading cuBLASLt and cuDNN for a device, on first use.
#include "bantam/kernels/common/cuda/libraries.h"

#include "bantam/base/error.h"
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/code_architecture.h"

namespace bantam::kernels::cuda {

std::unique_ptr<DeviceLibraries> make_libraries(Device device) {
  if (device.index < 0 || device.index >= cuda_device_count()) {
    const std::string reason = cuda_unavailable_reason();
    throw DeviceError("device " + to_string(device) + " does not exist" + (reason.empty() ? "" : ": " + reason));
  }
  return std::make_unique<Libraries>(device);
}

Libraries::~Libraries() {
  const DeviceScope scope(device_);  // handles are destroyed with their device current
  cudnn_.reset();
  cublaslt_.reset();
}

void Libraries::load(const std::function<void(const char*)>& loaded) {
  try {
    (void)cublaslt();
    loaded("cuBLASLt");
  } catch (const CudaError&) {
    throw;                        // it is there, but does not start
  } catch (const DeviceError&) {  // not installed: the first product says so
  }
  if (cudnn() != nullptr) loaded("cuDNN");
}

Libraries& Libraries::of(const Exec& exec) {
  auto* libraries = dynamic_cast<Libraries*>(exec.libraries);
  if (libraries == nullptr)
    throw DeviceError("a CUDA kernel that needs what a device keeps between calls was given no DeviceLibraries");
  return *libraries;
}

CublasLt& Libraries::cublaslt() {
  const std::lock_guard lock(guard_);
  if (!cublaslt_) {
    const DeviceScope scope(device_);
    cublaslt_ = std::make_unique<CublasLt>(algorithms_);
  }
  return *cublaslt_;
}

int Libraries::code_architecture() {
  const std::lock_guard lock(guard_);
  if (code_architecture_ == 0) {
    const DeviceScope scope(device_);
    code_architecture_ = cuda::code_architecture();
  }
  return code_architecture_;
}

Cudnn* Libraries::cudnn() {
  const std::lock_guard lock(guard_);
  if (!cudnn_ && !cudnn_missing_) {
    const DeviceScope scope(device_);
    try {
      cudnn_ = std::make_unique<Cudnn>(algorithms_);
    } catch (const CudaError&) {
      throw;  // it is there, but does not start
    } catch (const DeviceError&) {
      cudnn_missing_ = true;
    }
  }
  return cudnn_.get();
}

}  // namespace bantam::kernels::cuda

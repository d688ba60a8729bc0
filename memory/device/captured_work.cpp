// Recording, and its end where something throws in between.
#include "bantam/memory/device/captured_work.h"

#include <utility>

#include "bantam/base/error.h"
#include "bantam/memory/device/cuda_backend.h"

namespace bantam {

CapturedWork::CapturedWork(Stream stream, const std::function<void()>& record) : stream_(stream) {
  cuda_backend::require(stream.device);
  const int device = stream.device.index;
  cuda_backend::begin_capture(device, stream.handle);
  try {
    record();
  } catch (...) {
    cuda_backend::abandon_capture(device, stream.handle);
    throw;
  }
  const cuda_backend::Recorded recorded = cuda_backend::end_capture(device, stream.handle);
  executable_ = recorded.executable;
  kernels_ = recorded.kernels;
}

CapturedWork::~CapturedWork() {
  if (executable_ == nullptr) return;
  try {
    synchronize(stream_);
  } catch (const Error&) {  // a broken device: the call that broke it has thrown
  }
  cuda_backend::destroy_recorded(stream_.device.index, executable_);
}

CapturedWork::CapturedWork(CapturedWork&& other) noexcept
    : stream_(other.stream_), executable_(std::exchange(other.executable_, nullptr)), kernels_(other.kernels_) {}

void CapturedWork::launch() const { cuda_backend::launch_recorded(stream_.device.index, executable_, stream_.handle); }

}  // namespace bantam

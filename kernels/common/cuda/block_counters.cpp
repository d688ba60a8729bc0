// A zeroed page for each stream that asks.
#include "bantam/kernels/common/cuda/block_counters.h"

#include "bantam/base/error.h"
#include "bantam/kernels/common/cuda/check.h"

namespace bantam::kernels::cuda {
namespace {

constexpr std::size_t kPageBytes = BlockCounters::kCount * sizeof(unsigned);

/// Lets this thread allocate for a scope although it captures a stream: the page is no part of the graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

BlockCounters::~BlockCounters() {
  for (const auto& [stream, page] : pages_) source_->release(page, kPageBytes);
}

unsigned* BlockCounters::of(Stream stream) {
  const std::lock_guard lock(guard_);
  if (const auto found = pages_.find(stream.handle); found != pages_.end()) return found->second;
  const RelaxedCapture relaxed;
  if (!source_) source_ = make_cuda_source(device_);
  void* page = source_->acquire(kPageBytes);
  if (page == nullptr)
    throw OutOfMemory("no device memory for a page of block counters", {.requested_bytes = kPageBytes});
  try {
    const OwnedStream own(device_);
    zero_bytes(page, kPageBytes, own.get());
    synchronize(own.get());
    return pages_.emplace(stream.handle, static_cast<unsigned*>(page)).first->second;
  } catch (...) {  // a page that may not be zeroed is nobody's
    source_->release(page, kPageBytes);
    throw;
  }
}

}  // namespace bantam::kernels::cuda

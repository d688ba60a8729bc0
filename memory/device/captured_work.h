// CapturedWork: work of one stream, recorded once and launched as often as it is wanted (a CUDA graph).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "bantam/memory/device/device.h"

namespace bantam {

/// Recorded work of a stream (a CUDA graph), with the addresses and sizes it was recorded with. The memory it uses must
/// be valid whenever it is launched. Launches run in order of the stream, as calls on it would. Used by one thread at a
/// time; the stream must outlive it. Waits for the stream when it is destroyed.
class CapturedWork {
 public:
  /// Calls `record`, whose work on `stream` (of a CUDA device) is recorded and does not run. Only this thread is
  /// restricted to what can be recorded: no waiting, no event queries, no memory from the driver; kernels and libraries
  /// that may load something at their first use should have run before. Throws what `record` throws, and CudaError
  /// where something could not be recorded; then nothing has run, and the stream works as before.
  CapturedWork(Stream stream, const std::function<void()>& record);
  ~CapturedWork();
  CapturedWork(CapturedWork&& other) noexcept;
  CapturedWork& operator=(CapturedWork&&) = delete;

  /// Puts the work into its stream, and does not wait for it. Throws CudaError.
  void launch() const;
  /// Kernels that a launch runs.
  std::int64_t kernels() const { return kernels_; }

 private:
  Stream stream_;
  void* executable_ = nullptr;
  std::int64_t kernels_ = 0;
};

}  // namespace bantam

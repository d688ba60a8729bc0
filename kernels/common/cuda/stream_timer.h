// Times work on a stream, to choose between algorithms. Waits for the stream: not for a running step.
#pragma once

#include <algorithm>
#include <limits>

#include "bantam/kernels/common/cuda/check.h"

namespace bantam::kernels::cuda {

/// Measures on one stream.
class StreamTimer {
 public:
  explicit StreamTimer(cudaStream_t stream) : stream_(stream) {
    check_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    check_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~StreamTimer() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;

  /// Milliseconds of one `start()`, the better of two rounds of four after one that loads its kernels; infinite where
  /// `start` returns false, which means that it cannot run.
  template <class Start>
  float milliseconds(const Start& start) {
    constexpr int kRounds = 2, kCalls = 4;
    float best = std::numeric_limits<float>::infinity();
    if (!start()) return best;
    for (int round = 0; round < kRounds; ++round) {
      check_cuda(cudaEventRecord(begin_, stream_), "cudaEventRecord");
      for (int call = 0; call < kCalls; ++call) (void)start();
      check_cuda(cudaEventRecord(end_, stream_), "cudaEventRecord");
      check_cuda(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float elapsed = 0;
      check_cuda(cudaEventElapsedTime(&elapsed, begin_, end_), "cudaEventElapsedTime");
      best = std::min(best, elapsed / kCalls);
    }
    return best;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// A challenger must be this much faster than what would run without timing: less is noise.
inline constexpr float kWorthwhile = 0.97f;

/// Whether the stream's calls are being recorded for a CUDA graph: then nothing may be timed or waited for.
inline bool is_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace bantam::kernels::cuda

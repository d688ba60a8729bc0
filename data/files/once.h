// Work that is done at its first use, by whichever thread comes first.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

namespace bantam {

/// std::once_flag with std::call_once, but for exceptions: those of std::call_once pass through a function of libc,
/// whose cleanup needs libgcc_s.so, so that a program that has the compiler's runtime linked in (make dist) ends there
/// instead of reporting an error.
class Once {
 public:
  /// Runs `work()`, unless a call before has done so. Other threads wait meanwhile. What `work` throws is passed on;
  /// the work then counts as not done.
  template <class Work>
  void run(Work&& work) {
    if (done_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(guard_);
    if (done_.load(std::memory_order_relaxed)) return;
    std::forward<Work>(work)();
    done_.store(true, std::memory_order_release);
  }

 private:
  std::mutex guard_;
  std::atomic<bool> done_ = false;
};

}  // namespace bantam

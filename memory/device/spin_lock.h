// Internal: a lock for short sections that are nearly always free to enter: one atomic exchange to lock it, one store
// to unlock it.
#pragma once

#include <atomic>
#include <thread>

namespace bantam {

/// Lockable (std::lock_guard). A std::mutex needs a second atomic exchange to unlock. Waiting threads yield, for the
/// owner may be in a driver's call.
class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire))
      for (int tries = 0; taken_.load(std::memory_order_relaxed); ++tries)
        if (tries >= kBusyTries) std::this_thread::yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  static constexpr int kBusyTries = 64;
  std::atomic<bool> taken_{false};
};

}  // namespace bantam

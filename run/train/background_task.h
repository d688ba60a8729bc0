// BackgroundTask: one piece of work at a time, beside the thread that asks for it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace bantam::run {

/// A thread that runs what it is given, one task after another. `start`, `finished` and `wait` belong to one thread.
class BackgroundTask {
 public:
  BackgroundTask();
  /// Waits for the task under way.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// Whether a task was started whose end `wait` has not reported yet.
  bool busy() const { return busy_; }
  /// Whether the task under way is done: `wait` then returns at once.
  bool finished() const;
  /// Requires !busy().
  void start(std::function<void()> task);
  /// Blocks until the task is done; throws what it threw.
  void wait();

 private:
  void run();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;  // empty: none is waiting or under way
  std::exception_ptr failure_;
  bool ends_ = false;
  bool busy_ = false;  // of the thread that asks
  std::thread thread_;
};

}  // namespace bantam::run

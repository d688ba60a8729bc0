// A thread with one task.
#include "bantam/run/train/background_task.h"

#include <utility>

#include "bantam/base/blocked_signals.h"

namespace bantam::run {

BackgroundTask::BackgroundTask() {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

BackgroundTask::~BackgroundTask() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool BackgroundTask::finished() const {
  const std::lock_guard lock(mutex_);
  return !task_;
}

void BackgroundTask::start(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
    failure_ = nullptr;
  }
  busy_ = true;
  changed_.notify_all();
}

void BackgroundTask::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !task_; });
  busy_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void BackgroundTask::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || task_; });
    if (!task_) return;
    const std::function<void()>& task = task_;  // stays until it is done
    std::exception_ptr failure;
    lock.unlock();
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace bantam::run

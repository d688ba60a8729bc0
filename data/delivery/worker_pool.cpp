// A queue under one lock: batches are long beside a lock's cost.
#include "bantam/data/delivery/worker_pool.h"

#include <algorithm>
#include <utility>

namespace bantam {

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(guard_);
    queue_.clear();
    stopping_ = true;
  }
  work_came_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::grow_to(std::int64_t workers) {
  while (static_cast<std::int64_t>(threads_.size()) < workers) threads_.emplace_back([this] { run(); });
}

WorkerPool::Ticket WorkerPool::submit(std::function<void()> work) {
  auto ticket = std::make_shared<Job>();
  ticket->work = std::move(work);
  {
    const std::lock_guard lock(guard_);
    queue_.push_back(ticket);
  }
  work_came_.notify_one();
  return ticket;
}

bool WorkerPool::done(const Ticket& ticket) {
  const std::lock_guard lock(guard_);
  return ticket->done;
}

void WorkerPool::wait(const Ticket& ticket) {
  std::unique_lock lock(guard_);
  work_ended_.wait(lock, [&] { return ticket->done; });
  if (ticket->failure) std::rethrow_exception(ticket->failure);
}

void WorkerPool::clear() {
  std::unique_lock lock(guard_);
  queue_.clear();
  work_ended_.wait(lock, [&] { return running_ == 0; });
}

void WorkerPool::run() {
  std::unique_lock lock(guard_);
  for (;;) {
    work_came_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const Ticket job = std::move(queue_.front());
    queue_.pop_front();
    ++running_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job->work();
    } catch (...) {
      failure = std::current_exception();
    }
    job->work = nullptr;  // what it holds goes here, not under the lock
    lock.lock();
    job->failure = failure;
    job->done = true;
    --running_;
    work_ended_.notify_all();
  }
}

namespace {

constexpr std::int64_t kFirstDepth = 2;
constexpr std::int64_t kMostDepth = 8;
constexpr std::int64_t kWaitsBeforeMore = 4;
constexpr std::int64_t kReadyBeforeForgetting = 64;

}  // namespace

PrefetchTuner::PrefetchTuner(std::int64_t depth, std::int64_t workers, std::int64_t most_workers)
    : depth_(depth < 0 ? kFirstDepth : std::max<std::int64_t>(depth, 1)),
      workers_(workers < 0 ? 1 : workers),
      most_workers_(most_workers),
      tunes_depth_(depth < 0),
      tunes_workers_(workers < 0) {
  // Workers beyond the depth would have nothing to do; those asked for get it, also beyond what is tried unasked.
  if (tunes_depth_) depth_ = std::max(depth_, workers_ + 1);
}

void PrefetchTuner::on_batch(bool waited) {
  if (warm_up_ > 0) {
    --warm_up_;
    return;
  }
  // A wait now and then is no reason: several of them are, unless many batches were ready since.
  ready_in_a_row_ = waited ? 0 : ready_in_a_row_ + 1;
  if (ready_in_a_row_ >= kReadyBeforeForgetting) waits_ = 0;
  if (!waited || ++waits_ < kWaitsBeforeMore) return;
  waits_ = 0;
  const bool more_workers = tunes_workers_ && workers_ < most_workers_;
  if (more_workers) ++workers_;
  const bool too_shallow = !more_workers || depth_ <= workers_;
  if (tunes_depth_ && too_shallow && depth_ < kMostDepth) ++depth_;
}

}  // namespace bantam

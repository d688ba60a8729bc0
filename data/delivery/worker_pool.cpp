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
  return submit([work = std::move(work)](std::int64_t) { work(); }, 1);
}

WorkerPool::Ticket WorkerPool::submit(std::function<void(std::int64_t)> work, std::int64_t parts) {
  auto ticket = std::make_shared<Job>();
  ticket->work = std::move(work);
  ticket->parts = parts;
  {
    const std::lock_guard lock(guard_);
    queue_.push_back(ticket);
  }
  if (parts == 1)
    work_came_.notify_one();
  else
    work_came_.notify_all();
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
    const Ticket job = queue_.front();
    const std::int64_t part = job->begun++;
    if (job->begun == job->parts) queue_.pop_front();
    ++running_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job->work(part);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (end_part(*job, part, failure)) {
      std::function<void(std::int64_t)> work;
      work.swap(job->work);
      lock.unlock();
      work = nullptr;  // what it holds goes here, not under the lock
      lock.lock();
      job->done = true;
    }
    --running_;
    work_ended_.notify_all();
  }
}

/// With the lock held; whether it was the task's last part.
bool WorkerPool::end_part(Job& job, std::int64_t part, std::exception_ptr failure) {
  ++job.ended;
  if (failure && (!job.failure || part < job.failed_part)) {
    job.failed_part = part;
    job.failure = std::move(failure);
    if (job.begun < job.parts) {
      job.parts = job.begun;
      std::erase_if(queue_, [&](const Ticket& queued) { return queued.get() == &job; });
    }
  }
  return job.ended == job.parts;
}

namespace {

constexpr std::int64_t kFirstDepth = 2;
constexpr std::int64_t kMostDepth = 8;
constexpr std::int64_t kWaitsBeforeMore = 4;
constexpr std::int64_t kReadyBeforeForgetting = 64;

}  // namespace

PrefetchTuner::PrefetchTuner(std::int64_t depth, std::int64_t workers, const WorkerBounds& bounds)
    : depth_(depth < 0 ? kFirstDepth : std::max<std::int64_t>(depth, 1)),
      workers_(workers < 0 ? bounds.first : workers),
      bounds_(bounds),
      tunes_depth_(depth < 0),
      tunes_workers_(workers < 0) {
  // Workers beyond the depth would have nothing to do; those asked for get it, also beyond what is tried unasked.
  if (tunes_depth_ && !bounds.share_batches) depth_ = std::max(depth_, workers_ + 1);
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
  const bool more_workers = tunes_workers_ && workers_ < bounds_.most;
  if (more_workers) ++workers_;
  const bool too_shallow = !more_workers || (!bounds_.share_batches && depth_ <= workers_);
  if (tunes_depth_ && too_shallow && depth_ < kMostDepth) ++depth_;
}

}  // namespace bantam

// Internal: threads that do work in the order it was handed in, and the rule by which their number is found at run
// time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace bantam {

/// Worker threads with one queue. All calls come from one thread, the owner.
class WorkerPool {
 public:
  /// One task of parts that several threads may do at once. The pool's mutex guards its fields.
  struct Job {
    std::function<void(std::int64_t part)> work;
    std::int64_t parts = 1, begun = 0, ended = 0;
    std::int64_t failed_part = 0;
    std::exception_ptr failure;  ///< the first part's in order; parts that had not begun at a failure are dropped
    bool done = false;
  };
  using Ticket = std::shared_ptr<Job>;

  WorkerPool() = default;
  /// Drops work that has not begun and waits for the rest.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Starts threads until there are `workers`.
  void grow_to(std::int64_t workers);
  /// Threads started so far.
  std::int64_t size() const { return static_cast<std::int64_t>(threads_.size()); }
  Ticket submit(std::function<void()> work);
  /// `work(part)` for each of [0, parts), begun in that order: all workers do the oldest task's parts first.
  Ticket submit(std::function<void(std::int64_t part)> work, std::int64_t parts);
  bool done(const Ticket& ticket);
  /// Blocks until the work is done; rethrows what it threw.
  void wait(const Ticket& ticket);
  /// Drops work that has not begun and waits for what has: then no work is under way.
  void clear();

 private:
  void run();
  bool end_part(Job& job, std::int64_t part, std::exception_ptr failure);

  std::mutex guard_;
  std::condition_variable work_came_;
  std::condition_variable work_ended_;
  std::deque<Ticket> queue_;
  std::int64_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

/// Limits the numbers of workers that a PrefetchTuner may try.
struct WorkerBounds {
  std::int64_t first = 1;      ///< workers to begin with
  std::int64_t most = 1;       ///< workers, of those that are not asked for
  bool share_batches = false;  ///< several make one batch, so that fewer batches than workers keep them busy
};

/// Finds depth and number of workers while batches are asked for: more of both while the step has to wait, never fewer.
class PrefetchTuner {
 public:
  /// Negative values are to be found.
  PrefetchTuner(std::int64_t depth, std::int64_t workers, const WorkerBounds& bounds);
  std::int64_t depth() const { return depth_; }
  std::int64_t workers() const { return workers_; }
  /// An epoch was started: its first batches are waited for however many workers there are.
  void on_start() { warm_up_ = depth_; }
  /// A batch was asked for; `waited` when it was not ready.
  void on_batch(bool waited);

 private:
  std::int64_t depth_, workers_;
  WorkerBounds bounds_;
  bool tunes_depth_, tunes_workers_;
  std::int64_t warm_up_ = 0;
  std::int64_t waits_ = 0;
  std::int64_t ready_in_a_row_ = 0;
};

}  // namespace bantam

// The process' pool of workers: a caller posts its parts, works on them itself, and workers join while parts are left.
#include "bantam/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bantam/base/part_recorder.h"

namespace bantam {
namespace {

/// How long a thread that has nothing to do polls before it sleeps: longer than the gaps between the kernels of a step,
/// and far shorter than a scheduler's time slice.
constexpr std::chrono::microseconds kPolling{50};

thread_local bool inside_part = false;
thread_local int worker_number = 0;  // 0: none of the pool's

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Where spans go while somebody records them.
struct Recording {
  std::atomic<bool> on = false;
  std::mutex guard;
  std::vector<PartSpan> spans;
};

/// Never destroyed, as the pool, whose workers read it.
Recording& recording() {
  static Recording* const only = new Recording;
  return *only;
}

/// Notes what the thread does within the scope, where spans are recorded.
class SpanScope {
 public:
  explicit SpanScope(bool waits)
      : waits_(waits), begin_(recording().on.load(std::memory_order_relaxed) ? now_ns() : 0) {}
  ~SpanScope() {
    if (begin_ == 0) return;
    Recording& to = recording();
    const std::lock_guard lock(to.guard);
    if (to.on) to.spans.push_back({worker_number, waits_, begin_, now_ns()});
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  bool waits_;
  std::int64_t begin_;  // 0: not recorded
};

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Polls until `ready()` or for kPolling; the last answer.
template <class Ready>
bool poll(Ready&& ready) {
  const auto end = std::chrono::steady_clock::now() + kPolling;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

/// The parts of one call. Lives on its caller's stack: workers may touch it only between joining and leaving.
struct Job {
  std::int64_t parts;
  int most_helpers;
  void (*part)(void*, std::int64_t);
  void* context;
  std::atomic<std::int64_t> next = 0;
  std::atomic<int> helpers = 0;  ///< workers inside; changed under the pool's lock
  std::mutex failure_guard;
  std::int64_t failed_part = 0;  ///< the first in order, as one thread would have met it
  std::exception_ptr failure;    ///< what it threw

  bool parts_left() const { return next.load(std::memory_order_relaxed) < parts; }

  void work() {
    const SpanScope span(false);
    inside_part = true;
    for (std::int64_t i = next++; i < parts; i = next++) {
      try {
        part(context, i);
      } catch (...) {
        keep_failure(i, std::current_exception());
      }
    }
    inside_part = false;
  }

  void keep_failure(std::int64_t of_part, std::exception_ptr thrown) {
    const std::lock_guard lock(failure_guard);
    if (failure && failed_part < of_part) return;
    failed_part = of_part;
    failure = std::move(thrown);
  }
};

class Pool {
 public:
  void run(Job& job) {
    {
      const std::lock_guard lock(guard_);
      hire(job.most_helpers);
      jobs_.push_back(&job);
      ++posted_;
    }
    for (int i = std::min<int>(sleeping_, job.most_helpers); i > 0; --i) wake_.notify_one();
    job.work();
    {
      const std::lock_guard lock(guard_);
      std::erase(jobs_, &job);  // nobody joins from here on
    }
    const SpanScope span(true);
    if (poll([&] { return job.helpers == 0; })) return;
    std::unique_lock lock(guard_);
    left_.wait(lock, [&] { return job.helpers == 0; });
  }

 private:
  /// Starts workers up to `count`, or as many as the system allows.
  void hire(int count) {
    try {
      for (; workers_ < count; ++workers_) std::thread([this, number = workers_ + 1] { serve(number); }).detach();
    } catch (const std::system_error&) {
    }
  }

  [[noreturn]] void serve(int number) {
    worker_number = number;
    for (;;) {
      const std::uint64_t seen = posted_;
      while (Job* job = join()) {
        job->work();
        const std::lock_guard lock(guard_);
        if (--job->helpers == 0) left_.notify_all();
      }
      if (poll([&] { return posted_ != seen; })) continue;
      std::unique_lock lock(guard_);
      ++sleeping_;
      wake_.wait(lock, [&] { return posted_ != seen; });
      --sleeping_;
    }
  }

  /// A job that has parts left and room for a helper, entered; null where there is none.
  Job* join() {
    const std::lock_guard lock(guard_);
    for (Job* job : jobs_) {
      if (!job->parts_left() || job->helpers >= job->most_helpers) continue;
      ++job->helpers;
      return job;
    }
    return nullptr;
  }

  std::mutex guard_;
  std::condition_variable wake_, left_;
  std::vector<Job*> jobs_;
  int workers_ = 0;
  std::atomic<int> sleeping_ = 0;
  std::atomic<std::uint64_t> posted_ = 0;  ///< jobs so far; changed under the lock
};

/// Never destroyed: its workers run until the process ends.
Pool& pool() {
  static Pool* const only = new Pool;
  return *only;
}

}  // namespace

void run_parts(std::int64_t parts, int threads, void (*part)(void* context, std::int64_t i), void* context) {
  if (parts <= 1 || threads <= 1 || inside_part) {
    for (std::int64_t i = 0; i < parts; ++i) part(context, i);
    return;
  }
  Job job{.parts = parts,
          .most_helpers = static_cast<int>(std::min<std::int64_t>(threads, parts)) - 1,
          .part = part,
          .context = context};
  pool().run(job);
  if (job.failure) std::rethrow_exception(job.failure);
}

PartRecorder::PartRecorder() {
  Recording& to = recording();
  const std::lock_guard lock(to.guard);
  to.spans.clear();
  to.on = true;
}

PartRecorder::~PartRecorder() { recording().on = false; }

std::vector<PartSpan> PartRecorder::stop() {
  Recording& from = recording();
  const std::lock_guard lock(from.guard);
  from.on = false;
  std::ranges::sort(from.spans, {}, &PartSpan::begin_ns);
  return std::exchange(from.spans, {});
}

}  // namespace bantam

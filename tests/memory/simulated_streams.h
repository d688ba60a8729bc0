// Test support: streams that finish their work when the test says so, and that check at that moment that no earlier use
// is unfinished.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/memory/allocator/stream_oracle.h"

namespace bantam::testing {

/// A point in a stream's work: its first `position` tasks.
struct Point {
  std::uint32_t stream = 0;
  std::uint64_t position = 0;
};

/// Streams 1 … n of cuda:0 (as names: nothing of CUDA is called); the default stream is the host's.
class SimulatedStreams {
 public:
  explicit SimulatedStreams(std::size_t count) : queues_(count + 1) {}

  static Stream stream(std::uint32_t id) { return {Device::cuda(0), nullptr, id}; }
  static Stream host() { return {}; }
  static bool is_host(Stream stream) { return !stream.device.is_cuda(); }

  /// Submits work to a stream that must find `earlier` done when it runs (checked, not waited for). Host work runs at
  /// once.
  Point submit(Stream stream, std::vector<Point> earlier = {}) {
    if (is_host(stream)) {
      check(earlier);
      return {0, 0};
    }
    Queue& queue = queues_[stream.id];
    queue.tasks.push_back({std::move(earlier), false});
    return {stream.id, queue.finished + queue.tasks.size()};
  }
  bool finished(Point point) const { return point.position <= queues_[point.stream].finished; }
  std::uint64_t submitted(std::uint32_t id) const { return queues_[id].finished + queues_[id].tasks.size(); }

  /// Runs up to `tasks` tasks of a stream; a wait for an unfinished point stops it.
  void advance(std::uint32_t id, std::size_t tasks) {
    Queue& queue = queues_[id];
    for (; tasks > 0 && !queue.tasks.empty(); --tasks) {
      const Task& task = queue.tasks.front();
      if (task.wait && !finished(task.points.front())) return;
      if (!task.wait) check(task.points);
      queue.tasks.pop_front();
      ++queue.finished;
    }
  }
  /// Runs streams until `point` is finished.
  void run_until(Point point) {
    while (!finished(point)) {
      const Task& task = queues_[point.stream].tasks.front();
      if (task.wait) run_until(task.points.front());
      advance(point.stream, 1);
    }
  }
  void run_all() {
    for (std::uint32_t id = 1; id < queues_.size(); ++id) run_until({id, submitted(id)});
  }
  void wait(Stream stream, Point point) { queues_[stream.id].tasks.push_back({{point}, true}); }

  // What the allocator asked, and errors to inject.
  std::uint64_t records = 0, device_waits = 0, host_waits = 0, open_marks = 0;
  bool fail_record = false;
  std::uint64_t checked = 0;  ///< pairs of uses found in order

 private:
  struct Task {
    std::vector<Point> points;
    bool wait = false;
  };
  struct Queue {
    std::deque<Task> tasks;
    std::uint64_t finished = 0;
  };
  void check(const std::vector<Point>& earlier) {
    for (const Point& point : earlier) {
      EXPECT_TRUE(finished(point)) << "memory is used while stream " << point.stream << " still uses it";
      ++checked;
    }
  }

  std::vector<Queue> queues_;
};

class SimulatedOracle final : public StreamOracle {
 public:
  explicit SimulatedOracle(std::shared_ptr<SimulatedStreams> streams) : streams_(std::move(streams)) {}
  bool asynchronous(Stream stream) const override { return !SimulatedStreams::is_host(stream); }
  Mark record(Stream stream) override {
    if (streams_->fail_record) throw std::runtime_error("record fails");
    ++streams_->records;
    ++streams_->open_marks;
    marks_.push_back({stream.id, streams_->submitted(stream.id)});
    taken_.push_back(true);
    return static_cast<Mark>(marks_.size() - 1);
  }
  bool done(Mark mark) override { return streams_->finished(at(mark)); }
  void make_wait(Mark mark, Stream stream) override {
    EXPECT_TRUE(asynchronous(stream));
    ++streams_->device_waits;
    streams_->wait(stream, at(mark));
  }
  void synchronize(Mark mark) override {
    ++streams_->host_waits;
    streams_->run_until(at(mark));
  }
  void recycle(Mark mark) noexcept override {
    EXPECT_TRUE(taken_[mark]) << "a mark was recycled twice";
    taken_[mark] = false;
    --streams_->open_marks;
  }

 private:
  Point at(Mark mark) const {
    EXPECT_TRUE(taken_[mark]) << "a recycled mark is used";
    return marks_[mark];
  }
  std::shared_ptr<SimulatedStreams> streams_;
  std::vector<Point> marks_;
  std::vector<bool> taken_;
};

}  // namespace bantam::testing

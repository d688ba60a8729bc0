// Timed events on CUDA, the steady clock on the CPU.
#include "bantam/memory/device/stream_clock.h"

#include <chrono>
#include <cmath>

#include "bantam/memory/device/cuda_backend.h"

namespace bantam {

StreamClock::~StreamClock() {
  for (void* event : events_) cuda_backend::event_destroy(stream_.device.index, event);
}

std::int64_t StreamClock::mark() {
  if (stream_.device.is_cuda()) {
    events_.push_back(cuda_backend::event_create(stream_.device.index, true));
    cuda_backend::event_mark(stream_.device.index, events_.back(), stream_.handle);
    return static_cast<std::int64_t>(events_.size()) - 1;
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  host_.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return static_cast<std::int64_t>(host_.size()) - 1;
}

std::optional<double> StreamClock::seconds_between(std::int64_t begin, std::int64_t end) const {
  const auto from = static_cast<std::size_t>(begin), to = static_cast<std::size_t>(end);
  if (!stream_.device.is_cuda()) return 1e-9 * static_cast<double>(host_.at(to) - host_.at(from));
  synchronize(stream_);
  return cuda_backend::event_seconds(events_.at(from), events_.at(to));
}

std::vector<std::int64_t> StreamClock::times() const {
  if (!stream_.device.is_cuda()) return host_;
  synchronize(stream_);
  std::vector<std::int64_t> times;
  double seconds = 0;  // a sum of short differences: one long one would be a coarse float
  for (std::size_t i = 0; i < events_.size(); ++i) {
    if (i > 0) seconds += cuda_backend::event_seconds(events_[i - 1], events_[i]).value();
    times.push_back(std::llround(1e9 * seconds));
  }
  return times;
}

}  // namespace bantam

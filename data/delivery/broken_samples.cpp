// One lock: broken samples are few.
#include "bantam/data/delivery/broken_samples.h"

namespace bantam {
namespace {

constexpr std::size_t kShown = 10;

}  // namespace

void BrokenSamples::add(const void* split, std::int64_t index, Sample sample) {
  const std::lock_guard lock(guard_);
  if (!found_.emplace(split, index).second) return;
  if (on_found_) on_found_(index, sample);
  if (first_.size() < kShown) first_.push_back(std::move(sample));
}

std::int64_t BrokenSamples::count() const {
  const std::lock_guard lock(guard_);
  return static_cast<std::int64_t>(found_.size());
}

std::vector<BrokenSamples::Sample> BrokenSamples::first() const {
  const std::lock_guard lock(guard_);
  return first_;
}

}  // namespace bantam

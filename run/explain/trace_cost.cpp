// One walk over all slices: what has come off so far moves all that follows to an earlier time.
#include "bantam/run/explain/trace_cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bantam::run {
namespace {

class Shortening {
 public:
  explicit Shortening(double share) : share_(share) {}

  void shorten(RecordedUpdate& update) {
    std::int64_t covered = update.begin_ns;
    update.begin_ns -= taken_;
    for (StepSlice& slice : update.slices) {
      owed_ += share_;
      const std::int64_t begin = slice.begin_ns, end = slice.end_ns;
      take(begin - covered);
      slice.begin_ns = begin - taken_;
      take((end - begin) / 2);
      slice.end_ns = end - taken_;
      covered = end;
    }
    take(update.end_ns - covered);
    update.end_ns -= taken_;
  }
  std::int64_t taken() const { return taken_; }

 private:
  /// Up to `most` of what is owed.
  void take(std::int64_t most) {
    const std::int64_t now = std::clamp<std::int64_t>(std::llround(owed_), 0, std::max<std::int64_t>(0, most));
    owed_ -= static_cast<double>(now);
    taken_ += now;
  }

  double share_, owed_ = 0;
  std::int64_t taken_ = 0;
};

}  // namespace

double take_off_trace_cost(std::vector<RecordedUpdate>& updates, double plain_seconds) {
  std::size_t slices = 0;
  for (const RecordedUpdate& update : updates) slices += update.slices.size();
  if (slices == 0) return 0;
  const auto count = static_cast<double>(updates.size());
  const double excess =
      static_cast<double>(updates.back().end_ns - updates.front().begin_ns) - 1e9 * plain_seconds * count;
  if (excess <= 0) return 0;
  Shortening shortening(excess / static_cast<double>(slices));
  for (RecordedUpdate& update : updates) shortening.shorten(update);
  return 1e-9 * static_cast<double>(shortening.taken()) / count;
}

}  // namespace bantam::run

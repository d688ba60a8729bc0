// The trade of memory for time: the least bytes and the most images/s of a configuration, over batch sizes and what is
// recomputed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bantam/run/config/step_case.h"
#include "bantam/run/fit/plan_fit.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::run {

struct MemoryCurve {
  /// One way to train: a batch size and a recompute policy.
  struct Point {
    StepCase step;                   ///< predicted_extra: beside the same batch without recompute; unset without any
    std::uint64_t peak_bytes = 0;    ///< planned, in the device's allocator
    std::uint64_t needed_bytes = 0;  ///< the least limit (of the process on a GPU, of the pool elsewhere) that it fits
    double step_seconds = 0;         ///< predicted, of an update
    double images_per_s = 0;         ///< predicted
    bool best = false;               ///< no other point has as many images/s in as many bytes
    bool fits = true;                ///< what the configuration or the command named, or the card
  };
  std::vector<Point> points;  ///< by batch, then by falling bytes
  bool estimate = false;      ///< the device's rates are estimated

  /// The point with the most images/s that needs at most so many bytes; null: none does.
  const Point* best_within(std::uint64_t bytes) const;
  /// The best of all points that fit; null: none fits.
  const Point* fastest() const;
  /// Where the curve bends: of the points that fit, the one of least bytes with at least 95 % of the fastest one's
  /// images/s.
  const Point* knee() const;
};

/// The batch sizes of a curve where none are named: the usual one of the decided configuration, its half and quarter,
/// and its double where the data fill such a batch.
std::vector<std::int64_t> curve_batches(const RunConfig& config);

/// Plans each batch without recompute and with the policies of recompute_curve. `on_batch` is called before each.
/// Each point's arena is solved within `arena_seconds`. Nothing is allocated. Throws as plan.
MemoryCurve memory_curve(const RunConfig& config, const PlanTarget& target, const std::vector<std::int64_t>& batches,
                         Precision precision, double arena_seconds = 1.0,
                         const std::function<void(std::int64_t batch)>& on_batch = {});

/// The knee in a sentence: "8.10 GiB: batch 96, recompute cheap, 4.0 % fewer images/s than the fastest, which needs
/// 11.2 GiB".
std::string knee_text(const MemoryCurve& curve);

}  // namespace bantam::run

// One curve of policies a batch size, each point planned as `bantam plan` plans a row.
#include "bantam/run/memory_curve.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/engine/plan/recompute_search.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/plan.h"

namespace bantam::run {
namespace {

constexpr double kKnee = 0.95;  // of the fastest point's images/s

/// Marks the points that no other has beaten: in bytes, images/s, or both.
void mark_best(std::vector<MemoryCurve::Point>& points) {
  for (MemoryCurve::Point& point : points)
    point.best = std::ranges::none_of(points, [&](const MemoryCurve::Point& other) {
      const bool no_worse = other.needed_bytes <= point.needed_bytes && other.images_per_s >= point.images_per_s;
      return no_worse && (other.needed_bytes < point.needed_bytes || other.images_per_s > point.images_per_s);
    });
}

/// The best of the points that `fits` says yes to: the most images/s, of equals the least bytes.
template <class Fits>
const MemoryCurve::Point* most_images(const std::vector<MemoryCurve::Point>& points, const Fits& fits) {
  const MemoryCurve::Point* best = nullptr;
  for (const MemoryCurve::Point& point : points)
    if (point.best && fits(point) && (best == nullptr || point.images_per_s > best->images_per_s)) best = &point;
  return best;
}

}  // namespace

const MemoryCurve::Point* MemoryCurve::best_within(std::uint64_t bytes) const {
  return most_images(points, [&](const MemoryCurve::Point& point) { return point.needed_bytes <= bytes; });
}

const MemoryCurve::Point* MemoryCurve::fastest() const {
  return most_images(points, [](const MemoryCurve::Point& point) { return point.fits; });
}

const MemoryCurve::Point* MemoryCurve::knee() const {
  const MemoryCurve::Point* most = fastest();
  if (most == nullptr) return nullptr;
  const MemoryCurve::Point* least = most;
  for (const MemoryCurve::Point& point : points)
    if (point.fits && point.images_per_s >= kKnee * most->images_per_s && point.needed_bytes < least->needed_bytes)
      least = &point;
  return least;
}

std::vector<std::int64_t> curve_batches(const RunConfig& config) {
  const std::int64_t batch = usual_batch(config);
  std::vector<std::int64_t> batches;
  for (const std::int64_t size : {batch / 4, batch / 2, batch, 2 * batch})
    if (size > 0 && (size <= batch || !config.data || has_batches(config, size))) batches.push_back(size);
  return batches;
}

MemoryCurve memory_curve(const RunConfig& config, const PlanTarget& target, const std::vector<std::int64_t>& batches,
                         Precision precision, double arena_seconds,
                         const std::function<void(std::int64_t batch)>& on_batch) {
  const DeviceRates rates = rates_of(config, precision);
  MemoryCurve curve{.points = {}, .estimate = rates.estimate};
  for (const std::int64_t batch : batches) {
    if (on_batch) on_batch(batch);
    const std::vector<RecomputePoint> found = recompute_curve(
        config.model.graph, {.step = train_plan_options(config, {batch, precision, {}}), .rates = rates});
    PlanRequest request{.batches = {batch}, .precisions = {precision}, .arena_seconds = arena_seconds};
    for (const RecomputePoint& point : found) request.recomputes.emplace_back(point.recompute);
    const Plan planned = plan(config, target, request);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const PlanRow& row = planned.rows.at(i);
      MemoryCurve::Point point{.step = row.step, .peak_bytes = row.planned.peak_bytes};
      if (found[i].extra_work > 0) point.step.predicted_extra = found[i].extra_work;
      point.needed_bytes = limit_bytes_for(target, row.needed_pool());
      point.step_seconds = found[i].seconds;
      point.images_per_s =
          static_cast<double>(batch * config.train.accumulate * config.train.replicas) / found[i].seconds;
      point.fits = row.planned.fits;
      curve.points.push_back(std::move(point));
    }
  }
  mark_best(curve.points);
  return curve;
}

std::string knee_text(const MemoryCurve& curve) {
  const MemoryCurve::Point *knee = curve.knee(), *most = curve.fastest();
  if (knee == nullptr) return "no point of the curve fits";
  const std::string at = fmt::format("{}: batch {}, recompute {}", format_byte_size(knee->needed_bytes),
                                     knee->step.batch, to_yaml(knee->step.recompute));
  if (knee == most) return at + ": nothing is faster";
  return fmt::format("{}, {:.1f} % fewer images/s than the fastest, which needs {}", at,
                     100 * (1 - knee->images_per_s / most->images_per_s), format_byte_size(most->needed_bytes));
}

}  // namespace bantam::run

// A range test's run, and reading its losses.
#include "bantam/run/find_lr.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::run {
namespace {

void check(const RangeTestOptions& options) {
  if (!(options.from > 0) || !(options.to > options.from) || !std::isfinite(options.to))
    throw ConfigError(fmt::format("a range test goes from a positive learning rate to a larger one, got {} to {}",
                                  options.from, options.to));
  if (options.updates < 10 || options.updates > 1'000'000)
    throw ConfigError(fmt::format("a range test has 10 to 1000000 updates, got {}", options.updates));
}

/// Without a run's folder for what `cache: disk` writes, samples are read as they are used, to the same bits.
DataOptions data_of(const RunConfig& config) {
  DataOptions data = *config.data;
  if (packs_into_run(data)) data.pipeline.cache = CacheKind::off;
  return data;
}

/// Notes rates and losses, and stops once more of them would be cut.
class RangeRecorder : public Callback {
 public:
  void on_progress(const ProgressEvent& event) override {
    for (std::size_t i = 0; i < event.metrics.size(); ++i)
      points.push_back({.learning_rate = event.values[i].learning_rate, .loss = event.metrics[i].loss});
    if (read_range_test(points).diverged) trainer->request_stop();
  }
  Trainer* trainer = nullptr;
  std::vector<RangeTestPoint> points;
};

/// Slope over the rate's logarithm, between the points `reach` before and after it.
double slope_at(const std::vector<RangeTestPoint>& points, std::size_t i, std::size_t reach) {
  return (points[i + reach].smoothed - points[i - reach].smoothed) /
         std::log(points[i + reach].learning_rate / points[i - reach].learning_rate);
}

/// Where the smoothed loss falls fastest before point `end`. The first points are too few to be smooth: they only count
/// as neighbours.
std::optional<double> steepest_before(const std::vector<RangeTestPoint>& points, std::size_t end) {
  const std::size_t reach = std::max<std::size_t>(points.size() / 20, 1);
  std::optional<double> rate;
  double steepest = 0;
  for (std::size_t i = 2 * reach; i < end && i + reach < points.size(); ++i)
    if (const double slope = slope_at(points, i, reach); slope < steepest) {
      steepest = slope;
      rate = points[i].learning_rate;
    }
  return rate;
}

}  // namespace

double range_test_rate(const RangeTestOptions& options, std::int64_t update) {
  const double share = static_cast<double>(update) / static_cast<double>(options.updates - 1);
  return options.from * std::pow(options.to / options.from, share);
}

RangeTest read_range_test(std::vector<RangeTestPoint> points) {
  RangeTest test;
  double mean = 0, weight = 0, least = INFINITY;
  for (RangeTestPoint& point : points) {
    mean = kRangeTestMemory * mean + (1 - kRangeTestMemory) * point.loss;
    weight = kRangeTestMemory * weight + (1 - kRangeTestMemory);
    point.smoothed = mean / weight;
    test.diverged = !std::isfinite(point.loss) || point.smoothed > kRangeTestDiverged * least;
    if (test.diverged) break;
    least = std::min(least, point.smoothed);
    test.points.push_back(point);
  }
  if (test.points.empty()) return test;
  const auto minimum = std::ranges::min_element(test.points, {}, &RangeTestPoint::smoothed);
  test.tenth_of_minimum = minimum->learning_rate / 10;
  test.steepest = steepest_before(test.points, static_cast<std::size_t>(minimum - test.points.begin()));
  return test;
}

double range_test_ceiling(const RangeTest& test) {
  if (test.points.empty()) return 0;
  const double least = std::ranges::min_element(test.points, {}, &RangeTestPoint::smoothed)->smoothed;
  const double first = test.points.front().smoothed;
  return first > least ? first + (first - least) / 2 : test.points.back().smoothed;
}

RangeTest range_test(const RunConfig& config, const RangeTestOptions& options) {
  check(options);
  const RunPlan plan = plan_run(config);
  const std::unique_ptr<Runtime> runtime = make_runtime(config, options.threads);
  if (config.memory.on_oom == OnOutOfMemory::fail) runtime->require_pool(config.device, plan.pool_bytes);
  (void)runtime->allocator(config.device).reserve_pool(plan.pool_bytes);
  const OpenedData data = open_data(*runtime, data_of(config), config.device, config.seed);
  TrainingSession session(*runtime, config.device, config.model.graph, session_options(config));
  session.step().prepare({}, plan.placements);
  (void)load_initial_weights(session.model(), config);
  const std::int64_t an_epoch =
      updates_of(data.train->batches_per_epoch(), config.train.accumulate, config.train.replicas);
  Trainer trainer(session.step(), *data.train, nullptr,
                  {.epochs = (options.updates + an_epoch - 1) / an_epoch,
                   .accumulate = config.train.accumulate,
                   .diagnose = false,
                   .evaluate = false,
                   .mode = config.train.mode,
                   .schedules = UpdateSchedules{.learning_rate =
                                                    [&](std::int64_t n) {
                                                      return static_cast<float>(range_test_rate(options, n));
                                                    }},
                   .on_oom = config.memory.on_oom,
                   .max_updates = options.updates});
  RangeRecorder recorder;
  recorder.trainer = &trainer;
  trainer.add(recorder);
  bool lost = false;
  try {
    (void)trainer.run();
  } catch (const NotFiniteError&) {  // the rates have become too large
    lost = true;
  }
  RangeTest test = read_range_test(std::move(recorder.points));
  test.diverged = test.diverged || lost;
  return test;
}

}  // namespace bantam::run

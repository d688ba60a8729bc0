// Steps on random batches, timed in windows; and their memory from the allocator's own count.
#include "bantam/run/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/run/session/algorithm_cache.h"

namespace bantam::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kResidentBatches = 8;  // so that no batch stays in a cache by being the only one
constexpr std::int64_t kWarmUpSteps = 5;
constexpr double kWindowSeconds = 0.05;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

}  // namespace

StepMeasurement measure_step(const RunConfig& config, const StepCase& options, int threads, double seconds) {
  StepSession session(config, options, config.device, threads);
  AlgorithmCache algorithms(session.runtime(), config);
  session.run(kWarmUpSteps);
  session.wait();
  algorithms.save();
  StepMeasurement measured{.memory = session.memory()};
  session.add_batches(kResidentBatches);
  if (options.mode == StepMode::captured) session.start_capturing();
  (void)session.run(1);
  session.wait();
  std::int64_t steps = session.steps_a_launch();
  const auto timed = [&] {
    const Clock::time_point start = Clock::now();
    const std::int64_t done = session.run(steps);
    session.wait();
    return std::pair(seconds_since(start), static_cast<double>(done));
  };
  while (timed().first < kWindowSeconds) steps *= 2;
  std::vector<double> windows;
  const Clock::time_point start = Clock::now();
  while (windows.size() < 3 || seconds_since(start) < seconds) {
    const auto [window, done] = timed();
    windows.push_back(window / done);
  }
  const double step = median(windows);
  measured.ms_per_step = step * 1e3;
  measured.images_per_s = static_cast<double>(options.batch * config.train.accumulate * config.train.replicas) / step;
  measured.windows = static_cast<std::int64_t>(windows.size());
  measured.kernels = session.kernels_a_step();
  measured.parameters = session.model().parameters().parameter_count();
  return measured;
}

std::optional<double> measure_extra(const RunConfig& config, const StepCase& row, const StepMeasurement& measured,
                                    int threads, double seconds) {
  const StepCase plain{row.batch, row.precision, {}};
  RunConfig unbound = config;  // the budget is what it does not fit
  unbound.memory.budget = 0;
  try {
    return measured.ms_per_step / measure_step(unbound, plain, threads, seconds).ms_per_step - 1;
  } catch (const OutOfMemory&) {
    return std::nullopt;
  }
}

}  // namespace bantam::run

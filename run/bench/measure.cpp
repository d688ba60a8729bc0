// Steps on random batches, timed in windows; and their memory from the allocator's own count.
#include "bantam/run/bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/run/ranks/rank_config.h"
#include "bantam/run/train/algorithm_cache.h"

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

/// The largest of all ranks.
double slowest(const RunRanks& ranks, double mine) {
  if (!ranks.several()) return mine;
  for (const std::vector<std::byte>& bytes : all_gather(*ranks.link, std::as_bytes(std::span(&mine, 1)))) {
    double other = 0;
    std::memcpy(&other, bytes.data(), sizeof(other));
    mine = std::max(mine, other);
  }
  return mine;
}

/// Steps in windows, as all ranks time them: each takes the slowest rank's time, so that all grow and end alike, but
/// for the end of the measuring time, which is rank 0's.
class Windows {
 public:
  Windows(StepSession& session, const RunRanks& ranks) : session_(session), ranks_(ranks) {}

  /// Seconds of each window's steps.
  std::vector<double> measure(double seconds) {
    steps_ = session_.steps_a_launch();
    while (timed().first < kWindowSeconds) steps_ *= 2;
    std::vector<double> windows;
    const Clock::time_point start = Clock::now();
    while (goes_on(windows.size() < 3 || seconds_since(start) < seconds)) {
      const auto [window, done] = timed();
      windows.push_back(window / done);
    }
    return windows;
  }

 private:
  std::pair<double, double> timed() {
    if (ranks_.several()) barrier(*ranks_.link);
    const Clock::time_point start = Clock::now();
    const std::int64_t done = session_.run(steps_);
    session_.wait();
    return {slowest(ranks_, seconds_since(start)), static_cast<double>(done)};
  }
  bool goes_on(bool mine) const { return ranks_.several() ? text_of_first(ranks_, mine ? "on" : "end") == "on" : mine; }

  StepSession& session_;
  const RunRanks& ranks_;
  std::int64_t steps_ = 1;
};

/// The fewest of all ranks.
std::int64_t fewest(const RunRanks& ranks, std::int64_t mine) {
  return static_cast<std::int64_t>(-slowest(ranks, -static_cast<double>(mine)));
}

StepMeasurement measure_session(StepSession& session, const RunConfig& config, const StepCase& options, double seconds,
                                const RunRanks& ranks) {
  StepMeasurement measured{.memory = session.memory()};
  session.add_batches(kResidentBatches);
  if (ranks.several()) session.keep_batches(fewest(ranks, session.batches()));
  if (options.mode == StepMode::captured) session.start_capturing();
  (void)session.run(1);
  session.wait();
  const std::vector<double> windows = Windows(session, ranks).measure(seconds);
  const double step = median(windows);
  measured.ms_per_step = step * 1e3;
  measured.images_per_s = static_cast<double>(options.batch * config.train.accumulate * config.train.replicas) / step;
  measured.windows = static_cast<std::int64_t>(windows.size());
  measured.kernels = session.kernels_a_step();
  measured.parameters = session.model().parameters().parameter_count();
  return measured;
}

/// Milliseconds that an update waits for its exchange, on the rank that waits least: the median of some.
std::optional<double> wait_for_exchange(StepSession& session, const StepCase& options, const RunRanks& ranks) {
  constexpr int kLaunches = 10;
  session.step().time_exchange_waits(true);
  if (options.mode == StepMode::captured) session.start_capturing();
  std::vector<double> least;
  for (int launch = 0; launch < kLaunches; ++launch) {
    (void)session.run(session.steps_a_launch());
    std::vector<double> waits = session.step().exchange_waits();
    waits.resize(static_cast<std::size_t>(fewest(ranks, static_cast<std::int64_t>(waits.size()))));
    for (double& wait : waits) wait = -slowest(ranks, -wait);
    least.insert(least.end(), waits.begin(), waits.end());
  }
  session.step().time_exchange_waits(false);
  if (least.empty()) return std::nullopt;
  return 1e3 * median(std::move(least));
}

/// One replica on each.
RunConfig config_on_ranks(const RunConfig& config, const RunRanks& ranks) {
  RunConfig own = config;
  own.train.replicas = ranks.size();
  own = config_of_rank(own, ranks.rank(), std::vector<int>(static_cast<std::size_t>(ranks.size()), 1));
  check_replicas(replica_options(own));
  return own;
}

}  // namespace

StepMeasurement measure_step(const RunConfig& config, const StepCase& options, int threads, double seconds) {
  StepSession session(config, options, config.device, threads);
  AlgorithmCache algorithms(session.runtime(), config);
  session.run(kWarmUpSteps);
  session.wait();
  algorithms.save();
  return measure_session(session, config, options, seconds, {});
}

std::optional<double> RanksMeasurement::hidden() const {
  if (!exchange_ms || !wait_ms || *exchange_ms <= 0) return std::nullopt;
  return std::clamp(1 - *wait_ms / *exchange_ms, 0.0, 1.0);
}

RanksMeasurement measure_step_on_ranks(const RunConfig& config, const StepCase& options, int threads, double seconds,
                                       const RunRanks& ranks) {
  constexpr int kExchanges = 50;
  const RunConfig own = config_on_ranks(config, ranks);
  StepSession session(own, options, own.device, threads, nullptr, ranks.link);
  TrainingStep& step = session.step();
  AlgorithmCache algorithms(session.runtime(), own, {.ranks = ranks, .in_rounds = true});
  if (own.device.is_cuda())
    algorithms.choose_in_rounds(to_string(options.recompute),
                                [&] { step.warm_up(options.batch, own.train.accumulate > 1); });
  session.run(kWarmUpSteps);
  session.wait();
  if (ranks.writes()) algorithms.save();
  RanksMeasurement measured{.step = measure_session(session, own, options, seconds, ranks)};
  if (!own.device.is_cuda()) return measured;
  measured.transport = step.transport();
  measured.exchange_ms = 1e3 * slowest(ranks, step.time_exchange(kExchanges));
  measured.wait_ms = wait_for_exchange(session, options, ranks);
  step.skip_exchange(true);
  if (options.mode == StepMode::captured) session.start_capturing();
  measured.alone_ms = 1e3 * median(Windows(session, ranks).measure(seconds));
  step.skip_exchange(false);
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

// Counts of GPUs, one after the other; ranks are started anew for each row.
#include "bantam/cli/bench/bench_gpus.h"

#include <bit>
#include <cstdio>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/cli/train/train_ranks.h"
#include "bantam/run/fit/plan_target.h"
#include "bantam/run/ranks/rank_devices.h"

namespace bantam::cli {
namespace {

/// A row's figures.
struct GpusRow {
  int gpus = 1;
  RanksMeasurement measured;
  double one_ms = 0;  ///< the ordinary step on one GPU
  double efficiency() const { return one_ms / measured.step.ms_per_step; }
};

std::string percent(std::optional<double> share) { return share ? fmt::format("{:.1f} %", 100 * *share) : "-"; }

std::string cells(const GpusRow& row) {
  const RanksMeasurement& m = row.measured;
  return fmt::format(" {:>8.4g} {:>9} {:>7} {:>6} {:>9} {:>8}", m.step.ms_per_step,
                     compact_rate(m.step.images_per_s, 8), percent(row.efficiency()),
                     compact_bytes(m.step.memory.peak_bytes),
                     m.exchange_ms ? fmt::format("{:.4g}", *m.exchange_ms) : "-", percent(m.hidden()));
}

void add_figures(nlohmann::ordered_json& json, const GpusRow& row) {
  const RanksMeasurement& m = row.measured;
  add_timing(json, m.step);
  json["one_gpu_ms"] = row.one_ms;
  json["efficiency"] = row.efficiency();
  if (m.exchange_ms) json["exchange_ms"] = *m.exchange_ms;
  if (m.wait_ms) json["exchange_wait_ms"] = *m.wait_ms;
  if (m.alone_ms) json["without_exchange_ms"] = *m.alone_ms;
  if (const auto hidden = m.hidden()) json["exchange_hidden"] = *hidden;
  if (!m.transport.empty()) json["transport"] = m.transport;
  add_memory(json, m.step.memory);
}

/// The configuration on the first GPU, with one replica a GPU.
RunConfig config_on_gpus(const BenchOptions& options) {
  CommonOptions common = options.common;
  common.flag_overrides["device"] = "cuda:0";
  return read_config(common);
}

std::vector<Device> first_gpus(int count) { return run::parse_gpus(std::to_string(count)); }

/// In a process that was started for one row, which rank 0 names.
int measure_beside(const BenchOptions& options, const LaunchEnvironment& launched) {
  std::unique_ptr<TrainRanks> joined;
  try {
    joined = TrainRanks::join(launched, {}, first_gpus(launched.size));
    const run::RunRanks ranks = joined->ranks();
    RunConfig config = config_on_gpus(options);
    const std::vector<StepCase> cases = bench_cases(config, options, measured_target(config));
    config.device = run::device_of_rank(config.device, ranks, cuda_device_count());
    require_device(config);
    const std::size_t row = std::stoul(run::text_of_first(ranks, ""));
    const int threads = options.common.threads > 0 ? options.common.threads : joined->threads();
    const DeviceScope current(config.device);
    (void)run::measure_step_on_ranks(config, cases.at(row), threads, options.seconds, ranks);
    return 0;
  } catch (const CommunicationError&) {  // which rank 0 tells
    return 1;
  } catch (const std::exception& error) {
    if (joined == nullptr) throw;
    joined->fail(plain_words(error));
    return 1;
  }
}

class GpusBench {
 public:
  explicit GpusBench(const BenchOptions& options)
      : options_(options),
        config_(config_on_gpus(options)),
        cases_(bench_cases(config_, options, measured_target(config_))) {}

  int run(const std::vector<int>& counts) {
    if (!options_.json)
      print_out("{} on GPUs, one replica each\n{:>4} {:>5} {:4} {:9} {:8} {:>8} {:>9} {:>7} {:>6} {:>9} {:>8}\n",
                printable_line(config_.model.name), "GPUs", "batch", "type", "recompute", "mode", "ms/step", "images/s",
                "effic.", "peak", "exch. ms", "hidden");
    bool any = false;
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const RunConfig alone = config_on_one();
      RanksMeasurement one;
      try {
        one = {.step = measure_step(alone, cases_[i], options_.common.threads, options_.seconds)};
      } catch (const OutOfMemory&) {
        print_row(i, 1, "does not fit one GPU");
        continue;
      }
      for (const int count : counts) any = row(i, count, one) || any;
    }
    return any ? 0 : 1;
  }

 private:
  /// An ordinary step.
  RunConfig config_on_one() const {
    RunConfig config = config_;
    config.train.replicas = 1;
    return config;
  }

  /// Whether it was measured.
  bool row(std::size_t number, int count, const RanksMeasurement& one) {
    const int there = cuda_device_count();
    if (count > there) {
      print_row(number, count, fmt::format("left out: this machine has {} GPU{}", there, there == 1 ? "" : "s"));
      return false;
    }
    try {
      print_row(number, {.gpus = count,
                         .measured = count == 1 ? one : measure_together(number, count),
                         .one_ms = one.step.ms_per_step});
      return true;
    } catch (const CommunicationError& error) {
      print_row(number, count, fmt::format("rank {}: {}", error.failure().rank, error.failure().reason));
    } catch (const OutOfMemory&) {
      print_row(number, count, "does not fit");
    }
    return false;
  }

  RanksMeasurement measure_together(std::size_t number, int count) {
    const auto together = TrainRanks::spawn(count, {}, first_gpus(count));
    try {
      const run::RunRanks ranks = together->ranks();
      (void)run::text_of_first(ranks, std::to_string(number));
      const int threads = options_.common.threads > 0 ? options_.common.threads : together->threads();
      RanksMeasurement measured = run::measure_step_on_ranks(config_, cases_[number], threads, options_.seconds, ranks);
      together->wait();
      return measured;
    } catch (const std::exception& error) {
      together->fail(plain_words(error));
      together->wait();
      throw;
    }
  }

  nlohmann::ordered_json begin(std::size_t number, int count) const {
    nlohmann::ordered_json json = describe(config_, cases_[number]);
    json["mode"] = to_string(cases_[number].mode);
    json["gpus"] = count;
    return json;
  }
  std::string head(std::size_t number, int count) const {
    const StepCase& step = cases_[number];
    return fmt::format("{:>4} {:>5} {:4} {:9} {:8}", count, step.batch, short_name(step.precision), policy_name(step),
                       to_string(step.mode));
  }
  void print(const nlohmann::ordered_json& json, const std::string& line) const {
    print_out("{}\n", options_.json ? json_text(json) : line);
    std::fflush(stdout);
  }
  void print_row(std::size_t number, const GpusRow& row) const {
    nlohmann::ordered_json json = begin(number, row.gpus);
    add_figures(json, row);
    print(json, head(number, row.gpus) + cells(row));
  }
  void print_row(std::size_t number, int count, const std::string& reason) const {
    nlohmann::ordered_json json = begin(number, count);
    json["error"] = reason;
    print(json, head(number, count) + "  " + printable(reason));
  }

  const BenchOptions& options_;
  const RunConfig config_;
  const std::vector<StepCase> cases_;
};

}  // namespace

std::vector<int> parse_gpu_counts(const std::string& text) {
  std::vector<int> counts;
  for (const std::int64_t count : parse_integers("--gpus", text)) {
    if (count < 1 || count > ReplicaOptions::kMost || !std::has_single_bit(static_cast<std::uint64_t>(count)))
      throw ConfigError(fmt::format(
          "--gpus: expected numbers of GPUs that are powers of two, since each has one replica: 1,2,4; got {}", count));
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

int bench_gpus(const BenchOptions& options, const std::string& text) {
  const std::vector<int> counts = parse_gpu_counts(text);
  const LaunchEnvironment launched = read_launch_environment();
  if (launched.launcher == kOwnLauncher && launched.rank > 0) return measure_beside(options, launched);
  if (launched.size > 1)
    throw ConfigError(fmt::format("--gpus: bench starts its processes itself, but {} has started {}", launched.launcher,
                                  launched.size));
  if (cuda_device_count() == 0)
    throw ConfigError("--gpus: this machine has no GPU that can be used: " + cuda_unavailable_reason());
  return GpusBench(options).run(counts);
}

}  // namespace bantam::cli

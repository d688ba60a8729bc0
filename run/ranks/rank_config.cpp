// Checks of a run of several ranks, and the assignment of its replicas.
#include "bantam/run/ranks/rank_config.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/replica_shares.h"
#include "bantam/engine/model/norm_exchange.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/ranks/rank_devices.h"

namespace bantam::run {
namespace {

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

void require_limits(const MemoryConfig& memory, int ranks) {
  for (const auto& [device, limits] : memory.limits_by_rank)
    if (static_cast<int>(limits.size()) != ranks)
      throw ConfigError(fmt::format("memory.limits: {} has {} limits, one for each rank, but the run has {}", device,
                                    limits.size(), ranks_text(ranks)));
}

void require_split(const TrainConfig& train, int ranks) {
  const SplitOptions& split = train.split;
  if (split.kind != SplitOptions::Kind::given) return;
  const int sum = std::accumulate(split.counts.begin(), split.counts.end(), 0);
  if (static_cast<int>(split.counts.size()) != ranks)
    throw ConfigError(fmt::format("train.split: [{}] is for {}, but the run has {}; `even` and `auto` suit any number",
                                  fmt::join(split.counts, ", "), ranks_text(static_cast<int>(split.counts.size())),
                                  ranks_text(ranks)));
  if (sum != train.replicas)
    throw ConfigError(fmt::format("train.split: [{}] are {} replicas, but train.replicas is {}",
                                  fmt::join(split.counts, ", "), sum, train.replicas));
}

/// Batches are whole replicas': what a further one is, is said where somebody expects that ranks alone add it.
[[noreturn]] void refuse_few_replicas(const TrainConfig& train, Device device, int ranks) {
  const unsigned replicas = std::bit_ceil(static_cast<unsigned>(ranks));
  if (device.kind == DeviceKind::cuda)
    throw ConfigError(fmt::format(
        "{} GPUs need as many replicas or more, but train.replicas is {}: each GPU computes whole replicas, of a batch "
        "each; add train.replicas={} (a power of two), which makes an update of {} batches",
        ranks, train.replicas, replicas, replicas * train.accumulate));
  throw ConfigError(fmt::format(
      "{} ranks need as many replicas or more, but train.replicas is {}: each rank computes whole replicas; "
      "set train.replicas={} (a power of two), which is part of what the run computes",
      ranks, train.replicas, replicas));
}

/// Removes limits and shares of the other ranks' GPUs: this process never opens them.
void keep_own_gpu(MemoryConfig& memory, const std::string& own) {
  const auto general = memory.limits.find(to_string(Device::cuda(0)));
  if (general != memory.limits.end()) memory.limits.try_emplace(own, general->second);
  const auto is_other = [&](const auto& entry) { return entry.first.starts_with("cuda") && entry.first != own; };
  std::erase_if(memory.limits, is_other);
  std::erase_if(memory.logical, is_other);
}

RankCount count_of(const RunRanks& ranks) {
  const int all = ranks.size();
  return {.all = all, .local = ranks.local_size > 0 ? std::min(ranks.local_size, all) : all};
}

std::vector<double> speeds_of_ranks(const RunRanks& ranks, const RunConfig& config, int threads) {
  const double mine = measured_speed(config, threads);
  std::vector<double> speeds;
  for (const std::vector<std::byte>& bytes : all_gather(*ranks.link, std::as_bytes(std::span(&mine, 1)))) {
    double speed = 0;
    std::memcpy(&speed, bytes.data(), sizeof(speed));
    speeds.push_back(speed);
  }
  return speeds;
}

}  // namespace

void require_ranks(const RunConfig& config, int ranks) {
  require_limits(config.memory, ranks);
  require_split(config.train, ranks);
  if (config.train.replicas < ranks) refuse_few_replicas(config.train, config.device, ranks);
  if (config.train.sync_batch_norm) require_rank_each(config.train.replicas, ranks);
  if (ranks == 1) return;
  // With `cache: auto` it is another once it is decided for the ranks.
  if (config.data && packs_into_run(*config.data) && !config.data->cache_is_auto)
    throw ConfigError(
        "data.pipeline.cache: disk packs samples into the run's folder, which rank 0 alone has: name a folder by "
        "cache: {disk: FOLDER}, or use another cache");
  if (config.memory.on_oom != OnOutOfMemory::fail)
    throw ConfigError(
        "memory.on_oom: accumulate computes other bits on the rank whose memory ends; with several ranks say fail, and "
        "lower the batch size or let recompute: auto fit each rank into its limit");
}

std::vector<int> assigned_replicas(const RunConfig& config, int ranks,
                                   const std::function<std::vector<double>()>& speeds) {
  require_ranks(config, ranks);
  const SplitOptions& split = config.train.split;
  if (ranks == 1) return {};
  if (split.kind == SplitOptions::Kind::given) return split.counts;
  const std::vector<ReplicaShare> shares = split.kind == SplitOptions::Kind::automatic
                                               ? shares_by_speed(config.train.replicas, speeds())
                                               : even_shares(config.train.replicas, ranks);
  std::vector<int> assigned;
  for (const ReplicaShare& share : shares) assigned.push_back(share.count);
  return assigned;
}

RunConfig config_of_rank(const RunConfig& config, int rank, const std::vector<int>& assigned) {
  RunConfig own = config;
  for (const auto& [device, limits] : config.memory.limits_by_rank)
    own.memory.limits[device] = limits.at(static_cast<std::size_t>(rank));
  own.rank = rank;
  own.assigned = assigned;
  if (own.device.kind == DeviceKind::cuda) keep_own_gpu(own.memory, to_string(own.device.whole()));
  return own;
}

double measured_speed(const RunConfig& config, int threads) {
  const std::unique_ptr<Runtime> runtime = make_runtime(config, threads);
  const std::int64_t batch = config.data->pipeline.batch_size;
  const auto seconds_with = [&](const RecomputeOptions& recompute) {
    SessionOptions options = session_options(variant(config, batch, recompute));
    options.replicas = {};
    TrainingSession session(*runtime, config.device, config.model.graph, options);
    session.step().warm_up(batch, false);
    const auto start = std::chrono::steady_clock::now();
    session.step().warm_up(batch, false);
    return seconds_since(start);
  };
  const double updates = static_cast<double>(config.train.accumulate);
  try {
    return 1.0 / (updates * seconds_with(config.recompute));
  } catch (const OutOfMemory&) {
    return 1.0 / (updates * seconds_with(parse_recompute("all")));
  }
}

RunConfig share_config(const RunConfig& config, const RunRanks& ranks, bool new_run, DecisionLog& log) {
  require_ranks(config, ranks.size());
  const unsigned shared = (new_run ? for_new_run : 0u) | for_step | for_run;
  if (!ranks.several()) return decide(config, measured_target(config), shared | for_rank, log);
  RunConfig first = config;
  if (first.train.split.kind == SplitOptions::Kind::automatic) first.train.split = {};  // speeds are measured later
  first = config_of_rank(first, 0, assigned_replicas(first, ranks.size(), {}));
  RunConfig sent = decide(first, measured_target(first), shared, log, count_of(ranks));
  sent.train.split = config.train.split;
  // The document keeps `cache: auto`: a run that goes on with other ranks decides for these.
  const int cache = sent.data ? static_cast<int>(sent.data->pipeline.cache) : 0;
  (void)text_of_first(ranks, fmt::format("{} {}\n{}", cache, sent.name, sent.document.resolved_yaml()));
  return sent;
}

RunConfig receive_config(const RunRanks& ranks) {
  const std::string text = text_of_first(ranks, "");
  const std::size_t name = text.find(' ') + 1, line = text.find('\n');
  RunConfig config = parse_run_config(text.substr(line + 1), text.substr(name, line - name) + ".yaml", {});
  if (config.data) config.data->pipeline.cache = static_cast<CacheKind>(std::stoi(text.substr(0, name - 1)));
  config.device = device_of_rank(config.device, ranks, cuda_device_count());
  return config;
}

RunConfig decide_own(const RunConfig& shared, const RunRanks& ranks, int threads, DecisionLog& log) {
  if (!ranks.several()) return shared;
  const RunConfig alone = config_of_rank(shared, ranks.rank(), {});
  const std::vector<int> assigned =
      assigned_replicas(shared, ranks.size(), [&] { return speeds_of_ranks(ranks, alone, threads); });
  const RunConfig own = config_of_rank(shared, ranks.rank(), assigned);
  return decide(own, measured_target(own), for_rank, log, count_of(ranks));
}

}  // namespace bantam::run

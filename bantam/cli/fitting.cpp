// Questions to plans, and what their answers mean for the configuration.
#include "bantam/cli/fitting.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/cli/run_plan.h"
#include "bantam/engine/batch_search.h"

namespace bantam::cli {
namespace {

constexpr double kShareOfFreeHost = 0.8;  // the rest is the system's

bool is_here(Device device) { return device.kind == DeviceKind::cpu || device.index < cuda_device_count(); }

/// All that the run's device, or the one that it is a share of, has; 0: not known.
std::uint64_t device_bytes(const RunConfig& config, const PlanTarget& target) {
  const Device whole = config.device.whole();
  return target.machine && is_here(whole) ? device_info(whole).total_bytes : target.profile.total_bytes;
}

/// What that device and its shares must stay within: its limit, else, where it is split, all that it has; 0: nothing.
std::uint64_t device_bound(const RunConfig& config, const PlanTarget& target, bool is_split) {
  const auto limit = config.memory.limits.find(to_string(config.device.whole()));
  if (limit != config.memory.limits.end()) return limit->second;
  return is_split ? device_bytes(config, target) : 0;
}

/// The bytes of all shares of a device; the most that can be counted, where they are more.
std::uint64_t shares_of(const RunConfig& config, Device device) {
  const auto split = config.memory.logical.find(to_string(device));
  if (split == config.memory.logical.end()) return 0;
  const auto add = [](std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; };
  return std::accumulate(split->second.begin(), split->second.end(), std::uint64_t{0}, add);
}

/// What the configuration's limit, or the share that the device is, leaves for the pool, as ProcessLimit cuts it; 0:
/// there is none.
std::uint64_t pool_limit(const RunConfig& config, const PlanTarget& target) {
  const Device device = config.device;
  const auto split = config.memory.logical.find(to_string(device.whole()));
  if (device.is_logical()) return split->second.at(static_cast<std::size_t>(device.share));
  const bool is_split = split != config.memory.logical.end();
  std::uint64_t bytes = device_bound(config, target, is_split);
  if (bytes == 0) return 0;
  bytes = pool_bytes_under(target, bytes);
  bytes -= std::min(bytes, bytes_of_shares(config));
  return std::max<std::uint64_t>(1, bytes);
}

/// What is there for a run without limit or budget.
std::uint64_t free_bytes(const RunConfig& config) {
  if (!is_here(config.device))
    throw ConfigError(fmt::format("batch size auto: {} is not here to be asked; give memory.limits or memory.budget",
                                  to_string(config.device)));
  const std::uint64_t free = device_info(config.device).free_bytes;
  if (config.device.kind == DeviceKind::cuda) return pool_bytes_under(plan_target(config, std::nullopt), free);
  return static_cast<std::uint64_t>(static_cast<double>(free) * kShareOfFreeHost);
}

BatchRange batch_range(const RunConfig& config) {
  const PipelineOptions& pipeline = config.data->pipeline;
  const std::int64_t samples = train_facts(*config.data).size;
  return {.max = pipeline.most_batch_size > 0 ? std::min(pipeline.most_batch_size, samples) : samples,
          .multiple_of = pipeline.batch_multiple_of};
}

OutOfMemory cannot_fit(const std::string& message, std::uint64_t needed, std::uint64_t bytes) {
  return OutOfMemory(message, {.requested_bytes = needed, .limit_bytes = bytes});
}

void settle_recompute(const RunConfig& config, std::int64_t batch, std::uint64_t bytes, Settled& settled) {
  const RecomputeChoice choice = choose_for_run(config, batch, bytes);
  const std::string policy = wrapped(choice.recompute, 66, "             ");
  if (!choice.fits) {
    // A limit may still hold with `on_oom`, and says itself where it does not; a budget is a promise.
    if (config.memory.budget == 0 || config.memory.on_oom != OnOutOfMemory::fail) return;
    const std::uint64_t needed = plan_run(variant(config, batch, choice.recompute)).pool_bytes;
    throw cannot_fit(fmt::format("batch size {} does not fit {}: the least found is a pool of {}\n  with recompute: {}",
                                 batch, format_byte_size(bytes), format_byte_size(needed), policy),
                     needed, bytes);
  }
  if (to_yaml(choice.recompute) == "none") return;
  settled.overrides.push_back("recompute=" + to_yaml(choice.recompute));
  settled.messages.push_back(
      fmt::format("recompute:   {}\n             to fit {}: a step's peak {} by plan, {:+.1f} % time predicted", policy,
                  format_byte_size(bytes), format_byte_size(choice.peak_bytes), 100 * choice.extra_work));
}

}  // namespace

std::uint64_t bytes_of_shares(const RunConfig& config) { return shares_of(config, config.device); }

std::optional<OutOfMemory> refused_shares(const RunConfig& config, const PlanTarget& target, std::uint64_t limit) {
  const Device whole = config.device.whole();
  const std::uint64_t shares = shares_of(config, whole);
  if (shares == 0) return std::nullopt;
  std::uint64_t bound = limit > 0 ? limit : device_bound(config, target, true);
  if (const std::uint64_t card = device_bytes(config, target); whole.is_cuda() && card > 0)
    bound = std::min(bound, card);
  PlanTarget of_whole = target;
  of_whole.counts = whole.is_cuda();
  const std::uint64_t left = pool_bytes_under(of_whole, bound);
  if (bound == 0 || shares <= left) return std::nullopt;
  return OutOfMemory(
      fmt::format("memory.logical: the shares of {} take {}, and {} leaves {} for them", to_string(whole),
                  format_byte_size(shares), format_byte_size(bound), format_byte_size(left)),
      {.requested_bytes = shares, .limit_bytes = bound});
}

std::optional<OutOfMemory> refused_by_host(const HostInfo& host, std::uint64_t bytes) {
  const std::uint64_t left = host.free_bytes + host.swap_bytes;
  if (host.bound.empty() || bytes <= left) return std::nullopt;
  return OutOfMemory(
      fmt::format("the run needs a pool of {} ({} B) on cpu, and this process can take {} ({} B) more of "
                  "the host's memory{}: {} says so",
                  format_byte_size(bytes), bytes, format_byte_size(left), left, host.swap_bytes > 0 ? " and swap" : "",
                  host.bound),
      {.requested_bytes = bytes, .limit_bytes = left});
}

void require_host_memory(Device device, std::uint64_t bytes) {
  if (device.kind != DeviceKind::cpu || device.meta) return;
  if (const auto refused = refused_by_host(read_host_info(), bytes)) throw *refused;
}

std::uint64_t bytes_to_fit(const RunConfig& config, const PlanTarget& target) {
  const std::uint64_t limit = pool_limit(config, target), budget = config.memory.budget;
  return limit == 0 || budget == 0 ? std::max(limit, budget) : std::min(limit, budget);
}

std::uint64_t bytes_to_fit(const RunConfig& config) { return bytes_to_fit(config, measured_target(config)); }

RunConfig variant(const RunConfig& config, std::int64_t batch, const RecomputeOptions& recompute) {
  RunConfig other = config;
  other.data->pipeline.batch_size = batch;
  other.data->pipeline.batch_size_is_auto = false;
  other.recompute = recompute;
  return other;
}

bool run_fits(const RunConfig& config, std::uint64_t bytes) { return plan_run(config).pool_bytes <= bytes; }

std::int64_t solve_batch(const RunConfig& config, std::uint64_t bytes) {
  if (bytes == 0) bytes = free_bytes(config);
  const auto run = [&](std::int64_t batch) { return variant(config, batch, config.recompute); };
  const BatchRange range = batch_range(config);
  const std::int64_t batch =
      largest_batch(range, {.fits = [&](std::int64_t size) { return run_fits(run(size), bytes); },
                            .could_fit = [&](std::int64_t size) { return run_peak(run(size)) <= bytes; }});
  if (batch > 0) return batch;
  const std::uint64_t needed = plan_run(run(range.multiple_of)).pool_bytes;
  throw cannot_fit(fmt::format("batch size auto: a batch of {} needs {}, and there are {}", range.multiple_of,
                               format_byte_size(needed), format_byte_size(bytes)),
                   needed, bytes);
}

RecomputeChoice choose_recompute(const RunConfig& config, const StepCase& step, std::uint64_t bytes) {
  return search_recompute(config.model.graph, {.step = train_plan_options(config, step),
                                               .bytes = bytes,
                                               .rates = typical_rates(config.device, step.precision)});
}

RecomputeChoice choose_for_run(const RunConfig& config, std::int64_t batch, std::uint64_t bytes) {
  const Graph& graph = config.model.graph;
  const StepPlanOptions step = train_plan_options(config, {batch, config.precision, {}});
  // The data and batches made ahead take the same with every policy.
  const std::uint64_t whole = run_peak(variant(config, batch, {})), alone = step_peak(graph, step),
                      beside = whole - std::min(whole, alone);
  return search_recompute(graph, {.step = step,
                                  .bytes = bytes > beside ? bytes - beside : 1,
                                  .rates = typical_rates(config.device, config.precision),
                                  .fits = [&](const RecomputeOptions& recompute) {
                                    return run_fits(variant(config, batch, recompute), bytes);
                                  }});
}

Settled settle(const RunConfig& config) {
  Settled settled;
  const PlanTarget target = measured_target(config);
  if (auto refused = refused_shares(config, target, 0)) throw *refused;
  const std::uint64_t bytes = bytes_to_fit(config, target);
  std::int64_t batch = config.data->pipeline.batch_size;
  if (config.data->pipeline.batch_size_is_auto) {
    batch = solve_batch(config, bytes);
    settled.overrides.push_back(fmt::format("data.pipeline.batch.size={}", batch));
    settled.messages.push_back(
        fmt::format("batch size {}: the largest that fits {}", batch,
                    bytes > 0 ? format_byte_size(bytes) : std::string("the memory that is free")));
  } else if (!config.recompute_given && bytes > 0) {
    settle_recompute(config, batch, bytes, settled);
  }
  return settled;
}

std::string to_yaml(const RecomputeOptions& recompute) {
  if (recompute.kind == RecomputeOptions::Kind::all) return "all";
  std::vector<std::string> parts = recompute_words(recompute);
  for (const std::string& name : recompute.names) parts.push_back(fmt::format("\"{}\"", name));
  return parts.empty() ? "none" : "[" + join(parts, ", ", ", ") + "]";
}

std::string wrapped(const RecomputeOptions& recompute, std::size_t width, const std::string& indent) {
  if (recompute.kind != RecomputeOptions::Kind::named) return to_string(recompute);
  std::string text, line;
  std::vector<std::string> parts = recompute_words(recompute);
  parts.insert(parts.end(), recompute.names.begin(), recompute.names.end());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = parts[i] + (i + 1 < parts.size() ? "," : "");
    if (!line.empty() && line.size() + 1 + part.size() > width) {
      text += line + "\n" + indent;
      line.clear();
    }
    line += (line.empty() ? "" : " ") + part;
  }
  return text + line;
}

}  // namespace bantam::cli

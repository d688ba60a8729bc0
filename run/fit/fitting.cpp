// Questions to plans, and what their answers mean for the configuration.
#include "bantam/run/fit/fitting.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/plan/batch_search.h"
#include "bantam/engine/plan/step_cost.h"
#include "bantam/run/config/cache_config.h"
#include "bantam/run/fit/run_plan.h"

namespace bantam::run {
namespace {

constexpr double kShareOfFreeHost = 0.8;  // the rest is the system's
constexpr double kSmallGain = 0.05;       // of images/s: not worth a larger batch

/// All that the run's device, or the one that it is a share of, has; 0: not known.
std::uint64_t device_bytes(const PlanTarget& target) {
  const Device whole = target.device.whole();
  return target.machine && is_here(whole) ? device_info(whole).total_bytes : target.profile.total_bytes;
}

/// The bound of that device and its shares: its limit, else, where it is split, all that it has; 0: there is none.
std::uint64_t device_bound(const MemoryConfig& memory, const PlanTarget& target, bool is_split) {
  const auto limit = memory.limits.find(to_string(target.device.whole()));
  if (limit != memory.limits.end()) return limit->second;
  return is_split ? device_bytes(target) : 0;
}

/// The pool's limit under the configuration's limit, or the share that the device is, as ProcessLimit computes it; 0:
/// there is none.
std::uint64_t pool_limit(const MemoryConfig& memory, const PlanTarget& target) {
  const Device device = target.device;
  const auto split = memory.logical.find(to_string(device.whole()));
  if (device.is_logical()) return split->second.at(static_cast<std::size_t>(device.share));
  const bool is_split = split != memory.logical.end();
  std::uint64_t bytes = device_bound(memory, target, is_split);
  if (bytes == 0) return 0;
  bytes = pool_bytes_under(target, bytes);
  bytes -= std::min(bytes, bytes_of_shares(memory, device));
  return std::max<std::uint64_t>(1, bytes);
}

/// By the device's profile, for the configuration's precision.
UpdateCost update_cost(const RunConfig& config) {
  const StepPlanOptions step = train_plan_options(config, {1, config.precision, config.recompute});
  return predict_update(config.model.graph, step, rates_of(config, config.precision));
}

/// The sizes to try, and what bounds them where memory does not.
struct Candidates {
  BatchRange range;
  BatchChoice most;
};

Candidates candidates(const RunConfig& config, const UpdateCost& cost, bool bytes_were_named, std::int64_t unit) {
  using Bound = BatchChoice::Bound;
  const PipelineOptions& pipeline = config.data->pipeline;
  Candidates found{{.max = epoch_samples(*config.data), .multiple_of = unit}, {.bound = Bound::data_set}};
  const auto bound_by = [&](std::int64_t size, Bound bound) {
    if (size >= found.range.max) return;
    found.range.max = size;
    found.most.bound = bound;
  };
  if (pipeline.most_batch_size > 0) {
    bound_by(pipeline.most_batch_size, Bound::max);
  } else if (!bytes_were_named) {
    const auto enough =
        static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(cost.enough_batch(kSmallGain))));
    bound_by((enough + unit - 1) / unit * unit, Bound::throughput);
  }
  found.most.batch = found.range.max / unit * unit;
  return found;
}

/// The configuration with the data set where it needs the least of the device's memory.
RunConfig without_cache(const RunConfig& config) {
  RunConfig other = config;
  CacheKind& cache = other.data->pipeline.cache;
  if (cache == CacheKind::device) cache = CacheKind::ram;
  if (cache == CacheKind::ram && config.device.kind == DeviceKind::cpu) cache = CacheKind::off;
  return other;
}

OutOfMemory cannot_fit(const std::string& message, std::uint64_t needed, std::uint64_t bytes) {
  return OutOfMemory(message, {.requested_bytes = needed, .limit_bytes = bytes});
}

}  // namespace

std::uint64_t bytes_of_shares(const MemoryConfig& memory, Device device) {
  const auto split = memory.logical.find(to_string(device));
  if (split == memory.logical.end()) return 0;
  const auto add = [](std::uint64_t a, std::uint64_t b) { return a + b < a ? ~std::uint64_t{0} : a + b; };
  return std::accumulate(split->second.begin(), split->second.end(), std::uint64_t{0}, add);
}

std::optional<OutOfMemory> refused_shares(const MemoryConfig& memory, const PlanTarget& target, std::uint64_t limit) {
  const Device whole = target.device.whole();
  const std::uint64_t shares = bytes_of_shares(memory, whole);
  if (shares == 0) return std::nullopt;
  std::uint64_t bound = limit > 0 ? limit : device_bound(memory, target, true);
  if (const std::uint64_t card = device_bytes(target); whole.is_cuda() && card > 0) bound = std::min(bound, card);
  PlanTarget of_whole = target;
  of_whole.counts = whole.is_cuda();
  const std::uint64_t left = pool_bytes_under(of_whole, bound);
  if (bound == 0 || shares <= left) return std::nullopt;
  return OutOfMemory(
      fmt::format("memory.logical: the shares of {} need {}, and of {} only {} are available", to_string(whole),
                  format_byte_size(shares), format_byte_size(bound), format_byte_size(left)),
      {.requested_bytes = shares, .limit_bytes = bound});
}

std::uint64_t bytes_to_fit(const MemoryConfig& memory, const PlanTarget& target) {
  const std::uint64_t limit = pool_limit(memory, target), budget = memory.budget;
  return limit == 0 || budget == 0 ? std::max(limit, budget) : std::min(limit, budget);
}

std::uint64_t bytes_to_fit(const RunConfig& config) { return bytes_to_fit(config.memory, measured_target(config)); }

std::uint64_t free_pool_bytes(const RunConfig& config) {
  if (!is_here(config.device))
    throw ConfigError(fmt::format("batch size auto: {} is not in this machine; set memory.limits or memory.budget",
                                  to_string(config.device)));
  const std::uint64_t free = device_info(config.device).free_bytes;
  if (config.device.kind == DeviceKind::cuda) return pool_bytes_under(plan_target(config, std::nullopt), free);
  return static_cast<std::uint64_t>(static_cast<double>(free) * kShareOfFreeHost);
}

RunConfig variant(const RunConfig& config, std::int64_t batch, const RecomputeOptions& recompute) {
  RunConfig other = config;
  set_batch_size(other, batch);
  other.recompute = recompute;
  return other;
}

bool run_fits(const RunConfig& config, std::uint64_t bytes) { return plan_run(config).pool_bytes <= bytes; }

BatchChoice choose_batch(const RunConfig& config, std::uint64_t bytes, bool bytes_were_named) {
  const auto run = [&](std::int64_t batch) { return variant(config, batch, config.recompute); };
  const std::uint64_t cached = bytes_were_named ? cache_bytes(config) : 0;
  const RunConfig lean = cached > 0 ? without_cache(config) : config;
  const UpdateCost cost = update_cost(config);
  const auto choose = [&](std::int64_t unit) {
    const auto [range, most] = candidates(config, cost, bytes_were_named, unit);
    const auto own = [&](std::int64_t size) { return variant(lean, size, config.recompute); };
    const std::uint64_t rest = bytes - std::min(bytes, cached);
    std::int64_t batch =
        largest_batch(range, {.fits = [&](std::int64_t size) { return run_fits(own(size), rest); },
                              .could_fit = [&](std::int64_t size) { return run_peak(own(size)) <= rest; }});
    // Buffers beside the data set on a device count, too.
    while (cached > 0 && batch > 0 && !run_fits(run(batch), bytes)) batch -= unit;
    BatchChoice found = batch == most.batch ? most : BatchChoice{.batch = batch};
    found.multiple_of = unit;
    return found;
  };
  const std::int64_t given = config.data->pipeline.batch_multiple_of;
  BatchChoice chosen = choose(given > 0 ? given : kUsualBatchUnit);
  if (chosen.batch == 0 && given == 0) chosen = choose(1);
  if (chosen.batch > 0) {
    chosen.gain_beyond = cost.gain_beyond(chosen.batch);
    if (chosen.batch > 1)
      chosen.loss_of_half = 1 - cost.images_per_s(chosen.batch / 2) / cost.images_per_s(chosen.batch);
    chosen.estimate = rates_of(config, config.precision).estimate;
    chosen.cache_bytes = cached;
    return chosen;
  }
  const std::int64_t least = std::max<std::int64_t>(1, given);
  const std::uint64_t needed = plan_run(run(least)).pool_bytes;
  throw cannot_fit(fmt::format("batch size auto: a batch of {} needs {}, and there are {}", least,
                               format_byte_size(needed), format_byte_size(bytes)),
                   needed, bytes);
}

namespace {

std::string why(const BatchChoice& choice, std::uint64_t bytes) {
  const std::string fits = bytes > 0 ? format_byte_size(bytes) : std::string("the memory that is free");
  switch (choice.bound) {
    case BatchChoice::Bound::max:
      return fmt::format("the largest{} up to its max",
                         choice.multiple_of > 1 ? fmt::format(" multiple of {}", choice.multiple_of) : "");
    case BatchChoice::Bound::data_set:
      return (bytes > 0 ? fmt::format("the largest that fits {}, ", fits) : "") + "all of the training images";
    case BatchChoice::Bound::throughput:
      return "a larger one is next to no faster\n             (batch: {size: auto, max: N} allows one)";
    case BatchChoice::Bound::memory:
      break;
  }
  return fmt::format("the largest that fits {}", fits);
}

/// Says how other sizes would compare, by plan.
std::string other_sizes(const BatchChoice& choice) {
  std::string text;
  if (choice.loss_of_half > 0)
    text += fmt::format("\n             by plan half of it has {} images/s,",
                        predicted_percent(-choice.loss_of_half, choice.estimate));
  return text + fmt::format("\n             {}larger ones at most {}", text.empty() ? "by plan " : "",
                            predicted_percent(choice.gain_beyond, choice.estimate));
}

}  // namespace

std::string to_text(const BatchChoice& choice, std::uint64_t bytes) {
  std::string text = fmt::format("batch size {}: {}", choice.batch, why(choice, bytes));
  if (choice.cache_bytes > 0)
    text += fmt::format("\n             ({} of it kept for the data set: `cache: auto`)",
                        format_byte_size(choice.cache_bytes));
  return text + other_sizes(choice);
}

RecomputeChoice choose_recompute(const RunConfig& config, const StepCase& step, std::uint64_t bytes) {
  return search_recompute(
      config.model.graph,
      {.step = train_plan_options(config, step), .bytes = bytes, .rates = rates_of(config, step.precision)});
}

RecomputeChoice choose_for_run(const RunConfig& config, std::int64_t batch, std::uint64_t bytes) {
  const Graph& graph = config.model.graph;
  const StepPlanOptions step = train_plan_options(config, {batch, config.precision, {}});
  // The data and batches made ahead need the same memory with every policy.
  const std::uint64_t whole = run_peak(variant(config, batch, {})), alone = step_peak(graph, step),
                      beside = whole - std::min(whole, alone);
  return search_recompute(graph, {.step = step,
                                  .bytes = bytes > beside ? bytes - beside : 1,
                                  .rates = rates_of(config, config.precision),
                                  .fits = [&](const RecomputeOptions& recompute) {
                                    return run_fits(variant(config, batch, recompute), bytes);
                                  }});
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

}  // namespace bantam::run

// The table of decisions, a function or two for each row, and the walk.
#include "bantam/run/fit/decisions.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"
#include "bantam/models/yaml/model_weights.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/fit/warnings.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::run {
namespace {

bool always(const RunConfig&, const DecisionFacts&) { return true; }

/// Whether the document says `auto` where the field has no word for it.
bool says_auto(const RunConfig& config, std::string_view key) {
  for (const auto& [path, value] : config.document.values())
    if (path == key) return value == "auto";
  return false;
}

// Reading has resolved `device: auto` and `precision: auto`.

DocumentLines write_device(RunConfig& config, DecisionFacts&) { return {{"device", to_string(config.device)}}; }

DocumentLines write_precision(RunConfig& config, DecisionFacts&) {
  return {{"precision", std::string(to_string(config.precision))}};
}

/// The keys of the data's format that training samples decide (SampleReader::decided_keys). May read the samples.
DocumentLines decide_data_keys(RunConfig& config, DecisionFacts&) {
  (void)open_splits(*config.data, config.seed);  // the values are of the training samples that a split leaves
  DocumentLines lines;
  for (const auto& [key, value] : config.data->source.train->decided_keys()) lines.emplace_back("data." + key, value);
  return lines;
}

bool has_open_classes(const RunConfig& config, const DecisionFacts&) {
  return !config.train.one_class && has_one_class(config);
}

/// Readers of the run's configuration may not have its data.
DocumentLines write_one_class(RunConfig&, DecisionFacts&) { return {{"train.one_class", "true"}}; }

/// The folders that had the files of relative paths, in YAML's flow style.
DocumentLines write_search_paths(RunConfig& config, DecisionFacts&) {
  std::string list;
  for (const std::filesystem::path& folder : folders_of_found_paths(config.document)) {
    std::string quoted;
    for (const char c : folder.string()) quoted += c == '\'' ? "''" : std::string(1, c);
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", quoted);
  }
  if (list.empty()) return {};
  return {{"search_paths", "[" + list + "]"}};
}

/// Reading decides for one process.
bool has_cache_of_ranks(const RunConfig& config, const DecisionFacts& facts) {
  return facts.ranks.all > 1 && config.data && config.data->cache_is_auto;
}

/// The document keeps `auto`: a run that goes on with other ranks decides for these.
DocumentLines decide_cache_of_ranks(RunConfig& config, DecisionFacts& facts) {
  decide_cache(config, facts.ranks);
  return {};
}

/// The bytes of the pool that were named, by a limit, a budget or for a plan; else those that are free on a device of
/// this machine, or all of a card's that is elsewhere.
struct PoolBytes {
  std::uint64_t bytes = 0;
  bool named = false, free = false;
};
PoolBytes pool_bytes(const RunConfig& config, const DecisionFacts& facts) {
  if (const std::uint64_t named = facts.fit.chosen_pool(); named > 0) return {.bytes = named, .named = true};
  if ((facts.target.machine && is_here(config.device)) || facts.fit.pool == 0)
    return {.bytes = free_pool_bytes(config), .free = true};
  return {.bytes = facts.fit.pool};
}

bool has_open_budget(const RunConfig& config, const DecisionFacts&) { return says_auto(config, "memory.budget"); }

/// Decides a budget of whole MiB, which people can read.
DocumentLines decide_budget(RunConfig& config, DecisionFacts& facts) {
  constexpr std::uint64_t kMiB = 1u << 20;
  const PoolBytes pool = pool_bytes(config, facts);
  const std::uint64_t whole = std::max<std::uint64_t>(pool.bytes / kMiB, 1);
  config.memory.budget = whole * kMiB;
  facts.fit = plan_fit(config.memory, facts.target);
  facts.log.messages.push_back(fmt::format("budget:      {}{}", format_byte_size(config.memory.budget),
                                           pool.free ? ", of the memory that is free" : ""));
  return {{"memory.budget", fmt::format("{}MiB", whole)}};
}

bool has_open_batch(const RunConfig& config, const DecisionFacts&) {
  return config.data && config.data->pipeline.batch_size_is_auto;
}

DocumentLines decide_batch_size(RunConfig& config, DecisionFacts& facts) {
  const PoolBytes pool = pool_bytes(config, facts);
  const BatchChoice choice = choose_batch(config, pool.bytes, pool.named);
  facts.log.messages.push_back(to_text(choice, pool.free ? 0 : pool.bytes));
  if (std::string warning = few_updates_warning(config, choice.batch); !warning.empty())
    facts.log.warnings.push_back(std::move(warning));
  facts.run_fits = true;
  set_batch_size(config, choice.batch);
  return {{"data.pipeline.batch.size", fmt::format("{}", choice.batch)}};
}

bool has_open_recompute(const RunConfig& config, const DecisionFacts& facts) {
  return config.data && !config.recompute_given && (facts.ranks.all > 1 || facts.fit.chosen_pool() > 0);
}

/// The policy of least work with which the run fits its limit or budget.
DocumentLines decide_recompute(RunConfig& config, DecisionFacts& facts) {
  const std::uint64_t bytes = facts.fit.chosen_pool();
  if (facts.run_fits || bytes == 0) return {};
  const std::int64_t batch = config.data->pipeline.batch_size;
  const RecomputeChoice choice = choose_for_run(config, batch, bytes);
  const std::string policy = wrapped(choice.recompute, 66, "             ");
  if (!choice.fits) {
    // A limit may still hold with `on_oom`, and says itself where it does not; a budget is a promise.
    if (config.memory.budget == 0 || config.memory.on_oom != OnOutOfMemory::fail) return {};
    const std::uint64_t needed = plan_run(variant(config, batch, choice.recompute)).pool_bytes;
    throw OutOfMemory(
        fmt::format("batch size {} does not fit {}: the least found is a pool of {}\n  with recompute: {}", batch,
                    format_byte_size(bytes), format_byte_size(needed), policy),
        {.requested_bytes = needed, .limit_bytes = bytes});
  }
  if (to_yaml(choice.recompute) == "none") return {};
  facts.log.messages.push_back(
      fmt::format("recompute:   {}\n             to fit {}: a step's peak {} by plan,\n             {} time predicted",
                  policy, format_byte_size(bytes), format_byte_size(choice.peak_bytes),
                  predicted_percent(choice.extra_work, rates_of(config, config.precision).estimate)));
  config.recompute = choice.recompute;
  config.recompute_given = true;
  return {{"recompute", to_yaml(choice.recompute)}};
}

/// Whether the file's SHA-256 is not known, or its path depends on the current folder: the run may be resumed from
/// another one.
bool has_open_weights(const RunConfig& config, const DecisionFacts&) {
  if (!config.model.weights) return false;
  std::error_code error;
  const std::filesystem::path path = config.model.weights->file;
  return config.model.weights->sha256.empty() || (path.is_relative() && std::filesystem::exists(path, error));
}

DocumentLines decide_weights(RunConfig& config, DecisionFacts&) {
  models::ModelWeights& weights = *config.model.weights;
  if (weights.sha256.empty()) weights.sha256 = sha256_of_weights(weights.file);
  models::ModelWeights found = weights;
  found.file = std::filesystem::absolute(found.file).lexically_normal().string();
  return {{"model.weights", models::to_yaml(found)}};
}

constexpr Decision kDecisions[] = {{"data", for_new_run, always, decide_data_keys},
                                   {"train.one_class", for_new_run, has_open_classes, write_one_class},
                                   {"search_paths", for_new_run, always, write_search_paths},
                                   {"device", for_run, always, write_device},
                                   {"precision", for_run, always, write_precision},
                                   {"data.pipeline.cache", for_run, has_cache_of_ranks, decide_cache_of_ranks},
                                   {"memory.budget", for_step, has_open_budget, decide_budget},
                                   {"data.pipeline.batch.size", for_step, has_open_batch, decide_batch_size},
                                   {"recompute", for_rank, has_open_recompute, decide_recompute},
                                   {"model.weights", for_run, has_open_weights, decide_weights}};

}  // namespace

std::span<const Decision> decisions() { return kDecisions; }

RunConfig decide(RunConfig config, const PlanTarget& target, unsigned scopes, DecisionLog& log,
                 const RankCount& ranks) {
  DecisionFacts facts{.target = target, .fit = plan_fit(config.memory, target), .ranks = ranks, .log = log};
  for (const Decision& decision : kDecisions) {
    if (!decision.is_open(config, facts)) continue;
    const bool own = decision.scope == for_rank && ranks.all > 1;
    const bool asked = (scopes & decision.scope) != 0;
    DocumentLines lines;
    if (asked) lines = decision.decide(config, facts);
    if (own) lines = asked ? DocumentLines() : DocumentLines{{std::string(decision.key), "auto"}};
    for (const auto& [path, value] : lines) config.document = config.document.with_value(path, value);
  }
  return config;
}

RunConfig decide_step(RunConfig config, const PlanTarget& target, std::span<const std::int64_t> batches,
                      DecisionLog& log) {
  require_model_fits(config);
  if (config.data && config.data->pipeline.batch_size_is_auto && !batches.empty())
    set_batch_size(config, batches.front());
  return decide(std::move(config), target, for_step, log);
}

bool packs_into_run(const DataOptions& data) {
  return data.pipeline.cache == CacheKind::disk && data.pipeline.cache_folder.empty();
}

}  // namespace bantam::run

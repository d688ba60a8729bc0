// From an OutOfMemory to questions for the advisor, and its answers in words.
#include "bantam/cli/print/oom_message.h"

#include <algorithm>
#include <functional>
#include <sstream>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/text.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/fit/run_plan.h"

namespace bantam::cli {
namespace {

constexpr std::size_t kShownHolders = 5;
constexpr std::size_t kColumns = 80, kPrefix = 15;  // "bantam: error: "

/// The pool's limit: as configured, or, where nothing is, the bytes reserved when memory ran out.
std::uint64_t bytes_there_were(const RunConfig& config, const OutOfMemory::Facts& facts) {
  const std::uint64_t bytes = bytes_to_fit(config);
  return bytes > 0 ? bytes : facts.limit_bytes > 0 ? facts.limit_bytes : facts.pool_bytes;
}

std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + BfcAllocator::kAllocationUnit - 1) / BfcAllocator::kAllocationUnit * BfcAllocator::kAllocationUnit;
}

/// Host memory of the images and targets of a split.
std::uint64_t bytes_of(const CachedSet& set) {
  std::uint64_t bytes = rounded_up(set.encoded_bytes);
  for (const SampleField& field : set.facts.fields())
    bytes += rounded_up(static_cast<std::uint64_t>(set.facts.size) * field.bytes());
  return bytes;
}

/// The data set of a run that trains in the pool where it lies: on the CPU, but not on a share of it.
struct DataShare {
  std::uint64_t train_bytes = 0, validation_bytes = 0;  ///< 0: it lies elsewhere, or nowhere; the latter with test's

  explicit DataShare(const RunConfig& config) {
    if (!config.device.is_cpu() || config.device.is_logical()) return;
    const CacheKind cache = config.data->pipeline.cache;
    if (cache == CacheKind::off || cache == CacheKind::disk) return;
    const std::vector<CachedSet> sets = cached_sets(*config.data);
    train_bytes = bytes_of(sets[0]);
    for (std::size_t i = 1; i < sets.size(); ++i) validation_bytes += bytes_of(sets[i]);
  }
  std::uint64_t bytes() const { return train_bytes + validation_bytes; }
};

/// "data: {limit: N}" for the most training images, in round numbers, with which the run fits `bytes`, planned; ""
/// where none do.
std::string fewer_images(const RunConfig& config, std::uint64_t bytes, std::uint64_t pool_bytes) {
  constexpr int kTries = 4;
  RunConfig fewer = config;
  const DatasetFacts all = train_facts(*config.data);
  const std::int64_t least = config.data->pipeline.batch_size;
  const std::uint64_t an_image =
      std::max<std::uint64_t>(1, cached_sets(*config.data)[0].bytes() / static_cast<std::uint64_t>(all.size));
  std::uint64_t over = pool_bytes - std::min(bytes, pool_bytes);
  for (int tried = 0; tried < kTries; ++tried) {
    std::int64_t images = all.size - static_cast<std::int64_t>(over / an_image) - 1;
    for (std::int64_t digit = 1; digit * 100 <= images; digit *= 10) images -= images % (digit * 10);
    if (images < least) return "";
    fewer.data->limit = images;
    const std::uint64_t pool = plan_run(fewer).pool_bytes;
    if (pool <= bytes)
      return fmt::format("\n    data: {{limit: {}}}\n      -> a pool of {} (-{}), {} of {}", images,
                         format_byte_size(pool), format_byte_size(pool_bytes - pool), format_count(images),
                         counted(all.size, "training image"));
    over += pool - bytes;
  }
  return "";
}

/// "cache: off", where the run then fits `bytes`, planned; else "".
std::string without_cache(const RunConfig& config, std::uint64_t bytes, std::uint64_t pool_bytes) {
  RunConfig reading = config;
  reading.data->pipeline.cache = CacheKind::off;
  const std::uint64_t pool = plan_run(reading).pool_bytes;
  if (pool > bytes) return "";
  return fmt::format("\n    cache: off\n      -> a pool of {} (-{}), each sample is read anew whenever it is used",
                     format_byte_size(pool), format_byte_size(pool_bytes - pool));
}

/// Where the data set is most of what is needed: its bytes, and what would lower them; else "".
std::string data_advice(const RunConfig& config, const OomAdvice& advice, std::uint64_t bytes) {
  const DataShare data(config);
  if (data.bytes() <= advice.needed_bytes / 2) return "";
  std::int64_t held_out = 0;
  for (const CachedSet& set : cached_sets(*config.data)) held_out += set.facts.size;
  const std::int64_t training = train_facts(*config.data).size;
  std::string text = fmt::format(
      "\n  The data set needs {} of these {}: {} for {} and {} for {}.", format_byte_size(data.bytes()),
      format_byte_size(advice.needed_bytes), format_byte_size(data.train_bytes), counted(training, "training image"),
      format_byte_size(data.validation_bytes), counted(held_out - training, "validation image"));
  const std::string fewer = fewer_images(config, bytes, advice.needed_bytes);
  const std::string uncached = without_cache(config, bytes, advice.needed_bytes);
  if (fewer.empty()) text += " Fewer training images (data: {limit: N}) alone do not make it fit.";
  if (fewer.empty() && uncached.empty()) return text;
  const bool several = !fewer.empty() && !uncached.empty();
  return text + (several ? " Each of these fits" : " This fits") + (advice.edits.empty() ? ":" : ", too:") + uncached +
         fewer;
}

/// Names who would use the memory at the planned peak, for a run that was refused before it began. What the run's pool
/// has beside the step's are its data.
std::string planned_holders(const Graph& graph, const StepPlanOptions& step, std::uint64_t run_pool_bytes) {
  StepPlan plan = plan_step(graph, step);
  if (run_pool_bytes > plan.pool_bytes)
    plan.holders.push_back({.owner = "data set and batches made ahead",
                            .category = Category::input,
                            .bytes = run_pool_bytes - plan.pool_bytes});
  std::ranges::stable_sort(plan.holders, std::greater<>(), &Holder::bytes);
  std::string text = "  largest holders at the planned peak:";
  for (std::size_t i = 0; i < std::min(kShownHolders, plan.holders.size()); ++i)
    text += fmt::format("\n    {} ({}): {}", plan.holders[i].owner, to_string(plan.holders[i].category),
                        format_byte_size(plan.holders[i].bytes));
  return text + "\n";
}

std::string edit_line(const FittingEdit& edit) {
  switch (edit.kind) {
    case FittingEdit::Kind::precision:
      return fmt::format("precision: {}", to_string(edit.step.model.precision));
    case FittingEdit::Kind::recompute:
      return fmt::format("recompute: [{}]", wrapped(edit.step.model.recompute, 62, "                "));
    case FittingEdit::Kind::batch:
      break;
  }
  return fmt::format("batch: {{size: {}}} with train: {{accumulate: {}}}", edit.step.batch, edit.step.accumulate);
}

std::string effect(const FittingEdit& edit, const OomAdvice& advice) {
  const std::uint64_t pool_without = advice.needed_bytes;
  std::string text = fmt::format("a pool of {}", format_byte_size(edit.pool_bytes));
  if (edit.pool_bytes < pool_without) text += fmt::format(" (-{})", format_byte_size(pool_without - edit.pool_bytes));
  if (edit.kind == FittingEdit::Kind::recompute)
    text += fmt::format(", {} time", predicted_percent(edit.extra_work, advice.estimate, 0));
  if (edit.kind != FittingEdit::Kind::batch) return text;
  text += ", the same effective batch";
  if (edit.changes_statistics) text += fmt::format(", but batch norm then sees {} samples at a time", edit.step.batch);
  return text;
}

/// Lines longer than `width` go on below, indented by two more than they began.
std::string wrap_lines(const std::string& text, std::size_t width, std::size_t first_width) {
  std::string wrapped_text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::size_t most = wrapped_text.empty() ? first_width : width;
    const std::string indent(line.find_first_not_of(' ') == std::string::npos ? 0 : line.find_first_not_of(' ') + 2,
                             ' ');
    while (line.size() > most) {
      const std::size_t space = line.rfind(' ', most);
      if (space == std::string::npos || space < indent.size()) break;  // one long word
      wrapped_text += line.substr(0, space) + "\n";
      line = indent + line.substr(space + 1);
      most = width;
    }
    wrapped_text += line + "\n";
  }
  wrapped_text.pop_back();
  return wrapped_text;
}

/// Names the memory that the run needs without a change: as a budget where the budget is what binds, else as a limit.
std::string needed_text(const RunConfig& config, const PlanTarget& target, std::uint64_t pool_bytes) {
  const std::uint64_t budget = config.memory.budget;
  if (budget > 0 && budget == bytes_to_fit(config.memory, target))
    return fmt::format("\n  {} it needs a budget of {}.", config.recompute_given ? "As it is," : "Without recompute,",
                       format_byte_size(pool_bytes));
  return fmt::format("\n  As it is, it needs a limit of {}.",
                     format_byte_size(pool_bytes + bytes_besides_pool(target)));
}

/// `of_run`: with the run's data; else of a step alone.
OutOfMemory explain(const OutOfMemory& error, const RunConfig& config, const OomQuestion& question, bool of_run) {
  if (question.bytes == 0) return error;
  const Graph& graph = config.model.graph;
  try {
    const PlanTarget target = measured_target(config);
    if (refused_shares(config.memory, target, 0)) return error;
    std::string text = std::string(error.what()) + "\n";
    const OomAdvice advice = advise(graph, question);
    const bool before_it_began = error.facts().in_use_bytes == 0;
    // Where the run itself fits, memory was refused for something else: no advice on the run would help.
    if (before_it_began && advice.needed_bytes <= question.bytes) return error;
    if (before_it_began) text += planned_holders(graph, question.step, advice.needed_bytes);
    text += advice_text(advice, question.bytes);
    if (of_run) text += data_advice(config, advice, question.bytes);
    // A run that was refused for its planned pool has the bytes that it needs in its message, by what was measured.
    if (error.facts().requested_bytes != advice.needed_bytes) text += needed_text(config, target, advice.needed_bytes);
    return OutOfMemory(wrap_lines(text, kColumns, kColumns - kPrefix), error.facts());
  } catch (const Error&) {  // no advice is no reason to lose the error
    return error;
  }
}

}  // namespace

std::string advice_text(const OomAdvice& advice, std::uint64_t bytes) {
  std::string text = fmt::format("  The plan needs a pool of {}; {}.", format_byte_size(advice.needed_bytes),
                                 bytes > 1 ? fmt::format("there are {}", format_byte_size(bytes))
                                           : std::string("none of the limit is left for it"));
  if (!advice.edits.empty()) text += " Each of these fits:";
  for (const FittingEdit& edit : advice.edits)
    text += fmt::format("\n    {}\n      -> {}", edit_line(edit), effect(edit, advice));
  return text;
}

OutOfMemory explain_training(const OutOfMemory& error, const RunConfig& config) {
  const std::int64_t batch = config.data->pipeline.batch_size;
  const auto pool = [&](const StepPlanOptions& step) {
    RunConfig other = variant(config, step.batch, step.model.recompute);
    other.precision = step.model.precision;
    other.train.accumulate = step.accumulate;
    return plan_run(other).pool_bytes;
  };
  return explain(error, config,
                 {.step = train_plan_options(config, {batch, config.precision, config.recompute}),
                  .bytes = bytes_there_were(config, error.facts()),
                  .rates = rates_of(config, config.precision),
                  .pool = pool},
                 true);
}

OutOfMemory explain_step(const OutOfMemory& error, const RunConfig& config, const StepCase& step) {
  return explain(error, config,
                 {.step = train_plan_options(config, step),
                  .bytes = bytes_there_were(config, error.facts()),
                  .rates = rates_of(config, step.precision)},
                 false);
}

}  // namespace bantam::cli

// Formatting of progress events and of a run's end.
#include "bantam/cli/print/train_report.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/run/ranks/rank_devices.h"

namespace bantam::cli {
namespace {

/// Matrices are no values.
NamedValues named_values(const Metrics& metrics) {
  NamedValues values;
  for (const MetricValue& metric : metrics.values)
    if (!metric.table().is_matrix()) values.emplace_back(metric.name(), metric.value());
  return values;
}

}  // namespace

double ProgressCallback::shown(double accuracy) const {
  return accuracy_name_.empty() ? std::numeric_limits<double>::quiet_NaN() : accuracy;
}

void ProgressCallback::on_progress(const ProgressEvent& event) {
  if (!first_) first_ = std::chrono::steady_clock::now();
  const MemoryStats memory = memory_ == nullptr ? MemoryStats{} : memory_->stats();
  progress_.update({.epoch = event.epoch + 1,
                    .epochs = event.epochs,
                    .step = event.update,
                    .steps = event.updates,
                    .images_per_second = event.images_per_second,
                    .eta_seconds = event.eta_seconds,
                    .loss = event.epoch_loss,
                    .accuracy = shown(event.epoch_accuracy),
                    .accuracy_name = accuracy_name_,
                    .memory_now = memory.in_use_bytes,
                    .memory_peak = memory.peak_bytes,
                    .memory_limit = memory.limit_bytes,
                    .data_wait_share = event.data_wait_share});
}

void ProgressCallback::on_evaluation(const EvaluationEvent& event) {
  progress_.evaluation({.epoch = std::min(event.epoch + 1, event.epochs),
                        .epochs = event.epochs,
                        .batch = event.batch,
                        .batches = event.batches,
                        .eta_seconds = event.eta_seconds});
}

void ProgressCallback::on_evaluated(const EvaluatedEvent& event) {
  if (event.ends_epoch()) return;  // on_epoch_end says it
  progress_.evaluated({.epoch = event.epoch + 1,
                       .epochs = event.epochs,
                       .step = event.update,
                       .steps = event.updates,
                       .loss = event.validation.loss,
                       .accuracy = shown(event.validation.accuracy),
                       .accuracy_name = accuracy_name_,
                       .values = named_values(event.validation)});
}

void ProgressCallback::on_test(const TestEvent& event) {
  progress_.evaluated({.epoch = event.epochs,
                       .epochs = event.epochs,
                       .test = true,
                       .loss = event.test.loss,
                       .accuracy = shown(event.test.accuracy),
                       .accuracy_name = accuracy_name_,
                       .values = named_values(event.test)});
}

void ProgressCallback::on_epoch_end(const EpochEvent& event) {
  progress_.epoch_end({.epoch = event.epoch + 1,
                       .epochs = event.epochs,
                       .trained = event.train.samples > 0,
                       .loss = event.train.loss,
                       .accuracy = shown(event.train.accuracy),
                       .accuracy_name = accuracy_name_,
                       .validated = event.validation.samples > 0,
                       .validation_loss = event.validation.loss,
                       .validation_accuracy = shown(event.validation.accuracy),
                       .seconds = event.seconds,
                       .images_per_second = event.images_per_second,
                       .data_wait_share = event.data_wait_share,
                       .values = named_values(event.train),
                       .validation_values = named_values(event.validation)});
}

void ProgressCallback::on_smaller_micro_batch(const SmallerMicroBatchEvent& event) {
  progress_.warning(fmt::format("out of memory: update {} of epoch {} is repeated in micro-batches of {}",
                                event.update + 1, event.epoch + 1, event.samples));
}

namespace {

/// Empty where accuracy means nothing.
std::string accuracy_name_of(const run::Outcome& outcome) {
  return std::string(outcome.config->train.loss.loss == nullptr ? kAccuracy : run::accuracy_name(*outcome.config));
}
std::string accuracy_title(const run::Outcome& outcome) {
  std::string name = accuracy_name_of(outcome);
  std::ranges::replace(name, '_', ' ');
  return name;
}

std::string metrics_line(const char* title, const Metrics& metrics, const std::string& accuracy) {
  std::string text = fmt::format("  {:<12}", title);
  if (!accuracy.empty()) text += fmt::format("{} {:.4f}, ", accuracy, metrics.accuracy);
  text += fmt::format("loss {:.4f}", metrics.loss);
  for (const auto& [name, value] : named_values(metrics)) text += fmt::format(", {} {:.4f}", name, value);
  return text + fmt::format(", {}\n", counted(metrics.samples, "image"));
}

/// Matrices as tables of no more than `columns`: labels down, predictions across. Columns are narrower where there are
/// many; what is too wide even so is left to `bantam evaluate`.
std::string matrix_lines(const Metrics& metrics, std::size_t columns) {
  constexpr std::size_t kIndent = 14, kCell = 7;
  std::string text;
  for (const MetricValue& metric : metrics.values) {
    const MetricTable table = metric.table();
    if (!table.is_matrix()) continue;
    const std::size_t classes = static_cast<std::size_t>(table.columns);
    std::vector<std::string> cells;
    for (const double value : table.values) cells.push_back(fmt::format("{:.0f}", value));
    std::size_t cell = kCell;
    if (kIndent + cell * classes > columns) {
      cell = 0;
      for (const std::string& one : cells) cell = std::max(cell, one.size() + 1);
    }
    if (kIndent + cell * classes > columns) {
      text += fmt::format("  {} of {} classes: `bantam evaluate RUN --json` has it\n", metric.name(), classes);
      continue;
    }
    text += fmt::format("  {} of labels (rows) and predictions:\n", metric.name());
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i % classes == 0) text += std::string(kIndent, ' ');
      text += fmt::format("{:>{}}", cells[i], cell);
      if ((i + 1) % classes == 0) text += "\n";
    }
  }
  return text;
}

/// "3 epochs, 120 updates"; "243 updates (7.6 epochs)" where the updates are the run's length.
std::string length_of(const run::Outcome& outcome) {
  const TrainResult& result = outcome.result;
  const std::string updates = fmt::format("{} update{}", format_count(result.updates), result.updates == 1 ? "" : "s");
  const run::RunConfig& config = *outcome.config;
  if (config.train.updates == 0 || !config.data)
    return fmt::format("{} epoch{}, {}", result.epochs, result.epochs == 1 ? "" : "s", updates);
  const std::int64_t each = run::updates_per_epoch(config, config.data->pipeline.batch_size);
  return fmt::format("{} ({:.1f} epochs)", updates, static_cast<double>(result.updates) / static_cast<double>(each));
}

std::string memory_lines(const MemoryStats& memory, std::uint64_t planned_peak_bytes) {
  const std::string planned = memory.peak_bytes == planned_peak_bytes
                                  ? "as planned"
                                  : fmt::format("planned {}", format_byte_size(planned_peak_bytes));
  std::string text =
      fmt::format("  {:<12}{} in use at the peak ({}), {} reserved:\n", "memory", format_byte_size(memory.peak_bytes),
                  planned, format_byte_size(memory.peak_pool_bytes));
  for (std::size_t i = 0; i < kCategories; ++i)
    if (const auto category = static_cast<Category>(i); memory.by_category_at_peak[category] > 0)
      text += fmt::format("  {:<12}  {:<11}{:>10}\n", "", to_string(category),
                          format_byte_size(memory.by_category_at_peak[category]));
  return text;
}

std::string process_lines(const run::Outcome& outcome) {
  std::string text = fmt::format("  {:<12}{} counted for the process ({})\n", "",
                                 format_byte_size(outcome.process.bytes), to_string(outcome.process.method));
  for (const OverheadLine& line : outcome.overhead)
    text += fmt::format("  {:<12}  {:<14}{:>10}\n", "", line.name, format_byte_size(line.bytes));
  return text;
}

}  // namespace

std::string closing_summary(const TrainReport& report) {
  const run::Outcome& outcome = report.outcome;
  const TrainResult& result = outcome.result;
  std::string text;
  if (outcome.finished_before) return text;
  if (result.reached_max_updates)
    text = fmt::format(
        "ended by train.max_updates in epoch {} after {} of its updates; go on with\n  bantam train --resume "
        "{} train.max_updates=N\n",
        result.epoch + 1, result.update, outcome.folder.string());
  else if (result.stopped)
    text = fmt::format("stopped in epoch {} after {} of its updates; go on with\n  bantam train --resume {}\n",
                       result.epoch + 1, result.update, outcome.folder.string());
  else
    text = fmt::format("{}: {} in {} on {}, {}\n", outcome.config->model.name, length_of(outcome),
                       format_duration(report.seconds),
                       run::devices_text(outcome.config->device, outcome.config->assigned.size()),
                       to_string(outcome.config->precision));
  if (result.stopped_early) text += fmt::format("  {:<12}{}\n", "ended", outcome.reason);
  const std::string accuracy = accuracy_title(outcome);
  if (result.test.samples > 0) text += metrics_line("test", result.test, accuracy);
  if (result.validation.samples > 0) text += metrics_line("validation", result.validation, accuracy);
  if (result.train.samples > 0) text += metrics_line("training", result.train, accuracy);
  if (const auto& watched = outcome.config->checkpoint.best; watched && outcome.best_epoch > 0)
    text += fmt::format("  {:<12}{} {:.4f} in epoch {}: weights-best.safetensors, `--checkpoint best`\n", "best",
                        watched->metric, outcome.best, outcome.best_epoch);
  text += matrix_lines(result.test.samples > 0 ? result.test : result.validation, report.columns);
  text += fmt::format("  {:<12}{:.0f} images/s, {} of training, {:.1f}% of it waiting for data\n", "speed",
                      result.images_per_second, format_duration(result.seconds), 100 * result.data_wait_share);
  if (result.evaluation_seconds > 0)
    text += fmt::format("  {:<12}{} of evaluations\n", "", format_duration(result.evaluation_seconds));
  if (outcome.broken_samples > 0)
    text += fmt::format("  {:<12}{} sample{} could not be read, and others came in their place: {}\n", "skipped",
                        format_count(outcome.broken_samples), outcome.broken_samples == 1 ? "" : "s",
                        fmt::join(outcome.broken_reasons, "; "));
  if (report.start_seconds > 0)
    text += fmt::format("  {:<12}{:.2f} s from the start to the first updates' results\n", "", report.start_seconds);
  text += memory_lines(outcome.memory, outcome.planned_peak_bytes);
  if (!outcome.overhead.empty()) text += process_lines(outcome);
  if (const std::size_t ranks = outcome.config->assigned.size(); ranks > 1)
    text += fmt::format("  {:<12}{} among {} ranks; memory is rank 0's\n", "exchange",
                        outcome.transport.empty() ? "TCP" : outcome.transport, ranks);
  if (outcome.host && outcome.pinned)
    text += fmt::format("  {:<12}{} of host memory at the peak, {} of it page-locked\n", "",
                        format_byte_size(outcome.host->peak_bytes + outcome.pinned->peak_bytes),
                        format_byte_size(outcome.pinned->peak_bytes));
  if (outcome.weights)
    text += fmt::format("  {:<12}{} in weights.safetensors, {} after gzip ({:.0f}%)\n", "size",
                        format_byte_size(outcome.weights->bytes), format_byte_size(outcome.weights->gzip_bytes),
                        100.0 * static_cast<double>(outcome.weights->gzip_bytes) /
                            static_cast<double>(std::max<std::uint64_t>(outcome.weights->bytes, 1)));
  const bool averages = outcome.config->train.optimizer.ema.has_value();
  text += fmt::format("  {:<12}{}/\n  {:<12}  run.json config.yaml metrics.jsonl weights.safetensors{} checkpoints/\n",
                      "files", outcome.folder.string(), "", averages ? " weights-ema.safetensors" : "");
  if (const run::LogConfig& log = outcome.config->log; log.histograms > 0 || log.tensorboard)
    text += fmt::format("  {:<12} {}{}\n", "", log.histograms > 0 ? " histograms.jsonl" : "",
                        log.tensorboard ? " tensorboard/" : "");
  return text;
}

nlohmann::ordered_json closing_json(const TrainReport& report) {
  const run::Outcome& outcome = report.outcome;
  const TrainResult& result = outcome.result;
  const Metrics& best = result.validation.samples > 0 ? result.validation : result.train;
  const std::string accuracy = accuracy_name_of(outcome);
  nlohmann::ordered_json json;
  if (!accuracy.empty()) json[accuracy] = best.accuracy;
  json.update({{"loss", best.loss},
               {"epochs", result.epoch},
               {"seconds", report.seconds},
               {"run_dir", outcome.folder.string()},
               {"model", outcome.config->model.name},
               {"parameters", outcome.parameters},
               {"batch", outcome.effective_batch},
               {"precision", to_string(outcome.config->precision)},
               {"recompute", to_string(outcome.config->recompute)},
               {"device", to_string(outcome.config->device)},
               {"ranks", std::max<std::size_t>(1, outcome.config->assigned.size())},
               {"transport", outcome.transport},
               {"seed", outcome.config->seed},
               {"updates", result.updates},
               {"stopped", result.stopped},
               {"stopped_early", result.stopped_early},
               {"held_out", result.validation.samples > 0},
               {"train_loss", result.train.loss},
               {"start_seconds", report.start_seconds},
               {"train_seconds", result.seconds},
               {"evaluation_seconds", result.evaluation_seconds},
               {"images_per_s", result.images_per_second},
               {"data_wait_share", result.data_wait_share}});
  if (!accuracy.empty()) json["train_" + accuracy] = result.train.accuracy;
  for (const MetricValue& metric : best.values) json[std::string(metric.name())] = metric.value();
  if (result.test.samples > 0) {
    if (!accuracy.empty()) json["test_" + accuracy] = result.test.accuracy;
    json["test_loss"] = result.test.loss;
    for (const MetricValue& metric : result.test.values) json[fmt::format("test_{}", metric.name())] = metric.value();
  }
  add_memory(json, outcome.memory);
  json["planned_peak_bytes"] = outcome.planned_peak_bytes;
  json["planned_pool_bytes"] = outcome.planned_pool_bytes;
  if (outcome.broken_samples > 0) json["broken_samples"] = outcome.broken_samples;
  if (outcome.weights) {
    json["weights_bytes"] = outcome.weights->bytes;
    json["weights_gzip_bytes"] = outcome.weights->gzip_bytes;
  }
  json["process_bytes"] = outcome.process.bytes;
  json["process_method"] = to_string(outcome.process.method);
  for (const OverheadLine& line : outcome.overhead) json["overhead"][line.name] = line.bytes;
  if (outcome.host) json["host_peak_bytes"] = outcome.host->peak_bytes;
  if (outcome.pinned) json["pinned_peak_bytes"] = outcome.pinned->peak_bytes;
  return json;
}

}  // namespace bantam::cli

// A run's files, its model's answers, and sentences about them.
#include "bantam/run/report/run_report.h"

#include <algorithm>
#include <map>
#include <system_error>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/evaluate/class_report.h"
#include "bantam/run/evaluate/evaluation.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

std::string folder_name(const fs::path& path) {
  std::error_code error;  // of the folder that the process is in
  const fs::path absolute = fs::absolute(path, error), whole = (error ? path : absolute).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void require_run(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / "run.json", error))
    throw DataError(fmt::format("{} holds no run: there is no run.json in it", folder.string()));
}

/// The model whose answers are shown: of the best weights where the run keeps them.
TrainedModel open_best(const fs::path& folder, bool with_data) {
  std::error_code error;
  TrainedModelOptions options{.checkpoint = fs::exists(folder / "weights-best.safetensors", error) ? "best" : "",
                              .with_data = with_data};
  if (options.checkpoint.empty()) {
    const RunConfig config = [&] {
      try {
        return read_run_config(folder / "config.yaml", {}, DataSection::skip);
      } catch (const ConfigError& failure) {
        throw with_program_of(failure, folder);
      }
    }();
    const std::optional<EmaOptions>& average = config.train.optimizer.ema;
    options.ema = average && average->evaluate;
  }
  return open_trained_model(folder, options);
}

void add_weights(const TrainedModel& model, RunReport& report) {
  report.weights_file = model.weights_file;
  report.weights = histograms_of(model.weights);
}

/// Weights first: they need no data.
void add_model(const fs::path& folder, const HeldOutOptions& options, RunReport& report) {
  try {
    add_weights(open_best(folder, false), report);
  } catch (const Error& error) {
    report.no_weights = report.no_held_out = error.what();
    return;
  }
  try {
    report.held_out = answer_held_out(open_best(folder, true), options);
  } catch (const EvaluationStopped&) {
    throw;
  } catch (const Error& error) {
    report.no_held_out = error.what();
  }
}

bool larger_is_better(const fs::path& config, const std::string& metric) {
  try {
    const RunConfig read = read_run_config(config, {}, DataSection::skip);
    const WatchedMetric watched = read.checkpoint.best.value_or(watched_by_default(read.train));
    if (watched.metric == metric) return watched.larger;
  } catch (const Error&) {  // of another version, or a layer of a program's own: the name is what is known
  }
  return metric != "loss";
}

std::string best_text(const RunRecord& record) {
  if (record.metric.empty()) return "";
  return fmt::format("{} {:.4g}", record.metric == "loss" ? "validation loss" : "validation " + record.metric,
                     record.best);
}

/// "after 3 epochs (3,750 updates, 26 s) on cpu".
std::string work_text(const RunRecord& record) {
  return fmt::format("{} update{} ({}) on {}", format_count(record.updates), record.updates == 1 ? "" : "s",
                     format_duration(record.seconds), record.device);
}

/// Names the mean IoU where the answer is a class a pixel; empty for others, and where the best evaluation is of it.
std::string iou_text(const RunReport& report) {
  if (!report.held_out || report.held_out->task != Task::segmentation || report.held_out->matrix.columns == 0 ||
      report.run.record.metric == "mean_iou")
    return "";
  return fmt::format(" Mean IoU of {} held-out image{}: {:.4f}.", format_count(report.held_out->samples),
                     report.held_out->samples == 1 ? "" : "s",
                     class_report(report.held_out->matrix, report.held_out->names).iou);
}

std::string state_headline(const RunReport& report) {
  const RunRecord& record = report.run.record;
  const std::string best = best_text(record);
  const std::string at =
      best.empty() ? "" : fmt::format("{}, reached in epoch {} of {}", best, record.best_epoch, record.epochs);
  const std::string work = work_text(record);
  if (report.run.state == "finished")
    return best.empty() ? fmt::format("{} finished after {}; it was never evaluated.", report.name, work)
                        : fmt::format("{} came to {}, after {}.", report.name, at, work);
  const std::string so_far = best.empty() ? "not evaluated yet" : "best so far " + at;
  const std::string where = position_text(record);
  if (!report.has_ended())
    return fmt::format("{} is {}, in {}: {}, after {}.", report.name, report.run.state, where, so_far, work);
  const std::string reason = record.reason.empty() ? "" : fmt::format(" ({})", record.reason);
  return fmt::format("{} {} in {}{}: {}, after {}.", report.name,
                     report.run.state == "killed" ? "was killed" : report.run.state, where, reason,
                     best.empty() ? "never evaluated" : "best " + at, work);
}

std::string one_headline(const RunReport& report) { return state_headline(report) + iou_text(report); }

}  // namespace

std::string position_text(const RunRecord& record) {
  return fmt::format("epoch {} of {}", std::min(record.epoch + 1, record.epochs), record.epochs);
}

std::vector<fs::path> run_folders(std::span<const fs::path> paths) {
  std::vector<fs::path> folders;
  for (const fs::path& given : paths) {
    const fs::path path = given.has_filename() ? given : given.parent_path();  // of "runs/a/"
    std::error_code error;
    if (fs::exists(path / "run.json", error)) {
      folders.push_back(path);
      continue;
    }
    std::vector<fs::path> inside;
    for (const ListedRun& run : list_runs(path).runs) inside.push_back(run.path);
    if (inside.empty())
      throw DataError(
          fmt::format("{} holds no run: there is no run.json in it, and none in its folders", path.string()));
    std::ranges::sort(inside);
    folders.insert(folders.end(), inside.begin(), inside.end());
  }
  return folders;
}

RunReport report_of(const fs::path& folder, const RunReportOptions& options) {
  require_run(folder);
  RunReport report{.name = folder_name(folder)};
  MetricsFile whole(folder / "metrics.jsonl");
  report.run = listed_run(folder, options.metrics != nullptr ? *options.metrics : whole, options.most_points,
                          report.history, options.on_line);
  report.config_text = read_file(folder / "config.yaml");
  report.config = ConfigDocument::parse(report.config_text, (folder / "config.yaml").string()).values();
  report.larger_is_better = larger_is_better(folder / "config.yaml", report.run.record.metric);
  report.histograms = read_histograms(folder / "histograms.jsonl", options.most_histograms, options.on_line);
  if (options.held_out) add_model(folder, *options.held_out, report);
  return report;
}

const RunReport* best_of(std::span<const RunReport> reports) {
  const RunReport* best = nullptr;
  for (const RunReport& report : reports) {
    const RunRecord& record = report.run.record;
    if (record.metric.empty() || record.metric != reports[0].run.record.metric) return nullptr;
    const bool better = best == nullptr || (report.larger_is_better ? record.best > best->run.record.best
                                                                    : record.best < best->run.record.best);
    if (better) best = &report;
  }
  return best;
}

std::string headline_of(std::span<const RunReport> reports) {
  if (reports.empty()) return "There are no runs.";
  if (reports.size() == 1) return one_headline(reports[0]);
  const RunReport* best = best_of(reports);
  if (best == nullptr) return fmt::format("{} runs, which have no metric in common.", reports.size());
  const RunRecord& record = best->run.record;
  return fmt::format("{} is the best of {} runs: {}, reached in epoch {} of {}, after {}.", best->name, reports.size(),
                     best_text(record), record.best_epoch, record.epochs, work_text(record));
}

void make_names_distinct(std::span<RunReport> reports) {
  std::map<std::string, int> count;
  for (const RunReport& report : reports) ++count[report.name];
  for (RunReport& report : reports)
    if (count[report.name] > 1) report.name = report.run.path.string();
}

}  // namespace bantam::run

// Values out of run folders, and their means.
#include "bantam/run/sweep/sweep_summary.h"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_file.h"
#include "bantam/base/json.h"
#include "bantam/run/runs.h"
#include "bantam/run/train/run_record.h"

namespace bantam::run {
namespace {

/// A metric of a configuration in a line: accuracy may be that of binary decisions there (accuracy_name).
nlohmann::ordered_json::const_iterator find_metric(const nlohmann::ordered_json& line, std::string_view prefix,
                                                   const std::string& name) {
  const auto found = line.find(fmt::format("{}{}", prefix, name));
  return found == line.end() && name == "accuracy" ? line.find(fmt::format("{}binary_accuracy", prefix)) : found;
}

/// The numbers of `names` in a line, each with `prefix` in the line and with `title` in `values`.
void read_numbers(const nlohmann::ordered_json& line, const std::vector<std::string>& names,
                  std::pair<std::string_view, std::string_view> prefix_and_title,
                  std::map<std::string, double>& values) {
  const auto& [prefix, title] = prefix_and_title;
  for (const std::string& name : names) {
    const auto found = find_metric(line, prefix, name);
    if (found == line.end()) continue;
    const std::string key = fmt::format("{}{}", title, name);
    values.erase(key);  // of an earlier line: a later one that is not finite does not keep it
    if (found->is_number()) values[key] = found->get<double>();
  }
}

/// Later lines win. Lines of updates are many, and say nothing of the whole; the last line of a run that was killed may
/// be half of one.
void read_log(const std::filesystem::path& path, const std::vector<std::string>& names,
              std::map<std::string, double>& values) {
  (void)read_lines({.path = path}, 0, [&](const FileLine& text) {
    if (text.text.starts_with(R"({"kind":"update")")) return true;
    const nlohmann::ordered_json line = nlohmann::ordered_json::parse(text.text, nullptr, false);
    if (!line.is_object()) return true;
    read_numbers(line, names, {"", "train_"}, values);
    read_numbers(line, names, {"validation_", "validation_"}, values);
    read_numbers(line, names, {"test_", "test_"}, values);
    return true;
  });
}

std::string watched_name(const RunConfig& config, const WatchedMetric& metric) {
  if (!config.train.evaluate) return "train_" + metric.metric;
  return (config.checkpoint.best ? "best_validation_" : "validation_") + metric.metric;
}

/// The mean of the values' spread; nothing where no run has the value.
std::optional<double> mean_of(const SettingSummary& setting, const std::string& name) {
  const auto found = setting.values.find(name);
  return found == setting.values.end() ? std::nullopt : std::optional(found->second.mean);
}

SettingSummary summarise(const Sweep& sweep, std::size_t setting, const std::vector<SweepResult>& results) {
  std::map<std::string, std::vector<double>> values;
  std::vector<double> seconds, compute;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (sweep.runs()[i].setting != setting || !results[i].ended) continue;
    seconds.push_back(results[i].seconds);
    if (results[i].compute_seconds > 0) compute.push_back(results[i].compute_seconds);
    for (const auto& [name, value] : results[i].values) values[name].push_back(value);
  }
  SettingSummary summary{.setting = setting,
                         .ended = std::ssize(seconds),
                         .values = {},
                         .seconds = spread_of(seconds),
                         .compute_seconds = spread_of(compute)};
  for (const auto& [name, numbers] : values) summary.values[name] = spread_of(numbers);
  return summary;
}

}  // namespace

Spread spread_of(std::span<const double> numbers) {
  Spread spread{.count = std::ssize(numbers)};
  if (numbers.empty()) return spread;
  const auto [least, most] = std::ranges::minmax(numbers);
  spread.least = least;
  spread.most = most;
  const auto count = static_cast<double>(numbers.size());
  for (const double number : numbers) spread.mean += number / count;
  double squares = 0;
  for (const double number : numbers) squares += (number - spread.mean) * (number - spread.mean);
  if (numbers.size() > 1) spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

SweepResult read_result(const std::filesystem::path& folder, const std::vector<std::string>& metrics) {
  std::error_code error;
  if (!std::filesystem::exists(folder / "run.json", error)) return {};
  try {
    require_no_links({.path = folder});  // the folder of a run in a sweep's
  } catch (const DataError& link) {
    return {.state = "damaged", .reason = link.what()};
  }
  const RunList list = list_runs(folder);
  if (list.runs.empty()) return {.state = "damaged", .reason = list.unreadable.empty() ? "" : list.unreadable[0]};
  const ListedRun& run = list.runs.front();
  SweepResult result{.state = run.state,
                     .reason = run.record.reason,
                     .ended = has_ended(run.record),
                     .seconds = run.record.seconds,
                     .compute_seconds = run.record.compute_seconds};
  read_log(folder / "metrics.jsonl", metrics, result.values);
  if (!run.record.metric.empty() && std::isfinite(run.record.best))
    result.values["best_validation_" + run.record.metric] = run.record.best;
  return result;
}

SweepSummary summary_of(const Sweep& sweep, const std::map<std::size_t, std::string>& failures) {
  SweepSummary summary;
  std::vector<std::vector<std::string>> metrics;  // of each setting
  for (const SweepSetting& setting : sweep.settings()) {
    // Without data: results are there also when these are not any more.
    const RunConfig config = config_of(sweep.plan(), setting, {}, DataSection::skip);
    metrics.push_back(metric_names(config.train));
    if (metrics.size() > 1) continue;
    summary.metric = config.checkpoint.best.value_or(watched_by_default(config.train));
    summary.watched = watched_name(config, summary.metric);
  }
  for (std::size_t i = 0; i < sweep.runs().size(); ++i) {
    const SweepRun& run = sweep.runs()[i];
    SweepResult& result = summary.results.emplace_back(read_result(run.folder, metrics[run.setting]));
    if (const auto failure = failures.find(i); failure != failures.end()) {
      result.state = "failed";
      result.reason = failure->second;
    }
  }
  for (std::size_t i = 0; i < sweep.settings().size(); ++i)
    summary.settings.push_back(summarise(sweep, i, summary.results));
  std::ranges::stable_sort(summary.settings, [&](const SettingSummary& a, const SettingSummary& b) {
    const std::optional<double> of_a = mean_of(a, summary.watched), of_b = mean_of(b, summary.watched);
    if (!of_a || !of_b) return of_a.has_value() && !of_b;
    return summary.metric.larger ? *of_a > *of_b : *of_a < *of_b;
  });
  return summary;
}

}  // namespace bantam::run

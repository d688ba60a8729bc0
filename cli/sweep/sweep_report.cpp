// Columns by what was watched.
#include "bantam/cli/sweep/sweep_report.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/counted.h"
#include "bantam/base/text.h"

namespace bantam::cli {
namespace {

/// "val accuracy" of "validation_accuracy".
std::string title_of(const std::string& name) {
  for (const auto& [prefix, title] : {std::pair("best_validation_", "best val "), std::pair("validation_", "val "),
                                      std::pair("train_", "train "), std::pair("test_", "test ")})
    if (name.starts_with(prefix)) return title + shown(name.substr(std::string_view(prefix).size()), 12);
  return name;
}

/// Four decimals, or, where they would say too little or too much, four digits.
bool has_decimals(double value) {
  constexpr double kLeast = 1e-2, kMost = 1e5;
  return value == 0 || (std::abs(value) >= kLeast && std::abs(value) < kMost);
}

std::string number_text(double value) {
  return has_decimals(value) ? fmt::format("{:.4f}", value) : fmt::format("{:.3e}", value);
}

/// The deviation as exact as the mean.
std::string spread_text(const Spread& spread) {
  if (spread.count == 0) return "";
  std::string mean = number_text(spread.mean);
  if (!spread.deviation) return mean;
  return mean + (has_decimals(spread.mean) ? fmt::format(" ± {:.4f}", *spread.deviation)
                                           : fmt::format(" ± {:.1e}", *spread.deviation));
}

/// Milliseconds count in short runs.
std::string seconds_text(double seconds) {
  constexpr double kShort = 9.9995;
  return seconds < kShort ? fmt::format("{:.3f}s", seconds) : format_duration(seconds);
}

std::string seconds_text(const Spread& seconds) {
  if (seconds.count == 0) return "";
  const std::string mean = seconds_text(seconds.mean);
  return seconds.deviation ? fmt::format("{} ± {}", mean, seconds_text(*seconds.deviation)) : mean;
}

/// Names the columns: the watched value, the last evaluation's beside a best one, the test samples' value or the loss.
std::vector<std::string> columns_of(const SweepSummary& summary) {
  const std::string& watched = summary.watched;
  const std::string test = "test_" + summary.metric.metric,
                    prefix = watched.substr(0, watched.rfind(summary.metric.metric));
  const bool tested =
      std::ranges::any_of(summary.results, [&](const SweepResult& run) { return run.values.contains(test); });
  std::vector<std::string> columns = {watched};
  const std::string last = prefix == "train_" ? prefix : "validation_";
  if (prefix == "best_validation_") columns.push_back("validation_" + summary.metric.metric);
  if (tested)
    columns.push_back(test);
  else if (summary.metric.metric != "loss" && prefix != "best_validation_")
    columns.push_back(last + "loss");
  return columns;
}

std::int64_t runs_of(const SweepReport& report, std::size_t setting) {
  return std::ranges::count(report.sweep.runs(), setting, &SweepRun::setting);
}

std::string cell_of(const std::map<std::string, Spread>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "" : spread_text(found->second);
}

std::string settings_table(const SweepReport& report) {
  const SweepPlan& plan = report.sweep.plan();
  const std::vector<std::size_t> varied = varied_axes(plan);
  const std::vector<std::string> keys = short_keys(plan), columns = columns_of(report.summary);
  std::vector<Table::Column> titles;
  for (const std::size_t axis : varied) titles.push_back({shown(keys[axis], 24), Align::left});
  titles.push_back({"runs"});
  for (const std::string& column : columns) titles.push_back({title_of(column)});
  titles.push_back({"compute"});
  titles.push_back({"time"});
  Table table(std::move(titles));
  for (const SettingSummary& setting : report.summary.settings) {
    std::vector<std::string> row;
    for (const std::size_t axis : varied) row.push_back(shown(report.sweep.settings()[setting.setting].at(axis), 24));
    row.push_back(fmt::format("{}/{}", setting.ended, runs_of(report, setting.setting)));
    for (const std::string& column : columns) row.push_back(cell_of(setting.values, column));
    row.push_back(seconds_text(setting.compute_seconds));
    row.push_back(setting.ended > 0 ? format_duration(setting.seconds.mean) : "");
    table.add_row(std::move(row));
  }
  return table.to_string();
}

/// One setting: its seeds, and what they come to.
std::string seeds_table(const SweepReport& report) {
  const std::vector<std::string> columns = columns_of(report.summary);
  std::vector<Table::Column> titles = {{"seed", Align::left}};
  for (const std::string& column : columns) titles.push_back({title_of(column)});
  titles.push_back({"compute"});
  titles.push_back({"time"});
  Table table(std::move(titles));
  for (std::size_t i = 0; i < report.sweep.runs().size(); ++i) {
    const SweepResult& result = report.summary.results[i];
    std::vector<std::string> row = {std::to_string(report.sweep.runs()[i].seed)};
    for (const std::string& column : columns) {
      const auto found = result.values.find(column);
      row.push_back(found == result.values.end() || !result.ended ? "" : number_text(found->second));
    }
    row.push_back(result.ended && result.compute_seconds > 0 ? seconds_text(result.compute_seconds) : "");
    row.push_back(result.ended ? format_duration(result.seconds) : result.state);
    table.add_row(std::move(row));
  }
  table.add_rule();
  const SettingSummary& all = report.summary.settings.front();
  std::vector<std::string> mean = {"mean"};
  for (const std::string& column : columns) mean.push_back(cell_of(all.values, column));
  mean.push_back(seconds_text(all.compute_seconds));
  mean.push_back(all.ended > 0 ? format_duration(all.seconds.mean) : "");
  table.add_row(std::move(mean));
  return table.to_string();
}

/// As a shell reads it.
std::string quoted(const std::string& argument) {
  const bool plain = std::ranges::all_of(argument, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("+-._=:/,@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) return argument;
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// "  best        train.epochs=3": the setting as overrides, which `train` accepts.
std::string best_line(const SweepReport& report) {
  const SettingSummary& best = report.summary.settings.front();
  const std::vector<std::size_t> varied = varied_axes(report.sweep.plan());
  if (varied.empty() || !best.values.contains(report.summary.watched)) return "";
  std::string text = fmt::format("  {:<12}", "best");
  for (const std::size_t axis : varied)
    text += quoted(fmt::format("{}={}", report.sweep.plan().axes[axis].key,
                               report.sweep.settings()[best.setting].at(axis))) +
            " ";
  text.back() = '\n';
  return text;
}

std::string failed_lines(const SweepReport& report) {
  std::string text;
  for (std::size_t i = 0; i < report.sweep.runs().size(); ++i) {
    const SweepResult& result = report.summary.results[i];
    if (result.state != "failed") continue;
    const std::string first = result.reason.substr(0, result.reason.find('\n'));
    text += fmt::format("  {:<12}{}: {}\n", "failed", report.sweep.text_of(report.sweep.runs()[i]), shown(first, 160));
  }
  return text;
}

std::int64_t ended_runs(const SweepSummary& summary) {
  return std::ranges::count(summary.results, true, &SweepResult::ended);
}

}  // namespace

std::string sweep_text(const SweepReport& report) {
  const SweepSummary& summary = report.summary;
  const std::int64_t ended = ended_runs(summary), all = std::ssize(summary.results),
                     settings = std::ssize(summary.settings);
  const std::int64_t repeat = report.sweep.plan().repeat;
  std::string text = fmt::format(
      "{}: {} of {} ({}, {}), {} in this session\n", report.sweep.plan().config_path.stem().string(), ended,
      counted(all, "run"), counted(settings, "setting"), counted(repeat, "seed"), format_duration(report.seconds));
  text += varied_axes(report.sweep.plan()).empty() ? seeds_table(report) : settings_table(report);
  text +=
      fmt::format("  {:<12}{}, {} is better{}\n", "compared by", title_of(summary.watched),
                  summary.metric.larger ? "larger" : "smaller", repeat > 1 ? "; ± standard deviation over seeds" : "");
  text += fmt::format(
      "  {:<12}weights made from the data, updates and evaluations; time: from update 1 to the saved run\n", "compute");
  if (report.wall.count > 0)
    text += fmt::format("  {:<12}{} a run, from its configuration to its saved weights\n", "wall",
                        seconds_text(report.wall));
  text += best_line(report) + failed_lines(report);
  text += fmt::format("  {:<12}{}/\n", "runs in", report.sweep.folder().string());
  if (ended < all)
    text += fmt::format("{} of the runs {} not ended; go on with\n  bantam sweep --resume {}\n", all - ended,
                        all - ended == 1 ? "has" : "have", quoted(report.sweep.folder().string()));
  return text;
}

namespace {

nlohmann::ordered_json json_of(const Spread& spread) {
  nlohmann::ordered_json json = {{"count", spread.count}, {"mean", spread.mean}};
  json["deviation"] = spread.deviation ? nlohmann::ordered_json(*spread.deviation) : nlohmann::ordered_json();
  json["least"] = spread.least;
  json["most"] = spread.most;
  return json;
}

nlohmann::ordered_json runs_json(const SweepReport& report, std::size_t setting) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < report.sweep.runs().size(); ++i) {
    const SweepRun& run = report.sweep.runs()[i];
    if (run.setting != setting) continue;
    const SweepResult& result = report.summary.results[i];
    nlohmann::ordered_json json = {{"run_dir", run.folder.string()},
                                   {"seed", run.seed},
                                   {"state", result.state},
                                   {"reason", result.reason},
                                   {"ended", result.ended},
                                   {"seconds", result.seconds},
                                   {"compute_seconds", result.compute_seconds}};
    for (const auto& [name, value] : result.values) json[name] = value;
    runs.push_back(std::move(json));
  }
  return runs;
}

}  // namespace

nlohmann::ordered_json sweep_json(const SweepReport& report) {
  const SweepSummary& summary = report.summary;
  const SweepPlan& plan = report.sweep.plan();
  nlohmann::ordered_json json = {{"config", plan.config_path.string()},
                                 {"out", report.sweep.folder().string()},
                                 {"metric", summary.metric.metric},
                                 {"mode", summary.metric.larger ? "max" : "min"},
                                 {"watched", summary.watched},
                                 {"runs", summary.results.size()},
                                 {"ended", ended_runs(summary)},
                                 {"failed", std::ranges::count(summary.results, "failed", &SweepResult::state)},
                                 {"stopped", report.stopped},
                                 {"seconds", report.seconds},
                                 {"wall_seconds", json_of(report.wall)},
                                 {"settings", nlohmann::ordered_json::array()}};
  for (const SettingSummary& setting : summary.settings) {
    nlohmann::ordered_json row = {{"set", nlohmann::ordered_json::object()}, {"ended", setting.ended}};
    for (std::size_t axis = 0; axis < plan.axes.size(); ++axis)
      row["set"][plan.axes[axis].key] = report.sweep.settings()[setting.setting].at(axis);
    for (const auto& [name, spread] : setting.values) row[name] = json_of(spread);
    row["seconds"] = json_of(setting.seconds);
    row["compute_seconds"] = json_of(setting.compute_seconds);
    row["runs"] = runs_json(report, setting.setting);
    json["settings"].push_back(std::move(row));
  }
  return json;
}

}  // namespace bantam::cli

// `bantam compare`: two runs side by side: configuration, result, time, memory.
#include "bantam/run/compare.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/fitted_text.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;
using run::ComparedRun;
using run::RunComparison;

struct CompareOptions {
  std::string first, second;
  bool json = false;
};

template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// Which run has the better best evaluation; empty where that is not known.
std::string better_of(const RunComparison& both) {
  if (!both.larger_is_better) return "";
  const double first = both.first.run.record.best, second = both.second.run.record.best;
  if (first == second) return "equal";
  return (second > first) == *both.larger_is_better ? "second" : "first";
}

Json json_of(const ComparedRun& compared) {
  const run::RunRecord& record = compared.run.record;
  Json json = {{"path", compared.run.path.string()},
               {"state", compared.run.state},
               {"config", record.name},
               {"model", record.model},
               {"device", record.device},
               {"precision", record.precision},
               {"epoch", record.epoch},
               {"epochs", record.epochs},
               {"updates", record.updates}};
  json["best"] = nullptr;
  if (!record.metric.empty())
    json["best"] = {{"metric", record.metric}, {"value", record.best}, {"epoch", record.best_epoch}};
  json["seconds"] = record.seconds;
  json["images_per_s"] = json_or_null(compared.images_per_s);
  json["peak_bytes"] = json_or_null(compared.peak_bytes);
  json["pool_bytes"] = json_or_null(compared.pool_bytes);
  json["bytes"] = compared.run.bytes;
  json["weights_sha256"] = compared.weights_sha256.empty() ? Json(nullptr) : Json(compared.weights_sha256);
  return json;
}

Json json_of(const RunComparison& both) {
  Json json = {{"first", json_of(both.first)}, {"second", json_of(both.second)}};
  const std::string better = better_of(both);
  json["better"] = better.empty() ? Json(nullptr) : Json(better);
  json["same_weights"] = both.same_weights;
  json["config"] = Json::array();
  for (const run::DifferentKey& key : both.config)
    json["config"].push_back(
        {{"key", key.key}, {"first", json_or_null(key.first)}, {"second", json_or_null(key.second)}});
  json["results"] = Json::array();
  for (const run::ComparedNumber& number : both.results) {
    Json row = {{"name", number.name}, {"first", json_or_null(number.first)}, {"second", json_or_null(number.second)}};
    if (number.first && number.second) row["difference"] = *number.second - *number.first;
    json["results"].push_back(std::move(row));
  }
  return json;
}

/// Sums up the comparison in a sentence or two: which run is better, and whether the configurations are the same.
std::string headline(const RunComparison& both) {
  const run::RunRecord &first = both.first.run.record, &second = both.second.run.record;
  const std::string better = better_of(both);
  std::string text;
  if (better == "equal")
    text = fmt::format("The best {} of both is {:.4g}.\n", first.metric, first.best);
  else if (!better.empty())
    text = fmt::format("The {} run is better: its best {} is {:.4g}, the other's {:.4g}.\n", better, first.metric,
                       better == "first" ? first.best : second.best, better == "first" ? second.best : first.best);
  text += both.config.empty() ? "Their configurations are the same."
                              : fmt::format("Their configurations differ in {} key{}.", both.config.size(),
                                            both.config.size() == 1 ? "" : "s");
  if (both.same_weights) text += " Their weights are the same bits.";
  return text;
}

constexpr std::size_t kLeastName = 8;
constexpr std::size_t kMostKeys = 24;

std::string value_text(const std::optional<std::string>& value, std::size_t most) {
  return !value ? "-" : value->empty() ? "\"\"" : shown(*value, most);
}

std::string number_text(const std::optional<double>& value) { return value ? fmt::format("{:.5g}", *value) : "-"; }

std::string percent(double first, double second) {
  if (!(first > 0) || !std::isfinite(second)) return "";
  return fmt::format("{:+.1f} %", 100 * (second / first - 1));
}

template <class T>
std::string percent(const std::optional<T>& first, const std::optional<T>& second) {
  return first && second ? percent(static_cast<double>(*first), static_cast<double>(*second)) : "";
}

std::string bytes_text(const std::optional<std::uint64_t>& bytes) { return bytes ? format_byte_size(*bytes) : "-"; }

/// Adds the keys that differ, of which twice as much is shown as of their values.
void add_config(Table& table, const RunComparison& both, std::size_t most) {
  for (std::size_t i = 0; i < std::min(both.config.size(), kMostKeys); ++i) {
    const run::DifferentKey& key = both.config[i];
    table.add_row({shown(key.key, 2 * most), value_text(key.first, most), value_text(key.second, most)});
  }
  if (both.config.size() > kMostKeys)
    table.add_row({fmt::format("and {} keys more: --json", both.config.size() - kMostKeys)});
  if (!both.config.empty()) table.add_rule();
}

void add_results(Table& table, const RunComparison& both, std::size_t most) {
  const run::RunRecord &first = both.first.run.record, &second = both.second.run.record;
  const auto best = [](const run::RunRecord& record, const std::string& metric) {
    return record.metric == metric ? fmt::format("{:.5g} @{}", record.best, record.best_epoch) : "-";
  };
  const bool shared = first.metric == second.metric;
  const auto add_best = [&](const std::string& metric) {
    table.add_row({shown("best " + metric, 2 * most), best(first, metric), best(second, metric),
                   shared ? fmt::format("{:+.3g}", second.best - first.best) : ""});
  };
  if (!first.metric.empty()) add_best(first.metric);
  if (!second.metric.empty() && !shared) add_best(second.metric);
  for (const run::ComparedNumber& number : both.results)
    table.add_row({shown(number.name, 2 * most), number_text(number.first), number_text(number.second),
                   number.first && number.second ? fmt::format("{:+.3g}", *number.second - *number.first) : ""});
  if (!both.results.empty() || !first.metric.empty() || !second.metric.empty()) table.add_rule();
}

void add_costs(Table& table, const RunComparison& both) {
  const ComparedRun &a = both.first, &b = both.second;
  const run::RunRecord &first = a.run.record, &second = b.run.record;
  table.add_row(
      {"epochs", fmt::format("{}/{}", first.epoch, first.epochs), fmt::format("{}/{}", second.epoch, second.epochs)});
  table.add_row({"updates", format_count(first.updates), format_count(second.updates)});
  table.add_row({"trained", format_duration(first.seconds), format_duration(second.seconds),
                 percent(first.seconds, second.seconds)});
  const auto rate = [](const std::optional<double>& images) {
    return images ? format_count(static_cast<std::int64_t>(std::llround(*images))) : "-";
  };
  table.add_row({"images/s", rate(a.images_per_s), rate(b.images_per_s), percent(a.images_per_s, b.images_per_s)});
  table.add_row(
      {"peak in use", bytes_text(a.peak_bytes), bytes_text(b.peak_bytes), percent(a.peak_bytes, b.peak_bytes)});
  table.add_row({"pool", bytes_text(a.pool_bytes), bytes_text(b.pool_bytes), percent(a.pool_bytes, b.pool_bytes)});
  table.add_row({"on disk", format_byte_size(a.run.bytes), format_byte_size(b.run.bytes),
                 percent(static_cast<double>(a.run.bytes), static_cast<double>(b.run.bytes))});
}

std::string text_of(const RunComparison& both) {
  const auto line = [](const char* which, const ComparedRun& compared) {
    const run::RunRecord& record = compared.run.record;
    return fmt::format("{:<8}{}: {}, {} on {}, {}\n", which, shown(compared.run.path.string(), 32), compared.run.state,
                       shown(record.model, 24), record.device, record.precision);
  };
  const auto table_of = [&](std::size_t most) {
    Table table({{"", Align::left}, {"first"}, {"second"}, {"change"}});
    add_config(table, both, most);
    add_results(table, both, most);
    add_costs(table, both);
    return table.to_string();
  };
  return headline(both) + "\n" + line("first", both.first) + line("second", both.second) + "\n" +
         fitted_text(static_cast<std::size_t>(terminal_columns(stdout)), kLeastName, table_of);
}

int run_compare(const CompareOptions& options) {
  const RunComparison both = run::compare_runs(options.first, options.second);
  write_text(options.json ? json_text(json_of(both)) + "\n" : text_of(both));
  return 0;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("compare", "Two runs: configuration, result, time, memory");
  command->footer(
      "Keys whose values differ (\"-\": the run does not have it), then the last numbers\n"
      "of each run's metrics.jsonl, then what it cost. change is the second run's value\n"
      "less the first one's, or the growth in per cent. A run may be under way.\n"
      "Exit codes: 0 both were read, 3 one is no run or is damaged.\n"
      "Example: bantam compare runs/first runs/second");
  const auto options = std::make_shared<CompareOptions>();
  command->add_option("FIRST", options->first, "A run's folder")->required();
  command->add_option("SECOND", options->second, "Another one's")->required();
  command->add_flag("--json", options->json, "One JSON object, with every key that differs");
  command->callback([&action, options] { action = [options] { return run_compare(*options); }; });
}

}  // namespace bantam::cli

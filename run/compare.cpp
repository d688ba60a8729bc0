// Last lines of metrics, and values by their keys.
#include "bantam/run/compare.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_file.h"
#include "bantam/base/json.h"
#include "bantam/base/sha256.h"
#include "bantam/run/config/config_text.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

/// Whether a key of a line of metrics.jsonl is a result: a number that is no position, count, time or memory.
bool is_result(const std::string& key, const Json& value) {
  for (const std::string_view other :
       {"epoch", "update", "updates", "samples", "validation_samples", "test_samples", "seconds", "evaluation_seconds",
        "images_per_s", "data_wait_share", "peak_bytes", "pool_bytes"})
    if (key == other) return false;
  return value.is_number();
}

void set_result(ComparedRun& run, const std::string& name, double value) {
  const auto found = std::ranges::find(run.results, name, &std::pair<std::string, double>::first);
  if (found == run.results.end())
    run.results.emplace_back(name, value);
  else
    found->second = value;
}

void add_costs(ComparedRun& run, const Json& line) {
  if (line.contains("images_per_s") && line["images_per_s"].is_number()) run.images_per_s = line["images_per_s"];
  for (const auto& [key, bytes] : {std::pair("peak_bytes", &run.peak_bytes), std::pair("pool_bytes", &run.pool_bytes)})
    if (line.contains(key) && line[key].is_number_unsigned()) *bytes = line[key].get<std::uint64_t>();
}

/// Later lines win. Of updates the last one counts, for what it cost, where no epoch has ended; the last line of a run
/// that is under way may be half of one.
void read_metrics(ComparedRun& run, const fs::path& path) {
  std::string last_update;
  (void)read_lines({.path = path}, 0, [&](const FileLine& text) {
    if (text.text.starts_with(R"({"kind":"update")")) {
      last_update = text.text;
      return true;
    }
    const Json line = Json::parse(text.text, nullptr, false);
    if (!line.is_object()) return true;
    for (const auto& [key, value] : line.items())
      if (is_result(key, value)) set_result(run, key, value.get<double>());
    add_costs(run, line);
    return true;
  });
  const Json update = Json::parse(last_update, nullptr, false);
  if (update.is_object() && !run.images_per_s) add_costs(run, update);
}

ComparedRun read_run(const fs::path& path) {
  ComparedRun run{.run = listed_run(path)};
  const fs::path config = path / "config.yaml";
  std::error_code error;
  if (!fs::exists(config, error)) throw DataError(fmt::format("{}: there is no config.yaml", path.string()));
  run.config = ConfigDocument::parse(read_config_text(config), config.string(), {}).values();
  read_metrics(run, path / "metrics.jsonl");
  if (fs::exists(path / "weights.safetensors", error))
    run.weights_sha256 = sum_of({.path = path / "weights.safetensors"}).finished().sha256;
  return run;
}

std::vector<DifferentKey> differences_of(const ComparedRun& first, const ComparedRun& second) {
  const std::map<std::string, std::string> in_first(first.config.begin(), first.config.end()),
      in_second(second.config.begin(), second.config.end());
  std::vector<DifferentKey> different;
  for (const auto& [key, value] : first.config) {
    const auto other = in_second.find(key);
    if (other == in_second.end())
      different.push_back({key, value, std::nullopt});
    else if (other->second != value)
      different.push_back({key, value, other->second});
  }
  for (const auto& [key, value] : second.config)
    if (!in_first.contains(key)) different.push_back({key, std::nullopt, value});
  return different;
}

std::vector<ComparedNumber> results_of(const ComparedRun& first, const ComparedRun& second) {
  std::vector<ComparedNumber> numbers;
  for (const auto& [name, value] : first.results) numbers.push_back({name, value, std::nullopt});
  for (const auto& [name, value] : second.results) {
    const auto found = std::ranges::find(numbers, name, &ComparedNumber::name);
    if (found == numbers.end())
      numbers.push_back({name, std::nullopt, value});
    else
      found->second = value;
  }
  return numbers;
}

/// By the configuration of the first, where its own metric is what its best is of.
std::optional<bool> direction_of(const ComparedRun& first, const ComparedRun& second) {
  const std::string& metric = first.run.record.metric;
  if (metric.empty() || metric != second.run.record.metric) return std::nullopt;
  try {
    const fs::path path = first.run.path / "config.yaml";
    const RunConfig config = read_run_config(path, {}, DataSection::skip);
    const WatchedMetric watched = config.checkpoint.best.value_or(watched_by_default(config.train));
    if (watched.metric == metric) return watched.larger;
  } catch (const Error&) {  // of another version, or with layers of a program's own
  }
  return std::nullopt;
}

}  // namespace

RunComparison compare_runs(const fs::path& first, const fs::path& second) {
  RunComparison comparison{.first = read_run(first), .second = read_run(second)};
  comparison.config = differences_of(comparison.first, comparison.second);
  comparison.results = results_of(comparison.first, comparison.second);
  comparison.same_weights =
      !comparison.first.weights_sha256.empty() && comparison.first.weights_sha256 == comparison.second.weights_sha256;
  comparison.larger_is_better = direction_of(comparison.first, comparison.second);
  return comparison;
}

}  // namespace bantam::run

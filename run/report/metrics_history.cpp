// Lines of metrics.jsonl to curves.
#include "bantam/run/report/metrics_history.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::run {
namespace {

using Json = nlohmann::ordered_json;

/// Reads line by line: epochs of updates become updates of the run.
class HistoryReader {
 public:
  void read(const Json& line) {
    const std::string kind = line.value("kind", "");
    if (kind == "update") {
      move_to(line);
      seconds_ = line.value("seconds", seconds_);
      add(line, "");
    } else if (kind == "evaluation") {
      move_to(line);
      add(line, "validation_");
    } else if (kind == "epoch") {
      add(line, "validation_");
      add(line, "data_wait_share");
    } else if (kind == "test") {
      for (const auto& [key, value] : line.items())
        if (key.starts_with("test_") && value.is_number()) history_.test[key.substr(5)] = value.get<double>();
    }
  }
  MetricsHistory result() && {
    history_.updates = updates_;
    return std::move(history_);
  }

 private:
  void move_to(const Json& line) {
    const auto epoch = line.value("epoch", std::int64_t{1}), update = line.value("update", std::int64_t{0});
    if (epoch != epoch_) before_ = updates_;
    epoch_ = epoch;
    updates_ = before_ + update;
    history_.updates_per_epoch = std::max(history_.updates_per_epoch, update);
  }
  static bool is_place(std::string_view key) {
    return key == "kind" || key == "epoch" || key == "update" || key == "samples" || key == "seconds" ||
           key == "validation_samples";
  }
  void add(const Json& line, std::string_view prefix) {
    for (const auto& [key, value] : line.items()) {
      if (is_place(key) || !key.starts_with(prefix) || !value.is_number()) continue;
      MetricCurve& curve = curve_of(key);
      const auto at = static_cast<double>(updates_);
      // An epoch's line after an evaluation of the same weights says the same.
      if (!curve.updates.empty() && curve.updates.back() >= at) continue;
      curve.updates.push_back(at);
      curve.seconds.push_back(seconds_);
      curve.values.push_back(value.get<double>());
    }
  }
  MetricCurve& curve_of(const std::string& name) {
    const auto found = std::ranges::find(history_.curves, name, &MetricCurve::name);
    if (found != history_.curves.end()) return *found;
    return history_.curves.emplace_back(MetricCurve{.name = name});
  }

  MetricsHistory history_;
  std::int64_t epoch_ = 1, before_ = 0, updates_ = 0;  // updates of earlier epochs; up to this line
  double seconds_ = 0;
};

void keep(const MetricCurve& from, std::size_t index, MetricCurve& to) {
  if (!to.updates.empty() && to.updates.back() >= from.updates[index]) return;
  to.updates.push_back(from.updates[index]);
  to.seconds.push_back(from.seconds[index]);
  to.values.push_back(from.values[index]);
}

}  // namespace

const MetricCurve* MetricsHistory::find(const std::string& name) const {
  const auto found = std::ranges::find(curves, name, &MetricCurve::name);
  return found == curves.end() ? nullptr : &*found;
}

MetricCurve thinned(MetricCurve curve, std::size_t most) {
  curve.points = std::max(curve.points, curve.values.size());
  const std::size_t count = curve.values.size(), groups = std::max<std::size_t>(most / 2, 2) - 1;
  if (count <= std::max<std::size_t>(most, 4)) return curve;
  MetricCurve thin{.name = curve.name, .points = curve.points};
  keep(curve, 0, thin);
  for (std::size_t g = 0; g < groups; ++g) {
    const auto begin = curve.values.begin() + static_cast<std::ptrdiff_t>(g * count / groups);
    const auto end = curve.values.begin() + static_cast<std::ptrdiff_t>((g + 1) * count / groups);
    const auto [least, largest] = std::minmax_element(begin, end);
    const auto first = static_cast<std::size_t>(std::min(least, largest) - curve.values.begin());
    const auto second = static_cast<std::size_t>(std::max(least, largest) - curve.values.begin());
    keep(curve, first, thin);
    keep(curve, second, thin);
  }
  keep(curve, count - 1, thin);
  return thin;
}

MetricsHistory read_metrics_history(const std::filesystem::path& path, std::size_t most_points) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  const std::string text = read_file(path);
  HistoryReader reader;
  std::size_t number = 1;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++number) {
    const Json line = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                  text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object())
      throw DataError(fmt::format("{}:{}: expected a JSON object on the line", path.string(), number));
    reader.read(line);
  }
  MetricsHistory history = std::move(reader).result();
  for (MetricCurve& curve : history.curves) curve = thinned(std::move(curve), most_points);
  return history;
}

}  // namespace bantam::run

// Lines of metrics.jsonl to curves.
#include "bantam/run/train/metrics_history.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_file.h"
#include "bantam/base/json.h"
#include "bantam/run/train/json_fields.h"

namespace bantam::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostKept = 20'000;  // points of a curve, of a log of any length

void keep(const MetricCurve& from, std::size_t index, MetricCurve& to) {
  if (!to.updates.empty() && to.updates.back() >= from.updates[index]) return;
  to.updates.push_back(from.updates[index]);
  to.seconds.push_back(from.seconds[index]);
  to.values.push_back(from.values[index]);
}

}  // namespace

/// Line by line: epochs of updates become updates of the run.
class MetricsFile::Reader {
 public:
  void read(const Json& line) {
    const std::string kind = field_or(line, "kind", std::string());
    if (kind == "update") {
      move_to(line);
      seconds_ = field_or(line, "seconds", seconds_);
      add(line, "");
    } else if (kind == "evaluation") {
      move_to(line);
      add(line, "validation_");
      note_evaluation(line);
    } else if (kind == "epoch") {
      add(line, "validation_");
      note_evaluation(line);
      history_.epoch = field_or(line, "epoch", history_.epoch);
      history_.update = 0;
      add(line, "data_wait_share");
      if (const auto loss = line.find("loss"); loss != line.end() && loss->is_number())
        history_.epoch_loss.emplace(field_or(line, "epoch", std::int64_t{1}), loss->get<double>());
    } else if (kind == "test") {
      for (const auto& [key, value] : line.items())
        if (key.starts_with("test_") && value.is_number()) history_.test[key.substr(5)] = value.get<double>();
    }
  }
  const MetricsHistory& history() {
    history_.updates = updates_;
    history_.seconds = seconds_;
    return history_;
  }

 private:
  void move_to(const Json& line) {
    const auto epoch = field_or(line, "epoch", std::int64_t{1}), update = field_or(line, "update", std::int64_t{0});
    if (epoch != epoch_) before_ = updates_;
    epoch_ = epoch;
    updates_ = before_ + update;
    history_.epoch = epoch - 1;
    history_.update = update;
    history_.updates_per_epoch = std::max(history_.updates_per_epoch, update);
  }
  void note_evaluation(const Json& line) {
    const auto epoch = field_or(line, "epoch", std::int64_t{1});
    for (const auto& [key, value] : line.items()) {
      if (is_place(key) || !key.starts_with("validation_") || !value.is_number()) continue;
      const auto number = value.get<double>();
      const auto [found, first] =
          history_.evaluations.try_emplace(key, MetricsHistory::Extremes{number, number, epoch, epoch});
      MetricsHistory::Extremes& known = found->second;
      if (!first && number < known.least) known.least = number, known.least_epoch = epoch;
      if (!first && number > known.largest) known.largest = number, known.largest_epoch = epoch;
    }
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
      ++curve.points;
      if (curve.values.size() > kMostKept) curve = thinned(std::move(curve), kMostKept / 2);
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

MetricsFile::MetricsFile(std::filesystem::path path) : path_(std::move(path)), reader_(std::make_unique<Reader>()) {}
MetricsFile::~MetricsFile() = default;
MetricsFile::MetricsFile(MetricsFile&&) noexcept = default;
MetricsFile& MetricsFile::operator=(MetricsFile&&) noexcept = default;

MetricsHistory MetricsFile::read(std::size_t most_points, const std::function<void()>& on_line) {
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path_, error);
  if (error || size < bytes_) {
    bytes_ = lines_ = 0;
    reader_ = std::make_unique<Reader>();
  }
  (void)read_lines({.path = path_}, bytes_, [&](const FileLine& line) {
    if (!line.is_whole) return false;  // it is being written
    if (on_line) on_line();
    ++lines_;
    bytes_ += line.text.size() + 1;
    const Json json = Json::parse(line.text, nullptr, false);
    if (!json.is_object())
      throw DataError(fmt::format("{}:{}: expected a JSON object on the line", path_.string(), lines_));
    try {
      reader_->read(json);
    } catch (const DataError& wrong) {
      throw DataError(fmt::format("{}:{}: {}", path_.string(), lines_, wrong.what()));
    }
    return true;
  });
  MetricsHistory history = reader_->history();
  for (MetricCurve& curve : history.curves) curve = thinned(std::move(curve), most_points);
  return history;
}

}  // namespace bantam::run

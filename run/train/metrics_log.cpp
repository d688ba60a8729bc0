// Lines of updates, epochs and evaluations.
#include "bantam/run/train/metrics_log.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

/// Counts as whole numbers.
Json number(double value) {
  constexpr double kMostWhole = 9e15;
  const bool whole = std::abs(value) <= kMostWhole && value == std::floor(value);
  return whole ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

/// Rows of a matrix, else a list; what is no number is null.
Json json_of(const MetricTable& table) {
  if (!table.is_matrix()) return table.values;
  Json rows = Json::array();
  for (std::size_t i = 0; i < table.values.size(); ++i) {
    if (i % static_cast<std::size_t>(table.columns) == 0) rows.push_back(Json::array());
    rows.back().push_back(number(table.values[i]));
  }
  return rows;
}

/// Each metric by its name: its value, and what it tells of each class, or its rows.
void add_values(Json& line, std::string_view prefix, const std::vector<MetricValue>& values) {
  for (const MetricValue& metric : values) {
    const std::string name = fmt::format("{}{}", prefix, metric.name());
    const MetricTable table = metric.table();
    if (table.is_matrix()) {
      line[name] = json_of(table);
      continue;
    }
    line[name] = metric.value();
    if (!table.values.empty()) line[name + "_of_classes"] = json_of(table);
  }
}

/// Adds the results of a set of samples: loss, accuracy by its name (empty: it means nothing), values, samples.
void add_metrics(Json& line, std::string_view prefix, const Metrics& metrics, const std::string& accuracy) {
  line[fmt::format("{}loss", prefix)] = metrics.loss;
  if (!accuracy.empty()) line[fmt::format("{}{}", prefix, accuracy)] = metrics.accuracy;
  add_values(line, prefix, metrics.values);
  line[fmt::format("{}samples", prefix)] = metrics.samples;
}

/// A float as its shortest text reads: 0.001, where the float's own double is 0.0010000000474974513.
double shortest(float value) { return std::isfinite(value) ? std::stod(fmt::format("{}", value)) : value; }

}  // namespace

MetricsLog::MetricsLog(fs::path path, const RunConfig& config, BfcAllocator& memory,
                       std::function<void(std::string_view)> warn)
    : file_({.path = std::move(path)}, "lines", std::move(warn)),
      log_every_(config.train.log_every),
      metrics_(config.train.loss.metrics),
      accuracy_(accuracy_name(config)),
      memory_(memory) {}

void MetricsLog::register_state(StateRegistry& state) {
  state.add_numbers(
      "log/sums", [this] { return sums(); }, [this](const std::vector<double>& numbers) { set_sums(numbers); });
}

std::vector<double> MetricsLog::sums() const {
  std::vector<double> numbers =
      numbers_of({.loss = loss_, .accuracy = correct_, .samples = samples_, .values = values_});
  numbers.push_back(static_cast<double>(updates_));
  if (last_) numbers.insert(numbers.end(), {last_->learning_rate, last_->gradient_norm, last_->loss_scale});
  return numbers;
}

/// Numbers that the metrics come to where there are samples.
std::size_t MetricsLog::most_sums() const {
  std::size_t count = numbers_of({}).size();
  for (const MetricPtr& metric : metrics_with_values(metrics_of_updates(metrics_)))
    count += static_cast<std::size_t>(metric->sums());
  return count;
}

void MetricsLog::set_sums(const std::vector<double>& numbers) {
  if (ignores_sums_) {
    updates_ = samples_ = 0;
    loss_ = correct_ = 0;
    values_.clear();
    last_.reset();
    return;
  }
  constexpr std::size_t kValues = 3;  // of the last update; none in files of earlier programs
  const std::size_t count = numbers.empty() || numbers.front() == 0 ? numbers_of({}).size() : most_sums();
  if (numbers.size() != count + 1 && numbers.size() != count + 1 + kValues)
    throw DataError(fmt::format("log/sums holds {} numbers, expected {}", numbers.size(), count + 1 + kValues));
  const auto end = numbers.begin() + static_cast<std::ptrdiff_t>(count);
  const Metrics sums = metrics_from({numbers.begin(), end}, metrics_, "log/sums");
  updates_ = static_cast<std::int64_t>(*end);
  last_.reset();
  if (numbers.size() > count + 1)
    last_ = UpdateReport{.learning_rate = static_cast<float>(end[1]),
                         .gradient_norm = static_cast<float>(end[2]),
                         .loss_scale = static_cast<float>(end[3])};
  samples_ = sums.samples;
  loss_ = sums.loss;
  correct_ = sums.accuracy;
  values_ = sums.values;
}

FileSum MetricsLog::position() {
  if (position_at_end_) return *position_at_end_;
  file_.flush();  // what a checkpoint counts is in the file before it is
  return file_.position();
}

void MetricsLog::begin(double seconds) {
  seconds_before_ = seconds;
  begun_ = std::chrono::steady_clock::now();
}

void MetricsLog::write(const Json& line) {
  file_.add(line.dump() + '\n');
  if (receive_) receive_(line);
}

void MetricsLog::write_updates(std::uint64_t peak_bytes) {
  const double samples = static_cast<double>(samples_);
  Json line = {{"kind", "update"}, {"epoch", epoch_ + 1}, {"update", update_}, {"loss", loss_ / samples}};
  if (!accuracy_.empty()) line[accuracy_] = correct_ / samples;
  line["samples"] = samples_;
  for (const MetricValue& metric : values_)
    if (!metric.table().is_matrix()) line[std::string(metric.name())] = metric.value();
  if (last_) {
    line["learning_rate"] = shortest(last_->learning_rate);
    line["gradient_norm"] = shortest(last_->gradient_norm);
    line["loss_scale"] = shortest(last_->loss_scale);
  }
  if (timed_seconds_ > 0) line["images_per_s"] = timed_samples_ / timed_seconds_;
  line["peak_bytes"] = peak_bytes;
  line["seconds"] = seconds_before_ + seconds_since(begun_);
  write(line);
}

void MetricsLog::on_progress(const ProgressEvent& event) {
  epoch_ = event.epoch;
  update_ = event.update - static_cast<std::int64_t>(event.metrics.size());
  const std::uint64_t peak_bytes = memory_.stats().peak_bytes;  // once for all lines of the event
  for (std::size_t i = 0; i < event.metrics.size(); ++i) {
    const Metrics& metrics = event.metrics[i];
    if (i < event.values.size()) last_ = event.values[i];
    ++update_;
    ++updates_;
    samples_ += metrics.samples;
    loss_ += metrics.loss * static_cast<double>(metrics.samples);
    correct_ += metrics.accuracy * static_cast<double>(metrics.samples);
    merge(values_, metrics.values);
    timed_samples_ += static_cast<double>(metrics.samples);
    timed_seconds_ += static_cast<double>(metrics.samples) / event.images_per_second;
    if (update_ % log_every_ != 0 && update_ != event.updates) continue;
    write_updates(peak_bytes);
    updates_ = samples_ = 0;
    loss_ = correct_ = timed_samples_ = timed_seconds_ = 0;
    values_.clear();
  }
  file_.flush();
}

void MetricsLog::end_at(std::int64_t epoch, std::int64_t update) {
  epoch_ = epoch;
  update_ = update;
  on_end();
}

/// The sums stay for the state that is saved now: a resumed run goes on with them, and writes the line when it is full.
void MetricsLog::on_end() {
  if (position_at_end_) return;
  position_at_end_ = position();
  if (updates_ > 0) write_updates(memory_.stats().peak_bytes);
  file_.end();
}

void MetricsLog::on_evaluated(const EvaluatedEvent& event) {
  if (event.ends_epoch()) return;  // the epoch's line has it
  Json line = {{"kind", "evaluation"}, {"epoch", event.epoch + 1}, {"update", event.update}};
  add_metrics(line, "validation_", event.validation, accuracy_);
  line["evaluation_seconds"] = event.seconds;
  write(line);
  file_.flush();
}

void MetricsLog::on_test(const TestEvent& event) {
  Json line = {{"kind", "test"}, {"updates", event.updates}};
  add_metrics(line, "test_", event.test, accuracy_);
  line["evaluation_seconds"] = event.seconds;
  write(line);
  file_.flush();
}

void MetricsLog::on_epoch_end(const EpochEvent& event) {
  Json line = {{"kind", "epoch"}, {"epoch", event.epoch + 1}};
  add_metrics(line, "", event.train, accuracy_);
  if (event.validation.samples > 0) add_metrics(line, "validation_", event.validation, accuracy_);
  const MemoryStats memory = memory_.stats();
  line["seconds"] = event.seconds;
  line["evaluation_seconds"] = event.evaluation_seconds;
  line["images_per_s"] = event.images_per_second;
  line["data_wait_share"] = event.data_wait_share;
  line["peak_bytes"] = memory.peak_bytes;
  line["pool_bytes"] = memory.peak_pool_bytes;
  write(line);
  file_.flush();
}

}  // namespace bantam::run

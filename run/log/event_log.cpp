// The beginning of a new file of events, and lines of metrics as scalars.
#include "bantam/run/log/event_log.h"

#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/data/survey/sample_views.h"
#include "bantam/run/log/event_records.h"
#include "bantam/run/log/graph_def.h"
#include "bantam/run/log/hparams.h"
#include "bantam/run/log/matrix_picture.h"

namespace bantam::run {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the number as float32; NaN for what has no number in JSON.
float number_of(const Json& value) {
  return value.is_number() ? static_cast<float>(value.get<double>()) : std::numeric_limits<float>::quiet_NaN();
}

bool is_matrix(const Json& value) { return value.is_array() && !value.empty() && value.front().is_array(); }

MetricTable table_of(const Json& rows) {
  MetricTable table{.columns = static_cast<std::int64_t>(rows.front().size())};
  for (const Json& row : rows)
    for (const Json& value : row) table.values.push_back(static_cast<double>(number_of(value)));
  return table;
}

/// So many samples, evenly over the reader.
std::shared_ptr<const SampleReader> spread(const std::shared_ptr<const SampleReader>& reader, std::int64_t samples) {
  const std::int64_t all = reader->facts().size, count = std::min(samples, all);
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < count; ++i) chosen.push_back(static_cast<std::int32_t>(i * all / count));
  return chosen_samples(reader, std::move(chosen));
}

/// The target is part of the tag, which TensorBoard writes over the picture.
void add_views(SummaryEvent& event, std::string_view tag, const std::vector<SampleView>& views) {
  constexpr std::size_t kMostOfTarget = 40;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const std::string target = shown(views[i].target, kMostOfTarget);
    if (!views[i].image.pixels.empty())
      event.add_image(fmt::format("{}/{}{}{}", tag, i, target.empty() ? "" : " ", target), views[i].image);
  }
}

/// The scalars that a run's hyperparameters are judged by.
std::vector<MetricTag> metric_tags(const RunConfig& config) {
  constexpr const char* kOther = "../validation";  // seen from the file of training
  std::vector<MetricTag> tags;
  const WatchedMetric watched = config.checkpoint.best ? *config.checkpoint.best : watched_by_default(config.train);
  const std::string_view name = watched.metric == "accuracy" ? accuracy_name(config) : watched.metric;
  if (config.train.evaluate && name != "loss" && !name.empty()) tags.push_back({kOther, fmt::format("epoch/{}", name)});
  if (config.train.evaluate) tags.push_back({kOther, "epoch/loss"});
  tags.push_back({"", "epoch/loss"});
  return tags;
}

}  // namespace

EventLog::EventLog(std::filesystem::path train, std::filesystem::path validation, const RunConfig& config,
                   std::function<void(std::string_view)> warn)
    : file_({.path = std::move(train), .names = 3}, "events", warn),
      validation_({.path = std::move(validation), .names = 3}, "events", warn),
      config_(config),
      warn_(std::move(warn)) {}

void EventLog::flush() {
  file_.flush();
  validation_.flush();
}

void EventLog::write(std::string_view event) {
  file_.add(event_record(event));
  file_.flush();
}

void EventLog::begin(const Model& model, std::int64_t updates_per_epoch) {
  updates_per_epoch_ = updates_per_epoch;
  if (config_.data) class_names_ = batch_facts(*config_.data).class_names;
  if (file_.bytes() > 0) return;
  write(version_event());
  write(graph_event(graph_def(model.graph(), model.program(), config_.train.loss.loss->kind())));
  add_hparams();
  SummaryEvent text;
  text.add_text("config", fmt::format("```yaml\n{}```\n", config_.document.resolved_yaml()));
  write(text.text(0));
  add_pictures();
}

void EventLog::add_hparams() {
  const ConfigValues values = hyperparameters(config_.document.values());
  SummaryEvent event;
  event.add_hparams("_hparams_/experiment", hparams_experiment(values, metric_tags(config_)));
  event.add_hparams(
      "_hparams_/session_start_info",
      hparams_start(file_.path().parent_path().parent_path().parent_path().filename(), values, wall_time()));
  write(event.text(0));
}

/// In memory of its own, so that the run's is as planned. Samples that cannot be read are no reason to end a run.
void EventLog::add_pictures() {
  if (!config_.data || config_.log.images == 0) return;
  SummaryEvent event;
  try {
    Runtime runtime({.threads = 1});
    const SampleSplits splits = open_splits(*config_.data, config_.seed);
    const PipelineOptions& pipeline = config_.data->pipeline;
    const auto views = [&](const std::shared_ptr<const SampleReader>& reader, const PipelineOptions& stages) {
      return sample_views(runtime, spread(reader, config_.log.images), stages, config_.seed, 1).front();
    };
    if (splits.validation != nullptr && splits.validation->facts().size > 0)
      add_views(event, "samples/held_out", views(splits.validation, evaluation_pipeline(pipeline)));
    add_views(event, "samples/training", views(splits.train, pipeline));
  } catch (const Error& error) {
    warn_(fmt::format("log.images: TensorBoard has no pictures of samples: {}", error.what()));
  }
  if (!event.empty()) write(event.text(0));
}

std::int64_t EventLog::step_of(const Json& line) const {
  if (line.contains("updates")) return line["updates"];
  const std::int64_t epoch = line.value("epoch", std::int64_t{1});  // from 1
  if (!line.contains("update")) return epoch * updates_per_epoch_;
  return (epoch - 1) * updates_per_epoch_ + line["update"].get<std::int64_t>();
}

void EventLog::add_value(SummaryEvent& event, const std::string& tag, const Json& value) const {
  if (is_matrix(value)) {
    const MetricTable matrix = table_of(value);
    event.add_image(tag, matrix_picture(matrix));
    if (const std::string text = matrix_markdown(matrix, class_names_); !text.empty())
      event.add_text(tag + "/table", text);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) event.add_scalar(fmt::format("{}/{}", tag, i), number_of(value[i]));
  } else {
    event.add_scalar(tag, number_of(value));
  }
}

void EventLog::add(const Json& line) {
  constexpr std::string_view kOfValidation = "validation_", kOfTest = "test_";
  const std::string kind = line.at("kind");
  SummaryEvent event, validation;
  for (const auto& [key, value] : line.items()) {
    if (value.is_string() || key == "epoch" || key == "update" || key == "updates") continue;  // the step says these
    const std::string_view name = key;
    if (name.starts_with(kOfValidation))
      add_value(validation, fmt::format("epoch/{}", name.substr(kOfValidation.size())), value);
    else if (kind == "evaluation")
      add_value(validation, fmt::format("epoch/{}", name), value);
    else
      add_value(event, fmt::format("{}/{}", kind, name.starts_with(kOfTest) ? name.substr(kOfTest.size()) : name),
                value);
  }
  if (!event.empty()) file_.add(event_record(event.text(step_of(line))));
  if (!validation.empty()) {
    if (validation_.bytes() == 0) validation_.add(event_record(version_event()));
    validation_.add(event_record(validation.text(step_of(line))));
  }
  if (kind != "update") flush();  // lines of updates are many, and written together
}

void EventLog::add(const WatchedUpdate& watched) {
  SummaryEvent event;
  for (const TensorHistogram& of : watched.histograms)
    event.add_histogram(fmt::format("{}/{}", of.of_gradient ? "gradients" : "weights", of.tensor), of.histogram);
  write(event.text(watched.update));
}

void EventLog::end(bool success) {
  SummaryEvent event;
  event.add_hparams("_hparams_/session_end_info", hparams_end(success, wall_time()));
  file_.add(event_record(event.text(0)));
  file_.end();
  validation_.end();
}

}  // namespace bantam::run

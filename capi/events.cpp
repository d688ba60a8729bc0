// Events of training, each with what it has to say and zeros.
#include "bantam/capi/events.h"

#include "bantam/base/json.h"
#include "bantam/capi/status.h"

namespace bantam::capi {

bantam_event Events::of(std::int32_t kind, std::int64_t epoch, std::int64_t epochs) const {
  bantam_event event = BANTAM_INIT(bantam_event);
  event.kind = kind;
  event.epoch = epoch;
  event.epochs = epochs;
  event.metrics = "{}";
  event.engine = engine_;
  return event;
}

void Events::tell(bantam_event& event, const std::vector<MetricValue>& values) {
  const std::string json = metrics_json(values);
  event.metrics = json.c_str();
  if (on_event_ != nullptr && on_event_(user_, &event) != 0) stops_ = true;
}

void Events::begin(std::int64_t epochs) {
  bantam_event event = of(BANTAM_EVENT_BEGIN, 0, epochs);
  tell(event, {});
}

void Events::warn(std::string_view message) {
  if (on_event_ == nullptr) return;
  const std::string text(message);
  bantam_event event = of(BANTAM_EVENT_WARNING, 0, 0);
  event.message = text.c_str();
  (void)on_event_(user_, &event);
}

void Events::on_progress(const ProgressEvent& progress) {
  bantam_event event = of(BANTAM_EVENT_PROGRESS, progress.epoch, progress.epochs);
  event.update = progress.update;
  event.updates = progress.updates;
  event.loss = progress.epoch_loss;
  event.accuracy = progress.epoch_accuracy;
  event.images_per_second = progress.images_per_second;
  event.eta_seconds = progress.eta_seconds;
  if (!progress.values.empty()) event.learning_rate = static_cast<double>(progress.values.back().learning_rate);
  tell(event, progress.epoch_values);
}

void Events::on_evaluated(const EvaluatedEvent& evaluated) {
  bantam_event event = of(BANTAM_EVENT_EVALUATED, evaluated.epoch, evaluated.epochs);
  event.update = evaluated.update;
  event.updates = evaluated.updates;
  event.loss = evaluated.validation.loss;
  event.accuracy = evaluated.validation.accuracy;
  tell(event, evaluated.validation.values);
}

void Events::on_epoch_end(const EpochEvent& epoch) {
  bantam_event event = of(BANTAM_EVENT_EPOCH_END, epoch.epoch, epoch.epochs);
  event.loss = epoch.train.loss;
  event.accuracy = epoch.train.accuracy;
  event.images_per_second = epoch.images_per_second;
  tell(event, epoch.train.values);
}

void Events::on_test(const TestEvent& test) {
  bantam_event event = of(BANTAM_EVENT_TEST, test.epochs, test.epochs);
  event.update = event.updates = test.updates;
  event.loss = test.test.loss;
  event.accuracy = test.test.accuracy;
  tell(event, test.test.values);
}

std::string metrics_json(const std::vector<MetricValue>& values) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const MetricValue& value : values) json[std::string(value.name())] = value.value();
  return json_text(json);
}

bantam_train_result result_of(const TrainResult& trained) {
  bantam_train_result result = BANTAM_INIT(bantam_train_result);
  result.epochs = trained.epochs;
  result.updates = trained.updates;
  result.seconds = trained.seconds;
  result.loss = trained.train.loss;
  result.accuracy = trained.train.accuracy;
  result.validation_samples = trained.validation.samples;
  result.validation_loss = trained.validation.loss;
  result.validation_accuracy = trained.validation.accuracy;
  result.test_samples = trained.test.samples;
  result.test_loss = trained.test.loss;
  result.test_accuracy = trained.test.accuracy;
  result.images_per_second = trained.images_per_second;
  result.stopped = trained.stopped ? 1 : 0;
  result.stopped_early = trained.stopped_early ? 1 : 0;
  return result;
}

}  // namespace bantam::capi

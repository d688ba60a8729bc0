// When histograms are collected, and where they go.
#include "bantam/run/log/run_logs.h"

#include "bantam/run/log/histogram_lines.h"

namespace bantam::run {

RunLogs::RunLogs(const RunLogsFiles& files, const RunConfig& config, Model& model,
                 const std::function<void(std::string_view)>& warn)
    : config_(config.log),
      model_(model),
      histograms_({.path = files.histograms}, "lines", warn),
      events_(files.events, files.validation_events, config, warn) {
  if (config_.histograms > 0) watch_ = std::make_unique<WeightWatch>(model);
}

void RunLogs::cut(const RunLogsPosition& position) {
  histograms_.cut(position.histograms);
  events_.file().cut(position.events);
  events_.validation_file().cut(position.validation_events);
}

std::string RunLogs::difference_from(const RunLogsPosition& position) const {
  if (std::string difference = histograms_.difference_from(position.histograms); !difference.empty()) return difference;
  if (std::string difference = events().difference_from(position.events); !difference.empty()) return difference;
  return validation_events().difference_from(position.validation_events);
}

void RunLogs::begin(std::int64_t updates_per_epoch) {
  if (config_.tensorboard) events_.begin(model_, updates_per_epoch);
}

void RunLogs::sample(std::int64_t update) {
  collect(true);  // those before are still computed where looks follow each other closely
  watch_->copy(update);
}

void RunLogs::add(const nlohmann::ordered_json& line) {
  if (config_.tensorboard) events_.add(line);
}

/// The update that was sampled is among those that are reported next. Lines of updates that were reported before are
/// written now.
void RunLogs::on_progress(const ProgressEvent& event) {
  events_.flush();
  if (!watch_) return;
  const std::optional<std::int64_t> copied = watch_->copied();
  const std::int64_t done = event.epoch * event.updates + event.update;
  const std::int64_t back = copied ? done - *copied : -1;  // updates after it
  const auto reported = static_cast<std::int64_t>(event.values.size());
  if (back >= 0 && back < reported)
    watch_->set_loss_scale(event.values[static_cast<std::size_t>(reported - 1 - back)].loss_scale);
  collect(false);
}

void RunLogs::collect(bool wait) {
  if (!watch_) return;
  const std::optional<WatchedUpdate> watched = watch_->collect(wait);
  if (!watched) return;
  for (const TensorHistogram& histogram : watched->histograms)
    histograms_.add(histogram_line(watched->update, histogram));
  histograms_.flush();
  if (config_.tensorboard) events_.add(*watched);
}

RunLogsPosition RunLogs::position() {
  collect(true);
  events_.flush();  // what a checkpoint counts is in the file before it is
  return {.histograms = histograms_.position(),
          .events = events_at_end_ ? *events_at_end_ : events_.file().position(),
          .validation_events = events_.validation_file().position()};
}

void RunLogs::on_end() {
  if (events_at_end_) return;
  collect(true);
  histograms_.end();
  events_at_end_ = events_.file().position();
}

void RunLogs::end(bool success) {
  if (config_.tensorboard) events_.end(success);
}

}  // namespace bantam::run

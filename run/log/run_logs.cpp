// When histograms are collected, and where they go.
#include "bantam/run/log/run_logs.h"

#include "bantam/run/log/histogram_lines.h"

namespace bantam::run {

RunLogs::RunLogs(const RunLogsOptions& options, Model& model, const std::function<void(std::string_view)>& warn)
    : histograms_(options.histograms, "lines", warn) {
  if (options.watches) watch_ = std::make_unique<WeightWatch>(model);
}

void RunLogs::look(std::int64_t update) {
  collect(true);  // those before are still computed where looks follow each other closely
  watch_->copy(update);
}

/// The update that was looked at is among those that are told next.
void RunLogs::on_progress(const ProgressEvent& event) {
  if (!watch_) return;
  const std::optional<std::int64_t> copied = watch_->copied();
  const std::int64_t done = event.epoch * event.updates + event.update;
  const std::int64_t back = copied ? done - *copied : -1;  // updates after it
  const auto told = static_cast<std::int64_t>(event.values.size());
  if (back >= 0 && back < told)
    watch_->set_loss_scale(event.values[static_cast<std::size_t>(told - 1 - back)].loss_scale);
  collect(false);
}

void RunLogs::collect(bool wait) {
  if (!watch_) return;
  const std::optional<WatchedUpdate> watched = watch_->collect(wait);
  if (!watched) return;
  for (const TensorHistogram& histogram : watched->histograms)
    histograms_.add(histogram_line(watched->update, histogram));
  histograms_.flush();
}

std::uint64_t RunLogs::histograms_bytes() {
  collect(true);
  return histograms_.bytes();
}

void RunLogs::cut(const RunLogsPosition& position) { histograms_.cut(position.histograms_bytes); }

void RunLogs::on_end() {
  collect(true);
  histograms_.end();
}

}  // namespace bantam::run

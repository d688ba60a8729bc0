// Lines of updates and epochs, and a file that may have no room for them.
#include "bantam/run/session/metrics_log.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

/// Text files end with a whole line; what cannot be read or cut is told when it is written.
void cut_half_line(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fs::file_size(path, error) == 0) return;
  try {
    const std::string text = read_file(path);
    const std::size_t last = text.rfind('\n');
    if (last + 1 != text.size()) fs::resize_file(path, last == std::string::npos ? 0 : last + 1, error);
  } catch (const DataError&) {
    return;
  }
}

}  // namespace

MetricsLog::MetricsLog(fs::path path, std::int64_t log_every, BfcAllocator& memory,
                       std::function<void(std::string_view)> warn)
    : path_(std::move(path)), log_every_(log_every), memory_(memory), warn_(std::move(warn)) {
  cut_half_line(path_);
}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsLog::write(std::string text) {
  text += '\n';
  if (waiting_.size() + text.size() > kMostWaiting)
    ++dropped_;
  else
    waiting_ += text;
}

/// As much as there is room for; 0, or the system's reason why not all.
int MetricsLog::write_waiting() {
  if (descriptor_ < 0) descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (descriptor_ < 0) return errno;
  while (!waiting_.empty()) {
    const ssize_t written = ::write(descriptor_, waiting_.data(), waiting_.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) waiting_.erase(0, static_cast<std::size_t>(written));
  }
  return 0;
}

void MetricsLog::flush() {
  if (waiting_.empty()) return;
  const int reason = write_waiting();
  if (reason == 0 && failing_) {
    warn_(fmt::format("{} is written again{}", path_.string(),
                      dropped_ > 0 ? fmt::format("; {} lines are lost", dropped_) : std::string()));
    dropped_ = 0;
  } else if (reason != 0 && !failing_) {
    warn_(fmt::format("{} cannot be written: {}; the training goes on, and the lines wait for room", path_.string(),
                      std::generic_category().message(reason)));
  }
  failing_ = reason != 0;
}

void MetricsLog::write_updates() {
  if (updates_ == 0) return;
  const double samples = static_cast<double>(samples_);
  Json line = {{"kind", "update"},
               {"epoch", epoch_ + 1},
               {"update", update_},
               {"loss", loss_ / samples},
               {"accuracy", correct_ / samples},
               {"samples", samples_}};
  for (const MetricValue& metric : values_) line[std::string(metric.name())] = metric.value();
  write(line.dump());
  updates_ = samples_ = 0;
  loss_ = correct_ = 0;
  values_.clear();
}

void MetricsLog::on_progress(const ProgressEvent& event) {
  epoch_ = event.epoch;
  update_ = event.update - static_cast<std::int64_t>(event.metrics.size());
  for (const Metrics& metrics : event.metrics) {
    ++update_;
    ++updates_;
    samples_ += metrics.samples;
    loss_ += metrics.loss * static_cast<double>(metrics.samples);
    correct_ += metrics.accuracy * static_cast<double>(metrics.samples);
    merge(values_, metrics.values);
    if (update_ % log_every_ == 0 || update_ == event.updates) write_updates();
  }
  flush();
}

void MetricsLog::on_end() {
  write_updates();
  flush();
  if (failing_)
    warn_(fmt::format("{} lacks {} bytes of the last lines{}", path_.string(), waiting_.size(),
                      dropped_ > 0 ? fmt::format(", and {} more lines", dropped_) : std::string()));
}

void MetricsLog::on_epoch_end(const EpochEvent& event) {
  Json line = {{"kind", "epoch"}, {"epoch", event.epoch + 1}};
  if (event.train.samples > 0) {  // else of a run that was stopped in the evaluation: its updates are told above
    line["loss"] = event.train.loss;
    line["accuracy"] = event.train.accuracy;
    for (const MetricValue& metric : event.train.values) line[std::string(metric.name())] = metric.value();
    line["samples"] = event.train.samples;
  }
  if (event.validation.samples > 0) {
    line["validation_loss"] = event.validation.loss;
    line["validation_accuracy"] = event.validation.accuracy;
    for (const MetricValue& metric : event.validation.values)
      line[fmt::format("validation_{}", metric.name())] = metric.value();
    line["validation_samples"] = event.validation.samples;
  }
  const MemoryStats memory = memory_.stats();
  line["seconds"] = event.seconds;
  line["evaluation_seconds"] = event.evaluation_seconds;
  line["images_per_s"] = event.images_per_second;
  line["data_wait_share"] = event.data_wait_share;
  line["peak_bytes"] = memory.peak_bytes;
  line["pool_bytes"] = memory.peak_pool_bytes;
  write(line.dump());
  flush();
}

}  // namespace bantam::run

// Making the folder without treading on another run, and the log of metrics.
#include "bantam/cli/run_directory.h"

#include <chrono>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFiles[] = {"config.yaml", "metrics.jsonl", "weights.safetensors", "state.safetensors",
                                  "algorithms.json"};

/// runs/<name>-<date-time>, with a number behind it where two runs begin in one second.
fs::path fresh_path(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  const std::string base = fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(now));
  make_folders("runs");
  for (int number = 1;; ++number) {
    const fs::path path = fs::path("runs") / (number == 1 ? base : fmt::format("{}-{}", base, number));
    std::error_code error;
    if (fs::create_directory(path, error)) return path;  // false where another run was faster
    if (error) throw DataError(fmt::format("{}: cannot make the run's folder: {}", path.string(), error.message()));
  }
}

}  // namespace

void RunDirectory::require_free(const fs::path& given, bool overwrite) {
  if (given.empty() || overwrite) return;
  for (const char* file : kFiles)
    if (fs::exists(given / file))
      throw ConfigError(
          fmt::format("--run-dir: {} holds a run already ({}); give another folder, --overwrite to replace it, or "
                      "--resume to go on with it",
                      given.string(), file));
}

RunDirectory RunDirectory::create(const fs::path& given, const std::string& name, bool overwrite) {
  if (given.empty()) return RunDirectory(fresh_path(name), true);
  require_free(given, overwrite);
  for (const char* file : kFiles) fs::remove(given / file);
  const bool made = !fs::exists(given);
  make_folders(given);
  return RunDirectory(given, made);
}

RunDirectory RunDirectory::open(const fs::path& path) {
  RunDirectory directory(path, false);
  if (!fs::exists(directory.config()) || !fs::exists(directory.state()))
    throw DataError(
        fmt::format("--resume: {} holds no run that can go on (config.yaml and state.safetensors are written by a "
                    "run that was stopped or has finished)",
                    path.string()));
  return directory;
}

void RunDirectory::discard_if_empty() const noexcept {
  std::error_code error;  // what cannot be removed stays
  if (fs::exists(metrics(), error) && fs::file_size(metrics(), error) > 0) return;
  for (const char* file : kFiles) fs::remove(path_ / file, error);
  if (made_) fs::remove(path_, error);  // only where nothing else lies in it
}

namespace {

void cut_half_line(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error) || fs::file_size(path, error) == 0) return;
  const std::string text = read_file(path);
  const std::size_t last = text.rfind('\n');
  if (last + 1 != text.size()) fs::resize_file(path, last == std::string::npos ? 0 : last + 1, error);
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& path, std::int64_t log_every, BfcAllocator& memory)
    : path_(path), log_every_(log_every), memory_(memory) {
  cut_half_line(path);
  file_.open(path, std::ios::app);
  if (!file_) throw DataError(fmt::format("{}: cannot be opened for writing", path.string()));
}

void MetricsLog::write(const nlohmann::ordered_json& line) { file_ << line.dump() << '\n'; }

/// After whole lines: whoever follows the file sees no half ones.
void MetricsLog::flush() {
  file_.flush();
  if (!file_) throw DataError(fmt::format("{}: cannot be written (disk full?)", path_.string()));
}

void MetricsLog::write_updates() {
  if (updates_ == 0) return;
  const double samples = static_cast<double>(samples_);
  write({{"kind", "update"},
         {"epoch", epoch_ + 1},
         {"update", update_},
         {"loss", loss_ / samples},
         {"accuracy", correct_ / samples},
         {"samples", samples_}});
  updates_ = samples_ = 0;
  loss_ = correct_ = 0;
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
    if (update_ % log_every_ == 0 || update_ == event.updates) write_updates();
  }
  flush();
}

void MetricsLog::on_end() {
  write_updates();
  flush();
}

void MetricsLog::on_epoch_end(const EpochEvent& event) {
  nlohmann::ordered_json line = {{"kind", "epoch"},
                                 {"epoch", event.epoch + 1},
                                 {"loss", event.train.loss},
                                 {"accuracy", event.train.accuracy},
                                 {"samples", event.train.samples}};
  if (event.validation.samples > 0) {
    line["validation_loss"] = event.validation.loss;
    line["validation_accuracy"] = event.validation.accuracy;
    line["validation_samples"] = event.validation.samples;
  }
  const MemoryStats memory = memory_.stats();
  line["seconds"] = event.seconds;
  line["evaluation_seconds"] = event.evaluation_seconds;
  line["images_per_s"] = event.images_per_second;
  line["data_wait_share"] = event.data_wait_share;
  line["peak_bytes"] = memory.peak_bytes;
  line["pool_bytes"] = memory.peak_pool_bytes;
  write(line);
  flush();
}

}  // namespace bantam::cli

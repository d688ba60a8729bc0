// TrainPrinter: what the program says of a run, and when signals stop it.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "bantam/cli/options/run_names.h"
#include "bantam/cli/print/progress.h"
#include "bantam/cli/print/train_report.h"
#include "bantam/cli/signals.h"
#include "bantam/run/train/run_observer.h"

namespace bantam::cli {

class TrainPrinter : public RunObserver {
 public:
  TrainPrinter(Progress& progress, StopOnSignal& stop) : shown(progress), progress_(progress), stop_(stop) {}

  void on_decided(const RunConfig& config, const DecisionLog& log) override;
  void on_read(std::string_view set, std::int64_t read, std::int64_t samples) override;
  void on_ready() override { stop_.begin_training(); }
  void on_begin(const RunStart& run) override;
  void on_trained() override { progress_.close(); }
  void on_writing(bool writes) override {
    if (on_write) on_write(writes);
  }
  void on_saved() override { stop_.note_saved(); }
  void on_message(std::string_view text) override { progress_.message(text); }
  void on_warning(std::string_view text) override { progress_.warning(text); }

  /// The decided configuration, or `open` where nothing is decided yet.
  const RunConfig& config_or(const RunConfig& open) const { return config_ ? *config_ : open; }
  ProgressCallback shown;
  /// Called with the run's folder when that is there; may be empty.
  std::function<void(const std::filesystem::path&)> on_folder = {};
  /// Called as RunObserver::on_writing; may be empty.
  std::function<void(bool)> on_write = {};

 private:
  void report_ignored(const DataOptions& data);

  Progress& progress_;
  StopOnSignal& stop_;
  std::optional<RunConfig> config_;
};

}  // namespace bantam::cli

// EventLog: a run's file of events for TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bantam/engine/graph/model.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/log/appended_file.h"
#include "bantam/run/log/summary_event.h"
#include "bantam/run/log/weight_watch.h"

namespace bantam::run {

/// One file for all sessions of a run. Steps are updates over all epochs. Tags:
///
///     update/loss, epoch/validation_loss, …   every number of the lines of metrics.jsonl, by kind and key, as float32;
///                                             of a list by its index, too (epoch/validation_f1_of_classes/3)
///     epoch/validation_confusion_matrix       a matrix: a picture, and up to 32 classes as text
///     weights/NAME, gradients/NAME            histograms
///     samples/held_out/0 cat, …               held-out and training samples as the network sees them
///     config                                  config.yaml
class EventLog {
 public:
  /// Opens nothing yet. The configuration must outlive the log; `warn` must not throw.
  EventLog(std::filesystem::path path, const RunConfig& config, std::function<void(std::string_view)> warn);

  /// Before anything is added. A new file begins with the graph, hyperparameters, the configuration and pictures.
  void begin(const Model& model, std::int64_t updates_per_epoch);
  /// A line of metrics.jsonl.
  void add(const nlohmann::ordered_json& line);
  void add(const WatchedUpdate& watched);
  /// The last event: how the run ended.
  void end(bool success);
  AppendedFile& file() { return file_; }
  const AppendedFile& file() const { return file_; }

 private:
  void write(std::string_view event);
  void add_hparams();
  void add_pictures();
  void add_value(SummaryEvent& event, const std::string& tag, const nlohmann::ordered_json& value) const;
  std::int64_t step_of(const nlohmann::ordered_json& line) const;

  AppendedFile file_;
  const RunConfig& config_;
  std::function<void(std::string_view)> warn_;
  std::vector<std::string> class_names_;
  std::int64_t updates_per_epoch_ = 1;
};

}  // namespace bantam::run

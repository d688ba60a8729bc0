// EventLog: a run's events for TensorBoard: what is of training, and what is of validation under the same names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bantam/engine/model/model.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/log/appended_file.h"
#include "bantam/run/log/summary_event.h"
#include "bantam/run/log/weight_watch.h"

namespace bantam::run {

/// Two files for all sessions of a run, in folders `train` and `validation`, which TensorBoard shows as two curves of
/// one chart where their tags are the same. Steps are updates over all epochs. Tags:
///
///     update/loss, epoch/loss, test/loss, …   every number of the lines of metrics.jsonl, by kind and key, as float32;
///                                             of a list by its index, too (epoch/f1_of_classes/3). Those that the
///                                             lines call validation_loss … are epoch/loss … of `validation`, also
///                                             between two epochs' ends
///     epoch/confusion_matrix                  a matrix: a picture, and up to 32 classes as text
///     weights/NAME, gradients/NAME            histograms
///     samples/held_out/0 cat, …               held-out and training samples as the network sees them
///     config                                  config.yaml
class EventLog {
 public:
  /// The two files; opens nothing yet. The configuration must outlive the log; `warn` must not throw.
  EventLog(std::filesystem::path train, std::filesystem::path validation, const RunConfig& config,
           std::function<void(std::string_view)> warn);

  /// Before anything is added. A new file begins with the graph, hyperparameters, the configuration and pictures.
  void begin(const Model& model, std::int64_t updates_per_epoch);
  /// A line of metrics.jsonl.
  void add(const nlohmann::ordered_json& line);
  void add(const WatchedUpdate& watched);
  /// The last event: how the run ended.
  void end(bool success);
  AppendedFile& file() { return file_; }
  const AppendedFile& file() const { return file_; }
  AppendedFile& validation_file() { return validation_; }
  const AppendedFile& validation_file() const { return validation_; }
  void flush();

 private:
  void write(std::string_view event);
  void add_hparams();
  void add_pictures();
  void add_value(SummaryEvent& event, const std::string& tag, const nlohmann::ordered_json& value) const;
  std::int64_t step_of(const nlohmann::ordered_json& line) const;

  AppendedFile file_, validation_;
  const RunConfig& config_;
  std::function<void(std::string_view)> warn_;
  std::vector<std::string> class_names_;
  std::int64_t updates_per_epoch_ = 1;
};

}  // namespace bantam::run

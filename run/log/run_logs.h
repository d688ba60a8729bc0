// RunLogs: what a run writes for people beside metrics.jsonl, as `log` asks for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bantam/engine/train/trainer.h"
#include "bantam/run/log/appended_file.h"
#include "bantam/run/log/event_log.h"
#include "bantam/run/log/weight_watch.h"

namespace bantam::run {

/// The files; which of them are written, the configuration says (LogConfig).
struct RunLogsFiles {
  std::filesystem::path histograms;  ///< histograms.jsonl
  std::filesystem::path events;      ///< TensorBoard's, of training
  std::filesystem::path validation_events;
};

/// Lengths and sums of the files when a run was saved.
struct RunLogsPosition {
  FileSum histograms, events, validation_events;
};

/// Used by the thread that trains. Files that cannot be written do not end a run (AppendedFile).
class RunLogs : public Callback {
 public:
  /// Configuration and model must outlive the logs; `warn` must not throw. Throws OutOfMemory where there is no memory
  /// for copies of the weights.
  RunLogs(const RunLogsFiles& files, const RunConfig& config, Model& model,
          const std::function<void(std::string_view)>& warn);

  /// Before the first record: removes what a resumed run writes again.
  void cut(const RunLogsPosition& position);
  /// AppendedFile::difference_from of the first file that has one; empty: none has.
  std::string difference_from(const RunLogsPosition& position) const;
  /// The updates that follow are of epochs of so many.
  void begin(std::int64_t updates_per_epoch);
  /// As TrainerOptions::look: histograms of this update are written once they are computed.
  void sample(std::int64_t update);
  /// A line of metrics.jsonl, as it is written.
  void add(const nlohmann::ordered_json& line);
  /// With all histograms up to the last update, for which it waits; after on_end, without what a resumed run writes in
  /// another way.
  RunLogsPosition position();
  /// After the last line: how the run ended.
  void end(bool success);
  const AppendedFile& histograms() const { return histograms_; }
  const AppendedFile& events() const { return events_.file(); }
  const AppendedFile& validation_events() const { return events_.validation_file(); }

  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  /// Before that of MetricsLog, whose last line may be of fewer updates than it would have.
  void on_end() override;

 private:
  void collect(bool wait);

  const LogConfig& config_;
  const Model& model_;
  AppendedFile histograms_;
  EventLog events_;
  std::unique_ptr<WeightWatch> watch_;    // null: nobody looks
  std::optional<FileSum> events_at_end_;  // of the training file
};

}  // namespace bantam::run

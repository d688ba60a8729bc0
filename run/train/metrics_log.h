// MetricsLog: a run's metrics.jsonl.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/metrics/metric.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/log/appended_file.h"

namespace bantam::run {

/// Appends whole lines to metrics.jsonl with every event: one every `log_every` updates, one an epoch, one an
/// evaluation between two updates, and one of the test set. A file that cannot be written does not end a run
/// (AppendedFile).
class MetricsLog : public Callback {
 public:
  /// The file is made with the first line. `warn` must not throw.
  MetricsLog(std::filesystem::path path, const RunConfig& config, BfcAllocator& memory,
             std::function<void(std::string_view)> warn);
  /// `receive` gets every line, too, as it is written.
  void notify(std::function<void(const nlohmann::ordered_json& line)> receive) { receive_ = std::move(receive); }
  /// The run goes on now, after `seconds` of earlier sessions: lines say how long it has run.
  void begin(double seconds);
  /// Adds the sums of the updates since the last line, and the values of the last update.
  void register_state(StateRegistry& state);
  /// Before a state is loaded: whether its sums are left out, being of other metrics than this run's.
  void ignore_sums(bool ignored) { ignores_sums_ = ignored; }
  /// Length and SHA-256 of the file, with the lines that wait, up to the last update that a resumed run does not log
  /// again.
  FileSum position();
  /// Before the first line: removes what follows the position in the file, lines that a resumed run writes again
  /// (AppendedFile::cut).
  void cut(const FileSum& position) { file_.cut(position); }
  /// Ends the file of a run that was killed after its last checkpoint, loaded and cut, as the run itself would have.
  void end_at(std::int64_t epoch, std::int64_t update);
  /// Whether the file has all lines, but for those that wait to be full.
  bool complete() const { return file_.complete(); }
  const AppendedFile& file() const { return file_; }
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_evaluated(const EvaluatedEvent& event) override;
  void on_epoch_end(const EpochEvent& event) override;
  void on_test(const TestEvent& event) override;
  void on_end() override;

 private:
  void write(const nlohmann::ordered_json& line);
  void write_updates(std::uint64_t peak_bytes);
  std::vector<double> sums() const;
  void set_sums(const std::vector<double>& numbers);
  std::size_t most_sums() const;

  AppendedFile file_;
  std::function<void(const nlohmann::ordered_json&)> receive_;
  std::optional<FileSum> position_at_end_;  // without the line of a run that ended between two lines
  std::int64_t log_every_;
  std::vector<MetricPtr> metrics_;
  std::string accuracy_;  // its name in lines; empty: it means nothing
  BfcAllocator& memory_;
  std::int64_t epoch_ = 0, update_ = 0;  // the last seen
  // Sums of the updates since the last line.
  std::int64_t updates_ = 0, samples_ = 0;
  double loss_ = 0, correct_ = 0;
  std::vector<MetricValue> values_;
  std::optional<UpdateReport> last_;              // of the last update
  bool ignores_sums_ = false;                     // of states that are loaded
  double timed_samples_ = 0, timed_seconds_ = 0;  // of this session's updates since the last line
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  double seconds_before_ = 0;  // of earlier sessions
};

}  // namespace bantam::run

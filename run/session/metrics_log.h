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
#include <vector>

#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/metrics/metric.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/allocator/allocator.h"

namespace bantam::run {

/// Appends whole lines to metrics.jsonl with every event: one every `log_every` updates, one an epoch, one an
/// evaluation between two updates, and one of the test set. A file that cannot be written does not end a run: `warn` is
/// called once, the lines are buffered (at most kMostWaiting bytes of them) and written when there is room again.
class MetricsLog : public Callback {
 public:
  static constexpr std::size_t kMostWaiting = std::size_t{16} << 20;

  /// The file is made with the first line. `metrics` are those of the run; `warn` must not throw.
  MetricsLog(std::filesystem::path path, std::int64_t log_every, const std::vector<MetricPtr>& metrics,
             BfcAllocator& memory, std::function<void(std::string_view)> warn);
  ~MetricsLog() override;
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;
  /// The run goes on now, after `seconds` of earlier sessions: lines say how long it has run.
  void begin(double seconds);
  /// Adds the sums of the updates since the last line, and the values of the last update.
  void register_state(StateRegistry& state);
  /// Bytes of the file, with the lines that wait, up to the last update that a resumed run does not log again.
  std::uint64_t bytes() const;
  /// Before the first line: removes what follows the first `bytes` of the file, lines that a resumed run writes again.
  /// `warn` is told where the file is shorter, and stays so, and where it cannot be cut: then the lines to come wait
  /// until it can.
  void cut(std::uint64_t bytes);
  /// Ends the file of a run that was killed after its last checkpoint, loaded and cut, as the run itself would have.
  void end_at(std::int64_t epoch, std::int64_t update);
  /// Whether the file has all lines, but for those that wait to be full.
  bool complete() const { return waiting_.empty() && !cut_to_ && dropped_ + lost_ == 0; }
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_evaluated(const EvaluatedEvent& event) override;
  void on_epoch_end(const EpochEvent& event) override;
  void on_test(const TestEvent& event) override;
  void on_end() override;

 private:
  void write(std::string line);
  void write_updates(std::uint64_t peak_bytes);
  void flush();
  int cut_now();
  int write_waiting();
  int open_file();
  std::vector<double> sums() const;
  void set_sums(const std::vector<double>& numbers);
  std::size_t most_sums() const;

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string waiting_;       // whole lines, of which the first may be written in part
  std::int64_t dropped_ = 0;  // lines that waited in vain
  std::int64_t lost_ = 0;     // those of them that were told
  bool failing_ = false;
  std::optional<std::uint64_t> cut_to_;        // bytes that are to stay of a file that could not be cut
  std::optional<std::uint64_t> bytes_at_end_;  // without the line of a run that ended between two lines
  std::int64_t log_every_;
  std::vector<MetricPtr> metrics_;
  BfcAllocator& memory_;
  std::function<void(std::string_view)> warn_;
  std::int64_t epoch_ = 0, update_ = 0;  // the last seen
  // Sums of the updates since the last line.
  std::int64_t updates_ = 0, samples_ = 0;
  double loss_ = 0, correct_ = 0;
  std::vector<MetricValue> values_;
  std::optional<UpdateReport> last_;         // of the last update
  std::optional<double> images_per_second_;  // of the last event
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  double seconds_before_ = 0;  // of earlier sessions
};

}  // namespace bantam::run

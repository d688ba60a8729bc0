// Progress of training on a terminal (one updating line), in a log (plain lines), or for machines (a JSON object a
// line).
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bantam::cli {

/// The name of accuracy unless a run has another one for it (run::accuracy_name).
inline constexpr std::string_view kAccuracy = "accuracy";

/// The progress of training.
struct ProgressState {
  std::int64_t epoch = 1, epochs = 1;  ///< from 1
  std::int64_t step = 0, steps = 0;    ///< updates done in this epoch, and in all of it
  double images_per_second = 0, eta_seconds = 0;
  double loss = 0, accuracy = 0;                                    ///< of this epoch so far
  std::string_view accuracy_name = kAccuracy;                       ///< as metrics.jsonl has it: "binary_accuracy"
  std::uint64_t memory_now = 0, memory_peak = 0, memory_limit = 0;  ///< bytes on the device; limit 0: none
  double data_wait_share = 0;  ///< share of this epoch's time spent waiting for data
};

/// The progress of an evaluation.
struct EvaluationState {
  std::int64_t epoch = 1, epochs = 1;   ///< from 1
  std::int64_t batch = 0, batches = 0;  ///< done, and all
  double eta_seconds = 0;               ///< to the end of this evaluation
};

/// A run of a sweep that begins or has ended.
struct SweepRunState {
  std::int64_t run = 1, runs = 1;  ///< from 1
  std::string setting;             ///< "learning_rate=0.1, seed=43"
  double seconds = 0;              ///< the run's length, once it has ended
  double eta_seconds = 0;          ///< to the end of all runs, once it has ended
  std::vector<std::pair<std::string, double>> values = {};
};

/// Samples that are read into memory or packed into a file before training begins.
struct ReadingState {
  std::string_view set;                ///< "train"
  std::int64_t read = 0, samples = 0;  ///< done, and all
};

/// Other work of a known length.
struct WorkState {
  std::string_view what, unit;  ///< "evaluating", "batch"
  std::int64_t done = 0, all = 0;
  double eta_seconds = 0;
};

/// Values of metrics by their names.
using NamedValues = std::vector<std::pair<std::string, double>>;

/// An evaluation that is done, but not one at an epoch's end.
struct EvaluatedSummary {
  std::int64_t epoch = 1, epochs = 1;  ///< from 1
  std::int64_t step = 0, steps = 0;    ///< updates done in this epoch, and in all of it
  bool test = false;                   ///< it evaluates the test samples, at the run's end
  double loss = 0, accuracy = 0;
  std::string_view accuracy_name = kAccuracy;
  NamedValues values = {};
};

/// An epoch that is done.
struct EpochSummary {
  std::int64_t epoch = 1, epochs = 1;
  bool trained = true;  ///< false: only evaluated, by a run that was stopped there and resumed
  double loss = 0, accuracy = 0;
  std::string_view accuracy_name = kAccuracy;
  bool validated = false;
  double validation_loss = 0, validation_accuracy = 0;
  double seconds = 0, images_per_second = 0, data_wait_share = 0;
  NamedValues values = {}, validation_values = {};
};

enum class ProgressMode : std::uint8_t { bar, plain, json, none };

/// "bar", "plain", "json", "none"; "auto" is bar where `out` is a terminal and plain elsewhere. Throws ConfigError.
ProgressMode parse_progress_mode(std::string_view text, std::FILE* out);

/// One line of at most `width` columns: a bar where there is room, then all of the state; short labels where it is
/// narrow.
std::string bar_line(const ProgressState& state, int width);
/// Lines of a log. Both begin "epoch E/N loss L acc A" ("bin acc" of binary decisions), and each has one form, whatever
/// its numbers, so that a log can be searched and cut into columns: at most 80 up to some ten thousand epochs. Memory
/// and waiting for data, which a line has no room for, stand in the closing summary and in json_line.
std::string plain_line(const ProgressState& state);
std::string evaluation_line(const EvaluationState& state);
std::string reading_line(const ReadingState& state);
std::string work_line(const WorkState& state);
std::string epoch_line(const EpochSummary& epoch);
std::string evaluated_line(const EvaluatedSummary& evaluated);
/// "run 2/6: seed=43", and once it has ended "run 2/6: accuracy 0.9312, loss 0.2101 in 7.3s, ETA 29s".
std::string run_begin_line(const SweepRunState& state);
std::string run_end_line(const SweepRunState& state);
std::string json_line(const EvaluatedSummary& evaluated);
std::string json_line(const EvaluationState& state);
std::string json_line(const ReadingState& state);
std::string json_line(const WorkState& state);
std::string json_line(const ProgressState& state);
std::string json_line(const EpochSummary& epoch);

/// Writes progress to a stream. Used by one thread.
class Progress {
 public:
  Progress(ProgressMode mode, std::FILE* out) : mode_(mode), out_(out) {}
  ~Progress() { close(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Draws at most 10 times a second (bar), or a line at most every 5 seconds (plain); json writes every call.
  void update(const ProgressState& state);
  /// Shows the progress of an evaluation, as `update` does.
  void evaluation(const EvaluationState& state);
  /// Shows the reading of data before training; plain lines and JSON only where it lasts longer than 5 seconds.
  void reading(const ReadingState& state);
  /// Shows the progress of other work, as `update` does.
  void work(const WorkState& state);
  /// A line of its own for the epoch.
  void epoch_end(const EpochSummary& epoch);
  /// A line of its own for an evaluation between two updates, or of the test samples.
  void evaluated(const EvaluatedSummary& evaluated);
  /// A line of its own, before and after a run of a sweep.
  void run_begin(const SweepRunState& state);
  void run_end(const SweepRunState& state);
  /// A line above the updating one.
  void message(std::string_view text);
  /// Prints a warning in every mode: "warning: …", or for machines {"event": "warning", "message": …}.
  void warning(std::string_view text);
  /// Ends the updating line. Harmless twice.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  void write_line(const std::string& line);
  void write_above_bar(std::string_view text);
  void draw(const std::string& line);
  void draw_if_due(const std::string& line);
  bool plain_is_due();

  ProgressMode mode_;
  std::FILE* out_;
  bool line_open_ = false;
  Clock::time_point last_{};
};

}  // namespace bantam::cli

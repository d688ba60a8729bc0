// SampleSession: what the verbs have in common that run a trained model over image files or a table: which samples, the
// progress, what is said of files that cannot be read, and the exit code.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/cli/options/model_flags.h"
#include "bantam/cli/print/progress.h"
#include "bantam/cli/signals.h"
#include "bantam/run/predict/prediction.h"

namespace bantam::cli {

struct SampleFlags {
  ModelFlags model;
  std::vector<std::string> paths;  ///< image files, folders of them, or one table
  std::int64_t batch_size = 0;     ///< 0: that of the configuration's evaluations
  std::string out, progress = "auto";
  bool csv = false, json = false;
};

/// The model's flags, IMAGE, and --batch-size.
void add_sample_flags(CLI::App& command, SampleFlags& flags);
/// --progress, --quiet, --csv and --json.
void add_sample_output_flags(CLI::App& command, SampleFlags& flags);

/// How a verb calls what it does.
struct SampleWords {
  std::string_view doing = "predicting", done = "predicted";
};

/// Where answers go. Called by one thread.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  /// The memory is reserved; answers follow.
  virtual void begin() = 0;
  /// `cells`: of the table's row, where the samples are of one. A prediction with an error is told already.
  virtual void write(const Prediction& prediction, const std::vector<std::string>& cells) = 0;
  /// Before each batch, and at the end.
  virtual void flush() {}
};

class SampleSession {
 public:
  /// Opens the model, and finds the samples. `flags` and `stop` must outlive it. Throws ConfigError, DataError.
  SampleSession(const SampleFlags& flags, StopOnSignal& stop, SampleWords words = {});

  const TrainedModel& model() const { return model_; }
  bool are_rows() const { return table_ && table_->samples != nullptr; }
  const std::vector<ListedImage>& images() const { return images_.images; }
  /// Of the table that the samples stand in; none where they are image files.
  std::vector<std::string> columns() const { return table_ ? table_->columns : std::vector<std::string>(); }
  /// Throws ConfigError where `out` is one of the files that are read.
  void check_out(const std::string& out) const;
  /// Answers on a terminal are progress enough. Before `run`.
  void hide_progress() { progress_.emplace(ProgressMode::none, stderr); }

  PredictionSummary run(PredictOptions options, AnswerSink& sink);
  /// Says what was resized and what could not be read, and returns the exit code.
  int end(const PredictionSummary& summary);

 private:
  void find_samples();
  std::int64_t samples() const { return table_ ? std::ssize(table_->names) : std::ssize(images_.images); }
  void report_ignored();
  void report_broken(const Prediction& prediction);

  const SampleFlags& flags_;
  StopOnSignal& stop_;
  SampleWords words_;
  TrainedModel model_;
  ImageList images_;
  std::optional<PredictedTable> table_;
  std::optional<Progress> progress_;
};

/// `verb` with the signals' handlers installed, and its exit code. An error of the device says what helps.
int run_samples(const std::function<int(StopOnSignal& stop)>& verb);

}  // namespace bantam::cli

// The output of `bantam train`: progress while it runs, and a closing summary as text or JSON.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "bantam/base/json.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/cli/print/progress.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/train/train.h"

namespace bantam::cli {

/// Hands the trainer's events to a Progress, with the memory of the run's device.
class ProgressCallback : public Callback {
 public:
  explicit ProgressCallback(Progress& progress) : progress_(progress) {}
  /// The allocator whose memory is shown, before the first event.
  void show_memory_of(BfcAllocator& memory) { memory_ = &memory; }
  /// The name of accuracy (run::accuracy_name): a literal; empty where no sample is right or wrong.
  void name_accuracy(std::string_view name) { accuracy_name_ = name; }
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_evaluation(const EvaluationEvent& event) override;
  void on_evaluated(const EvaluatedEvent& event) override;
  void on_epoch_end(const EpochEvent& event) override;
  void on_test(const TestEvent& event) override;
  void on_smaller_micro_batch(const SmallerMicroBatchEvent& event) override;
  /// When the metrics of the first updates had come.
  std::optional<std::chrono::steady_clock::time_point> first() const { return first_; }

 private:
  Progress& progress_;
  /// NaN where it is hidden.
  double shown(double accuracy) const;

  BfcAllocator* memory_ = nullptr;
  std::string_view accuracy_name_ = kAccuracy;
  std::optional<std::chrono::steady_clock::time_point> first_;
};

/// The outcome of a run, and the program's own measurements.
struct TrainReport {
  const run::Outcome& outcome;
  double seconds = 0;        ///< all of it: reading data, training, evaluation, saving
  double start_seconds = 0;  ///< from the command's start until the first updates' metrics were there
  std::size_t columns = 80;  ///< that a matrix may take
};

/// Several lines, each ended by a newline.
std::string closing_summary(const TrainReport& report);
/// accuracy (by its name, where it means something) and loss (of validation where that was evaluated, else of
/// training), epochs, seconds, run_dir, and more.
nlohmann::ordered_json closing_json(const TrainReport& report);

}  // namespace bantam::cli

// What `bantam train` says: progress while it runs, and a closing summary for people or for machines.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bantam/cli/config/run_names.h"
#include "bantam/cli/print/progress.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/session/run_directory.h"

namespace bantam::cli {

/// Hands the trainer's events to a Progress, with the device's memory.
class ProgressCallback : public Callback {
 public:
  ProgressCallback(Progress& progress, BfcAllocator& memory) : progress_(progress), memory_(memory) {}
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_evaluation(const EvaluationEvent& event) override;
  void on_epoch_end(const EpochEvent& event) override;
  void on_smaller_micro_batch(const SmallerMicroBatchEvent& event) override;
  /// When the metrics of the first updates had come.
  std::optional<std::chrono::steady_clock::time_point> first() const { return first_; }

 private:
  Progress& progress_;
  BfcAllocator& memory_;
  std::optional<std::chrono::steady_clock::time_point> first_;
};

/// The end of a run.
struct TrainReport {
  const RunConfig& config;
  const RunDirectory& directory;
  TrainResult result;
  double seconds = 0;        ///< all of it: reading data, training, evaluation, saving
  double start_seconds = 0;  ///< from the command's start until the first updates' metrics were there
  std::int64_t batch = 1;
  std::int64_t parameters = 0;
  MemoryStats memory;                    ///< of the run's device
  std::uint64_t planned_peak_bytes = 0;  ///< of a whole run: what one that was stopped or resumed takes at most
  std::uint64_t planned_pool_bytes = 0;
  ProcessMemory process;                    ///< what is counted for the process on that device, at the end
  std::vector<OverheadLine> overhead;       ///< its part beside the pool; none on the CPU
  std::optional<MemoryStats> host, pinned;  ///< runs on a GPU: the data set's, and the upload buffers'
};

/// Several lines, each ended by a newline.
std::string closing_summary(const TrainReport& report);
/// accuracy and loss (held out, where that was evaluated, else of training), epochs, seconds, run_dir, and more.
nlohmann::ordered_json closing_json(const TrainReport& report);

}  // namespace bantam::cli

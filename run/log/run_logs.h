// RunLogs: what a run writes for people beside metrics.jsonl, as `log` asks for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "bantam/engine/train/trainer.h"
#include "bantam/run/log/appended_file.h"
#include "bantam/run/log/weight_watch.h"

namespace bantam::run {

/// Which files, and what goes into them.
struct RunLogsOptions {
  std::filesystem::path histograms;  ///< histograms.jsonl
  bool watches = false;              ///< weights and gradients, at the updates of TrainerOptions::look
};

/// Where the files of a run were when it was saved.
struct RunLogsPosition {
  std::uint64_t histograms_bytes = 0;
};

/// Used by the thread that trains. Files that cannot be written do not end a run (AppendedFile).
class RunLogs : public Callback {
 public:
  /// `warn` must not throw. Throws OutOfMemory where there is no memory for copies of the weights.
  RunLogs(const RunLogsOptions& options, Model& model, const std::function<void(std::string_view)>& warn);

  /// As TrainerOptions::look: histograms of this update are written once they are computed.
  void look(std::int64_t update);
  /// Of histograms.jsonl, with all histograms up to the last update; waits for them.
  std::uint64_t histograms_bytes();
  /// Before the first record: removes what a resumed run writes again.
  void cut(const RunLogsPosition& position);
  const AppendedFile& histograms() const { return histograms_; }

  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override;
  void on_end() override;

 private:
  void collect(bool wait);

  AppendedFile histograms_;
  std::unique_ptr<WeightWatch> watch_;  // null: nobody looks
};

}  // namespace bantam::run

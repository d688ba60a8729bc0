// Whole runs from a program: a configuration, its plan, and training from it to saved weights.
//
//     const run::Config config = run::Config::from_file("configs/quickstart.yaml");
//     const run::MemoryPlan planned = run::plan(config);
//     const run::Outcome outcome = run::train(config, {.folder = "runs/first"});
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/reports/memory_report.h"

BANTAM_API_BEGIN
namespace bantam::run {

struct BANTAM_INTERNAL RunConfig;  // internal

/// A YAML file like those in configs/, with overrides applied, typed and checked. A value: copies share the parsed
/// document and belong to one thread at a time.
class Config {
 public:
  /// Overrides are those of the command line: "train.epochs=3". Throws ConfigError with the position of whatever is
  /// wrong: types, ranges, unknown keys, shapes that do not fit, names that do not exist.
  static Config from_file(const std::filesystem::path& path, std::span<const std::string> overrides = {});
  /// The same of a text; `name` stands for the file's in messages and in the run's name.
  static Config from_text(std::string_view text, const std::filesystem::path& name = "config.yaml",
                          std::span<const std::string> overrides = {});

  const std::string& name() const;  ///< the file's, without folder and extension
  Device device() const;            ///< `auto` resolved to what this machine has
  std::uint64_t seed() const;
  std::int64_t epochs() const;
  /// Samples of a batch; nothing without data, and where it is `auto` (see plan).
  std::optional<std::int64_t> batch_size() const;
  const Graph& graph() const;
  /// The arguments of Model, Optimizer and TrainingStep, for a training loop of the program's own.
  ModelOptions model_options() const;
  const OptimizerOptions& optimizer_options() const;
  const LossOptions& loss_options() const;
  /// A runtime with the configuration's limits and logical devices. `threads` 0: all processors.
  std::unique_ptr<Runtime> make_runtime(int threads = 0) const;
  /// Every key with the value that counts, defaults included: reads as this configuration does.
  std::string resolved_yaml() const;

  /// For the library itself: the typed configuration of the handle.
  explicit Config(std::shared_ptr<const RunConfig> config) : config_(std::move(config)) {}
  const RunConfig& operator*() const { return *config_; }
  const RunConfig* operator->() const { return config_.get(); }

 private:
  std::shared_ptr<const RunConfig> config_;
};

/// Options of one run that are not part of its configuration.
struct TrainOptions {
  int threads = 0;                    ///< of the CPU; 0: all processors. Results do not depend on it
  std::filesystem::path folder = {};  ///< empty: runs/CONFIG-DATE-TIME
  bool overwrite = false;             ///< replace a run that is in `folder`, else ConfigError
  bool accept_changes = false;        ///< a run that goes on may change keys that decide what an update computes, too
  std::function<bool()> stop = {};    ///< asked between batches; true: the run stops there and is saved
  /// Warnings for the user that do not end the run, at any time. Must not throw.
  std::function<void(std::string_view)> on_warning = {};
};

/// A file's size as it is, and after gzip at its usual level, 6.
struct CompressedSize {
  std::uint64_t bytes = 0;
  std::uint64_t gzip_bytes = 0;
};

/// A run that has ended and is saved. Sizes in bytes.
struct Outcome {
  Config config;                 ///< as it ran: nothing is `auto` any more
  std::filesystem::path folder;  ///< run.json, config.yaml, metrics.jsonl, weights.safetensors, checkpoints/
  bool finished_before = false;  ///< a resumed run had all of its epochs already: nothing was trained
  TrainResult result;
  std::string reason = {};           ///< why a finished run ended before its last epoch, as run.json has it
  double best = 0;                   ///< the best value of the metric that checkpoint.best names
  std::int64_t best_epoch = 0;       ///< from 1; 0: checkpoint.best is off, or there was no evaluation
  std::int64_t effective_batch = 1;  ///< samples an update
  std::int64_t parameters = 0;
  std::uint64_t planned_peak_bytes = 0, planned_pool_bytes = 0;  ///< of a whole run, known before it began
  MemoryStats memory;                                            ///< of the run's device
  std::optional<MemoryStats> host = {}, pinned = {};  ///< of a run on a GPU: the data set's, and the upload buffers'
  ProcessMemory process;                              ///< counted for the process on that device, at the end
  std::vector<OverheadLine> overhead;                 ///< its part beside the pool; none on the CPU
  std::int64_t broken_samples = 0;                    ///< that `on_error: skip` replaced
  std::vector<std::string> broken_reasons = {};       ///< reasons for the first few, each with its file's name
  std::optional<CompressedSize> weights = {};         ///< weights.safetensors of a run that prunes
  std::string transport = {};                         ///< how sums of several GPUs travel: TrainingStep::transport
  int signal = 0;  ///< the first signal that has stopped one of several ranks, on every rank
};

/// Trains the configuration's model on its data, as `bantam train` does: decides every `auto`, plans the memory,
/// reserves it, trains, and saves into the run's folder, which is locked meanwhile. `callbacks` receive the trainer's
/// events after the run's own log. A run that stops or fails saves what it has trained and can be resumed. Blocks until
/// the end; prints nothing, and uses no signal, no stream of the process and no global. Throws ConfigError (no data, a
/// folder in use), DeviceError, DataError, OutOfMemory, NotFiniteError, and what callbacks throw.
Outcome train(const Config& config, const TrainOptions& options = {}, std::span<Callback* const> callbacks = {});

/// Goes on with the run in `folder` (or from one of its checkpoints), to the end that its own configuration names, with
/// the bits that it would have had without the interruption: from the newest checkpoint that is sound, or from update 0
/// where there is none yet. `options.folder` and `overwrite` do not count. Throws DataError where there is no run, and
/// as `train` does.
Outcome resume(const std::filesystem::path& folder, const TrainOptions& options = {},
               std::span<Callback* const> callbacks = {});

/// The settings to plan; an empty list means the configuration's value.
struct PlanRequest {
  std::vector<std::int64_t> batches = {};
  std::vector<Precision> precisions = {};
  /// Nothing: the policy of least work that fits into `memory`.
  std::vector<std::optional<RecomputeOptions>> recomputes = {};
  std::uint64_t memory = 0;    ///< bytes to fit into; 0: what the configuration or the card says
  double arena_seconds = 1.0;  ///< most time to solve a step's arena
};

/// The memory of training with one batch size, precision and recompute, in bytes of the device's allocator.
struct PlannedRun {
  std::int64_t batch = 1;
  Precision precision;
  RecomputeOptions recompute;
  std::uint64_t peak_bytes = 0;  ///< most bytes in use
  std::uint64_t pool_bytes = 0;  ///< reserved bytes: of the whole run, or, without data, of its steps
  CategoryBytes by_category;     ///< at the peak
  bool fits = true;              ///< into the request's memory
};

/// The result of `plan`.
struct MemoryPlan {
  std::vector<PlannedRun> rows;          ///< every combination: by precision, then recompute, then batch
  std::uint64_t pool_bytes_at_most = 0;  ///< what is left for the allocator; 0: everything fits
};

/// The memory of training, to the byte: nothing is allocated on the device and no data are read. Throws ConfigError,
/// ShapeError, and OutOfMemory where no batch fits or a device has less memory than its shares.
MemoryPlan plan(const Config& config, const PlanRequest& request = {});

/// Every key that this program's configurations may have, what it has registered included: a JSON Schema (draft
/// 2020-12), and the page docs/CONFIG.md in Markdown. The readers themselves describe their keys (ConfigKey).
std::string config_schema();
std::string config_reference();

}  // namespace bantam::run
BANTAM_API_END

// The whole configuration of a run, typed and checked: what a YAML file says, with overrides applied.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/plan/kernel_cost.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/device/device_profile.h"
#include "bantam/models/yaml/network.h"

namespace bantam::run {

/// An entry of `train.groups`.
struct GroupConfig {
  ParameterGroup group;   ///< frozen_updates is not set
  Duration frozen_until;  ///< in updates or epochs; 0 with freeze: for good
};

/// `train.split`: how a run's replicas are assigned to its ranks.
struct SplitOptions {
  enum class Kind : std::uint8_t {
    even,
    automatic,  ///< by the speeds that ranks measure at the start
    given
  } kind = Kind::even;
  std::vector<int> counts;  ///< with `given`: the replicas of each rank
};

/// `train:`.
struct TrainConfig {
  std::int64_t epochs = 1;      ///< with `updates`: as many as these need, once the data and the batch size are known
  std::int64_t updates = 0;     ///< in place of epochs: the run's length; 0: none
  std::int64_t accumulate = 1;  ///< batches an update, of each replica
  int replicas = 1;             ///< that run beside each other, a power of two
  DType gradients = DType::float32;  ///< of several replicas: what each sum of gradients is rounded to
  bool sync_batch_norm = false;      ///< batch statistics are those of all replicas, each on a rank of its own
  SplitOptions split;
  LossOptions loss;
  std::optional<bool> one_class;  ///< a sample has one class, though the loss reads targets; absent: has_one_class
  OptimizerOptions optimizer;
  std::vector<GroupConfig> groups;
  std::string initial_weights;                    ///< a weights file; empty: initial values by the seed
  std::vector<CallbackMaker> callbacks;           ///< made once a run
  std::int64_t log_every = 1;                     ///< updates a line of metrics.jsonl
  bool evaluate = true;                           ///< on the validation samples, as the next two say
  Duration evaluate_every = Duration::epochs(1);  ///< epochs or updates
  EvaluationOptions evaluation;                   ///< batch size and limit
  bool follows_evaluations = false;               ///< a schedule does: when and of what they are changes updates
  std::optional<EarlyStopOptions> stop_early;
  bool restore_best = false;     ///< with stop_early: the weights are those of the best evaluation
  std::int64_t max_updates = 0;  ///< the most of the whole run; 0: no limit
  std::int64_t max_seconds = 0;  ///< the most of one session of it; 0: no limit
  StepMode mode = StepMode::planned;
};

/// Reads and finishes `train:` of a run on `device`. Throws ConfigError.
TrainConfig read_train_config(ConfigMap train, Device device);

/// Reads `train.stop_early` into `config`, which has metrics and `evaluate` already. Throws ConfigError.
void read_stop_early(ConfigMap& train, TrainConfig& config);

/// Names of an evaluation's numbers: the loss, and the metrics.
std::vector<std::string> metric_names(const TrainConfig& train);

/// The metric that evaluations are compared by.
struct WatchedMetric {
  std::string metric;
  bool larger = true;  ///< is better
};

/// Accuracy where it is among the metrics and means something, else the loss.
WatchedMetric watched_by_default(const TrainConfig& train);

/// `checkpoint:`: when a run is saved on its way, and what is kept.
struct CheckpointConfig {
  /// Whichever comes first; empty: only at the run's end.
  std::vector<Duration> every = {Duration::epochs(1), Duration::seconds(600)};
  std::int64_t min_seconds = 30;  ///< between two checkpoints; one that is due sooner waits
  std::int64_t keep_last = 2;
  std::optional<WatchedMetric> best;  ///< the weights of the best evaluation are kept, too
};

/// Reads `metric` and `mode` of the section `where`, of which `otherwise` is the metric where none is named: loss or
/// one of train.metrics. Throws ConfigError.
WatchedMetric read_watched_metric(ConfigMap& options, const TrainConfig& train, std::string_view where,
                                  std::string_view otherwise, std::string_view example);

/// Reads `checkpoint:`; `train` says which metrics there are. Throws ConfigError.
CheckpointConfig read_checkpoint_config(ConfigMap& root, const TrainConfig& train);

/// `log:`: what a run writes for people beside metrics.jsonl.
struct LogConfig {
  bool tensorboard = false;     ///< event files, for TensorBoard
  std::int64_t images = 16;     ///< with tensorboard: held-out samples that are shown
  std::int64_t histograms = 0;  ///< updates between two histograms of weights and gradients; 0: none
};

/// Reads `log:`. Throws ConfigError.
LogConfig read_log_config(ConfigMap& root);

/// `memory:`. Sizes in bytes; devices by name ("cuda:0").
struct MemoryConfig {
  bool growth = true;                           ///< false: the planned pool must be there at once
  std::map<std::string, std::uint64_t> limits;  ///< most bytes of the process on a device
  /// Those that are lists, an entry a rank; `limits` has the first, until config_of_rank.
  std::map<std::string, std::vector<std::uint64_t>> limits_by_rank;
  std::map<std::string, std::vector<std::uint64_t>> logical;  ///< shares of a device: each becomes a device, cuda:0/0 …
  std::uint64_t budget = 0;                                   ///< bytes for the whole step; 0: none
  OnOutOfMemory on_oom = OnOutOfMemory::fail;
};

struct RunConfig;
/// Whether a sample has one class though the loss reads float32 targets: train.one_class, else whether the pipeline
/// makes the targets of class numbers.
bool has_one_class(const RunConfig& config);
/// The name of Metrics::accuracy in logs and reports: "accuracy" (of classes), "binary_accuracy" (the share of right
/// binary decisions of a multi-label loss); empty where nothing is right or wrong.
std::string_view accuracy_name(const RunConfig& config);

/// A file's every key. `data` may be missing: benches and summaries do without.
struct RunConfig {
  ConfigDocument document;
  std::string name;  ///< the file's name without folder and extension
  std::uint64_t seed = 42;
  Device device;  ///< `auto` resolved to what this machine has
  /// The device that it is planned for, where that was named (`--device t4`) and need not be here.
  std::optional<DeviceProfile> planned_for = {};
  Precision precision;  ///< `auto` resolved for the device
  MemoryConfig memory;
  RecomputeOptions recompute;
  bool fusion = true;               ///< layers run as one op where there is one
  std::string algorithms = "auto";  ///< the file of timed algorithms: auto, off or a path
  bool recompute_given = false;     ///< false: the program may choose, to fit a budget or a limit
  std::optional<DataOptions> data;
  models::ModelSpec model;
  TrainConfig train;
  CheckpointConfig checkpoint;
  LogConfig log;
  bool is_trial = false;  ///< the run has a few updates, of which nothing is kept: how many there are is no trap
  /// Replicas of each rank, by rank, and this process' rank. Empty: one rank has all.
  std::vector<int> assigned = {};
  int rank = 0;
};

/// Whether a configuration's data are wanted: some formats look for their files when the section is read.
enum class DataSection : std::uint8_t {
  read,
  survey,  ///< for what `bantam data` says of them: the pipeline may be missing or unfinished
  skip     ///< nothing in it is looked at; `data` of the configuration is missing
};

/// Reads the file. Throws ConfigError with the position of whatever is wrong: types, ranges, unknown keys, shapes that
/// do not fit, names that do not exist. Whether an explicitly named device exists is not asked here.
RunConfig read_run_config(const std::filesystem::path& path, std::span<const std::string> overrides,
                          DataSection data = DataSection::read);
/// The same of a text that was read from `path` before.
RunConfig parse_run_config(std::string_view text, const std::filesystem::path& path,
                           std::span<const std::string> overrides, DataSection data = DataSection::read);

/// A configuration, or what is wrong with it.
struct CheckedConfig {
  std::vector<std::string> errors;  ///< each as read_run_config would throw it, in the order of the file
  std::optional<RunConfig> config;  ///< there where nothing is wrong
};

/// Looks for everything that is wrong, also whether model, loss and data suit each other. Opens no file but that of the
/// configuration, where the data's format does not need to.
CheckedConfig checked_config(const std::filesystem::path& path, std::span<const std::string> overrides);

/// As read_run_config, for a survey of the data: the configuration need not have a model, a pipeline, or images of one
/// size. Of one without a model the keys besides version, seed, device, precision, memory and data are not read, and
/// the model is empty.
RunConfig read_survey_config(const std::filesystem::path& path, std::span<const std::string> overrides);

/// The same of a document that is parsed already, or that describes the keys (schema.h).
RunConfig read_document(const ConfigDocument& document, const std::string& name, DataSection data = DataSection::read);

/// Rates that the run's device, or the one that it is planned for, sustains in this precision, by its profile.
DeviceRates rates_of(const RunConfig& config, Precision precision);

/// Updates of an epoch in batches of `batch` samples, by the data set's size; 1 without data.
std::int64_t updates_per_epoch(const RunConfig& config, std::int64_t batch);

/// Updates of the whole run, max_updates aside; as updates_per_epoch.
std::int64_t updates_of_run(const RunConfig& config, std::int64_t batch);
/// Sets the batch size, and `train.epochs` of a run whose length is given in updates, which follow from it.
void set_batch_size(RunConfig& config, std::int64_t batch);
/// Overrides in which `train.epochs` and `train.updates` replace each other: one that is among them also resets the
/// other, which the configuration `text` may have. Where both are among them, nothing is added.
std::vector<std::string> with_one_length(std::string_view text, std::span<const std::string> overrides);

/// The configuration's model, as Model's argument; `precision` and `recompute` are those of a bench's row.
ModelOptions model_options(const RunConfig& config, Precision precision, const RecomputeOptions& recompute);
ModelOptions model_options(const RunConfig& config);
/// The replicas that the configuration's rank has, and the others; without a link to these.
ReplicaOptions replica_options(const RunConfig& config);
/// Model, optimizer, loss and replicas, as TrainingSession's argument.
SessionOptions session_options(const RunConfig& config);

/// Throws DeviceError saying why, where the run's device is not in this machine.
void require_device(const RunConfig& config);

/// Throws ConfigError, at the model's input or output, where data of this shape and number of classes do not fit.
void require_model_fits(const RunConfig& config, const Shape& image, std::int64_t classes);

/// Throws ConfigError, at the last stage of validation samples, where these get another size than training's. There are
/// data.
void require_one_size(const RunConfig& config);

/// The same for the configuration's own data, as its pipeline delivers them; nothing is read. Without data all fit.
void require_model_fits(const RunConfig& config);

/// Recompute options from "none", "inner", "cheap", "all" or names of layers, blocks and checkpoint segments,
/// "cheap+a+b..c"; `to_string` is the inverse.
RecomputeOptions parse_recompute(const std::string& text);
std::string to_string(const RecomputeOptions& recompute);
/// The words of a list that are no names: "inner" or "cheap", and "whole".
std::vector<std::string> recompute_words(const RecomputeOptions& recompute);

/// A runtime with the configuration's limits and logical devices; `threads` 0: all processors; `log`: as
/// RuntimeOptions.
std::unique_ptr<Runtime> make_runtime(const RunConfig& config, int threads,
                                      std::function<void(std::string_view)> log = {});

}  // namespace bantam::run

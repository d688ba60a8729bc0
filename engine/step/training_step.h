// TrainingStep: forward, backward and update over the micro-batches of one effective batch, with no host
// synchronisation; StepMode, how steps run; and MicroBatches, which splits a batch and halves its micro-batches where
// memory runs out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/error.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/engine/metrics/metric.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/step/batch_source.h"
#include "bantam/engine/step/evaluation_views.h"
#include "bantam/memory/device/device.h"

BANTAM_API_BEGIN
namespace bantam {

enum class StepMode : std::uint8_t {
  eager,    ///< each allocation as it comes: for looking into a step, and for programs' own loops
  planned,  ///< at offsets of one arena, solved before the first step
  captured  ///< CUDA: planned updates recorded once, and run several a launch; elsewhere as `planned`
};

/// "eager", "planned", "captured".
std::string_view to_string(StepMode mode);
/// The inverse, and "auto", which is captured. On the CPU captured is planned (on a stand-in for CUDA it is not), so
/// that what is reported is what runs. Throws ConfigError naming the text.
StepMode parse_step_mode(std::string_view text, Device device);

struct BANTAM_INTERNAL CapturedUpdates;
class BANTAM_INTERNAL Communicator;
class BANTAM_INTERNAL MetricRing;
class BANTAM_INTERNAL NormExchange;
class BANTAM_INTERNAL ReplicaTree;
class BANTAM_INTERNAL PartTrace;
class BANTAM_INTERNAL PlacementPlan;
enum class StepPart : std::uint8_t;
class BANTAM_INTERNAL StepPlacements;

/// The sizes of batches that a run will meet, for which its memory is planned.
struct StepShapes {
  std::vector<std::int64_t> batches = {};             ///< sizes of micro-batches: the full one, a short last one
  std::vector<std::int64_t> evaluation_batches = {};  ///< likewise
  std::vector<std::int64_t> viewed_batches = {};      ///< where a share of the samples has views (viewed_batches)
  bool accumulates = false;                           ///< updates of several micro-batches
};

/// The loss of a step, the metrics that are counted beside it, and what evaluations are of.
struct LossOptions {
  LossPtr loss = softmax_cross_entropy();
  /// Those that the loss does not count read the model's output, so that its end is not fused with the loss.
  std::vector<MetricPtr> metrics = {};
  /// true: mean over the effective batch; false: sum.
  bool mean = true;
  /// Evaluations (evaluate_source) are of the mean output of these views. Nothing: of the images as they come. They
  /// read the model's output, so that its end is not fused with the loss there.
  std::optional<EvaluationViews> views = std::nullopt;
};

/// Replicas of a step: each runs the micro-batches of its part of the effective batch as a step of its own would, and
/// what they come to is added in a fixed binary tree over their numbers, the sum of the lower numbers first: gradients
/// (float32, whole), running statistics (of which the mean becomes current) and metrics. So an update has the same bits
/// on however many ranks its replicas run.
struct ReplicaOptions {
  static constexpr int kMost = 1024;

  int replicas = 1;             ///< on all ranks together: a power of two, at most kMost. 1: a plain step
  std::vector<int> dealt = {};  ///< how many each rank has, by rank: the first the lowest. Empty: one rank has all
  int rank = 0;
  Communicator* ranks = nullptr;  ///< needed where `dealt` names several ranks, to run; not to plan
  /// float32, or float16: then replicas' gradients, and each of their sums, are rounded to it, and travel among ranks
  /// in half the bytes. Of one replica nothing is rounded.
  DType gradients = DType::float32;

  /// The first of this rank's, and how many it has.
  int first() const;
  int count() const { return dealt.empty() ? replicas : dealt[static_cast<std::size_t>(rank)]; }
};

/// Throws ConfigError, naming what was expected, for numbers of replicas that are impossible, and for replicas that are
/// not dealt, or dealt twice.
void check_replicas(const ReplicaOptions& options);

/// The optimizer's notes on one update.
struct UpdateReport {
  float learning_rate = 0;  ///< of the first parameter group
  float gradient_norm = 0;  ///< before clipping; not finite where the update was skipped
  float loss_scale = 1;     ///< that the loss was multiplied by
  bool skipped = false;     ///< a gradient was not finite: nothing has changed
  bool halted = false;      ///< skipped without being looked at (Optimizer::set_halt_after)
};

/// The tensors of a batch that the loss and the metrics read, for a model whose output is `output` (without the batch
/// axis), each once. Throws ShapeError where one of them does not accept such an output, or two disagree on a tensor.
std::vector<TensorFacts> targets_of(const LossOptions& loss, const Shape& output);

/// Memory for a batch of `size` samples, in the name of `input`: the model's images, of the type that it computes in,
/// and what loss and metrics read. Nothing is written there. Throws OutOfMemory.
Batch allocate_batch(const Model& model, std::int64_t size, const LossOptions& loss = {});

/// Names a part of a step that does not support meta devices, for messages ("layer 'own' (host_double) does not
/// support meta devices (Layer::supports_meta)"); empty where all of it does.
std::string without_meta(const Graph& graph, const LossOptions& loss, const OptimizerOptions& optimizer);

/// One model, optimizer and loss. Metrics of steps gather in a ring on the device, read back when asked for.
///
/// Steps run eagerly, with each allocation from the allocator, until `prepare`: from then on they run planned, where
/// allocation k of a part of a step (a micro-batch, an update, an evaluated batch) lies at offset k of one arena.
/// Results are the same bits. A part that departs from its plan, for whatever reason, continues from the allocator as
/// in an eager step. On CUDA, planned updates can be recorded once and then run with one launch (`capture`, `replay`;
/// CapturedSteps does it).
class TrainingStep {
 public:
  /// Steps whose metrics the device stores before they must be read.
  static constexpr int kMetricRing = 512;

  /// Throws ShapeError where the loss or a metric does not accept the model's output; with several replicas also
  /// ConfigError, and OutOfMemory for the sums that wait in their tree (log2 of the replicas).
  TrainingStep(Model& model, Optimizer& optimizer, LossOptions loss, const ReplicaOptions& replicas = {});
  ~TrainingStep();
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// Plans every shape of `shapes` and reserves the arena, before the first step for the least memory. Other shapes are
  /// planned when they first occur. Where a layer, the loss, a metric or the update rule does not support meta devices
  /// (Layer::supports_meta), each part of a step runs once eagerly, and is planned from what it allocated then; the
  /// runtime's log names it. Where the plan cannot be made or the arena cannot be reserved, steps run as before; the
  /// log says so.
  void prepare(const StepShapes& shapes);
  /// The same with plans that exist already, of an equal model, optimizer, loss and device.
  void prepare(const StepShapes& shapes, std::shared_ptr<StepPlacements> placements);
  /// Bytes of the arena that planned steps need; 0 before `prepare`.
  std::uint64_t arena_bytes() const;
  /// No micro-batches of more than `samples` will follow: releases the part of the arena that only they needed. Not
  /// within a step.
  void drop_plans_above(std::int64_t samples);

  /// Samples of a full batch, as Trainer sets it: a smaller micro-batch, the last of an epoch say, moves running
  /// statistics by its share of them alone. 0, as at first: all micro-batches move them alike.
  void set_full_batch(std::int64_t samples) { full_batch_ = samples; }
  /// Forward and backward of one micro-batch; `first_sample` is its place in the effective batch of `effective_batch`
  /// samples. Where it throws, the whole effective batch is discarded (gradients, metrics, next statistics), and may be
  /// repeated.
  void micro_batch(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch);
  /// With several replicas: ends the replica under way, and begins this rank's next one, whose micro-batches follow.
  /// The first one begins with the first micro-batch in any case. Does nothing with one replica. Throws Error, with the
  /// effective batch discarded, after the last one.
  void begin_replica();
  /// The next micro-batch is the last one of this rank's last replica: with several GPUs, gradients are exchanged while
  /// its backward runs. Without it they are exchanged by end_replicas(). Changes no bit.
  void expect_last_micro_batch();
  /// With several replicas: ends the last one, and adds up the tree; what update() begins with. Does nothing with one
  /// replica. Without `exchanges`, for warm-ups, the sums of other ranks are left out. Throws Error where there were
  /// fewer replicas.
  void end_replicas(bool exchanges = true);
  /// With several ranks on GPUs, all of which call it: seconds of one exchange alone, of `times`. Not between
  /// micro_batch() and update(). 0 otherwise.
  double time_exchange(int times);
  /// While true, sums of other ranks on GPUs are left out, so that a step can be timed without its exchange. All ranks
  /// call it; recorded updates stay as they were recorded.
  void skip_exchange(bool skips);
  /// While true, updates that are made, or recorded, tell how long they wait for the exchange: exchange_waits(). With
  /// several ranks on GPUs; changes nothing otherwise. The captured updates of before do not.
  void time_exchange_waits(bool times);
  /// Seconds from the end of the last replica's backward pass until the exchange among GPUs has ended, of each update
  /// since time_exchange_waits(true), in order; of recorded ones those of the last replay. Waits for the device.
  std::vector<double> exchange_waits() const;
  /// How the sums of several GPUs travel: "peer memory", "NCCL 2.28.9"; empty otherwise.
  std::string transport() const;
  /// Discards the effective batch so far: gradients, metrics, next statistics. The next micro-batch begins a new one.
  void discard();
  /// Updates the weights with what the micro-batches accumulated; begins the next effective batch. Where it throws, the
  /// effective batch is discarded as by micro_batch(), and weights and the optimizer's state are as they were (unless a
  /// kernel's launch failed, after which a device is of no use).
  void update();
  /// The whole step on one batch.
  void step(const Batch& batch) {
    micro_batch(batch, 0, batch.size);
    update();
  }
  /// Runs the micro-batches that `run` makes by micro_batch(), eagerly, with hooks that are told of each value, and
  /// discards them: weights, state, statistics and metrics are unchanged, bitwise. Backward begins with `loss_scale`.
  /// Throws what `run` and the hooks throw. Not between micro_batch() and update() (throws Error).
  void look_into(const StepHooks& hooks, float loss_scale, const std::function<void()>& run);
  /// Records the whole updates that `record` makes by micro_batch() and update(), on a CUDA device, and runs nothing.
  /// All shapes must have run planned before, so that the device has loaded their kernels. The i-th uses the
  /// optimizer's i-th learning rate. Batches must stay where they are as long as it is used. Throws where anything
  /// cannot be recorded (CapturedWork), is not planned or departs from its plan; then nothing has changed.
  std::unique_ptr<CapturedUpdates> capture(const std::function<void()>& record);
  /// Replays recorded updates, in order of the stream; the same bits as the calls would compute. Returns false, and
  /// runs nothing, where the arena has moved: the recording is then useless, and the updates must be captured anew.
  bool replay(const CapturedUpdates& captured);

  /// Loss and accuracy of one batch without training; adds to the evaluation sums. Without views: evaluate_source has
  /// them.
  void evaluate(const Batch& batch);
  /// Where outputs of an evaluated batch go, in float32 (kernels::ViewOutputs).
  struct OutputsTo {
    float* sums = nullptr;                 ///< (…, outputs) in device memory
    const std::int32_t* places = nullptr;  ///< (batch) in device memory: the row of each; null: the first rows
    bool adds = false;
    float divisor = 1.0f;
  };
  /// The outputs of one batch of images (batch, …) without training, of a model whose output is (outputs).
  void evaluate_outputs(const Tensor& images, const OutputsTo& to);
  /// As `evaluate`, of outputs (batch.size, …) in float32 that are there: adds their loss and metrics to the evaluation
  /// sums. The batch has what loss and metrics read.
  void evaluate_measures(const Batch& batch, const Tensor& outputs);

  /// Runs all that the step will run, on a random batch of `batch` samples that is then discarded, so that the device
  /// has loaded the kernels, and algorithms were timed on values like a run's: weights, state, statistics and metrics
  /// are unchanged, bitwise. `accumulates`: with a second micro-batch, whose gradients are added. Allocates the step's
  /// memory, and waits for the device. Not between micro_batch() and update() (throws Error).
  void warm_up(std::int64_t batch, bool accumulates);

  /// Updates whose metrics are still to be read from the ring.
  int unsynchronised_metrics() const;
  /// Metrics of each update since the last read, oldest first; waits for the device. Not between micro_batch() and
  /// update() (throws Error).
  std::vector<Metrics> read_metrics();
  /// The same in two calls, between which further updates may run: reading does not wait for them and does not include
  /// them. `control` gets the optimizer's scalars as of then, `values` those of each update. One reading at a time: a
  /// second drops the first.
  void begin_reading();
  std::vector<Metrics> finish_reading(kernels::UpdateControl* control = nullptr,
                                      std::vector<UpdateReport>* values = nullptr);
  /// Sums of all `evaluate` calls since the last read; waits for the device.
  Metrics read_evaluation();
  /// The same sums as they are, for adding up those of several evaluations; of which metrics are made on the host.
  std::vector<double> take_evaluation_sums();
  Metrics evaluation_from(const std::vector<double>& sums) const;

  /// Throws ShapeError or DTypeError where batches of these tensors are not what model, loss and metrics read; `what`
  /// names the data in the message ("training").
  void check_fits(std::span<const TensorFacts> tensors, std::string_view what) const;

  Model& model() { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  const LossOptions& loss() const { return loss_; }
  const ReplicaOptions& replicas() const { return replicas_; }
  /// without_meta of this step's model, loss and optimizer.
  std::string without_meta() const;

 private:
  void forward_and_backward(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch);
  void count_evaluation(const std::function<void(const Context& context)>& count);
  void forward_and_measure(const Batch& batch);
  Tensor forward_loss(const Context& context, const Batch& batch, const LossCall& call, bool evaluation) const;
  LossCall training_call(std::int64_t effective_batch, const Tensor& seed) const;
  BfcAllocator& memory() const;
  void run_part(StepPart part, std::int64_t batch, const std::function<void()>& work);
  void run_unplanned(StepPart part, std::int64_t batch, const std::function<void()>& work);
  void learn();
  std::shared_ptr<const PlacementPlan> plan_for(StepPart part, std::int64_t batch);
  bool reserve_arena();
  void shrink_arena();
  void stay_eager(const Error& error);
  void record_part(StepPart part, std::int64_t batch, const std::function<void()>& work);
  void require_metric_slots(int updates) const;
  void note_update();

  Model& model_;
  Optimizer& optimizer_;
  LossOptions loss_;
  ReplicaOptions replicas_;
  std::unique_ptr<MetricRing> ring_;
  std::unique_ptr<NormExchange> norms_;  // null: no norm is synchronised, or there is one replica
  bool skips_exchange_ = false;
  std::unique_ptr<ReplicaTree> tree_;  // null: one replica
  bool accumulating_ = false;
  static constexpr int kNotRecording = -1;
  std::int64_t full_batch_ = 0;
  int recorded_updates_ = kNotRecording;        // so far, while `capture` records
  std::shared_ptr<StepPlacements> placements_;  // null: eager
  const StepHooks* hooks_ = nullptr;            // while something looks into a step
  Tensor seed_;                                 // then: where backward begins
  std::unique_ptr<PartTrace> learning_;         // of the part that has run last, until its memory is free
  int eager_parts_ = 0;                         // still to run before the arena is requested anew
};

// A warm-up where memory may not be there for the whole batch.

/// TrainingStep::warm_up with the largest micro-batch of `batch` samples that there is memory for: the batch, else its
/// half, a half of that, …, as a run with `on_oom: accumulate` halves its micro-batches; with less than the batch,
/// gradients are added too. Returns the samples of that micro-batch; 0 where there is no memory for one sample: the
/// kernels are then loaded by the steps themselves. Throws as warm_up, but for OutOfMemory.
std::int64_t warm_up_what_fits(TrainingStep& step, std::int64_t batch, bool accumulates);

/// The reaction of a Trainer where a micro-batch does not fit into memory.
enum class OnOutOfMemory : std::uint8_t {
  fail,        ///< OutOfMemory is thrown out of the trainer
  accumulate,  ///< the update is rolled back and repeated with half the micro-batch; refused with batch statistics
  /// The same, also with layers whose function changes with the micro-batch (batch normalisation): their statistics are
  /// then those of the smaller micro-batches.
  accumulate_with_batch_norm
};

/// "fail", "accumulate", "accumulate_with_batch_norm".
std::string_view to_string(OnOutOfMemory policy);

/// Whether a layer's function in training depends on the micro-batch (Layer::uses_batch_statistics).
bool uses_batch_statistics(const Graph& graph);

/// Throws ConfigError where the policy changes the model's function and was not asked for by name.
void check_on_oom(OnOutOfMemory policy, const Graph& graph);

/// `count` samples of a batch from `first` on: views of its tensors, or copies where a view would not be aligned to 16
/// bytes, as kernels of libraries need. Throws ShapeError where the samples are not there, OutOfMemory for a copy.
Batch slice(const Context& context, const Batch& batch, std::int64_t first, std::int64_t count);

/// Runs batches whole, or as micro-batches in order: same samples, same places in the effective batch, so the same
/// random numbers; only the order of the sums of gradients differs. Used by one thread.
class MicroBatches {
 public:
  explicit MicroBatches(TrainingStep& step) : step_(step) {}

  /// Most samples of a micro-batch; 0: batches are run whole.
  std::int64_t most() const { return most_; }
  /// Micro-batches of at most `most` samples from now on, as after so many `halve`s.
  void split(std::int64_t most) { most_ = most; }
  /// Whether `train` copies micro-batches of such a batch, because views of them would not be aligned.
  bool copies(const Batch& batch) const;
  /// Forward and backward of a whole batch, as TrainingStep::micro_batch of one after another. Where it throws, the
  /// whole effective batch is discarded.
  void train(const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch);
  /// Forward and backward of an effective batch of `samples` samples (0: `count` times those of the first batch) in
  /// `count` batches: `next(i)` returns the i-th, which is released before the next is asked for, or nothing to stop;
  /// then the effective batch so far is forgotten, and false is returned. Where it throws, or `next` does, it is
  /// forgotten, too. An update is to follow. A step of several replicas has as many of the batches in each of
  /// its own (0 samples: the other ranks' have as many); `first_sample`: place of the first sample in the effective
  /// batch. Throws Error where they cannot be divided so.
  bool accumulate(std::int64_t count, std::int64_t samples,
                  const std::function<std::optional<Batch>(std::int64_t i)>& next, std::int64_t first_sample = 0);
  /// Adds the batch to the evaluation sums. With `may_halve`, a micro-batch that does not fit is repeated in halves (in
  /// this evaluation only); what was added before counts once.
  void evaluate(const Batch& batch, bool may_halve);
  /// Halves the samples of a micro-batch, for batches of at most `batch` samples; returns false, changing nothing,
  /// where micro-batches have one sample already. Also releases idle memory of the device, whose chunks may be too
  /// small for what follows, and drops the plans of larger micro-batches.
  bool halve(std::int64_t batch);

 private:
  bool halve(std::int64_t& most, std::int64_t batch);

  TrainingStep& step_;
  std::int64_t most_ = 0, most_evaluated_ = 0;  // 0: whole batches
};

}  // namespace bantam
BANTAM_API_END

// Optimizers over the parameter arena: state slots, groups' values on the device, and the update; UpdateRule, how
// weights follow from gradients, a program's own in place of the built-in ones; schedules of its values; and the tables
// of optimizers and schedules that a configuration may name.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/graph/model.h"

BANTAM_API_BEGIN
namespace bantam {
struct Metrics;
namespace kernels {
enum class OptimizerKind : std::uint8_t;
struct BANTAM_INTERNAL UpdateControl;
struct BANTAM_INTERNAL UpdateGroup;
struct BANTAM_INTERNAL UpdateRow;
}  // namespace kernels

/// One trainable parameter's place in every slot of the arena. Frozen ones are not listed.
struct UpdateRange {
  std::int64_t begin = 0, elements = 0;
  std::int32_t group = 0;  ///< index into the call's groups
};

/// What a rule is run over. All arrays are float32 in device memory, of `elements` each, and do not overlap.
struct UpdateCall {
  std::int64_t elements = 0;  ///< padding between parameters included
  float* master = nullptr;    ///< the weights: read and written
  /// Of the effective batch: to be multiplied by control->gradient_factor. Cut to clip_value already.
  const float* gradient = nullptr;
  std::span<float* const> slots;        ///< the rule's state, zeros before the first update: read and written
  std::span<const UpdateRange> ranges;  ///< in host memory
  /// Device memory: learning_rate and weight_decay of this update, as configured and scheduled; the rest is not set.
  const kernels::UpdateGroup* groups = nullptr;
  /// Device memory, of this update: found_nonfinite, gradient_factor (unscales and clips), updates (this one counted).
  const kernels::UpdateControl* control = nullptr;
};

/// A rule: immutable, and used by several optimizers and threads at once.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// Its name in a configuration: "lion".
  virtual std::string_view kind() const = 0;
  /// Float32 slots of the parameters' size that it keeps.
  virtual int slots() const = 0;
  /// Updates the weights in all of `call.ranges`, in order of the context's stream. Writes to master and slots within
  /// the ranges only, and to nothing where control->found_nonfinite is not 0. The loss scale, clipping, the finite
  /// check, copies of the weights in the compute type and running statistics are the optimizer's.
  virtual void apply(const Context& context, const UpdateCall& call) const = 0;
  /// As Layer::supports_meta, of `apply`: groups and control are read by kernels, or on the CPU.
  virtual bool supports_meta() const { return false; }
};

namespace kernels {
struct BANTAM_INTERNAL ArenaSpan;
struct BANTAM_INTERNAL UpdateArena;
struct BANTAM_INTERNAL UpdateControl;
struct BANTAM_INTERNAL UpdateGroup;
}  // namespace kernels

/// The value of update `update` (a learning rate, say), counted from 0 over all epochs, whether updates were done or
/// skipped. Pure: a resumed run asks for the same numbers. Not negative. Empty: the optimizer's own value.
using Schedule = std::function<float(std::int64_t update)>;

/// A schedule that evaluations move: its value stays until the next one. Used by the thread that trains.
class EvaluatedSchedule {
 public:
  virtual ~EvaluatedSchedule() = default;
  /// The metric that it reads, which the evaluation must have: "loss".
  virtual std::string_view metric() const = 0;
  /// Called after each evaluation, before the next update.
  virtual void evaluated(const Metrics& validation) = 0;
  /// What it remembers, for checkpoints; `set_state` throws DataError where the numbers are not such.
  virtual std::vector<double> state() const = 0;
  virtual void set_state(const std::vector<double>& numbers) = 0;
};

/// What a schedule is made from once a run is known.
struct ScheduleFacts {
  float learning_rate = 0;   ///< the optimizer's; for a schedule of another value, the optimizer's value of that
  std::int64_t updates = 0;  ///< of the whole run
  std::int64_t updates_per_epoch = 0;
  /// Where a schedule that evaluations move adds itself; null: nothing evaluates, and such a schedule keeps its value.
  std::vector<std::shared_ptr<EvaluatedSchedule>>* evaluated = nullptr;
};

/// Makes a schedule for a run: what a configuration's text becomes.
using ScheduleMaker = std::function<Schedule(const ScheduleFacts& facts)>;

/// Built-in: constant, linear, cosine, polynomial, step, multi_step, exponential, one_cycle, piecewise, inverse_sqrt
/// and on_plateau (docs/tasks/SCHEDULES.md). Register before the first configuration is read:
///
///     schedules().add("halves", [](ConfigMap& options) -> ScheduleMaker {
///       const auto every = options.integer("epochs", {.min = 1}, 10);
///       return [every](const ScheduleFacts& run) -> Schedule {
///         return [=](std::int64_t n) { return std::ldexp(run.learning_rate, -int(n / run.updates_per_epoch / every));
///         };
///       };
///     });
Registry<Reader<ScheduleMaker>>& schedules();

/// `schedule: NAME` or `schedule: {NAME: {options}}`; empty where the key is missing. Throws ConfigError.
ScheduleMaker read_schedule(ConfigMap& section);

/// A value of an optimizer's options, and its schedule, if it has one.
struct ScheduledNumber {
  float value = 0;
  ScheduleMaker schedule = {};
};

/// `key: NUMBER`, or `key: {schedule: NAME, peak: NUMBER, …}` with the schedule's options beside. For readers of
/// optimizers. Throws ConfigError.
ScheduledNumber read_scheduled_number(ConfigMap& options, const ConfigKey& key, NumberRange range, double otherwise);

/// Schedules of an optimizer's values; empty: the value of its options.
struct OptimizerSchedules {
  ScheduleMaker learning_rate, weight_decay;
  ScheduleMaker momentum;  ///< sgd; beta1 of the others
  bool any() const { return learning_rate || weight_decay || momentum; }
};

/// What an update does with gradients. Adam: Kingma and Ba 2015; AdamW: Loshchilov and Hutter 2019; RMSprop in
/// PyTorch's form; Lion: Chen et al. 2023; LAMB: You et al. 2020; Muon: Jordan 2024, of weights with 2 dimensions
/// (dense) and 4 (convolutions), as matrices of a row an output.
enum class OptimizerKind : std::uint8_t { sgd, sgd_nesterov, adam, adamw, rmsprop, lion, lamb, muon };

/// An exponential moving average of weights and running statistics, in float32, moved by every update that is done
/// (not by skipped ones), after timm's ModelEmaV3: a = a + (1 - d)(w - a), where d is 0 at the first averaging.
struct EmaOptions {
  double decay = 0.999;  ///< d, in [0, 1)
  /// d of averaging k is min(decay, 1 - k^(-2/3)): 0.37 at the second, 0.79 at the tenth, 0.95 at the hundredth.
  bool warmup = false;
  std::int64_t every = 1;  ///< updates an averaging
  bool evaluate = true;    ///< a Trainer's evaluations are of the averages, not of the weights
};

/// Sparsity over a run: Zhu and Gupta 2017, as TensorFlow Model Optimization has it.
enum class PruneSchedule : std::uint8_t {
  constant,   ///< `final_sparsity` from `begin` on
  polynomial  ///< final + (initial - final)(1 - (t - begin)/(end - begin))^3
};
enum class PrunePattern : std::uint8_t {
  magnitude,   ///< the smallest magnitudes of each tensor are zero
  two_of_four  ///< of four weights along the input channels the two smallest: what sparse tensor cores read
};

/// Magnitude pruning. Update t is the t-th that was done, from 1; skipped ones do not count. Masks change after each
/// update t with begin <= t <= end where t - begin is a multiple of `frequency`, and after update `end`; where `begin`
/// is 0 the first time is after update 1. Between, and after `end`, masked weights are zero after every update.
/// Gradients and moments of masked weights go on as if there were no mask, so that a weight may come back at a change.
struct PruneOptions {
  PruneSchedule schedule = PruneSchedule::polynomial;
  PrunePattern pattern = PrunePattern::magnitude;  ///< two_of_four has no sparsity but its own
  double initial = 0.0, final_sparsity = 0.8;      ///< share of zeros of each tensor, in [0, 1)
  std::int64_t begin = 0, end = 0, frequency = 100;
  /// Names of parameters, where * stands for any text: "*weight*". Those frozen for good are not pruned; those frozen
  /// until an update are, from the first change of masks on.
  std::vector<std::string> match = {"*weight*"};
};

/// How Muon makes matrices orthogonal, and what else it does with weights.
struct MuonOptions {
  /// Newton-Schulz steps, 1 to 10. Each moves singular values s to a·s + b·s³ + c·s⁵.
  int steps = 5;
  /// a, b and c: Jordan's by default. Refused where they take singular values of up to 1.05 above 2 in `steps` steps.
  std::array<float, 3> coefficients = {3.4445f, -4.7750f, 2.0315f};
  /// Before every so manieth update, the first included, each matrix is scaled to a Frobenius norm of √rows; 0: never.
  std::int64_t normalize_every = 0;
  /// Names of parameters, where * stands for any text, that the rest moves although they have 2 or 4 dimensions.
  std::vector<std::string> exclude = {};
};

/// Defaults are Keras' where Keras has them, for sgd and adam. Those that the papers have for other kinds are the
/// configuration's (`optimizers`).
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  float learning_rate = 1e-3f;
  float weight_decay = 0.0f;  ///< sgd, adam, rmsprop: L2 on the gradient; others: decoupled
  float momentum = 0.0f;      ///< sgd, rmsprop, muon
  float dampening = 0.0f;     ///< sgd with momentum, but not Nesterov's: share of the gradient that is left out
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-7f;
  float alpha = 0.99f;                  ///< rmsprop: share of the mean of squared gradients that stays at each update
  bool centered = false;                ///< rmsprop: divides by the standard deviation of gradients
  bool nesterov = true;                 ///< muon
  float clip_norm = 0.0f;               ///< global norm; 0: none
  float clip_value = 0.0f;              ///< largest magnitude of a gradient, cut after clip_norm scaled it; 0: none
  bool decay_biases = true;             ///< false: weight decay skips biases and normalisation parameters
  float initial_loss_scale = 32768.0f;  ///< mixed_float16
  std::int32_t loss_scale_growth_interval = 2000;
  /// For who trains (TrainerOptions::learning_rate …): the optimizer itself does not count updates on the host.
  OptimizerSchedules schedules = {};
  /// Null: the built-in rule of `kind`. Else this one, with learning_rate, weight_decay, clip_norm, decay_biases and
  /// the loss scale from here; what else it needs it has itself.
  std::shared_ptr<const UpdateRule> rule = nullptr;
  /// muon: what moves all other parameters, another built-in kind; null: adamw with its defaults. Its learning rate
  /// keeps its ratio to muon's where that is scheduled. Clipping and the loss scale are those of muon's options.
  std::shared_ptr<const OptimizerOptions> rest = nullptr;
  std::optional<EmaOptions> ema = std::nullopt;
  std::optional<PruneOptions> prune = std::nullopt;
  MuonOptions muon = {};
};

/// The schedules of one run; empty where a value has none.
struct UpdateSchedules {
  Schedule learning_rate, weight_decay, momentum;
};
/// From an optimizer's options; the facts' learning_rate does not matter. Throws what a maker throws.
UpdateSchedules schedules_of(const OptimizerOptions& options, const ScheduleFacts& facts);

/// Float32 slots of the parameters' size that it keeps: 2 of Adam, LAMB and Muon (whose second is the memory in which
/// matrices are made orthogonal), 1 of Lion and of momentum, 1 to 3 of RMSprop, a rule's own, else 0.
int moment_slots(const OptimizerOptions& options);

/// What may change from update to update.
struct UpdateValues {
  float learning_rate = 0, weight_decay = 0;
  float momentum = 0;  ///< sgd; beta1 of the others
  bool operator==(const UpdateValues&) const = default;
};

class BANTAM_INTERNAL Muon;
class BANTAM_INTERNAL Pruning;
class BANTAM_INTERNAL SpanTable;
class BANTAM_INTERNAL WeightAverage;

/// State of one optimizer for one model. All of it lives on the device; nothing here waits for the device but
/// `control()`.
class Optimizer {
 public:
  Optimizer(Model& model, OptimizerOptions options);
  ~Optimizer();

  /// Updates whose values can be set at once.
  static constexpr int kMostRates = 32;

  /// Norm and finite check, update, bookkeeping, in order of the model's stream. Resets gradient accumulation. Reads
  /// the gradients that backward wrote, and what the program wrote (Parameter::gradient; throws Error as said there).
  /// `rate`: which of the values that were set it uses. `rows`: a ring of kernels::kMetricSlots in device memory, of
  /// which the update writes row metric_slot(); may be null.
  void update(int rate = 0, kernels::UpdateRow* rows = nullptr);
  /// Runs the update's kernels once, so that the device has loaded them: on gradients that are not finite, which change
  /// no weights and no state, and restores the bookkeeping. Gradients are lost: not between accumulation and update.
  /// Waits for the device.
  void warm_up();
  /// Applies from the next update. Throws ConfigError for a negative rate or NaN.
  void set_learning_rate(float learning_rate);
  /// `update(i)` uses rate i, beyond the list the last one; learning_rate() is the last of them. At least
  /// one, at most kMostRates. Throws as set_learning_rate does.
  void set_learning_rates(std::span<const float> rates);
  /// The same for all that may change: `update(i)` uses values[i]. values() is the last of them. Momentum needs its
  /// slot from the beginning: an sgd or rmsprop whose options have neither momentum nor a schedule of it accepts 0
  /// only.
  void set_values(std::span<const UpdateValues> values);
  UpdateValues values() const;
  float learning_rate() const { return options_.learning_rate; }
  const OptimizerOptions& options() const { return options_; }

  /// After `skipped` updates in a row that were skipped, later ones change nothing and are not counted, so that a host
  /// that learns of them late finds weights and state as they were; 0: none are halted. Counts from 0 where so many
  /// were skipped already. Not part of the state; waits for the device.
  void set_halt_after(std::int32_t skipped);
  /// Device memory: the loss scale (the seed of backward), and the number of updates done.
  Tensor loss_scale() const;
  const std::int64_t* updates() const;
  /// Where the sums of the next update's metrics go in a ring of kernels::kMetricSlots: device memory, and the host's
  /// own count of it, which is ahead of the device. The host's is set for updates that are recorded, or run as
  /// recorded.
  const std::int32_t* metric_slot_address() const;
  int metric_slot() const { return metric_slot_; }
  void set_metric_slot(int slot);
  /// The device's scalars; waits for the device.
  kernels::UpdateControl control() const;
  /// Where they are, in device memory.
  const void* control_address() const { return control_.data(); }
  void register_state(StateRegistry& registry);
  /// Null without OptimizerOptions::ema.
  WeightAverage* average() { return average_.get(); }

 private:
  struct Group;
  void find_groups();
  bool fill_groups(std::span<const UpdateValues> values);
  void upload_groups();
  void restore_settings();
  kernels::UpdateArena arena(int rate) const;
  void upload_control(const kernels::UpdateControl& control);
  void run_kernels(const Context& context, int rate, kernels::UpdateRow* rows);
  void run_rule(const Context& context, const kernels::UpdateArena& arena) const;
  void add_norms(const Context& context, const std::vector<kernels::ArenaSpan>& spans);
  bool keeps(std::size_t slot, const Parameter& parameter) const;
  bool has_momentum_slot() const;
  float* slot(std::size_t i) const { return i < slots_.size() ? slots_[i].as<float>() : nullptr; }

  Model& model_;
  OptimizerOptions options_;
  const kernels::OptimizerKind kernel_kind_;  // of the options at first: slots are its
  std::vector<Group> kinds_;                  // of the arena's spans
  std::vector<std::int32_t> group_of_span_;   // index into kinds_
  std::vector<kernels::UpdateGroup> groups_;  // (kMostRates, kinds_); muon: then those of the rest, likewise
  int metric_slot_ = 0;
  std::int32_t halt_after_ = 0;
  Tensor group_table_, span_table_, granule_table_, control_;
  Tensor frozen_table_;               // updates before each group moves; undefined: all move from the first
  std::vector<Tensor> slots_;         // moments
  Tensor still_groups_;               // with a rule: groups whose learning rate is 0
  Tensor clipped_;                    // with a rule and clip_value: the gradients that it reads
  std::unique_ptr<SpanTable> norms_;  // lamb
  std::unique_ptr<Muon> muon_;
  Tensor partials_;  // workspace of begin_update: kept, so that an update allocates nothing
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<Pruning> pruning_;
};

/// As long as it lives, the model has the averages of its weights and running statistics (OptimizerOptions::ema) in
/// their place, for an evaluation or save_weights; then every bit is as before. Without averages nothing happens. In
/// order of the model's stream; the host does not wait. One at a time; the optimizer must outlive it, and throws Error
/// where it is asked for an update meanwhile.
///
///     {
///       const AveragedWeights averages(optimizer);
///       save_weights(model, "weights-ema.safetensors");
///     }
class AveragedWeights {
 public:
  explicit AveragedWeights(Optimizer& optimizer);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAverage* average_;
};

/// Built-in: adam, adamw and sgd, with Keras' defaults; rmsprop, lion, lamb and muon, with those of PyTorch or of their
/// papers. An entry reads what stands under its name; clipping and the
/// loss scale are the section's. A program adds a rule of its own before the first configuration is read:
///
///     optimizers().add("sign_sgd", [](ConfigMap& options) {
///       OptimizerOptions optimizer{.rule = std::make_shared<SignSgd>()};
///       optimizer.learning_rate = static_cast<float>(options.number("learning_rate", {.min = 0}, 1e-3));
///       return optimizer;
///     });
Registry<Reader<OptimizerOptions>>& optimizers();

/// `optimizer: NAME` or `optimizer: {NAME: {options}}`; adam where the key is missing. Throws ConfigError.
OptimizerOptions read_optimizer(ConfigMap& section);

}  // namespace bantam
BANTAM_API_END

// Optimizers over the parameter arena: state slots, groups' values on the device, and the update; UpdateRule, how
// weights follow from gradients, a program's own in place of the built-in ones; and the table of optimizers that a
// configuration may name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/config/registry.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/graph/model.h"

namespace bantam {
namespace kernels {
struct UpdateControl;
struct UpdateGroup;
struct UpdateRow;
}  // namespace kernels

/// One trainable parameter's place in every slot of the arena. Frozen ones are not listed.
struct UpdateRange {
  std::int64_t begin = 0, elements = 0;
  std::int32_t group = 0;  ///< index into the call's groups
};

/// What a rule is run over. All arrays are float32 in device memory, of `elements` each, and do not overlap.
struct UpdateCall {
  std::int64_t elements = 0;            ///< padding between parameters included
  float* master = nullptr;              ///< the weights: read and written
  const float* gradient = nullptr;      ///< of the effective batch: to be multiplied by control->gradient_factor
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
struct UpdateArena;
struct UpdateControl;
struct UpdateGroup;
}  // namespace kernels

/// What an update does with gradients; Adam follows Kingma and Ba 2015, AdamW Loshchilov and Hutter 2019.
enum class OptimizerKind : std::uint8_t { sgd, sgd_nesterov, adam, adamw };

/// Defaults are Keras' where Keras has them.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  float learning_rate = 1e-3f;
  float weight_decay = 0.0f;  ///< sgd, adam: L2 on the gradient; adamw: decoupled
  float momentum = 0.0f;      ///< sgd
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-7f;
  float clip_norm = 0.0f;               ///< global norm; 0: none
  bool decay_biases = true;             ///< false: weight decay skips biases and normalisation parameters
  float initial_loss_scale = 32768.0f;  ///< mixed_float16
  std::int32_t loss_scale_growth_interval = 2000;
  /// Null: the built-in rule of `kind`. Else this one, with learning_rate, weight_decay, clip_norm, decay_biases and
  /// the loss scale from here; what else it needs it has itself.
  std::shared_ptr<const UpdateRule> rule = nullptr;
};

/// Float32 slots of the parameters' size that it keeps: 2 of Adam, 1 of momentum, a rule's own, else 0.
int moment_slots(const OptimizerOptions& options);

/// State of one optimizer for one model. All of it lives on the device; nothing here waits for the device but
/// `control()`.
class Optimizer {
 public:
  Optimizer(Model& model, OptimizerOptions options);
  ~Optimizer();

  /// Updates whose learning rates can be set at once.
  static constexpr int kMostRates = 32;

  /// Norm and finite check, update, bookkeeping, in order of the model's stream. Resets gradient accumulation. Reads
  /// the gradients that backward wrote, and what the program wrote (Parameter::gradient; throws Error as said there).
  /// `rate`: which of the learning rates it uses. `rows`: a ring of kernels::kMetricSlots in device memory, of which
  /// the update writes row metric_slot(); may be null.
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

 private:
  void upload_groups();
  void restore_settings();
  kernels::UpdateArena arena(int rate) const;
  void upload_control(const kernels::UpdateControl& control);
  void run_kernels(const Context& context, int rate, kernels::UpdateRow* rows);
  void run_rule(const Context& context, const kernels::UpdateArena& arena) const;
  float* slot(std::size_t i) const { return i < slots_.size() ? slots_[i].as<float>() : nullptr; }

  Model& model_;
  OptimizerOptions options_;
  std::vector<kernels::UpdateGroup> groups_;  // (kMostRates, kGroups)
  int metric_slot_ = 0;
  std::int32_t halt_after_ = 0;
  Tensor group_table_, span_table_, granule_table_, control_;
  std::vector<Tensor> slots_;  // moments
  Tensor still_groups_;        // with a rule: groups whose learning rate is 0
  Tensor partials_;            // workspace of begin_update: kept, so that an update allocates nothing
};

/// Built-in: adam, adamw and sgd, with Keras' defaults. An entry reads what stands under its name; clipping and the
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

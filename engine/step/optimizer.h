// Optimizers over the parameter arena: state slots, groups' values on the device, and the update.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/autograd/state_registry.h"
#include "bantam/engine/graph/model.h"
#include "bantam/engine/step/update_rule.h"

namespace bantam {
namespace kernels {
struct UpdateArena;
struct UpdateControl;
struct UpdateGroup;
}  // namespace kernels

/// What an update does with gradients; Adam and AdamW as Kingma and Ba 2015 and Loshchilov and Hutter 2019 give them.
enum class OptimizerKind : std::uint8_t { sgd, sgd_nesterov, adam, adamw };

/// Defaults are Keras' where Keras has them.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adam;
  float learning_rate = 1e-3f;
  float weight_decay = 0.0f;  ///< sgd, adam: L2 on the gradient; adamw: decoupled
  float momentum = 0.0f;      ///< sgd
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-7f;
  float clip_norm = 0.0f;               ///< global norm; 0: none
  bool decay_biases = true;             ///< false: weight decay leaves out biases and normalisation parameters
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

  /// Norm and finite check, update, bookkeeping, in order of the model's stream. Resets gradient accumulation. Takes
  /// the gradients that backward wrote, and what the program wrote (Parameter::gradient; throws Error as said there).
  /// `rate`: which of the learning rates it takes.
  void update(int rate = 0);
  /// Runs the update's kernels once, so that the device has loaded them: on gradients that are not finite, which leave
  /// weights and state alone, with the bookkeeping put back. Gradients are lost: not between accumulation and update.
  /// Waits for the device.
  void warm_up();
  /// Takes effect at the next update. Throws ConfigError for a negative rate or NaN.
  void set_learning_rate(float learning_rate);
  /// Rate i is what `update(i)` takes, and learning_rate() the last of them; those beyond are as the last. At least
  /// one, at most kMostRates. Throws as set_learning_rate does.
  void set_learning_rates(std::span<const float> rates);
  float learning_rate() const { return options_.learning_rate; }
  const OptimizerOptions& options() const { return options_; }

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
  void run_kernels(const Context& context, int rate);
  void run_rule(const Context& context, const kernels::UpdateArena& arena) const;
  float* slot(std::size_t i) const { return i < slots_.size() ? slots_[i].as<float>() : nullptr; }

  Model& model_;
  OptimizerOptions options_;
  std::vector<kernels::UpdateGroup> groups_;  // (kMostRates, kGroups)
  int metric_slot_ = 0;
  Tensor group_table_, segment_table_, granule_table_, control_;
  std::vector<Tensor> slots_;  // moments
  Tensor still_groups_;        // with a rule: groups whose learning rate is 0
  Tensor partials_;            // workspace of begin_update: kept, so that an update allocates nothing
};

}  // namespace bantam

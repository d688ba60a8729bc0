// Optimizer: a rule over the parameter arena with its state slots, groups' values on the device, the loss scale,
// clipping, averages and pruning; and the table of optimizers that a configuration may name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/built_in.h"
#include "bantam/engine/optimizers/pruning.h"
#include "bantam/engine/optimizers/schedule.h"
#include "bantam/engine/optimizers/update_rule.h"
#include "bantam/engine/optimizers/weight_average.h"

BANTAM_API_BEGIN
namespace bantam {
namespace kernels {
struct BANTAM_INTERNAL UpdateRow;
}

/// A rule, and what is done to gradients and weights around it.
struct OptimizerOptions {
  RulePtr rule = adam();
  float clip_norm = 0.0f;    ///< global norm; 0: none
  float clip_value = 0.0f;   ///< largest magnitude of a gradient, cut after clip_norm scaled it; 0: none
  bool decay_biases = true;  ///< false: weight decay skips biases and normalisation parameters
  /// Factor of the learning rate from each block to the one before it (layer_decay_scales); 1: all layers have the
  /// same.
  float layer_decay = 1.0f;
  float initial_loss_scale = 32768.0f;  ///< mixed_float16
  std::int32_t loss_scale_growth_interval = 2000;
  /// For who trains (TrainerOptions::schedules): the optimizer itself does not count updates on the host.
  OptimizerSchedules schedules = {};
  std::optional<EmaOptions> ema = std::nullopt;
  std::optional<PruneOptions> prune = std::nullopt;
};

/// Makes the schedules of an optimizer's options; the facts' learning_rate does not matter. Throws what a maker throws.
UpdateSchedules schedules_of(const OptimizerOptions& options, const ScheduleFacts& facts);

class BANTAM_INTERNAL Pruning;
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
  /// Sets all that may change likewise: `update(i)` uses values[i]. values() is the last of them. Throws ConfigError
  /// where the rule cannot have them (UpdateRule::check): momentum needs its slot from the beginning, so an sgd or
  /// rmsprop without it accepts 0 only.
  void set_values(std::span<const UpdateValues> values);
  const UpdateValues& values() const { return values_; }
  float learning_rate() const { return values_.learning_rate; }
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
  std::vector<float> layer_scales() const;
  bool fill_groups(std::span<const UpdateValues> values);
  void upload_groups();
  void restore_settings();
  kernels::UpdateArena arena(int rate) const;
  void upload_control(const kernels::UpdateControl& control);
  void run_kernels(const Context& context, int rate, kernels::UpdateRow* rows);
  void run_own_rule(const Context& context, const kernels::UpdateArena& arena) const;
  kernels::UpdateGroup rest_row(const kernels::UpdateGroup& row, const Group& kind) const;
  float* slot(std::size_t i) const { return slots_[i].as<float>(); }

  Model& model_;
  OptimizerOptions options_;
  UpdateValues values_;                       // of the last update that was set
  std::vector<Group> kinds_;                  // of the arena's spans
  std::vector<std::int32_t> group_of_span_;   // index into kinds_
  std::vector<kernels::UpdateGroup> groups_;  // (kMostRates, kinds_); then those of the rule's rest, likewise
  int metric_slot_ = 0;
  std::int32_t halt_after_ = 0;
  Tensor group_table_, span_table_, weight_block_table_, control_;
  Tensor frozen_table_;               // updates before each group moves; undefined: all move from the first
  std::vector<Tensor> slots_;         // the rule's
  std::unique_ptr<RuleState> state_;  // the rule's
  Tensor clipped_;                    // with clip_value and a program's rule: the gradients that it reads
  Tensor partials_;                   // workspace of begin_update: kept, so that an update allocates nothing
  std::unique_ptr<WeightAverage> average_;
  std::unique_ptr<Pruning> pruning_;
};

/// Built-in: those of built_in.h. An entry reads what stands under its name; clipping and the loss scale are the
/// section's. A program adds a rule of its own before the first configuration is read:
///
///     optimizers().add("sign_sgd", [](ConfigMap& options) {
///       const auto rate = static_cast<float>(options.number("learning_rate", {.min = 0}, 1e-3));
///       return OptimizerOptions{.rule = std::make_shared<SignSgd>(rate)};
///     });
Registry<Reader<OptimizerOptions>>& optimizers();

/// `optimizer: NAME` or `optimizer: {NAME: {options}}`; adam where the key is missing. Throws ConfigError.
OptimizerOptions read_optimizer(ConfigMap& section);

}  // namespace bantam
BANTAM_API_END

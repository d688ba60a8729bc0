// UpdateRule: how weights follow from gradients. The built-in rules (built_in.h) and a program's own are of one kind.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/parameters.h"

BANTAM_API_BEGIN
namespace bantam {
namespace kernels {
struct BANTAM_INTERNAL ArenaSpan;
struct BANTAM_INTERNAL UpdateArena;
struct BANTAM_INTERNAL UpdateBuffers;
struct BANTAM_INTERNAL UpdateControl;
struct BANTAM_INTERNAL UpdateGroup;
}  // namespace kernels

/// The values that schedules and parameter groups change from update to update.
struct UpdateValues {
  float learning_rate = 0, weight_decay = 0;
  float momentum = 0;  ///< beta1 of rules that have one
  bool operator==(const UpdateValues&) const = default;
};

/// One trainable parameter's place in every slot of the arena. Frozen ones are not listed.
struct UpdateRange {
  std::int64_t begin = 0, elements = 0;
  std::int32_t group = 0;  ///< index into the call's groups
};

/// Memory of one optimizer that a rule needs besides its slots: tables, workspace.
class RuleState {
 public:
  virtual ~RuleState() = default;
  /// Whether a slot has state of the parameter, which checkpoints then hold; false: the slot is workspace there.
  virtual bool keeps(int slot, const Parameter& parameter) const {
    (void)slot;
    (void)parameter;
    return true;
  }
};

/// The operands of one update by a rule. Arrays are float32 in device memory, of `elements` each, and do not overlap.
struct UpdateCall {
  std::int64_t elements = 0;  ///< padding between parameters included
  float* master = nullptr;    ///< the weights: read and written
  /// The effective batch's gradient, still to be multiplied by control->gradient_factor. Cut to clip_value already.
  const float* gradient = nullptr;
  std::span<float* const> slots;        ///< the rule's state, zeros before the first update: read and written
  std::span<const UpdateRange> ranges;  ///< in host memory
  /// Device memory: learning_rate, weight_decay and beta1 (UpdateValues::momentum) of this update, as configured and
  /// scheduled, and what UpdateRule::set_constants set.
  const kernels::UpdateGroup* groups = nullptr;
  /// Device memory, of this update: found_nonfinite, gradient_factor (unscales and clips), updates (this one counted).
  const kernels::UpdateControl* control = nullptr;
  RuleState* state = nullptr;  ///< returned by UpdateRule::make_state
  // The next three are for rules that use the update's kernels; these have neither `gradient` nor `ranges`.
  const kernels::UpdateArena* arena = nullptr;
  const kernels::UpdateBuffers* statistics = nullptr;
  const kernels::UpdateGroup* rest_groups = nullptr;  ///< device memory: those of UpdateRule::rest
};

/// A rule with its options: immutable, and used by several optimizers and threads at once.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// Its name in a configuration: "lion".
  virtual std::string_view kind() const = 0;
  /// The configured values, from which schedules and groups start.
  virtual UpdateValues values() const = 0;
  /// Throws ConfigError where an update cannot have these values: negative or not finite, a momentum of 1 or more.
  virtual void check(const UpdateValues& values) const;
  /// Float32 slots of the parameters' size that it keeps.
  virtual int slots() const = 0;
  /// Called once by an optimizer, for UpdateCall::state. `spans`: of the arena, in its order. Null: there is none.
  virtual std::unique_ptr<RuleState> make_state(const Context& context, const ParameterArena& parameters,
                                                const std::vector<kernels::ArenaSpan>& spans) const;
  /// Updates the weights in all of `call.ranges`, in order of the context's stream. Writes to master and slots within
  /// the ranges only, and to nothing where control->found_nonfinite is not 0. The loss scale, clipping, the finite
  /// check, copies of the weights in the compute type and running statistics are the optimizer's.
  virtual void apply(const Context& context, const UpdateCall& call) const = 0;
  /// Whether `apply` supports meta devices (Layer::supports_meta): kernels, or the CPU, read groups and control.
  virtual bool supports_meta() const { return false; }

  // Only built-in rules override the functions below.

  /// Whether it moves the arena by the update's own kernels, which read gradients and weights in half types and partial
  /// sums, cut gradients, know frozen groups, and write compute copies and running statistics.
  virtual bool uses_update_kernels() const { return false; }
  /// Sets beta2, beta3 and epsilon of a group's row.
  virtual void set_constants(kernels::UpdateGroup& group) const { (void)group; }
  /// The rule of the parameters that this one does not move, called within its `apply`: Muon's. Null: there are none.
  virtual const UpdateRule* rest() const { return nullptr; }
};

using RulePtr = std::shared_ptr<const UpdateRule>;

}  // namespace bantam
BANTAM_API_END

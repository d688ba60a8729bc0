// UpdateRule: how weights follow from gradients: a program's own, in place of the built-in ones.
//
// A rule derives from UpdateRule, and is registered under a name (optimizers.h) where a configuration shall name it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "bantam/engine/autograd/context.h"

namespace bantam {
namespace kernels {
struct UpdateControl;
struct UpdateGroup;
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

}  // namespace bantam

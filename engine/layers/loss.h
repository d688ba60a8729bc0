// Loss: what a model's output is compared with, and how; and layers that make a loss themselves.
//
// A program's own loss derives from Loss, and is registered under a name (losses()) where a configuration shall
// name it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "bantam/base/config/registry.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/layers/layer.h"
#include "bantam/engine/ops/ops.h"

namespace bantam {
namespace kernels {
struct MetricSums;
}

/// A ring of float64 sums in device memory, `count` a slot, one slot an update: element i of the update under way is
/// ring[*slot·count + i]. Kernels read the slot themselves: steps that are recorded once run with another each time.
struct DeviceSums {
  double* ring = nullptr;              ///< null: nothing is counted
  const std::int32_t* slot = nullptr;  ///< device memory; null: 0
};

/// Adds `values`, of which there are `count`, to the sums: for what is counted on the host. On a CUDA device it copies,
/// and waits for the stream, so it throws DeviceError while steps are recorded, which then run planned instead. Does
/// nothing on a meta device, and without a ring.
void add_to_sums(const Context& context, const DeviceSums& sums, std::span<const double> values);

/// What is asked of a loss for one micro-batch.
struct LossCall {
  /// The loss is Σ per-sample losses / divisor: the effective batch's samples for a mean, 1 for a sum; 0: the
  /// micro-batch's own samples.
  float divisor = 0.0f;
  /// Device memory: sums[*slot] gets Σ of per-sample losses (not divided), of correct samples (0 where there is no such
  /// thing), and the number of samples added, three float64; a null slot means 0, null sums: nothing is counted.
  kernels::MetricSums* sums = nullptr;
  const std::int32_t* slot = nullptr;
  /// float32 scalar on the device: the gradient of the loss with which backward will start, whose value must be there
  /// already. Undefined: not known yet.
  Tensor seed;
};

/// What a loss counts of a micro-batch.
struct LossSums {
  double loss = 0;     ///< Σ of per-sample losses
  double correct = 0;  ///< samples that the model has right; 0 where there is no such thing
  double samples = 0;
};

/// Adds a micro-batch's sums to those of `call`: for losses that count on the host. See the other add_to_sums.
void add_to_sums(const Context& context, const LossCall& call, const LossSums& sums);

/// A loss: immutable, and used by several models, steps and threads at once.
class Loss {
 public:
  virtual ~Loss() = default;
  /// Its name in a configuration: "softmax_cross_entropy".
  virtual std::string_view kind() const = 0;
  /// The tensors that forward reads from a batch, for a model whose output is `output` (without the batch axis). Throws
  /// ShapeError saying what was expected where the loss does not accept such an output.
  virtual std::vector<TensorFacts> targets(const Shape& output) const = 0;
  /// output (batch, …) of the type that the model computes in, and the batch's tensors by name, as `targets` describes
  /// them, → the loss, a float32 scalar on the device. Adds to call.sums. Where `records(context, {&output})`, it
  /// records its backward on the context's tape: doutput, of output's type, from the gradient of the loss. Does not
  /// write to its arguments. Throws ShapeError, DTypeError, OutOfMemory.
  virtual Tensor forward(const Context& context, const Tensor& output, const TensorMap& batch,
                         const LossCall& call) const = 0;
  /// As Layer::supports_meta: forward and its backward touch memory through BANTAM_KERNEL, Context::upload, copy_bytes,
  /// zero_bytes and add_to_sums only, or check `context.device.meta`; and allocate by shapes alone. Then steps are
  /// planned beforehand, and recorded where nothing waits for the device. Else they are planned from their first run.
  virtual bool supports_meta() const { return false; }
  /// The softmax cross-entropy with integer labels (kLabels) that this loss is for `call`, where it is one: an end of a
  /// model that is fused with it (LossHead) may then run in its place. None: it never is.
  virtual std::optional<LossSpec> as_softmax_cross_entropy(const LossCall& call) const {
    (void)call;
    return std::nullopt;
  }
};

using LossPtr = std::shared_ptr<const Loss>;

/// The end of a graph, bound to its parameters, that goes on to the softmax cross-entropy in one op. As a layer it
/// returns the logits.
class LossHead : public BoundLayer {
 public:
  /// x (batch, features), labels int32 (batch) → the loss, a float32 scalar. Records where the context has a tape; then
  /// `spec.seed` must be defined.
  virtual Tensor forward_loss(const Context& context, const Tensor& x, const Tensor& labels, const LossSpec& spec) = 0;
};

struct SoftmaxCrossEntropyLoss {
  float label_smoothing = 0.0f;  ///< in [0, 1): the share of a target that is spread over all classes
};

/// Of outputs (classes), against class numbers kLabels. Supports meta devices; joins fused heads. Throws ConfigError
/// for a smoothing outside [0, 1).
LossPtr softmax_cross_entropy(SoftmaxCrossEntropyLoss options = {});

/// Built-in: softmax_cross_entropy. Register before the first configuration is read:
///
///     losses().add("mean_squared_error", [](ConfigMap&) { return std::make_shared<MeanSquaredError>(); });
Registry<Reader<LossPtr>>& losses();

/// `loss: NAME`, whose options then stand beside it in `section`, or `loss: {NAME: {options}}`; softmax_cross_entropy
/// where the key is missing. Throws ConfigError.
LossPtr read_loss(ConfigMap& section);

}  // namespace bantam

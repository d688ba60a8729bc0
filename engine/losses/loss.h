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

#include "bantam/base/api.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/layers/layer.h"
#include "bantam/engine/ops/ops.h"

BANTAM_API_BEGIN
namespace bantam {
namespace kernels {
struct BANTAM_INTERNAL MetricSums;
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

/// The arguments of a loss for one micro-batch: how to scale it, where to add its sums, and backward's start.
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

/// Sums over the samples of a micro-batch that a loss has counted.
struct LossSums {
  double loss = 0;     ///< Σ of per-sample losses
  double correct = 0;  ///< samples that the model has right; 0 where there is no such thing
  double samples = 0;
};

/// Adds a micro-batch's sums to those of `call`: for losses that count on the host. See the other add_to_sums.
void add_to_sums(const Context& context, const LossCall& call, const LossSums& sums);

/// The function, if any, that turns a model's output into probabilities, as its loss defines it.
enum class OutputKind : std::uint8_t {
  values,   ///< there are none: numbers as they are
  softmax,  ///< of one class, over the last axis
  sigmoid   ///< each value is a question of its own
};

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
  /// Whether samples can be right or wrong (LossSums::correct): not where values are to be met.
  virtual bool counts_correct() const { return true; }
  /// For whoever uses a trained model: evaluations and predictions make probabilities of its output in this way.
  virtual OutputKind output_kind() const { return OutputKind::values; }
  /// Labels that count nothing, where there is one: `ignore_index`.
  virtual std::optional<std::int32_t> ignored_label() const { return std::nullopt; }
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

/// The batch's float32 targets, one a value of the model's output: values to be met, probabilities of classes, masks.
inline constexpr std::string_view kTargets = "targets";

/// Chooses the batch's tensor that a loss compares with the model's output.
enum class LossTargets : std::uint8_t {
  labels,  ///< kLabels, int32: a class number a position; the output ends with one value a class
  values   ///< kTargets, float32, of the output's shape
};

/// How a sample's loss is made of its terms. Terms are positions, values or classes of one sample; samples are never
/// weighted by how many terms they have. The loss is then Σ of samples' losses / LossCall::divisor.
enum class LossReduction : std::uint8_t {
  mean,  ///< of those that count
  sum    ///< and the divisor is 1: the sum over all samples
};

/// Options of softmax_cross_entropy: the negative logarithm of the softmax at the class number.
struct SoftmaxCrossEntropyLoss {
  float label_smoothing = 0.0f;  ///< in [0, 1): the share of a target that is spread over all classes
  /// A factor of each class's part of a term; empty: 1. The mean is not divided by the weights, as PyTorch's is.
  std::vector<float> class_weights = {};
  /// Positions with this label do not count: no loss, no gradient, and the mean is over the others.
  std::optional<std::int32_t> ignore_index = {};
  LossTargets targets = LossTargets::labels;  ///< values: probabilities of the classes
  LossReduction reduction = LossReduction::mean;
};

/// Makes the loss of outputs (…, classes), at each position (none, or (height, width) say), against labels (…) or
/// targets (…, classes). Supports meta devices; the plain one, of outputs (classes) with labels and smoothing alone,
/// joins fused heads. Throws ConfigError for options that do not go together.
LossPtr softmax_cross_entropy(SoftmaxCrossEntropyLoss options = {});

/// Options of poly1_loss.
struct Poly1Loss {
  /// -1 or more: the factor of 1 - p. Without smoothing, gradients are the cross-entropy's times 1 + epsilon·p.
  float epsilon = 1.0f;
  SoftmaxCrossEntropyLoss cross_entropy = {};
};

/// Σ_c q_c·(-log p_c + epsilon·(1 - p_c)) with the softmax p and the smoothed target q: cross-entropy whose first
/// coefficient as a polynomial of 1 - p is 1 + epsilon (Leng et al., 2022, "PolyLoss"). Class weights are factors of
/// both parts. Outputs, targets and meta devices are softmax_cross_entropy's. Throws ConfigError for options that do
/// not go together.
LossPtr poly1_loss(Poly1Loss options = {});

/// Options of focal_loss.
struct FocalLoss {
  float gamma = 2.0f;  ///< how much less terms weigh that are right already; 0: cross-entropy
  /// With values: the weight of targets 1, and 1 - alpha that of 0; below 0: none.
  float alpha = -1.0f;
  std::vector<float> class_weights = {};          ///< with labels: alpha of each class
  std::optional<std::int32_t> ignore_index = {};  ///< with labels
  LossTargets targets = LossTargets::labels;      ///< values: each output is a binary question of its own
  LossReduction reduction = LossReduction::mean;
};

/// -α·(1 - p)^gamma·log p of the label's softmax, or of each sigmoid (Lin et al., 2017). Supports meta devices. Throws
/// ConfigError for options that do not go together.
LossPtr focal_loss(FocalLoss options = {});

/// Options of binary_cross_entropy.
struct BinaryCrossEntropyLoss {
  float label_smoothing = 0.0f;              ///< targets t become (1 - s)·t + s/2
  std::vector<float> positive_weights = {};  ///< of targets 1: one for all, or one a value of the output's last axis
  LossReduction reduction = LossReduction::mean;
};

/// Makes the loss for multi-label classes: outputs of any shape, each a logit of its own, against kTargets in [0, 1] of
/// the same shape. Supports meta devices. Throws ConfigError for a smoothing outside [0, 1) or a weight not above 0.
LossPtr binary_cross_entropy(BinaryCrossEntropyLoss options = {});

/// (y - t)², |y - t|, and Huber's: (y - t)²/2 up to `delta`, from there a line. Of outputs of any shape, against
/// kTargets of the same. Support meta devices. Throws ConfigError for a delta that is not positive.
LossPtr mse_loss(LossReduction reduction = LossReduction::mean);
LossPtr mae_loss(LossReduction reduction = LossReduction::mean);
LossPtr huber_loss(float delta = 1.0f, LossReduction reduction = LossReduction::mean);

/// Options of dice_loss.
struct DiceLoss {
  float smooth = 1.0f;                            ///< above 0: added to both sides of the fraction
  std::optional<std::int32_t> ignore_index = {};  ///< with labels
  LossTargets targets = LossTargets::labels;      ///< labels: of the softmax over classes; values: of sigmoids
  LossReduction reduction = LossReduction::mean;  ///< over classes
};

/// 1 - (2·Σ p·t + smooth)/(Σ p + Σ t + smooth) of each class, sums over the positions of a sample. Supports meta
/// devices. Throws ConfigError for a smooth that is not positive, and for ignore_index with values.
LossPtr dice_loss(DiceLoss options = {});

/// Built-in: softmax_cross_entropy, poly1, focal, binary_cross_entropy, mse, mae, huber, dice. Register before the
/// first configuration is read:
///
///     losses().add("mean_squared_error", [](ConfigMap&) { return std::make_shared<MeanSquaredError>(); });
Registry<Reader<LossPtr>>& losses();

/// `loss: NAME`, whose options then stand beside it in `section`, or `loss: {NAME: {options}}`; softmax_cross_entropy
/// where the key is missing. Throws ConfigError.
LossPtr read_loss(ConfigMap& section);

}  // namespace bantam
BANTAM_API_END

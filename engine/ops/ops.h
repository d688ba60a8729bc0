// The ops of which programs compose layers and losses of their own. Each checks shapes, allocates its output, calls its
// kernel, and records its backward on the context's tape. Windows of image ops, and how Keras' "same" padding resolves
// to explicit amounts.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "bantam/base/activation.h"
#include "bantam/base/api.h"
#include "bantam/base/shape.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

BANTAM_API_BEGIN
namespace bantam {
namespace kernels {
struct BANTAM_INTERNAL MetricSums;
}

/// Height and width.
struct Extent2d {
  std::int64_t h = 1, w = 1;
  bool operator==(const Extent2d&) const = default;
};

/// valid: none. same: Keras' (output = ⌈input/stride⌉, the odd row or column goes to the bottom and right). explicit_:
/// as they are.
enum class PaddingKind : std::uint8_t { valid, same, explicit_ };
/// Rows and columns added around an image.
struct Padding {
  PaddingKind kind = PaddingKind::valid;
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
  static Padding valid() { return {}; }
  static Padding same() { return {PaddingKind::same}; }
  static Padding symmetric(std::int64_t amount) { return {PaddingKind::explicit_, amount, amount, amount, amount}; }
  bool operator==(const Padding&) const = default;
};

/// A sliding window over an image.
struct Window2d {
  Extent2d kernel{1, 1}, stride{1, 1}, dilation{1, 1};
  Padding padding = {};
  /// The padding as explicit amounts, for an input of this height and width. Throws ShapeError, prefixed by `op`, where
  /// extents are not positive, padding is negative, or the window does not fit the padded input.
  Padding resolve(const char* op, std::int64_t in_h, std::int64_t in_w) const;
};

/// Throws ShapeError, prefixed by `op`, unless `x` is (batch, height, width, channels).
void check_image(const char* op, const Shape& x);

}  // namespace bantam

namespace bantam::ops {

/// x (batch, H, W, C_in), w (C_out, kH, kW, C_in/groups), one type → (batch, H', W', C_out). `window.kernel` is taken
/// from w. Where the node's plan says so (statistics_for), the result has the statistics of the norm after it, which
/// move the running ones as the norm would. An x with a deferred norm goes to pointwise_norm. Throws ShapeError,
/// DTypeError.
Tensor conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window = {}, std::int64_t groups = 1);

/// x (batch, H, W, C), w (kH, kW, C·multiplier), one type → (batch, H', W', C·multiplier). `window.kernel` is taken
/// from w. Throws ShapeError, DTypeError.
Tensor depthwise_conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window = {});

/// y = x·wᵀ over the last axis; x (batch, …, inputs), w (units, inputs), one type → (batch, …, units). Throws
/// ShapeError, DTypeError.
Tensor dense(const Context& context, const Tensor& x, const Tensor& w);

/// y[…, c] = x[…, c] + b[c]; x (…, channels), b (channels), one type. b may have more of x's last axes: it is added to
/// each (tokens, channels) of x (batch, tokens, channels), say. Works in place where x is the last holder of its
/// memory.
Tensor bias_add(const Context& context, Tensor x, const Tensor& b);

/// y = f(x + b) in one pass, with b as for bias_add. Backward keeps what `activation` keeps, and makes both gradients
/// in one pass.
Tensor bias_activation(const Context& context, Tensor x, const Tensor& b, ActivationFunction f);

/// y = f(x), any shape; f' at corners as Activation says. Backward keeps one bit an element where f is
/// piecewise linear, else x or y, whichever its formula reads. Works in place where x is the last holder of its memory
/// and backward does not read x.
Tensor activation(const Context& context, Tensor x, Activation kind, float slope);
/// With the activation's own slope (default_slope).
inline Tensor activation(const Context& context, Tensor x, Activation kind) {
  return activation(context, std::move(x), kind, default_slope(kind));
}

/// y = f(a + b), in one pass where f is piecewise linear (backward then keeps one bit an element). Throws ShapeError,
/// DTypeError where they differ. Works in place where an operand is the last holder of its memory.
Tensor add(const Context& context, Tensor a, Tensor b, ActivationFunction activation = {});

/// y = a·b: operands of one shape, or b (batch, C) or (batch, 1, 1, C) beside a (batch, H, W, C): a factor a channel
/// and sample. Throws ShapeError, DTypeError where they differ.
Tensor multiply(const Context& context, const Tensor& a, const Tensor& b);

/// Inputs of one shape but for the last axis, one after the other along it: (…, C₁), (…, C₂), … → (…, C₁ + C₂ + …).
Tensor concat(const Context& context, std::span<const Tensor> inputs);

/// The mean of one or more inputs of one shape.
Tensor average(const Context& context, std::span<const Tensor> inputs);

/// y[…, c] = exp(x[…, c]) / Σ exp(x[…, ·]): over the last axis. Backward keeps y. Works in place where x is the last
/// holder of its memory. Throws ShapeError.
Tensor softmax(const Context& context, Tensor x);

/// y[…, c] = scale[c]·x[…, c]; x (…, C), scale float32 (C) or (1). Throws ShapeError, DTypeError.
Tensor channel_scale(const Context& context, const Tensor& x, const Tensor& scale);

/// y[…, c] = x where x > 0, else slope[c]·x; x (…, C), slope float32 (C) or (1). The derivative at 0 is the slope.
/// Throws ShapeError, DTypeError. Source: He et al., 2015.
Tensor prelu(const Context& context, const Tensor& x, const Tensor& slope);

/// The weights that squeeze_excite reads.
struct SqueezeExciteTensors {
  Tensor reduce = {}, reduce_bias = {};  ///< (units, C), (units)
  Tensor expand = {}, expand_bias = {};  ///< (C, units), (C)
};
/// y = x·gate(expand·activation(reduce·mean(x) + reduce_bias) + expand_bias), the mean over height and width, the
/// factor one a sample and channel. x (batch, H, W, C). Source: Hu, Shen and Sun, 2018.
Tensor squeeze_excite(const Context& context, const Tensor& x, const SqueezeExciteTensors& tensors,
                      ActivationFunction activation, Activation gate);

/// The options of a group norm over C channels.
struct GroupNormSettings {
  std::int64_t groups = 1;  ///< divides C
  float epsilon = 1e-5f;
  ActivationFunction activation = {};  ///< f
};
/// y = f(scale·(x - mean)/√(variance + epsilon) + shift), with the mean and variance (divided by n) of each sample and
/// group of C/groups channels that stand together, over all positions. x (batch, …, C); scale, shift float32 (C), or
/// undefined: 1 and 0. Groups of one channel: an instance norm. Source: Wu and He, 2018.
Tensor group_norm(const Context& context, const Tensor& x, const Tensor& scale, const Tensor& shift,
                  const GroupNormSettings& settings);
/// The same over the last axis alone, each position by itself: x (…, C). Source: Ba, Kiros and Hinton, 2016.
Tensor layer_norm(const Context& context, const Tensor& x, const Tensor& scale, const Tensor& shift, float epsilon);
/// y = scale·(x·N) + shift + x, N = G/(mean of G over channels + epsilon), with G the L2 norm of each sample and
/// channel over all positions. x (batch, …, C) of rank 3 or more; scale, shift float32 (C). Where G is 0, so is its
/// gradient. Throws ShapeError, DTypeError. Source: Woo et al., 2023.
Tensor global_response_norm(const Context& context, const Tensor& x, const Tensor& scale, const Tensor& shift,
                            float epsilon);

/// Scaled dot-product attention of the tokens of a sample to one another: softmax(q·kᵀ/√size)·v for each of `heads`
/// heads. qkv (batch, …, 3·heads·size): a token's queries, keys and values, each heads × size; tokens are the product
/// of the axes between. Returns (batch, …, heads·size). `size` is a multiple of 4 from 8 to 128. Throws ShapeError.
/// Source: Vaswani et al., 2017.
Tensor attention(const Context& context, const Tensor& qkv, std::int64_t heads);

/// The tensors that a batch norm over C channels reads and writes: float32 (C), each.
struct BatchNormTensors {
  Tensor scale = {}, shift = {};                              ///< undefined: 1 and 0
  Tensor running_mean = {}, running_variance = {};            ///< what Pass::evaluate reads
  Tensor next_running_mean = {}, next_running_variance = {};  ///< moved by Pass::train; may be undefined
};

/// How batch_norm normalises, and moves the running statistics.
struct BatchNormSettings {
  float epsilon = 1e-3f;
  float rate = 0.01f;                  ///< the batch's share in the running statistics: 0.01 is Keras' momentum 0.99
  bool unbiased = true;                ///< the running variance is divided by rows - 1, as in PyTorch
  ActivationFunction activation = {};  ///< f
};

/// y = f(scale·(x - mean)/√(variance + epsilon) + shift), x (…, C) to y of its shape and type: with the batch's
/// statistics in Pass::train and Pass::recompute, with the running ones, which are constants in backward, in
/// Pass::evaluate. Pass::train writes (1 - rate)·next + rate·batch to the next running statistics. A layer
/// declares them as buffers (LayerScope::buffer), reads BufferArena::current and has BufferArena::next moved.
/// Throws ShapeError, DTypeError. Source: Ioffe and Szegedy, 2015.
Tensor batch_norm(const Context& context, const Tensor& x, const BatchNormTensors& tensors,
                  const BatchNormSettings& settings);

/// x (batch, H, W, C) → (batch, H', W', C), the maximum over each window (padding ignored). `ceil_mode`: the last
/// windows may end outside the padded image, if they begin inside the image or the padding before it (PyTorch's).
/// Throws ShapeError.
Tensor max_pool2d(const Context& context, const Tensor& x, Window2d window, bool ceil_mode = false);
/// The mean over each window; `count_padding`: padding counts as zeros, and what ceil mode reaches over does not.
Tensor avg_pool2d(const Context& context, const Tensor& x, Window2d window, bool count_padding = false,
                  bool ceil_mode = false);
/// (batch, H, W, C) → (batch, C).
Tensor global_avg_pool2d(const Context& context, const Tensor& x);
Tensor global_max_pool2d(const Context& context, const Tensor& x);

/// x (batch, …) with elements dropped at `rate` and the rest divided by 1 - rate; x itself in Pass::evaluate and at
/// rate 0. The key is the context's seed and layer path, the counter its random state, so that recompute draws the
/// same. Throws ShapeError for a rate outside [0, 1).
Tensor dropout(const Context& context, Tensor x, float rate);

/// Dropout of whole channels of a sample: one random number for each (sample, channel) of x (batch, …, C). Source:
/// Tompson et al., 2015.
Tensor spatial_dropout(const Context& context, Tensor x, float rate);
/// Dropout of whole samples, for a residual block's branch: stochastic depth (Huang et al., 2016).
Tensor drop_path(const Context& context, Tensor x, float rate);

/// Transposed convolution, the gradient of conv2d with regard to its input: x (batch, H, W, C_in), w (C_in, kH, kW,
/// C_out/groups) → (batch, (H - 1)·stride - padding + dilation·(kH - 1) + output_padding + 1, …, C_out), as PyTorch's
/// ConvTranspose2d. `window.kernel` is taken from w; padding `same`: H·stride, as Keras'.
Tensor transposed_conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window = {},
                         Extent2d output_padding = {0, 0}, std::int64_t groups = 1);

enum class Interpolation : std::uint8_t { nearest, bilinear };
/// The size to which resize2d brings an image, and how it computes pixels.
struct ResizeSettings {
  Extent2d size = {};  ///< of the output
  Interpolation interpolation = Interpolation::nearest;
  bool align_corners = false;  ///< bilinear: corner pixels' centres fall together (PyTorch's option)
};
/// x (batch, H, W, C) → (batch, size.h, size.w, C): PyTorch's interpolate, ONNX' Resize with half_pixel (nearest:
/// asymmetric, floor) or align_corners.
Tensor resize2d(const Context& context, const Tensor& x, const ResizeSettings& settings);

/// The pixels that pad2d puts beyond the edge: zeros, the edge's pixel, the image mirrored at the edge's pixel, or the
/// image's other end. The names are PyTorch's.
enum class PaddingMode : std::uint8_t { zeros, replicate, reflect, circular };
/// x (batch, H, W, C) with `amounts` (explicit) added around it; negative amounts crop.
Tensor pad2d(const Context& context, const Tensor& x, const Padding& amounts, PaddingMode mode = PaddingMode::zeros);

/// Where a channel of depth_to_space's input goes: `depth_first`: block row, block column, then channel (TensorFlow's
/// depth_to_space, ONNX' DCR); `channel_first`: channel, then block row and column (PyTorch's pixel_shuffle, CRD).
enum class DepthOrder : std::uint8_t { depth_first, channel_first };
/// x (batch, H, W, C·block²) → (batch, H·block, W·block, C).
Tensor depth_to_space(const Context& context, const Tensor& x, std::int64_t block,
                      DepthOrder order = DepthOrder::depth_first);

/// x under `shape` (as many elements; no copy). Throws ShapeError.
Tensor reshape(const Context& context, const Tensor& x, const Shape& shape);
/// (batch, …) to (batch, product of the rest).
Tensor flatten(const Context& context, const Tensor& x);

/// How softmax_cross_entropy weighs a batch, and where it counts.
struct SoftmaxCrossEntropyOptions {
  float label_smoothing = 0.0f;
  /// The loss is Σ per-sample losses / divisor; 0: the batch's size (mean).
  float divisor = 0.0f;
  /// Device memory: metrics[*metric_slot] (as LossCall::sums) gets this batch's sums added; a null slot means 0, null
  /// metrics none.
  kernels::MetricSums* metrics = nullptr;
  const std::int32_t* metric_slot = nullptr;
};
/// The loss of a batch, and of each of its samples.
struct SoftmaxCrossEntropyResult {
  Tensor loss;    ///< float32 scalar
  Tensor losses;  ///< float32 (batch)
};

/// logits (batch, classes), labels int32 (batch). Throws ShapeError, DTypeError.
SoftmaxCrossEntropyResult softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& labels,
                                                SoftmaxCrossEntropyOptions options = {});

}  // namespace bantam::ops

namespace bantam {

/// A softmax cross-entropy, and the gradient that its backward starts with.
struct LossSpec {
  ops::SoftmaxCrossEntropyOptions options;
  /// float32 scalar on the device: the gradient of the loss with which backward will start, whose value must be there
  /// already. Fused ends of models make gradients with it on the way forward, and backward from another tensor throws.
  /// Undefined: not known yet.
  Tensor seed;
};

}  // namespace bantam
BANTAM_API_END

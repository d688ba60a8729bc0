// The layers of the engine: options with defaults, factories, and the table of those that a configuration may name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/base/activation.h"
#include "bantam/base/api.h"
#include "bantam/base/config/registry.h"
#include "bantam/engine/layers/layer.h"
#include "bantam/engine/ops/ops.h"

BANTAM_API_BEGIN
namespace bantam {

/// An elementwise function at the end of a layer; none by default.
struct ActivationOptions {
  Activation kind = Activation::none;
  float slope = default_slope(kind);  ///< leaky_relu's, for inputs below 0; elu's α
};

/// A convolution's weights from the data: eigenvectors of the covariance of the patches that it reads in the first
/// training images, divided by √(eigenvalue + epsilon), and after them their negatives. Outputs then have about unit
/// variance and no correlation. With fewer filters than twice a patch's elements those of the largest eigenvalues.
struct WhitenOptions {
  std::int64_t images = 960;
  double epsilon = 5e-4;  ///< above 0
};
/// Options of `conv2d` layers. Weight (filters, kernel, kernel, C_in/groups).
struct Conv2dOptions {
  std::int64_t filters = 1;
  Extent2d kernel{3, 3}, stride{1, 1}, dilation{1, 1};
  Padding padding = {};
  ops::PaddingMode padding_mode = ops::PaddingMode::zeros;
  std::int64_t groups = 1;
  bool bias = true;
  ActivationOptions activation = {};
  InitializerOptions initializer = "glorot_uniform";  ///< of the weight, as Keras; biases start at 0
  /// A run that begins without a file of weights replaces the initial weight so (run::train). Only of a layer that
  /// reads the model's images, without groups and with an even number of filters, 2 × kernel × kernel × C_in at most.
  std::optional<WhitenOptions> whiten = std::nullopt;
};
/// Each channel has `multiplier` kernels of its own. Weight (kernel, kernel, C_in·multiplier).
struct DepthwiseConv2dOptions {
  Extent2d kernel{3, 3}, stride{1, 1}, dilation{1, 1};
  Padding padding = {};
  std::int64_t multiplier = 1;
  bool bias = true;
  ActivationOptions activation = {};
  InitializerOptions initializer = "glorot_uniform";
};
/// Depthwise without bias, then pointwise with bias, then the activation (as Keras' SeparableConv2D).
struct SeparableConv2dOptions {
  std::int64_t filters = 1;
  Extent2d kernel{3, 3}, stride{1, 1}, dilation{1, 1};
  Padding padding = {};
  std::int64_t multiplier = 1;
  bool bias = true;
  ActivationOptions activation = {};
  InitializerOptions initializer = "glorot_uniform";
};
/// y = activation(x·Wᵀ + b) over the last axis, of any number of axes; W (units, inputs).
struct DenseOptions {
  std::int64_t units = 1;
  bool bias = true;
  ActivationOptions activation = {};
  InitializerOptions initializer = "glorot_uniform";
};
/// Over the last axis. `rate` of the running statistics: Keras' momentum 0.99 is rate 0.01, PyTorch's momentum 0.1 is
/// rate 0.1.
struct BatchNormOptions {
  /// The batch's share in the running statistics, in (0, 1]. Absent: 0.01 with a warm-up, 10/(10 + updates) where that
  /// is more, so that short runs have statistics of their own batches, too. No warm-up in a model whose running
  /// statistics were loaded.
  std::optional<float> rate = {};
  float running_rate() const { return rate.value_or(0.01f); }
  float epsilon = 1e-3f;
  bool unbiased = true;  ///< running variance with rows - 1, as PyTorch and Keras' fused kernel
  bool scale = true, shift = true;
  ActivationOptions activation = {};
  /// Scale and shift are frozen, and training normalises with the running statistics, which stay. A model's groups of
  /// parameters set it (ModelOptions::groups).
  bool frozen = false;
};
/// A window over height and width, of which the largest value or the mean is kept.
struct PoolOptions {
  Extent2d window{2, 2}, stride{2, 2}, dilation{1, 1};
  Padding padding = {};
  bool count_padding = false;  ///< average: padding counts as zeros (PyTorch's default); Keras': not
  bool ceil_mode = false;      ///< the last window may begin inside and end outside the padded image, as PyTorch's
};
/// The mean, or the largest value, over height and width.
struct GlobalPoolOptions {
  bool keepdims = false;  ///< (1, 1, C) instead of (C)
};
/// conv2d's way back: larger images. Weight (C_in, kernel, kernel, filters/groups).
struct TransposedConv2dOptions {
  std::int64_t filters = 1;
  Extent2d kernel{2, 2}, stride{2, 2}, dilation{1, 1}, output_padding{0, 0};
  Padding padding = {};
  std::int64_t groups = 1;
  bool bias = true;
  ActivationOptions activation = {};
  InitializerOptions initializer = "glorot_uniform";
};
/// Larger images: `scale` times the height and width.
struct UpsampleOptions {
  Extent2d scale{2, 2};
  ops::Interpolation interpolation = ops::Interpolation::nearest;
  bool align_corners = false;
};
/// A wider border around the image.
struct PadOptions {
  Padding amounts = {};  ///< explicit
  ops::PaddingMode mode = ops::PaddingMode::zeros;
};
/// Channels become pixels: (H, W, C) to (H·block, W·block, C/block²).
struct DepthToSpaceOptions {
  std::int64_t block = 2;
  ops::DepthOrder order = ops::DepthOrder::depth_first;
};
/// Some of the channels: those from `begin` to before `end`. Two of them split an image as torch.chunk does.
struct ChannelSliceOptions {
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< 0: the number of channels
};
/// A part of one axis, as NumPy's x[start:stop:step]. Negative axes and positions count from the end; positions outside
/// the axis are none.
struct SliceOptions {
  int axis = 0;  ///< of a sample's shape
  std::int64_t start = 0;
  std::optional<std::int64_t> stop = std::nullopt;  ///< the position after the last one; nothing: the axis' end
  std::int64_t step = 1;                            ///< at least 1
};
/// Channels of `groups` groups interleaved (Zhang et al., 2018), as PyTorch's ChannelShuffle.
struct ChannelShuffleOptions {
  std::int64_t groups = 2;
};
/// Over channels (last axis) of each position: ConvNeXt's and Keras' LayerNormalization.
struct LayerNormOptions {
  float epsilon = 1e-6f;
  bool scale = true, shift = true;
};
/// Statistics of each sample over `groups` groups of channels that stand together. Source: Wu and He, 2018.
struct GroupNormOptions {
  std::int64_t groups = 32;  ///< 0: as many as channels, an instance norm
  float epsilon = 1e-5f;
  bool scale = true, shift = true;
  ActivationOptions activation = {};
};
/// ConvNeXt V2's: y = scale·(x·N) + shift + x, with N each channel's L2 norm over a sample's positions, divided by the
/// mean of all channels' norms. Parameters scale and shift (C), float32 in every precision, without weight decay, zeros
/// at the start. Source: Woo et al., 2023.
struct GlobalResponseNormOptions {
  float epsilon = 1e-6f;  ///< added to the mean of the norms
};
/// Scaled dot-product attention of the positions of a sample to one another, without mask and without weights: (…, 3·A)
/// to (…, A). Channels are queries, keys and values, each `heads` × the size of a head: a multiple of 4 from 8 to 128.
/// Source: Vaswani et al., 2017.
struct AttentionOptions {
  std::int64_t heads = 1;
};
/// Source: Hu, Shen and Sun, 2018. Parameters reduce/weight (units, C), reduce/bias, expand/weight (C, units),
/// expand/bias.
struct SqueezeExciteOptions {
  std::int64_t units = 16;
  ActivationOptions activation{Activation::relu};
  Activation gate = Activation::sigmoid;
  InitializerOptions initializer = "glorot_uniform";
};
/// Source: He et al., 2015. Parameter slope (C) or (1), float32 in every precision, without weight decay.
struct PReluOptions {
  float initial = 0.25f;
  bool shared = false;  ///< one slope for all channels, PyTorch's default
};
/// y[…, c] = scale[c]·x[…, c] (Touvron et al., 2021). Parameter scale (C), float32 in every precision, without weight
/// decay.
struct LayerScaleOptions {
  float initial = 1e-6f;
};
/// Tokens of the model's own before those of the sample: (tokens, C) or (H, W, C) to (count + tokens, C). Parameter
/// token (count, C), without weight decay. Source: Dosovitskiy et al., 2021; more than one: Darcet et al., 2024.
struct ClassTokenOptions {
  std::int64_t count = 1;
  InitializerOptions initializer = "zeros";
};
/// y = x + embedding. Parameter embedding, of a sample's shape, without weight decay. Source: Dosovitskiy et al., 2021.
struct PositionEmbeddingOptions {
  InitializerOptions initializer = {"truncated_normal", 0.02f};
};
/// In training each element is zero with probability `rate`, and the others are scaled by 1/(1 - rate).
struct DropoutOptions {
  float rate = 0.5f;
};
/// The same elements in the same order under another shape: a view, which copies nothing.
struct ReshapeOptions {
  /// Extents without the batch axis, one to seven. One of them may be -1: the number of elements divided by the other
  /// extents.
  std::vector<std::int64_t> shape = {};
};

LayerPtr conv2d(Conv2dOptions options);
LayerPtr depthwise_conv2d(DepthwiseConv2dOptions options);
LayerPtr separable_conv2d(SeparableConv2dOptions options);
LayerPtr dense(DenseOptions options);
LayerPtr batch_norm(BatchNormOptions options = {});
LayerPtr max_pool(PoolOptions options = {});
LayerPtr average_pool(PoolOptions options = {});
/// (H, W, C) to (C).
LayerPtr global_average_pool(GlobalPoolOptions options = {});
LayerPtr global_max_pool(GlobalPoolOptions options = {});
LayerPtr activation(ActivationOptions options);
LayerPtr dropout(DropoutOptions options = {});
/// (…) to (product).
LayerPtr flatten();
/// (…) to options.shape, of as many elements. Images are (height, width, channels): PyTorch's view of (C, H, W) orders
/// them otherwise.
LayerPtr reshape(ReshapeOptions options);
LayerPtr transposed_conv2d(TransposedConv2dOptions options);
LayerPtr upsample(UpsampleOptions options = {});
LayerPtr zero_padding(PadOptions options);
/// `amounts` are removed.
LayerPtr crop(PadOptions options);
LayerPtr depth_to_space(DepthToSpaceOptions options = {});
LayerPtr channel_slice(ChannelSliceOptions options);
LayerPtr slice(SliceOptions options);
LayerPtr channel_shuffle(ChannelShuffleOptions options = {});
LayerPtr layer_norm(LayerNormOptions options = {});
LayerPtr group_norm(GroupNormOptions options = {});
LayerPtr global_response_norm(GlobalResponseNormOptions options = {});
LayerPtr attention(AttentionOptions options);
LayerPtr squeeze_excite(SqueezeExciteOptions options = {});
LayerPtr prelu(PReluOptions options = {});
LayerPtr layer_scale(LayerScaleOptions options = {});
LayerPtr class_token(ClassTokenOptions options = {});
LayerPtr position_embedding(PositionEmbeddingOptions options = {});
/// Over the last axis.
LayerPtr softmax();
/// Drops whole channels of a sample.
LayerPtr spatial_dropout(DropoutOptions options = {});
/// Drops whole samples: at the end of a residual block's branch, stochastic depth (Huang et al., 2016).
LayerPtr drop_path(DropoutOptions options = {});
/// Two or more inputs: along the last axis; their mean; their product (ops::multiply).
LayerPtr concat();
LayerPtr average();
LayerPtr multiply();
/// Sum of two or more inputs of one shape, then the activation: the end of a residual block.
LayerPtr add(ActivationOptions activation = {});

/// Readers of layers by kind, from options to the layer. Each throws ConfigError at the option's position. The built-in
/// ones are those above; a program adds its own before it reads its first model (models::read_model). `name`, `inputs`,
/// `repeat` and `when`, which every layer of a list may have, are read before the reader is called: its options are the
/// others. `residual`, `block`, `multi_head_attention` and the names of a model's `blocks:` stand in the same lists but
/// are not kinds.
///
///     layer_kinds().add("mixed_pool", [](ConfigMap&) { return std::make_shared<MixedPool>(); });
Registry<Reader<LayerPtr>>& layer_kinds();

}  // namespace bantam
BANTAM_API_END

// The layers of the engine: options with defaults, and factories.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/base/activation.h"
#include "bantam/engine/layers/layer.h"
#include "bantam/engine/ops/ops.h"

namespace bantam {

struct ActivationOptions {
  Activation kind = Activation::none;
  float slope = 0.01f;  ///< leaky_relu's, for inputs below 0, and its derivative at 0
};

/// Options of `conv2d` layers. Weight (filters, kernel, kernel, C_in/groups).
struct Conv2dOptions {
  std::int64_t filters = 1;
  Extent2d kernel{3, 3}, stride{1, 1}, dilation{1, 1};
  Padding padding;
  std::int64_t groups = 1;
  bool bias = true;
  ActivationOptions activation;
  std::string initializer = "glorot_uniform";  ///< of the weight, as Keras; biases start at 0
};
struct DepthwiseConv2dOptions {
  Extent2d kernel{3, 3}, stride{1, 1}, dilation{1, 1};
  Padding padding;
  std::int64_t multiplier = 1;
  bool bias = true;
  ActivationOptions activation;
  std::string initializer = "glorot_uniform";
};
/// Depthwise without bias, then pointwise with bias, then the activation (as Keras' SeparableConv2D).
struct SeparableConv2dOptions {
  std::int64_t filters = 1;
  Extent2d kernel{3, 3}, stride{1, 1}, dilation{1, 1};
  Padding padding;
  std::int64_t multiplier = 1;
  bool bias = true;
  ActivationOptions activation;
  std::string initializer = "glorot_uniform";
};
/// y = activation(x·Wᵀ + b); W (units, inputs). Inputs of rank 1; flatten first.
struct DenseOptions {
  std::int64_t units = 1;
  bool bias = true;
  ActivationOptions activation;
  std::string initializer = "glorot_uniform";
};
/// Over the last axis. `rate` of the running statistics: Keras' momentum 0.99 is rate 0.01, PyTorch's momentum 0.1 is
/// rate 0.1.
struct BatchNormOptions {
  float rate = 0.01f;
  float epsilon = 1e-3f;
  bool unbiased = true;  ///< running variance with rows - 1, as PyTorch and Keras' fused kernel
  bool scale = true, shift = true;
  ActivationOptions activation;
  /// Scale and shift are frozen, and training normalises with the running statistics, which stay. A model's groups of
  /// parameters set it (ModelOptions::groups).
  bool frozen = false;
};
struct PoolOptions {
  Extent2d window{2, 2}, stride{2, 2};
  Padding padding;
  bool count_padding = false;  ///< average: padding counts as zeros (PyTorch's default); Keras': not
};
struct DropoutOptions {
  float rate = 0.5f;
};
/// The same elements in the same order under another shape: a view, which copies nothing.
struct ReshapeOptions {
  /// Extents without the batch axis, one to seven. One of them may be -1: the number of elements divided by the other
  /// extents.
  std::vector<std::int64_t> shape;
};

LayerPtr conv2d(Conv2dOptions options);
LayerPtr depthwise_conv2d(DepthwiseConv2dOptions options);
LayerPtr separable_conv2d(SeparableConv2dOptions options);
LayerPtr dense(DenseOptions options);
LayerPtr batch_norm(BatchNormOptions options = {});
LayerPtr max_pool(PoolOptions options = {});
LayerPtr average_pool(PoolOptions options = {});
/// (H, W, C) to (C).
LayerPtr global_average_pool();
LayerPtr global_max_pool();
LayerPtr activation(ActivationOptions options);
LayerPtr dropout(DropoutOptions options = {});
/// (…) to (product).
LayerPtr flatten();
/// (…) to options.shape, of as many elements. Images are (height, width, channels): PyTorch's view of (C, H, W) orders
/// them otherwise.
LayerPtr reshape(ReshapeOptions options);
/// Sum of two inputs of one shape, then the activation: the end of a residual block.
LayerPtr add(ActivationOptions activation = {});

}  // namespace bantam

// The ops of which programs compose layers and losses of their own. Each checks shapes, allocates its output, calls its
// kernel, and records its backward on the context's tape.
#pragma once

#include "bantam/base/activation.h"
#include "bantam/engine/autograd/cast.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/geometry.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam::ops {

/// x (batch, H, W, C_in), w (C_out, kH, kW, C_in/groups), one type → (batch, H', W', C_out). `window.kernel` is taken
/// from w. Where the node's plan says so (statistics_for), the result has the statistics of the norm after it, which
/// move the running ones as the norm would. An x with a deferred norm goes to pointwise_norm. Throws ShapeError,
/// DTypeError.
Tensor conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window = {}, std::int64_t groups = 1);

/// x (batch, H, W, C), w (kH, kW, C·multiplier), one type → (batch, H', W', C·multiplier). `window.kernel` is taken
/// from w. Throws ShapeError, DTypeError.
Tensor depthwise_conv2d(const Context& context, const Tensor& x, const Tensor& w, Window2d window = {});

/// y = x·wᵀ; x (batch, inputs), w (units, inputs), one type → (batch, units). Throws ShapeError, DTypeError.
Tensor dense(const Context& context, const Tensor& x, const Tensor& w);

/// y[…, c] = x[…, c] + b[c]; x (…, channels), b (channels), one type. Works in place where x is the last holder of its
/// memory.
Tensor bias_add(const Context& context, Tensor x, const Tensor& b);

/// y = f(x), any shape; f' at corners as Activation says. Backward keeps one bit an element where f is
/// piecewise linear, else x or y, whichever its formula reads. Works in place where x is the last holder of its memory
/// and backward does not read x.
Tensor activation(const Context& context, Tensor x, Activation kind, float slope = 0.01f);

/// y = f(a + b), in one pass where f is piecewise linear (backward then keeps one bit an element). Throws ShapeError,
/// DTypeError where they differ. Works in place where an operand is the last holder of its memory.
Tensor add(const Context& context, Tensor a, Tensor b, ActivationFunction activation = {});

/// x (batch, H, W, C) → (batch, H', W', C), the maximum over each window (padding ignored). Throws ShapeError.
Tensor max_pool2d(const Context& context, const Tensor& x, Window2d window);
/// The mean over each window; `count_padding`: padding counts as zeros.
Tensor avg_pool2d(const Context& context, const Tensor& x, Window2d window, bool count_padding = false);
/// (batch, H, W, C) → (batch, C).
Tensor global_avg_pool2d(const Context& context, const Tensor& x);
Tensor global_max_pool2d(const Context& context, const Tensor& x);

/// x (batch, …) with elements dropped at `rate` and the rest divided by 1 - rate; x itself in Pass::evaluate and at
/// rate 0. The key is the context's seed and layer path, the counter its random state, so that recompute draws the
/// same. Throws ShapeError for a rate outside [0, 1).
Tensor dropout(const Context& context, Tensor x, float rate);

/// x under `shape` (as many elements; no copy). Throws ShapeError.
Tensor reshape(const Context& context, const Tensor& x, const Shape& shape);
/// (batch, …) to (batch, product of the rest).
Tensor flatten(const Context& context, const Tensor& x);

}  // namespace bantam::ops

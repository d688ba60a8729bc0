// Squeeze-and-excitation between its passes over the image: the mean over positions, and the gate, two small dense
// layers over it, which computes the channels' factors. Source: Hu, Shen and Sun, 2018.
#pragma once

#include <cstdint>

#include "bantam/base/activation.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/parameter_target.h"
#include "bantam/kernels/join/channel_scale.h"

namespace bantam::kernels {

/// mean[n, c] = Σ_p x[n, p, c] / positions in float32; 0 where there are no positions. The shape's factors are float32.
/// Partial sums in a fixed order. Workspace: channel_scale_workspace_bytes.
using PositionMean = void(const Exec&, const ChannelScaleShape& shape, const void* x, float* mean, Workspace);

/// Over `samples` means of `channels` values.
struct SqueezeExciteShape {
  std::int64_t samples = 0, channels = 0, units = 0;
  std::int64_t positions = 1;     ///< that each mean is of
  DType dtype = DType::float32;   ///< of the weights
  ActivationFunction activation;  ///< applied to the units
  ActivationFunction gate;        ///< applied to the factors
};

struct SqueezeExciteWeights {
  const void *reduce = nullptr, *reduce_bias = nullptr;  ///< (units, channels), (units)
  const void *expand = nullptr, *expand_bias = nullptr;  ///< (channels, units), (channels)
};
/// reduced = reduce·mean + reduce_bias, hidden = activation(reduced), both (samples, units); expanded = expand·hidden +
/// expand_bias, factor = gate(expanded), both (samples, channels). All float32.
struct SqueezeExciteValues {
  float *reduced = nullptr, *hidden = nullptr, *expanded = nullptr, *factor = nullptr;
};
using SqueezeExciteForward = void(const Exec&, const SqueezeExciteShape& shape, const float* mean,
                                  const SqueezeExciteWeights& weights, const SqueezeExciteValues& to);

struct SqueezeExciteInputs {
  const float *mean = nullptr, *reduced = nullptr, *hidden = nullptr, *expanded = nullptr;  ///< as forward wrote them
  const float* dfactor = nullptr;                                                           ///< (samples, channels)
  SqueezeExciteWeights weights;
};
struct SqueezeExciteGradients {
  float* dx_offset = nullptr;  ///< the mean's gradient / positions: what dx of each position gets
  ParameterTarget reduce, reduce_bias, expand, expand_bias;
};
/// de = dfactor·gate'(expanded), dr = (expandᵀ·de)·activation'(reduced), dmean = reduceᵀ·dr; dexpand = deᵀ·hidden,
/// dreduce = drᵀ·mean, biases the sums of de and dr over samples. Sums in a fixed order.
using SqueezeExciteGrad = void(const Exec&, const SqueezeExciteShape& shape, const SqueezeExciteInputs& inputs,
                               const SqueezeExciteGradients& to, Workspace);
/// Scratch bytes of `squeeze_excite_grad`.
std::size_t squeeze_excite_workspace_bytes(const SqueezeExciteShape& shape);

BANTAM_DECLARE_KERNEL(PositionMean, position_mean);
BANTAM_DECLARE_KERNEL(SqueezeExciteForward, squeeze_excite_forward);
BANTAM_DECLARE_KERNEL(SqueezeExciteGrad, squeeze_excite_grad);

}  // namespace bantam::kernels

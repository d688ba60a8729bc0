// A separable block in one pass each way: depthwise 3x3, pointwise, bias, ReLU and 2x2 max pooling. NHWC.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/parameter_target.h"
#include "bantam/kernels/update/partial_sums.h"

namespace bantam::kernels {

/// x (batch, in_h, in_w, in_channels), y (batch, out_h, out_w, out_channels). The kernel is 3x3 with stride 1, dilation
/// 1 and one filter a channel; windows of the pooling do not overlap, and positions that do not fill one are dropped.
struct SeparableBlockShape {
  std::int64_t batch = 0, in_h = 0, in_w = 0, in_channels = 0, out_channels = 0;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t pool = 1;  ///< 2: 2x2 max pooling with stride 2; 1: none
  bool bias = true;
  bool relu = true;

  std::int64_t conv_h() const { return in_h + pad_top + pad_bottom - 2; }  ///< before pooling
  std::int64_t conv_w() const { return in_w + pad_left + pad_right - 2; }
  std::int64_t out_h() const { return conv_h() / pool; }
  std::int64_t out_w() const { return conv_w() / pool; }
  std::int64_t x_elements() const { return batch * in_h * in_w * in_channels; }
  std::int64_t y_elements() const { return batch * out_h() * out_w() * out_channels; }
  std::int64_t depthwise_elements() const { return 9 * in_channels; }
  std::int64_t pointwise_elements() const { return out_channels * in_channels; }
  bool operator==(const SeparableBlockShape&) const = default;
};

/// Whether the kernels support this shape and type on `target`: 1 to 4 input channels or a multiple of 8 up to 64,
/// output channels a multiple of 8 up to 128, padding of at most 2 on a side, no empty axis but the batch, images that
/// fit shared memory a few rows at a time.
bool separable_block_supported(const SeparableBlockShape& shape, DType dtype, DeviceKind target);

/// Throws ShapeError or DTypeError where `separable_block_supported` is false.
void check_separable_block(const SeparableBlockShape& shape, DType dtype, DeviceKind target);

enum class SeparableBlockPass : std::uint8_t { forward, backward };

/// Scratch bytes of one pass; depends on shape, dtype and the target only.
std::size_t separable_block_workspace_bytes(const SeparableBlockShape& shape, DType dtype, SeparableBlockPass pass,
                                            DeviceKind target);

/// Bytes of the codes, which are all that backward needs of the forward pass besides x; 0 without ReLU and pooling.
/// Element i of y counts in row-major order.
/// pool 2: four bits an element, of which at most one is set: bit 2·row + column of the first maximum in its window;
/// none where ReLU is closed there (the maximum is not above 0). Element i lies in byte i / 2, even ones in the low
/// half.
/// pool 1 with ReLU: one bit an element, bit i mod 8 of byte i / 8, set where y > 0.
std::int64_t separable_block_code_bytes(const SeparableBlockShape& shape);

/// The parameters, all of the call's `dtype`. On CUDA `depthwise` is aligned to 8 bytes, `pointwise` to 16.
struct SeparableBlockWeights {
  const void* depthwise = nullptr;  ///< (3, 3, in_channels)
  const void* pointwise = nullptr;  ///< (out_channels, in_channels)
  const void* bias = nullptr;       ///< (out_channels); null without a bias (shape.bias). Backward does not read it
};

/// The operands that backward reads. On CUDA x and dy are aligned to 16 bytes, codes to 4.
struct SeparableBlockInputs {
  const void* x = nullptr;              ///< (batch, in_h, in_w, in_channels), of the call's `dtype`
  SeparableBlockWeights weights;        ///< those of forward
  const void* dy = nullptr;             ///< (batch, out_h, out_w, out_channels), of the call's `dtype`
  const std::uint8_t* codes = nullptr;  ///< as forward wrote them; null where separable_block_code_bytes is 0
};

/// The gradients that backward writes. Weight gradients are float32.
struct SeparableBlockGradients {
  void* dx = nullptr;         ///< like x, of the call's `dtype`, overwritten; null: not wanted
  ParameterTarget depthwise;  ///< (3, 3, in_channels); not null
  ParameterTarget pointwise;  ///< (out_channels, in_channels); not null
  ParameterTarget bias;       ///< (out_channels); null without a bias
  /// With room for 3 arrays, or null. Not null: the CUDA kernels write the weight gradients as partial sums to the
  /// workspace and list them here, to be added up to the same bits; the CPU's add up at once.
  PartialSums* partial_sums = nullptr;
};

/// y = pool(relu(pointwise(depthwise(x)) + bias)), all `dtype` (float32, float16, bfloat16), float32 sums (no TF32).
/// Pooling compares values already rounded to `dtype`; NaN wins, and ReLU keeps it.
/// `codes` as separable_block_code_bytes describes, or null where no backward pass follows. Nothing aliases.
///
/// Rounding between the convolutions, for half types: the depthwise output is rounded to `dtype`; or, for up to four
/// input channels on CUDA, stays in float32 sums, while the products depthwise · pointwise weight are rounded. Half
/// types on CUDA may turn an infinite or NaN input into NaN at neighbours too (infinity times a weight of zero).
/// x, the pointwise weights and y aligned to 16 bytes on CUDA, codes to 4. Asynchronous on CUDA; deterministic.
using SeparableBlockForward = void(const Exec&, const SeparableBlockShape&, DType dtype, const void* x,
                                   const SeparableBlockWeights&, void* y, std::uint8_t* codes, Workspace);

/// With dz = dy where y's element came from, 0 elsewhere (codes), and mid = depthwise(x), recomputed:
/// d_bias[o] = Σ dz[p, o], d_pointwise[o, c] = Σ dz[p, o]·mid[p, c], d_mid = dz · w_pointwise,
/// d_depthwise[tap, c] = Σ x[p + tap, c]·d_mid[p, c], dx = transpose of the depthwise convolution, applied to d_mid.
/// Nothing aliases. Partial sums in a fixed order. Asynchronous on CUDA; deterministic.
using SeparableBlockBackward = void(const Exec&, const SeparableBlockShape&, DType dtype, const SeparableBlockInputs&,
                                    const SeparableBlockGradients&, Workspace);
BANTAM_DECLARE_KERNEL(SeparableBlockForward, separable_block_forward);
BANTAM_DECLARE_KERNEL(SeparableBlockBackward, separable_block_backward);

}  // namespace bantam::kernels

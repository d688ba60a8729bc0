// Launches of the pointwise gradients: which tile, then the parts' sums in order.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/depthwise/cuda/depthwise_3x3_grad_weight.cuh"
#include "bantam/kernels/pointwise/cuda/pointwise_backward.cuh"
#include "bantam/kernels/pointwise/cuda/pointwise_products.h"

namespace bantam::kernels::cuda {
namespace {

template <class T>
PointwiseGradOperands<T> operands_of(const PointwiseShape& s, const NormOperand& x, const void* dy, float* partials) {
  return {.dy = static_cast<const T*>(dy),
          .x = static_cast<const T*>(x.x),
          .rows = s.rows,
          .out = static_cast<int>(s.out),
          .in = static_cast<int>(s.in),
          .norm = affine_of(x),
          .clamp = Clamp::of(x.affine.activation),
          .partials = partials};
}

template <class T, int kOut, int kIn>
void launch_weight(const Exec& exec, const PointwiseGradCut& cut, const PointwiseGradOperands<T>& operands) {
  using Tile = PointwiseGradTile<kOut, kIn>;
  const auto kernel = pointwise_grad_weight_kernel<T, kOut, kIn>;
  allow_shared_bytes(exec, kernel, Tile::kSharedBytes);
  kernel<<<static_cast<unsigned>(cut.tiles * cut.parts), Tile::kThreads, Tile::kSharedBytes, stream_of(exec)>>>(
      operands, static_cast<int>(cut.tiles));
  check_launch("pointwise_grad_weight_kernel");
}

template <class T, int kOut, int kIn, bool kNormed>
void launch_both(const Exec& exec, const PointwiseGradCut& cut, const PointwiseBackwardOperands<T>& operands) {
  using Tile = PointwiseBackwardTile<kOut, kIn, kNormed>;
  const auto kernel = pointwise_backward_kernel<T, kOut, kIn, kNormed>;
  allow_shared_bytes(exec, kernel, Tile::kSharedBytes);
  kernel<<<static_cast<unsigned>(cut.parts), Tile::kThreads, Tile::kSharedBytes, stream_of(exec)>>>(operands);
  check_launch("pointwise_backward_kernel");
}

/// launch(kOut, kIn) for the tile of a cut.
template <class Launch>
void with_tile(const PointwiseGradCut& cut, const Launch& launch) {
  using std::integral_constant;
  if (cut.tile_out == 64)
    launch(integral_constant<int, 64>{}, integral_constant<int, 32>{});
  else if (cut.tile_in == 64)
    launch(integral_constant<int, 128>{}, integral_constant<int, 64>{});
  else
    launch(integral_constant<int, 128>{}, integral_constant<int, 128>{});
}

/// Shared memory of the kernel for both gradients.
int both_bytes(const PointwiseGradCut& cut, bool normed) {
  int bytes = 0;
  with_tile(cut, [&](auto out, auto in) {
    bytes = normed ? PointwiseBackwardTile<out(), in(), true>::kSharedBytes
                   : PointwiseBackwardTile<out(), in(), false>::kSharedBytes;
  });
  return bytes;
}

template <class Call>
void with_half(DType dtype, const Call& call) {
  if (dtype == DType::float16)
    call(std::type_identity<__half>{});
  else
    call(std::type_identity<__nv_bfloat16>{});
}

}  // namespace

bool runs_pointwise_grad_weight(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x,
                                const void* dy) {
  int bytes = 0;
  with_tile(pointwise_grad_cut(s), [&](auto out, auto in) { bytes = PointwiseGradTile<out(), in()>::kSharedBytes; });
  return pointwise_supports(s, dtype) && runs_pointwise_kernel(exec, bytes) && packs_aligned<uint4, 1>(x.x, dy);
}

void pointwise_grad_weight(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void* dy,
                           float* dw, bool accumulate, float* partials) {
  const PointwiseGradCut cut = pointwise_grad_cut(s);
  with_half(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_tile(cut,
              [&](auto out, auto in) { launch_weight<T, out(), in()>(exec, cut, operands_of<T>(s, x, dy, partials)); });
  });
  add_strip_parts(exec, partials, cut.parts, s.out * s.in, WriteSum{dw, accumulate});
}

bool pointwise_backward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void* w,
                        const NormInputGradient& dy, const PointwiseGradients& gradients, float* partials) {
  const PointwiseGradCut cut = pointwise_grad_cut(s);
  const bool normed = dy.totals != nullptr;
  if (!pointwise_supports(s, dtype) || !pointwise_backward_fused(s) ||
      !runs_pointwise_kernel(exec, both_bytes(cut, normed)) ||
      !packs_aligned<uint4, 1>(x.x, w, dy.dz, dy.y.x, gradients.da))
    return false;
  with_half(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const PointwiseBackwardOperands<T> operands{.grad = operands_of<T>(s, x, dy.dz, partials),
                                                .w = static_cast<const T*>(w),
                                                .da = static_cast<T*>(gradients.da),
                                                .y = static_cast<const T*>(dy.y.x),
                                                .norm_after = affine_of(dy.y),
                                                .totals = dy.totals};
    with_tile(cut, [&](auto out, auto in) {
      if (normed)
        launch_both<T, out(), in(), true>(exec, cut, operands);
      else
        launch_both<T, out(), in(), false>(exec, cut, operands);
    });
  });
  if (gradients.dw != nullptr)
    add_strip_parts(exec, partials, cut.parts, s.out * s.in, WriteSum{gradients.dw, gradients.accumulate});
  return true;
}

}  // namespace bantam::kernels::cuda

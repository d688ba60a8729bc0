// The launches of the pointwise mma.sync kernel: which tile, and how much shared memory.
#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/pointwise/cuda/pointwise_forward.cuh"
#include "bantam/kernels/pointwise/cuda/pointwise_products.h"

namespace bantam::kernels::cuda {
namespace {

/// The bytes of dynamic shared memory that a block uses.
template <int kOut, int kDepth>
int block_bytes(const PointwiseShape& s) {
  using Tile = PointwiseTile<kOut, kDepth>;
  const int in = static_cast<int>(s.in), depths = (in + kDepth - 1) / kDepth;
  return Tile::kStages * Tile::kStageBytes + depths * Tile::kWeightBytes + kOut * static_cast<int>(sizeof(__half)) +
         SharedNorm::kVectors * in * static_cast<int>(sizeof(float));
}
int block_bytes(const PointwiseShape& s) {
  return pointwise_columns(s) == 64 ? block_bytes<64, 32>(s) : block_bytes<128, 64>(s);
}

template <class T, int kOut, int kDepth, bool kNormed>
void launch(const Exec& exec, const PointwiseShape& s, const PointwiseOperands<T>& operands) {
  using Tile = PointwiseTile<kOut, kDepth>;
  const int bytes = block_bytes<kOut, kDepth>(s);
  const auto kernel = pointwise_forward_kernel<T, kOut, kDepth, kNormed>;
  allow_shared_bytes(exec, kernel, bytes);
  const int column_blocks = (operands.out + kOut - 1) / kOut;
  const auto blocks = static_cast<unsigned>(pointwise_parts(s) * column_blocks);
  kernel<<<blocks, Tile::kThreads, bytes, stream_of(exec)>>>(operands, column_blocks);
  check_launch("pointwise_forward_kernel");
}

template <class T, bool kNormed>
void launch_tile(const Exec& exec, const PointwiseShape& s, const PointwiseOperands<T>& operands) {
  if (pointwise_columns(s) == 64)
    launch<T, 64, 32, kNormed>(exec, s, operands);
  else
    launch<T, 128, 64, kNormed>(exec, s, operands);
}

template <class T>
void run(const Exec& exec, const PointwiseShape& s, const NormOperand& x, const void* w, void* y,
         const PartMoments& moments) {
  const PointwiseOperands<T> operands{.x = static_cast<const T*>(x.x),
                                      .w = static_cast<const T*>(w),
                                      .y = static_cast<T*>(y),
                                      .rows = s.rows,
                                      .in = static_cast<int>(s.in),
                                      .out = static_cast<int>(s.out),
                                      .norm = affine_of(x),
                                      .clamp = Clamp::of(x.affine.activation),
                                      .partials = moments.moments,
                                      .counts = moments.counts};
  if (x.normalised())
    launch_tile<T, true>(exec, s, operands);
  else
    launch_tile<T, false>(exec, s, operands);
}

}  // namespace

bool runs_pointwise_kernel(const Exec& exec, std::int64_t shared_bytes) {
  Libraries& libraries = Libraries::of(exec);
  return libraries.code_architecture() >= 800 && libraries.kernel_limits().block_shared_bytes() >= shared_bytes;
}

bool pointwise_forward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void* w,
                       void* y, const PartMoments& moments) {
  if (!pointwise_supports(s, dtype) || !runs_pointwise_kernel(exec, block_bytes(s)) ||
      !packs_aligned<uint4, 1>(x.x, w, y))
    return false;
  if (dtype == DType::float16)
    run<__half>(exec, s, x, w, y, moments);
  else
    run<__nv_bfloat16>(exec, s, x, w, y, moments);
  return true;
}

}  // namespace bantam::kernels::cuda

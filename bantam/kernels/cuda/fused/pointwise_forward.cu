// The pointwise product's launches: which tile, and what shared memory it takes.
#include "bantam/kernels/cuda/check.h"
#include "bantam/kernels/cuda/fused/pointwise_forward.cuh"
#include "bantam/kernels/cuda/fused/pointwise_products.h"
#include "bantam/kernels/cuda/libraries.h"
#include "bantam/kernels/cuda/shared_bytes.h"

namespace bantam::kernels::cuda {
namespace {

template <class T, int kOut, int kDepth, bool kNormed>
void launch(const Exec& exec, const PointwiseShape& s, const PointwiseOperands<T>& operands) {
  using Tile = PointwiseTile<kOut, kDepth>;
  const int depths = (operands.in + kDepth - 1) / kDepth;
  const int bytes = Tile::kStages * Tile::kStageBytes + depths * Tile::kWeightBytes +
                    kOut * static_cast<int>(sizeof(T)) +
                    SharedNorm::kVectors * operands.in * static_cast<int>(sizeof(float));
  const auto kernel = pointwise_forward_kernel<T, kOut, kDepth, kNormed>;
  allow_shared_bytes(kernel, bytes);
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

bool has_pointwise_kernels(const Exec& exec) {
  constexpr int kSharedBytes = 112 << 10;  // the most that one of them takes
  int shared_bytes = 0;
  check_cuda(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, exec.device.index),
             "cudaDeviceGetAttribute");
  return Libraries::of(exec).code_architecture() >= 800 && shared_bytes >= kSharedBytes;
}

bool pointwise_forward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void* w,
                       void* y, const PartMoments& moments) {
  if (!has_pointwise_kernels(exec) || !pointwise_takes(s, dtype) || !packs_aligned<uint4, 1>(x.x, w, y)) return false;
  if (dtype == DType::float16)
    run<__half>(exec, s, x, w, y, moments);
  else
    run<__nv_bfloat16>(exec, s, x, w, y, moments);
  return true;
}

}  // namespace bantam::kernels::cuda

// The masked input gradient of a pointwise convolution on CUDA: one wgmma kernel where the device has what it needs,
// else GEMMs of a few rows at a time, each with a pass that adds, masks and sums.
#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/pointwise/cuda/warpgroup_masked_gradient.h"
#include "bantam/kernels/pointwise/masked_gradient.h"

namespace bantam::kernels::cuda {
namespace {

/// Writes dz = mask·(product + addend); the terms of Σ dz, of eight columns, a byte of the mask.
template <class T>
struct MaskedTerms {
  static constexpr int kEight = 8;
  const float* product;
  const T* addend;
  const std::uint8_t* mask;
  T* dz;

  template <int N>
  struct Loaded {
    Pack<float, N> product;
    Pack<T, N> addend;
    unsigned bits;
  };
  template <int N>
  __device__ std::integral_constant<int, N> start(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ Loaded<N> load(std::int64_t at) const {
    static_assert(N == kEight);
    return {load_pack<N>(product + at), load_pack<N>(addend + at), mask[at / kEight]};
  }
  template <int N>
  __device__ void add(std::integral_constant<int, N>, const Loaded<N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float v[N];
    unpack<N>(loaded.addend, v);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      // NaN stays NaN, as in masked_activation_grad.
      v[n] = to_float(from_float<T>((loaded.product.v[n] + v[n]) * (loaded.bits >> n & 1u ? 1.0f : 0.0f)));
      sum[n] += v[n];
    }
    repack<N>(v, dz + at);
  }
};

}  // namespace

void masked_gradient(const Exec& exec, const PointwiseShape& s, DType dtype, const void* dy, const void* w,
                     const void* addend, const std::uint8_t* mask, void* dz, float* sums, Workspace workspace) {
  if (!masked_gradient_fits(s, dtype)) throw ShapeError("masked_gradient: a shape or a type that it does not support");
  require_workspace(workspace, masked_gradient_workspace_bytes(s, dtype, DeviceKind::cuda), "masked_gradient");
  float* const parts = static_cast<float*>(workspace.data);
  if (warpgroup_masked_gradient(exec, s, dtype, dy, w, addend, mask, dz, parts)) {
    merge_parts<1>(exec, parts, static_cast<unsigned>(MaskedGradientTiles(s).parts()), s.in,
                   TotalSums<1, FinishSum>{{sums, false}});
    return;
  }
  const MaskedGradientScratch scratch(s, dtype, DeviceKind::cuda, workspace);
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  for (std::int64_t first = 0; first < s.rows; first += scratch.chunks.rows) {
    const std::int64_t rows = std::min(scratch.chunks.rows, s.rows - first), at = first * s.in;
    matmul(exec, pointwise_grad_input_product({rows, s.in, s.out}), dtype,
           static_cast<const char*>(dy) + first * s.out * size, w, {.data = scratch.product}, scratch.gemm);
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (sizeof(T) == 2) {
        const MaskedTerms<T> terms{scratch.product, static_cast<const T*>(addend) + at, mask + at / 8,
                                   static_cast<T*>(dz) + at};
        row_sums<8, 1>(exec, rows, s.in, scratch.partials, terms, FinishSum{sums, first > 0});
      }
    });
  }
}

}  // namespace bantam::kernels::cuda

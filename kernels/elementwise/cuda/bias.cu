// Bias and its gradient on CUDA: channels in vectors, sums over rows in parts.
#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/bias.h"
#include "bantam/kernels/elementwise/elementwise.h"

namespace bantam::kernels::cuda {
namespace {

/// N values that a thread keeps.
template <int N>
struct Kept {
  float bias[N];
};

template <class T>
struct AddBias {
  const T* b;

  template <int N>
  __device__ Kept<N> load(std::int64_t c) const {
    Kept<N> kept;
#pragma unroll
    for (int n = 0; n < N; ++n) kept.bias[n] = to_float(b[c + n]);
    return kept;
  }
  template <int N>
  __device__ void apply(const Kept<N>& kept, float (&v)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] += kept.bias[n];
  }
};

}  // namespace

void bias_forward(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const void* x, const void* b,
                  void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const ChannelMap<T, AddBias<T>> map{static_cast<const T*>(x), {static_cast<const T*>(b)}, static_cast<T*>(y)};
    with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, rows, channels, map); }, channels, x, y);
  });
}

void bias_grad(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const void* dy, float* db,
               bool accumulate, Workspace workspace) {
  if (channels <= 0) return;
  if (rows <= 0) {
    if (!accumulate) fill(exec, channels, DType::float32, 0.0f, db);
    return;
  }
  require_workspace(workspace, bias_grad_workspace_bytes(rows, channels, DeviceKind::cuda), "bias_grad");
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_pack<T>(
        [&](auto n) {
          row_sums<decltype(n)::value, 1>(exec, rows, channels, static_cast<float*>(workspace.data),
                                          ValueTerms<T>{static_cast<const T*>(dy)}, FinishSum{db, accumulate});
        },
        channels, dy);
  });
}

}  // namespace bantam::kernels::cuda

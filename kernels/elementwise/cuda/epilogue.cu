// The epilogue of a layer on CUDA as a pass of its own: bias, sum and activation, channels in vectors.
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"
#include "bantam/kernels/elementwise/epilogue.h"

namespace bantam::kernels::cuda {
namespace {

/// N biases that a thread keeps.
template <int N>
struct KeptBias {
  float v[N];
};

/// The values that a thread has loaded of one row.
template <class T, int N>
struct LoadedRow {
  Pack<T, N> y, residual;
};

template <class T, class F>
struct ApplyEpilogue {
  const T* bias;      // or null
  const T* residual;  // or null
  T* y;
  F f;

  template <int N>
  __device__ KeptBias<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    KeptBias<N> kept;
#pragma unroll
    for (int n = 0; n < N; ++n) kept.v[n] = bias != nullptr ? to_float(bias[c + n]) : 0.0f;
    return kept;
  }
  template <int N>
  __device__ LoadedRow<T, N> load(std::int64_t at) const {
    LoadedRow<T, N> loaded;
    loaded.y = load_pack<N>(y + at);
    if (residual != nullptr) loaded.residual = load_pack<N>(residual + at);
    return loaded;
  }
  template <int N>
  __device__ void apply(const KeptBias<N>& kept, const LoadedRow<T, N>& loaded, std::int64_t at) const {
    float v[N];
    unpack<N>(loaded.y, v);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      v[n] += kept.v[n];
      if (residual != nullptr) v[n] += to_float(loaded.residual.v[n]);
    }
    apply_values(f, v);
    repack<N>(v, y + at);
  }
};

}  // namespace

void epilogue_forward(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const Epilogue& epilogue,
                      void* y) {
  if (epilogue.empty()) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *bias = static_cast<const T*>(epilogue.bias), *residual = static_cast<const T*>(epilogue.residual);
    with_activation(epilogue.f, [&](auto f) {
      const ApplyEpilogue<T, decltype(f)> map{bias, residual, static_cast<T*>(y), f};
      // A null residual is aligned to anything.
      with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, rows, channels, map); }, channels, y, residual);
    });
  });
}

}  // namespace bantam::kernels::cuda

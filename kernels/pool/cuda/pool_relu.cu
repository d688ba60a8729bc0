// The gradient of max pooling of a relu on CUDA: for windows of pairs in one pass over the windows, which writes their
// positions and adds them up; for others relu' and sums over the windows, then max pooling's gradient.
#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/common/fast_divide.h"
#include "bantam/kernels/pool/pool_relu.h"
#include "bantam/kernels/pool/pool_relu_parts.h"

namespace bantam::kernels::cuda {
namespace {

struct Nothing {};

/// The values that a thread has loaded of a window.
template <class T, int N>
struct LoadedWindow {
  Pack<T, N> dy, y;
  Pack<std::uint16_t, N> won;
};

/// Terms of Σ dz by windows, whose four positions are written beside them.
template <class T>
struct WindowTerms {
  const T *dy, *y;
  const std::uint16_t* winner;
  T* dz;
  std::int64_t channels, width;  // of z
  FastDivide by_channels, by_columns;

  template <int N>
  __device__ Nothing start(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ LoadedWindow<T, N> load(std::int64_t at) const {
    return {load_pack<N>(dy + at), load_pack<N>(y + at), *reinterpret_cast<const Pack<std::uint16_t, N>*>(winner + at)};
  }
  /// Offset in z of the first position of the window whose offset in y is `at`. Images have no rows between them.
  __device__ std::int64_t first_position(std::int64_t at) const {
    const Divided window = by_channels.divide(static_cast<std::uint32_t>(at));
    const Divided row = by_columns.divide(window.quotient);
    return (2 * std::int64_t{row.quotient} * width + 2 * row.remainder) * channels + window.remainder;
  }
  template <int N>
  __device__ void add(const Nothing&, const LoadedWindow<T, N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float g[N], maximum[N];
    unpack<N>(loaded.dy, g);
    unpack<N>(loaded.y, maximum);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      g[n] *= maximum[n] > 0.0f ? 1.0f : 0.0f;
      sum[n] += g[n];
    }
    const std::int64_t first = first_position(at);
#pragma unroll
    for (int place = 0; place < 4; ++place) {
      float values[N];
#pragma unroll
      for (int n = 0; n < N; ++n) values[n] = loaded.won.v[n] == place ? g[n] : 0.0f;
      repack<N>(values, dz + first + (place / 2 * width + place % 2) * channels);
    }
  }
};

}  // namespace

void max_pool2d_relu_grad(const Exec& exec, const Pool2dShape& shape, DType dtype, const void* dy, const void* y,
                          const std::uint16_t* winner, void* dz, float* sums, Workspace workspace) {
  require_workspace(workspace, max_pool2d_relu_grad_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "max_pool2d_relu_grad");
  const BiasShape windows = windows_of(shape);
  const Workspace parts = PoolReluWorkspace::of(shape, dtype, DeviceKind::cuda).sums(workspace);
  if (!pools_pairs(shape) || windows.elements() <= 0) {
    bias_activation_grad(exec, {Activation::relu}, windows, dtype, {.dy = dy, .y = y},
                         {.dx = workspace.data, .db = sums}, parts);
    return max_pool2d_grad_input(exec, shape, dtype, workspace.data, winner, dz);
  }
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const WindowTerms<T> terms{static_cast<const T*>(dy),  static_cast<const T*>(y), winner,
                               static_cast<T*>(dz),        shape.channels,           shape.in_w,
                               FastDivide(shape.channels), FastDivide(shape.out_w())};
    // Channels as far as packs of them are possible: one at a time where the winners' address allows no vectors.
    const std::int64_t packable = packs_aligned<std::uint16_t, 8>(winner) ? shape.channels : 1;
    with_pack<T>(
        [&](auto n) {
          row_sums<decltype(n)::value, 1>(exec, windows.rows, windows.channels, static_cast<float*>(parts.data), terms,
                                          FinishSum{sums, false});
        },
        packable, dy, y, dz);
  });
}

}  // namespace bantam::kernels::cuda

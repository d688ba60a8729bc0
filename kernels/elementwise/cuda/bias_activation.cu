// Bias and activation in one pass on CUDA: piecewise ones eight elements a thread, with their byte of the mask, others
// by rows of packs; the bias' gradient is summed in the pass that writes dx.
#include "bantam/kernels/common/cuda/reduce/row_sums.cuh"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/bias_activation.h"
#include "bantam/kernels/elementwise/cuda/activation_functions.cuh"
#include "bantam/kernels/elementwise/cuda/eights.cuh"
#include "bantam/kernels/elementwise/elementwise.h"

namespace bantam::kernels::cuda {
namespace {

/// b of eight neighbouring elements of which the first is of channel c; those from `valid` on are any channel's.
template <class T>
__device__ inline void add_bias(const T* b, std::int64_t c, std::int64_t channels, bool aligned, float (&x)[kEight]) {
  if (aligned) {
    float values[kEight];
    load_eight(b + c, kEight, true, values);
#pragma unroll
    for (int k = 0; k < kEight; ++k) x[k] += values[k];
    return;
  }
#pragma unroll
  for (int k = 0; k < kEight; ++k) {
    x[k] += to_float(b[c]);
    c = c + 1 == channels ? 0 : c + 1;
  }
}

/// Whether eights of the arrays, and of b, are loaded as vectors: `bias` needs eights that end with their row.
struct Aligned {
  bool arrays, bias;
};

/// at mod channels by a division of 32 bits; `at` counts elements of one round of a grid (stride_blocks), fewer than
/// 2^32.
__device__ inline std::int64_t channel_of(std::int64_t at, std::int64_t channels) {
  return at < channels ? at : static_cast<std::uint32_t>(at) % static_cast<std::uint32_t>(channels);
}

template <class T>
__global__ void bias_activation_forward_kernel(BiasShape shape, Aligned aligned, MaskedValues values, const T* x,
                                               const T* b, T* y, std::uint8_t* mask) {
  const std::int64_t count = shape.rows * shape.channels, channels = shape.channels;
  const std::int64_t step = channel_of(grid_threads() * kEight, channels);
  std::int64_t c = channel_of(grid_thread() * kEight, channels);
  for (std::int64_t i = grid_thread(); i * kEight < count; i += grid_threads()) {
    const int valid = valid_of(count, i);
    float v[kEight];
    load_eight(x + i * kEight, valid, aligned.arrays, v);
    add_bias(b, c, channels, aligned.bias, v);
    c += step;
    if (c >= channels) c -= channels;
    const unsigned bits = values(v, valid);
    if (mask != nullptr) mask[i] = static_cast<std::uint8_t>(bits);
    store_eight(v, valid, aligned.arrays, y + i * kEight);
  }
}

template <class T>
void run_forward(const Exec& exec, const BiasShape& shape, const MaskedValues& values, const void* x, const void* b,
                 void* y, std::uint8_t* mask) {
  const Aligned aligned{packs_aligned<T, kVectorLanes<T>>(x, y),
                        shape.channels % kEight == 0 && packs_aligned<T, kVectorLanes<T>>(b)};
  const std::int64_t eights = (shape.elements() + kEight - 1) / kEight;
  bias_activation_forward_kernel<<<stride_blocks(eights), kMapThreads, 0, stream_of(exec)>>>(
      shape, aligned, values, static_cast<const T*>(x), static_cast<const T*>(b), static_cast<T*>(y), mask);
  check_launch("bias_activation_forward_kernel");
}

/// Keeps the bias of a thread's N channels in registers, loaded once for all rows.
template <int N>
struct KeptBias {
  float bias[N];

  /// b from channel c on; 0 where it is null.
  template <class T>
  static __device__ KeptBias of(const T* b, std::int64_t c) {
    KeptBias kept;
#pragma unroll
    for (int n = 0; n < N; ++n) kept.bias[n] = b != nullptr ? to_float(b[c + n]) : 0.0f;
    return kept;
  }
};

/// f(x + b) for any other f, which has no bits.
template <class T>
struct SmoothValues {
  const T* b;
  ActivationValues f;

  template <int N>
  __device__ KeptBias<N> load(std::int64_t c) const {
    return KeptBias<N>::of(b, c);
  }
  template <int N>
  __device__ void apply(const KeptBias<N>& kept, float (&v)[N]) const {
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] += kept.bias[n];
    f(v);
  }
};

/// f'(x + b).
template <class T>
struct SmoothSlopes {
  const T* b;
  ActivationSlopes slopes;

  template <int N>
  __device__ KeptBias<N> load(std::int64_t c) const {
    return KeptBias<N>::of(b, c);
  }
  template <int N>
  __device__ void apply(const KeptBias<N>& kept, float (&v)[N]) const {
    float slope[N];
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] += kept.bias[n];
#pragma unroll
    for (int n = 0; n < N; ++n) slope[n] = 1.0f;
    slopes(v, slope);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = slope[n];
  }
};

template <class T, int N>
struct MaskedLoad {
  Pack<T, N> dy;
  unsigned bits;
};

/// Terms of Σ dx by a mask, of which N elements have neighbouring bits of one byte; dx is written beside them.
template <class T>
struct MaskedTerms {
  const T* dy;
  const std::uint8_t* mask;
  float below;
  T* dx;

  template <int N>
  __device__ KeptBias<1> start(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ MaskedLoad<T, N> load(std::int64_t at) const {
    return {load_pack<N>(dy + at), static_cast<unsigned>(mask[at / 8]) >> (at % 8)};
  }
  template <int N>
  __device__ void add(const KeptBias<1>&, const MaskedLoad<T, N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float g[N];
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      g[n] *= (loaded.bits >> n) & 1u ? 1.0f : below;
      sum[n] += g[n];
    }
    repack<N>(g, dx + at);
  }
};

template <class T, int N>
struct SavedLoad {
  Pack<T, N> saved, dy;
};

/// The same of a piecewise f by y.
template <class T>
struct PiecewiseTerms {
  const T *y, *dy;
  PiecewiseLinear f;
  T* dx;

  template <int N>
  __device__ KeptBias<1> start(std::int64_t) const {
    return {};
  }
  template <int N>
  __device__ SavedLoad<T, N> load(std::int64_t at) const {
    return {load_pack<N>(y + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void add(const KeptBias<1>&, const SavedLoad<T, N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float s[N], g[N];
    unpack<N>(loaded.saved, s);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      g[n] *= f.derivative(s[n]);
      sum[n] += g[n];
    }
    repack<N>(g, dx + at);
  }
};

/// The same of any other f by x and b, or by y where b is null.
template <class T>
struct SmoothTerms {
  const T *saved, *b, *dy;
  ActivationSlopes slopes;
  T* dx;

  template <int N>
  __device__ KeptBias<N> start(std::int64_t c) const {
    return KeptBias<N>::of(b, c);
  }
  template <int N>
  __device__ SavedLoad<T, N> load(std::int64_t at) const {
    return {load_pack<N>(saved + at), load_pack<N>(dy + at)};
  }
  template <int N>
  __device__ void add(const KeptBias<N>& kept, const SavedLoad<T, N>& loaded, std::int64_t at, float (&sum)[N]) const {
    float s[N], g[N];
    unpack<N>(loaded.saved, s);
    unpack<N>(loaded.dy, g);
#pragma unroll
    for (int n = 0; n < N; ++n) s[n] += kept.bias[n];
    slopes(s, g);
#pragma unroll
    for (int n = 0; n < N; ++n) sum[n] += g[n];
    repack<N>(g, dx + at);
  }
};

}  // namespace

void bias_activation_forward(const Exec& exec, ActivationFunction f, const BiasShape& shape, DType dtype, const void* x,
                             const void* b, void* y, std::uint8_t* mask) {
  if (shape.elements() <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (is_piecewise(f.kind)) return run_forward<T>(exec, shape, MaskedValues{PiecewiseLinear::of(f)}, x, b, y, mask);
    const ChannelMap<T, SmoothValues<T>> map{
        static_cast<const T*>(x), {static_cast<const T*>(b), {f.kind, f.slope}}, static_cast<T*>(y)};
    with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, shape.rows, shape.channels, map); }, shape.channels,
                 map.x, map.y);
  });
}

void bias_activation_slopes(const Exec& exec, ActivationFunction f, const BiasShape& shape, DType dtype, const void* x,
                            const void* b, void* d) {
  if (shape.elements() <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const ChannelMap<T, SmoothSlopes<T>> map{
        static_cast<const T*>(x), {static_cast<const T*>(b), {f.kind, f.slope}}, static_cast<T*>(d)};
    with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, shape.rows, shape.channels, map); }, shape.channels,
                 map.x, map.y);
  });
}

void bias_activation_grad(const Exec& exec, ActivationFunction f, const BiasShape& shape, DType dtype,
                          const BiasActivationGradInputs& in, const BiasActivationGradients& to, Workspace workspace) {
  if (shape.channels <= 0) return;
  if (shape.rows <= 0) {
    if (!to.accumulate) fill(exec, shape.channels, DType::float32, 0.0f, to.db);
    return;
  }
  require_workspace(workspace, bias_activation_grad_workspace_bytes(shape, DeviceKind::cuda), "bias_activation_grad");
  const bool reads_input = activation_grad_reads_input(f.kind);
  const bool by_mask = is_piecewise(f.kind) && in.mask != nullptr;
  const void* saved = by_mask ? nullptr : reads_input ? in.x : in.y;
  const FinishSum finish{to.db, to.accumulate};
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* dy = static_cast<const T*>(in.dy);
    T* dx = static_cast<T*>(to.dx);
    const auto run = [&](const auto& terms) {
      with_pack<T>(
          [&](auto n) {
            row_sums<decltype(n)::value, 1>(exec, shape.rows, shape.channels, static_cast<float*>(workspace.data),
                                            terms, finish);
          },
          shape.channels, dy, dx, saved);
    };
    if (by_mask)
      run(MaskedTerms<T>{dy, in.mask, PiecewiseLinear::of(f).below, dx});
    else if (is_piecewise(f.kind))
      run(PiecewiseTerms<T>{static_cast<const T*>(saved), dy, PiecewiseLinear::of(f), dx});
    else
      run(SmoothTerms<T>{static_cast<const T*>(saved),
                         reads_input ? static_cast<const T*>(in.b) : nullptr,
                         dy,
                         {f.kind, f.slope},
                         dx});
  });
}

}  // namespace bantam::kernels::cuda

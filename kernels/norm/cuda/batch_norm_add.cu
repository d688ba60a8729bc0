// The sum over batch norms on CUDA: a thread keeps what eight channels need and walks down rows, a byte of the mask
// each. Backward, the gradient is summed and masked by the pass that sums over rows.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/piecewise.h"
#include "bantam/kernels/norm/batch_norm_add.h"
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kEight = 8;

/// The operands, and what makes one value of the sum of one of each.
template <class T, bool kBothNormalised>
struct SumOf {
  const T* a;
  const T* b;
  AffineSource a_norm, b_norm;
  PiecewiseLinear f;

  /// N channels' share of both norms.
  template <int N>
  struct Kept {
    Affine<N> a;
    Affine<kBothNormalised ? N : 1> b;
  };
  template <int N>
  __device__ Kept<N> keep(std::int64_t c) const {
    if constexpr (kBothNormalised) return {a_norm.load<N>(c), b_norm.load<N>(c)};
    return {a_norm.load<N>(c), {}};
  }
  /// The norms' results are rounded, as if they had been written.
  template <int N>
  __device__ float sum(const Kept<N>& kept, int n, float left, float right) const {
    if constexpr (kBothNormalised) right = to_float(from_float<T>(kept.b.z(n, right)));
    return to_float(from_float<T>(kept.a.z(n, left))) + right;
  }
};

template <class T>
struct BothPacks {
  Pack<T, kEight> a, b;
};

/// Rows of whole bytes of the mask.
template <class T, bool kBothNormalised>
struct SumRows {
  SumOf<T, kBothNormalised> of;
  T* y;
  std::uint8_t* mask;

  template <int N>
  __device__ auto start(std::int64_t c, std::integral_constant<int, N>) const {
    return of.template keep<N>(c);
  }
  template <int N>
  __device__ BothPacks<T> load(std::int64_t at) const {
    static_assert(N == kEight);
    return {load_pack<N>(of.a + at), load_pack<N>(of.b + at)};
  }
  template <class Kept>
  __device__ void apply(const Kept& kept, const BothPacks<T>& loaded, std::int64_t at) const {
    float left[kEight], right[kEight];
    unpack<kEight>(loaded.a, left);
    unpack<kEight>(loaded.b, right);
    unsigned bits = 0;
#pragma unroll
    for (int n = 0; n < kEight; ++n) {
      const float x = of.sum(kept, n, left[n], right[n]);
      bits |= (of.f.rises(x) ? 1u : 0u) << n;
      left[n] = of.f(x);
    }
    if (mask != nullptr) mask[at / kEight] = static_cast<std::uint8_t>(bits);
    repack<kEight>(left, y + at);
  }
};

/// Any number of channels and any address: a thread does the eight elements of a byte one by one.
template <class T, bool kBothNormalised>
__global__ void batch_norm_add_kernel(std::int64_t count, std::int64_t channels, SumOf<T, kBothNormalised> of, T* y,
                                      std::uint8_t* mask) {
  for (std::int64_t i = grid_thread(); i * kEight < count; i += grid_threads()) {
    unsigned bits = 0;
    for (int k = 0; k < kEight && i * kEight + k < count; ++k) {
      const std::int64_t at = i * kEight + k;
      const float x = of.sum(of.template keep<1>(at % channels), 0, to_float(of.a[at]), to_float(of.b[at]));
      bits |= (of.f.rises(x) ? 1u : 0u) << k;
      y[at] = from_float<T>(of.f(x));
    }
    if (mask != nullptr) mask[i] = static_cast<std::uint8_t>(bits);
  }
}

template <class T, bool kBothNormalised>
void launch(const Exec& exec, const BatchNormShape& shape, const SumOf<T, kBothNormalised>& of, T* y,
            std::uint8_t* mask) {
  if (shape.channels % kEight == 0 && packs_aligned<T, kEight>(of.a, of.b, y))
    return map_rows<kEight>(exec, shape.rows, shape.channels, SumRows<T, kBothNormalised>{of, y, mask});
  const std::int64_t count = shape.rows * shape.channels;
  batch_norm_add_kernel<<<stride_blocks((count + kEight - 1) / kEight), kMapThreads, 0, stream_of(exec)>>>(
      count, shape.channels, of, y, mask);
  check_launch("batch_norm_add_kernel");
}

/// Bits of the mask for the N elements at `at`, from bit 0 on.
template <int N>
__device__ inline unsigned mask_bits(const std::uint8_t* mask, std::int64_t at) {
  return static_cast<unsigned>(mask[at / kEight]) >> (N == kEight ? 0 : at % kEight);
}

/// Terms of Σ dz and Σ dz·(x - mean), and dz itself, from the deferred gradient's operands.
template <class T>
struct SumGradientTerms {
  const T* x;
  const T* dy;
  const T* other;
  const std::uint8_t* mask;
  const float* mean;
  float below;
  T* dz;

  template <int N>
  struct Kept {
    float mean[N];
  };
  template <int N>
  struct Loaded {
    Pack<T, N> x, dy, other;
    unsigned bits;
  };
  template <int N>
  __device__ Kept<N> start(std::int64_t c) const {
    Kept<N> kept;
    load_floats(mean, c, 0.0f, kept.mean);
    return kept;
  }
  template <int N>
  __device__ Loaded<N> load(std::int64_t at) const {
    Loaded<N> loaded{load_pack<N>(x + at), load_pack<N>(dy + at), {}, ~0u};
    if (other != nullptr) loaded.other = load_pack<N>(other + at);
    if (mask != nullptr) loaded.bits = mask_bits<N>(mask, at);
    return loaded;
  }
  template <int N>
  __device__ void add(const Kept<N>& kept, const Loaded<N>& loaded, std::int64_t at, float (&sum)[2 * N]) const {
    float v[N], g[N], more[N];
    unpack<N>(loaded.x, v);
    unpack<N>(loaded.dy, g);
    if (other != nullptr) {
      unpack<N>(loaded.other, more);
#pragma unroll
      for (int n = 0; n < N; ++n) g[n] = to_float(from_float<T>(g[n] + more[n]));
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
      g[n] = to_float(from_float<T>(g[n] * ((loaded.bits >> n) & 1u ? 1.0f : below)));
      add_gradient_terms(g[n], v[n] - kept.mean[n], sum[n], sum[N + n]);
    }
    repack<N>(g, dz + at);
  }
};

}  // namespace

void batch_norm_add(const Exec& exec, ActivationFunction f, const BatchNormShape& shape, DType dtype,
                    const NormOperand& a, const NormOperand& b, void* y, std::uint8_t* mask) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *left = static_cast<const T*>(a.x), *right = static_cast<const T*>(b.x);
    const PiecewiseLinear line = PiecewiseLinear::of(f);
    if (b.normalised())
      launch(exec, shape, SumOf<T, true>{left, right, affine_of(a), affine_of(b), line}, static_cast<T*>(y), mask);
    else
      launch(exec, shape, SumOf<T, false>{left, right, affine_of(a), {}, line}, static_cast<T*>(y), mask);
  });
}

void batch_norm_add_grad(const Exec& exec, const BatchNormShape& shape, DType dtype, const SumGradient& gradient,
                         const NormOperand& norm, void* dz, const NormGradients& to, Workspace workspace) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(shape, dtype, DeviceKind::cuda), "batch_norm_add_grad");
  const GradientSums sums(shape, norm.inv_std, to.dscale, to.dshift, to.accumulate, workspace);
  const PiecewiseLinear none = PiecewiseLinear::of({});
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *x = static_cast<const T*>(norm.x), *dy = static_cast<const T*>(gradient.dy),
            *other = static_cast<const T*>(gradient.other);
    T *z = static_cast<T*>(dz), *dx = static_cast<T*>(to.dx);
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          sums.template run<N>(exec, SumGradientTerms<T>{x, dy, other, gradient.mask, norm.mean,
                                                         PiecewiseLinear::of(gradient.f).below, z});
          if (dx) sums.template input_gradient<N, false>(exec, x, z, affine_of(norm), none, dx);
        },
        shape.channels, x, dy, other, z, dx);
  });
}

}  // namespace bantam::kernels::cuda

// Max pooling that normalises as it reads on CUDA; backward is that of the two layers.
#include <math_constants.h>

#include "bantam/kernels/contracts/pool/norm_pool.h"
#include "bantam/kernels/cuda/elementwise/activation_math.cuh"
#include "bantam/kernels/cuda/norm/clamped_norm.cuh"
#include "bantam/kernels/cuda/pool/pool_index.cuh"
#include "bantam/kernels/tiling/workspace_layout.h"

namespace bantam::kernels::cuda {
namespace {

/// Where an offset in an NHWC array of rows of packs lies. Divides 32 bits where they hold all of the array's packs.
struct PlaceIndex {
  std::int64_t packs, width, height;
  FastDivide by_packs, by_columns, by_rows;
  bool narrow;

  template <int N>
  static PlaceIndex of(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t channels) {
    const std::int64_t packs = channels / N;
    return {packs,
            width,
            height,
            FastDivide(packs),
            FastDivide(width),
            FastDivide(height),
            batch * height * width * packs <= 0x7fffffff};
  }
  template <int N>
  __device__ PoolPlace place(std::int64_t at) const {
    if (narrow) {
      const Divided pack = by_packs.divide(static_cast<std::uint32_t>(at / N));
      const Divided column = by_columns.divide(pack.quotient);
      const Divided row = by_rows.divide(column.quotient);
      return {static_cast<std::int64_t>(row.quotient), static_cast<int>(row.remainder),
              static_cast<int>(column.remainder), static_cast<int>(pack.remainder) * N};
    }
    const std::int64_t pack = at / N, position = pack / packs, line = position / width;
    return {line / height, static_cast<int>(line % height), static_cast<int>(position % width),
            static_cast<int>(pack % packs) * N};
  }
};

/// A window's maximum as it grows, in the order of its positions: the first one wins, and NaN wins over numbers.
template <int N>
struct Maximum {
  float best[N];
  Pack<std::uint16_t, N> place;

  __device__ explicit Maximum(int first) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      best[n] = -CUDART_INF_F;
      place.v[n] = static_cast<std::uint16_t>(first);
    }
  }
  __device__ void see(int n, float v, int at) {
    if (v > best[n] || (v != v && best[n] == best[n])) {
      best[n] = v;
      place.v[n] = static_cast<std::uint16_t>(at);
    }
  }
};

/// Forward: rows are windows. kWindow: both sizes of the window, known at compile time, so that all of its loads are
/// under way at once; 0: any.
template <class T, class Function, int kWindow>
struct NormedMaximum {
  const T* x;
  AffineSource affine;
  Function f;
  Pool pool;
  PlaceIndex index;
  T* y;
  std::uint16_t* winner;

  struct Nothing {};
  template <int N>
  __device__ Affine<N> start(std::int64_t c, std::integral_constant<int, N>) const {
    return affine.load<N>(c);
  }
  template <int N>
  __device__ Nothing load(std::int64_t) const {
    return {};
  }
  /// What stands at a position after the norm was written: rounded.
  template <int N>
  __device__ void see(const Affine<N>& kept, const Pack<T, N>& loaded, int at, Maximum<N>& most) const {
    float v[N];
    unpack<N>(loaded, v);
#pragma unroll
    for (int n = 0; n < N; ++n) most.see(n, to_float(from_float<T>(f(kept.z(n, v[n])))), at);
  }
  template <int N>
  __device__ void apply(const Affine<N>& kept, Nothing, std::int64_t to) const {
    const PoolPlace at = index.place<N>(to);
    const int top = at.row * pool.h.stride - pool.h.pad, left = at.column * pool.w.stride - pool.w.pad;
    const Span rows = real_places<false>(pool.h, at.row), columns = real_places<false>(pool.w, at.column);
    Maximum<N> most(rows.begin * pool.w.window + columns.begin);
    const auto from = [&](int kh, int kw) {
      return x + offset_in(at, pool.h.in, pool.w.in, top + kh, left + kw, pool.channels);
    };
    if constexpr (kWindow > 0) {
      const auto real = [&](int i) {
        return i / kWindow >= rows.begin && i / kWindow < rows.end && i % kWindow >= columns.begin &&
               i % kWindow < columns.end;
      };
      Pack<T, N> loaded[kWindow * kWindow];
#pragma unroll
      for (int i = 0; i < kWindow * kWindow; ++i)
        if (real(i)) loaded[i] = load_pack<N>(from(i / kWindow, i % kWindow));
#pragma unroll
      for (int i = 0; i < kWindow * kWindow; ++i)
        if (real(i)) see<N>(kept, loaded[i], i, most);
    } else {
      for (int kh = rows.begin; kh < rows.end; ++kh)
        for (int kw = columns.begin; kw < columns.end; ++kw)
          see<N>(kept, load_pack<N>(from(kh, kw)), kh * pool.w.window + kw, most);
    }
    repack<N>(most.best, y + to);
    if (winner != nullptr) *reinterpret_cast<Pack<std::uint16_t, N>*>(winner + to) = most.place;
  }
};

/// Channels as far as packs of them are possible: one at a time where the winners' address allows no vectors.
std::int64_t packable_channels(std::int64_t channels, const std::uint16_t* winner) {
  return packs_aligned<std::uint16_t, 8>(winner) ? channels : 1;
}

/// Calls call(T{}, f, N) for the type, what computes the activation, and how many channels are read at once.
template <class Call, class... Pointers>
void dispatch(const Pool2dShape& shape, DType dtype, ActivationFunction activation, const std::uint16_t* winner,
              Call&& call, const Pointers*... addresses) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_activation(activation, [&](auto f) {
      with_pack<T>([&](auto n) { call(tag, f, n); }, packable_channels(shape.channels, winner), addresses...);
    });
  });
}

/// Calls call(std::integral_constant<int, k>) where `number` is one of kKnown, packs are 16 bytes and the activation is
/// piecewise, else for 0: the rest is too rare, or too much code, for kernels of its own.
template <class T, int N, class Function, int... kKnown, class Call>
void with_known(std::int64_t number, std::integer_sequence<int, kKnown...>, Call&& call) {
  bool called = false;
  if constexpr (N == kVectorLanes<T> && std::is_same_v<Function, PiecewiseLinear>)
    ((number == kKnown ? (call(std::integral_constant<int, kKnown>{}), called = true) : false), ...);
  if (!called) call(std::integral_constant<int, 0>{});
}

}  // namespace

void norm_pool_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, const NormOperand& x, void* y,
                       std::uint16_t* winner, Workspace workspace) {
  if (shape.y_elements() <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(norm_of_pool(shape), dtype, DeviceKind::cuda),
                    "norm_pool_forward");
  const std::int64_t rows = shape.batch * shape.out_h() * shape.out_w();
  const std::int64_t window = shape.window_h == shape.window_w ? shape.window_h : 0;
  dispatch(
      shape, dtype, x.affine.activation, winner,
      [&](auto tag, auto f, auto n) {
        using T = typename decltype(tag)::type;
        constexpr int N = decltype(n)::value;
        const PlaceIndex index = PlaceIndex::of<N>(shape.batch, shape.out_h(), shape.out_w(), shape.channels);
        with_known<T, N, decltype(f)>(window, std::integer_sequence<int, 2, 3>{}, [&](auto size) {
          map_rows<N>(exec, rows, shape.channels,
                      NormedMaximum<T, decltype(f), decltype(size)::value>{
                          static_cast<const T*>(x.x), affine_of(x), f, pool(shape), index, static_cast<T*>(y), winner});
        });
      },
      x.x, y);
}

/// Two kernels' work, one after another: gathering from the windows in both passes of the norm took longer than writing
/// the pooling's gradient once (resnet50's stem on an H200).
void norm_pool_backward(const Exec& exec, const Pool2dShape& shape, DType dtype, const NormOperand& x, const void* dy,
                        const std::uint16_t* winner, const NormGradients& to, Workspace workspace) {
  max_pool2d_grad_input(exec, shape, dtype, dy, winner, to.dx);
  batch_norm_backward_training(exec, norm_of_pool(shape), dtype, x, to.dx, to, workspace);
}

}  // namespace bantam::kernels::cuda

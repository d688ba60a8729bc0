// Max pooling of a batch norm's output on CUDA, ReLU and windows of 3x3 at stride 2: forward walks down the image and
// normalises each row once for the windows that hold it; backward computes the pooling's input gradient in registers,
// by quads of four positions, once for the norm's sums and once for dx.
#include "bantam/base/error.h"
#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"
#include "bantam/kernels/pool/cuda/pool3x3.cuh"
#include "bantam/kernels/pool/norm_pool.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kChannels = 4;         ///< channels of a thread in forward
constexpr int kWindowsOfThread = 8;  ///< windows of a thread in forward, one below the other
constexpr int kWindowsAhead = 2;     ///< windows whose rows are being loaded meanwhile
constexpr int kQuadChannels = 8;     ///< channels of a thread in backward

/// A value of the pooling and its place in the window as one number, so that a maximum of numbers is the pooling's: the
/// value's 16 bits, which grow with the value since ReLU leaves no sign, and are greatest for NaN; then 8 - place, so
/// that the first of equals wins.
using Keys = std::uint32_t[kChannels];

/// The three columns of a window. One in the padding is the nearest that is not, with that one's place: it changes no
/// maximum.
struct WindowColumns {
  int offset[3];           ///< from the row's first element
  std::uint32_t place[3];  ///< 2 - column

  __device__ WindowColumns(const Pool& p, int window) {
    const int left = window * 2 - p.w.pad;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      const int column = max(0, min(left + k, p.w.in - 1));
      offset[k] = column * p.channels;
      place[k] = 2 - (column - left);
    }
  }
};

/// One row of x in a window.
template <class T>
struct WindowRow {
  LoadedPack<T, kChannels> column[3];

  __device__ void load(const T* row, const WindowColumns& columns) {
#pragma unroll
    for (int k = 0; k < 3; ++k) column[k] = LoadedPack<T, kChannels>::from(row + columns.offset[k]);
  }
  /// Keys of the row's maxima, with the places of a window's last row.
  __device__ void maxima(const Affine<kChannels>& norm, const WindowColumns& columns, Keys& keys) const {
    using Pair = HalfPair<T>;
#pragma unroll
    for (int n = 0; n < kChannels; n += 2) {
      std::uint32_t low[3], high[3];
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        const auto x = Pair::of(column[k].words[n / 2]);
        const auto z = Pair::pack(norm.z(n, __low2float(x)), norm.z(n + 1, __high2float(x)));
        const std::uint32_t values = bits_of(max_of(z, Pair::of(0)));  // +0 is larger than -0
        low[k] = __byte_perm(values, columns.place[k], 0x1054);
        high[k] = __byte_perm(values, columns.place[k], 0x3254);
      }
      keys[n] = __vimax3_u32(low[0], low[1], low[2]);
      keys[n + 1] = __vimax3_u32(high[0], high[1], high[2]);
    }
  }
};

/// Writes the values of keys to y and, unless it is null, their places to `winner`.
template <class T>
__device__ inline void store(const Keys& keys, T* y, std::uint8_t* winner) {
  Pack<std::uint32_t, kChannels / 2> values;
  Pack<std::uint32_t, kChannels / 4> places;
#pragma unroll
  for (int n = 0; n < kChannels; n += 2) values.v[n / 2] = __byte_perm(keys[n], keys[n + 1], 0x7632);
  *reinterpret_cast<Pack<std::uint32_t, kChannels / 2>*>(y) = values;
  if (winner == nullptr) return;
#pragma unroll
  for (int n = 0; n < kChannels; n += 4)
    places.v[n / 4] = 0x08080808u - __byte_perm(__byte_perm(keys[n], keys[n + 1], 0x40),
                                                __byte_perm(keys[n + 2], keys[n + 3], 0x40), 0x5410);
  *reinterpret_cast<Pack<std::uint32_t, kChannels / 4>*>(winner) = places;
}

/// A thread has windows one below the other, and holds the maxima of the row that two of them share.
template <class T>
__global__ void __launch_bounds__(kPoolThreads, 3)
    norm_pool3_kernel(const T* x, AffineSource source, T* y, std::uint8_t* winner, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<kChannels>(p, thread);
  const WindowColumns columns(p, at.column);
  const int first = at.row * kWindowsOfThread, last = min(first + kWindowsOfThread, p.h.out);
  const int pitch = p.w.in * p.channels, end = last * 2 - p.h.pad;
  const T* const image = x + at.image * p.h.in * pitch + at.c;
  const auto load = [&](WindowRow<T>& loaded, int r) {
    if (r < p.h.in && r <= end) loaded.load(image + r * pitch, columns);
  };
  int row = first * 2 - p.h.pad;  // the first of the next window
  std::int64_t to = offset_in(at, p.h.out, p.w.out, first, at.column, p.channels);
  WindowRow<T> shared, ahead[kWindowsAhead][2] = {};
  load(shared, max(row, 0));
#pragma unroll
  for (int i = 0; i < 2 * kWindowsAhead; ++i) load(ahead[i / 2][i % 2], row + 1 + i);
  const Affine<kChannels> norm = source.load<kChannels>(at.c);
  Keys best = {}, next;
  if (row >= 0) shared.maxima(norm, columns, best);
  const auto row_maxima = [&](WindowRow<T>& loaded, int r) {  // to `next`; 0, which changes no maximum, below the image
    if (r < p.h.in) {
      loaded.maxima(norm, columns, next);
      load(loaded, r + 2 * kWindowsAhead);
    } else {
#pragma unroll
      for (int n = 0; n < kChannels; ++n) next[n] = 0;
    }
  };
  while (row < end) {
#pragma unroll
    for (int i = 0; i < kWindowsAhead; ++i) {
      row_maxima(ahead[i][0], row + 1);
      const unsigned above = row < 0 ? 0 : 3;  // padding has no place
#pragma unroll
      for (int n = 0; n < kChannels; ++n) best[n] = __viaddmax_u32(best[n], above, next[n]);
      row_maxima(ahead[i][1], row + 2);
#pragma unroll
      for (int n = 0; n < kChannels; ++n) best[n] = __viaddmax_u32(best[n], 3, next[n]);
      store(best, y + to, winner != nullptr ? winner + to : nullptr);
#pragma unroll
      for (int n = 0; n < kChannels; ++n) best[n] = next[n];
      row += 2, to += p.w.out * p.channels;
      if (row >= end) break;
    }
  }
}

/// As PiecewiseLinear, known at compile time.
struct Relu {
  __device__ float derivative(float z) const { return z > 0.0f ? 1.0f : 0.0f; }
};

/// x and windows of a quad, N channels.
template <class T, int N>
struct LoadedQuad {
  Square square;
  QuadWindows<T, std::uint8_t, N> windows;
  LoadedPack<T, N> x[4];

  /// dy of window w where position k won it, 0 elsewhere: channels n and n + 1.
  __device__ std::uint32_t won(int k, int w, int n) const {
    const std::uint32_t places = __byte_perm(windows.won[w].words[n / 4], 0, n % 4 == 0 ? 0x4140 : 0x4342);
    return windows.dy[w].words[n / 2] & mask_equal_numbers(places, place_in_window(k, w) * 0x10001u);
  }
  /// The pooling's input gradient of position k, rounded to T as if it were written: channels n and n + 1.
  __device__ std::uint32_t gradient(int k, int n) const {
    using Pair = HalfPair<T>;
    if (k == 0) return won(0, 0, n);
    if (k < 3) return bits_of(Pair::add(Pair::of(won(k, 0, n)), Pair::of(won(k, k, n))));  // one rounding as well
    float low = __low2float(Pair::of(won(k, 0, n))), high = __high2float(Pair::of(won(k, 0, n)));
#pragma unroll
    for (int w = 1; w < 4; ++w) {
      const auto pair = Pair::of(won(k, w, n));
      low += __low2float(pair);
      high += __high2float(pair);
    }
    return bits_of(Pair::pack(low, high));
  }
  __device__ TwoPacks<T, N> position(int k) const {
    LoadedPack<T, N> dy;
#pragma unroll
    for (int n = 0; n < N; n += 2) dy.words[n / 2] = gradient(k, n);
    return {x[k].pack(), dy.pack()};
  }
};

/// The quads of a call as the rows of an array (quads, channels).
template <class T>
struct Quads {
  const T* x;
  const T* dy;
  const std::uint8_t* winner;
  Pool p;

  template <int N>
  __device__ LoadedQuad<T, N> load(std::int64_t at) const {
    const PoolPlace place = quad_place<N>(p, static_cast<std::uint32_t>(static_cast<std::uint64_t>(at) / N));
    LoadedQuad<T, N> quad{positions_of(p, place), QuadWindows<T, std::uint8_t, N>::load(p, place, dy, winner), {}};
#pragma unroll
    for (int k = 0; k < 4; ++k) quad.x[k] = LoadedPack<T, N>::from(quad.square.of(x, k));
    return quad;
  }
};

/// Terms of Σ dz and Σ dz·(x - mean).
template <class T>
struct QuadTerms {
  static constexpr int kRowsAtOnce = 1;

  Quads<T> quads;
  GradientTerms<T, Relu> norm;

  template <int N>
  __device__ Affine<N> start(std::int64_t c) const {
    return norm.template start<N>(c);
  }
  template <int N>
  __device__ LoadedQuad<T, N> load(std::int64_t at) const {
    return quads.template load<N>(at);
  }
  template <int N>
  __device__ void add(const Affine<N>& kept, const LoadedQuad<T, N>& quad, std::int64_t at, float (&sum)[2 * N]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (quad.square.is_in_image(k)) norm.add(kept, quad.position(k), at, sum);
  }
};

/// The norm's dx.
template <class T>
struct QuadInputGradient {
  static constexpr int kRowsAtOnce = 1;
  static constexpr std::int64_t kRounds = 8;  ///< quads of a thread: its preparation reads six vectors

  Quads<T> quads;
  InputGradient<T, Relu> norm;

  template <int N>
  __device__ InputGradientKept<N> start(std::int64_t c, std::integral_constant<int, N> n) const {
    return norm.start(c, n);
  }
  template <int N>
  __device__ LoadedQuad<T, N> load(std::int64_t at) const {
    return quads.template load<N>(at);
  }
  template <int N>
  __device__ void apply(const InputGradientKept<N>& kept, const LoadedQuad<T, N>& quad, std::int64_t) const {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (quad.square.is_in_image(k)) norm.apply(kept, quad.position(k), quad.square.of(norm.dx, k) - norm.dx);
  }
};

template <class Call>
void dispatch_half(DType dtype, Call&& call) {
  if (dtype == DType::float16) return call(std::type_identity<__half>{});
  call(std::type_identity<__nv_bfloat16>{});
}

void require_support(const char* name, const Pool2dShape& shape, DType dtype, const NormOperand& x) {
  if (!norm_pool_supports(shape, x.affine.activation, dtype, DeviceKind::cuda))
    throw ShapeError(std::string(name) +
                     ": CUDA has no kernel for this window, activation, type or number of channels");
}

}  // namespace

void norm_pool_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, const NormOperand& x, void* y,
                       void* winner, Workspace) {
  require_support("norm_pool_forward", shape, dtype, x);
  if (shape.y_elements() <= 0) return;
  dispatch_half(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Pool p = pool(shape);
    const int segments = static_cast<int>(blocks_for(p.h.out, kWindowsOfThread));
    launch_pool_places<kChannels>(
        p, shape.batch, segments, p.w.out,
        [&](unsigned blocks, std::uint32_t threads, const Pool& q, std::int64_t from, std::int64_t to) {
          norm_pool3_kernel<<<blocks, kPoolThreads, 0, stream_of(exec)>>>(
              static_cast<const T*>(x.x) + from, affine_of(x), static_cast<T*>(y) + to,
              winner ? static_cast<std::uint8_t*>(winner) + to : nullptr, q, threads);
        });
  });
}

void norm_pool_backward(const Exec& exec, const Pool2dShape& shape, DType dtype, const NormOperand& x, const void* dy,
                        const void* winner, const NormGradients& to, Workspace workspace) {
  require_support("norm_pool_backward", shape, dtype, x);
  const BatchNormShape norm = norm_of_pool(shape);
  if (norm.rows <= 0 || norm.channels <= 0) return;
  require_workspace(workspace, batch_norm_workspace_bytes(norm, dtype, DeviceKind::cuda), "norm_pool_backward");
  dispatch_half(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Quads<T> quads{static_cast<const T*>(x.x), static_cast<const T*>(dy), static_cast<const std::uint8_t*>(winner),
                   pool(shape)};
    Pool& p = quads.p;
    p.by_packs = FastDivide(norm.channels / kQuadChannels);
    p.by_columns = FastDivide(quads_along(p.w));
    p.by_rows = FastDivide(quads_along(p.h));
    const std::int64_t rows = shape.batch * quads_along(p.h) * quads_along(p.w);
    const GradientSums sums(norm, x.inv_std, to.dscale, to.dshift, to.accumulate, workspace);
    sums.template run<kQuadChannels>(exec, rows, QuadTerms<T>{quads, {nullptr, nullptr, affine_of(x), {}}});
    map_rows<kQuadChannels, true>(
        exec, rows, norm.channels,
        QuadInputGradient<T>{quads, sums.map(quads.x, quads.dy, affine_of(x), Relu{}, static_cast<T*>(to.dx))});
  });
}

}  // namespace bantam::kernels::cuda

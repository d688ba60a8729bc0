// Pooling on CUDA: a thread computes one position of a pack of channels; gradients gather over its windows.
#include "bantam/kernels/pool/cuda/pool3x3.cuh"
#include "bantam/kernels/pool/pool2d.h"

namespace bantam::kernels::cuda {
namespace {

constexpr std::int64_t kLargeWindow = 64;  // positions from which on a block averages a window together

template <class T, int N, bool kTwo>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool_kernel(const T* x, T* y, std::uint16_t* winner, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<N>(p, thread);
  const Span rows = real_places<kTwo>(p.h, at.row), columns = real_places<kTwo>(p.w, at.column);
  const int window_w = kTwo ? 2 : p.w.window, stride_h = kTwo ? 2 : p.h.stride, stride_w = kTwo ? 2 : p.w.stride;
  float best[N];
  Pack<std::uint16_t, N> place;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    best[n] = -CUDART_INF_F;
    place.v[n] = static_cast<std::uint16_t>(rows.begin * window_w + columns.begin);
  }
  for (int kh = rows.begin; kh < rows.end; ++kh) {
    for (int kw = columns.begin; kw < columns.end; ++kw) {
      const int ih = at.row * stride_h - p.h.pad + kh * (kTwo ? 1 : p.h.dilation);
      const int iw = at.column * stride_w - p.w.pad + kw * (kTwo ? 1 : p.w.dilation);
      float v[N];
      unpack<N>(x + offset_in(at, p.h.in, p.w.in, ih, iw, p.channels), v);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        // The first NaN wins too: it beats numbers and loses to nothing, as comparisons with it are false.
        if (v[n] > best[n] || (v[n] != v[n] && best[n] == best[n])) {
          best[n] = v[n];
          place.v[n] = static_cast<std::uint16_t>(kh * window_w + kw);
        }
      }
    }
  }
  const std::int64_t to = offset_in(at, p.h.out, p.w.out, at.row, at.column, p.channels);
  repack<N>(best, y + to);
  if (winner) *reinterpret_cast<Pack<std::uint16_t, N>*>(winner + to) = place;
}

template <class T, int N, bool kTwo>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool_grad_kernel(const T* dy, const std::uint16_t* winner, T* dx, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<N>(p, thread);
  const Span rows = holding_windows<kTwo>(p.h, at.row), columns = holding_windows<kTwo>(p.w, at.column);
  const int window_w = kTwo ? 2 : p.w.window;
  float sum[N] = {};
  for (int oh = rows.begin; oh < rows.end; ++oh) {
    const int row = place_in_window<kTwo>(p.h, oh, at.row);
    for (int ow = columns.begin; ow < columns.end; ++ow) {
      const int column = place_in_window<kTwo>(p.w, ow, at.column);
      if (!kTwo && (row < 0 || column < 0)) continue;
      const int place = row * window_w + column;
      const std::int64_t from = offset_in(at, p.h.out, p.w.out, oh, ow, p.channels);
      const auto won = *reinterpret_cast<const Pack<std::uint16_t, N>*>(winner + from);
      float g[N];
      unpack<N>(dy + from, g);
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += won.v[n] == place ? g[n] : 0.0f;
    }
  }
  repack<N>(sum, dx + offset_in(at, p.h.in, p.w.in, at.row, at.column, p.channels));
}

/// Windows and strides of 2 from the first row and column on: a thread writes the four positions of a window, and those
/// of a last row or column that is in none.
template <class T, int N>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool2_grad_kernel(const T* __restrict__ dy, const std::uint16_t* __restrict__ winner, T* __restrict__ dx,
                          Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<N>(p, thread);
  Pack<std::uint16_t, N> won{};
  float g[N] = {};
  if (at.row < p.h.out && at.column < p.w.out) {
    const std::int64_t from = offset_in(at, p.h.out, p.w.out, at.row, at.column, p.channels);
    won = *reinterpret_cast<const Pack<std::uint16_t, N>*>(winner + from);
    unpack<N>(dy + from, g);
  }
#pragma unroll
  for (int place = 0; place < 4; ++place) {
    const int row = 2 * at.row + place / 2, column = 2 * at.column + place % 2;
    if (row >= p.h.in || column >= p.w.in) continue;
    float values[N];
#pragma unroll
    for (int n = 0; n < N; ++n) values[n] = won.v[n] == place ? 0.0f + g[n] : 0.0f;
    repack<N>(values, dx + offset_in(at, p.h.in, p.w.in, row, column, p.channels));
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kPoolThreads)
    avg_pool_kernel(const T* x, T* y, bool count_padding, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<N>(p, thread);
  const Span rows = real_places<false>(p.h, at.row), columns = real_places<false>(p.w, at.column);
  float sum[N] = {};
  for (int kh = rows.begin; kh < rows.end; ++kh) {
    for (int kw = columns.begin; kw < columns.end; ++kw) {
      const int ih = at.row * p.h.stride - p.h.pad + kh * p.h.dilation;
      const int iw = at.column * p.w.stride - p.w.pad + kw * p.w.dilation;
      float v[N];
      unpack<N>(x + offset_in(at, p.h.in, p.w.in, ih, iw, p.channels), v);
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += v[n];
    }
  }
  const float inverse = inverse_divisor(p, count_padding, at.row, at.column);
#pragma unroll
  for (int n = 0; n < N; ++n) sum[n] *= inverse;
  repack<N>(sum, y + offset_in(at, p.h.out, p.w.out, at.row, at.column, p.channels));
}

/// Large windows: a block of 32 channels x 8 threads averages one window after another; windows are blockIdx.x, +
/// gridDim.x, …
template <class T>
__global__ void __launch_bounds__(kTileThreads)
    avg_pool_large_kernel(const T* x, T* y, bool count_padding, Pool p, std::int64_t windows) {
  const int c = static_cast<int>(blockIdx.y * 32 + threadIdx.x);
  for (std::int64_t window = blockIdx.x; window < windows; window += gridDim.x) {
    const std::int64_t row = window / p.w.out;
    const PoolPlace at{row / p.h.out, static_cast<int>(row % p.h.out), static_cast<int>(window % p.w.out), c};
    const Span rows = real_places<false>(p.h, at.row), columns = real_places<false>(p.w, at.column);
    const int width = columns.end - columns.begin, count = (rows.end - rows.begin) * width;
    float sum[1] = {};
    for (int i = static_cast<int>(threadIdx.y); i < count && c < p.channels; i += kWarps) {
      const int ih = at.row * p.h.stride - p.h.pad + (rows.begin + i / width) * p.h.dilation;
      const int iw = at.column * p.w.stride - p.w.pad + (columns.begin + i % width) * p.w.dilation;
      sum[0] += to_float(x[offset_in(at, p.h.in, p.w.in, ih, iw, p.channels)]);
    }
    const float inverse = inverse_divisor(p, count_padding, at.row, at.column);
    sum_over_block_rows(sum, [&](int, int lane, float total) {
      const int channel = static_cast<int>(blockIdx.y) * 32 + lane;
      if (channel < p.channels) y[window * p.channels + channel] = from_float<T>(total * inverse);
    });
    __syncthreads();  // the sums' shared memory is used again by the next window
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kPoolThreads)
    avg_pool_grad_kernel(const T* dy, T* dx, bool count_padding, Pool p, std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kPoolThreads + threadIdx.x;
  if (thread >= threads) return;
  const PoolPlace at = pool_place<N>(p, thread);
  const Span rows = holding_windows<false>(p.h, at.row), columns = holding_windows<false>(p.w, at.column);
  float sum[N] = {};
  for (int oh = rows.begin; oh < rows.end; ++oh) {
    for (int ow = columns.begin; ow < columns.end; ++ow) {
      if (place_in_window<false>(p.h, oh, at.row) < 0 || place_in_window<false>(p.w, ow, at.column) < 0) continue;
      const float inverse = inverse_divisor(p, count_padding, oh, ow);
      float g[N];
      unpack<N>(dy + offset_in(at, p.h.out, p.w.out, oh, ow, p.channels), g);
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += g[n] * inverse;
    }
  }
  repack<N>(sum, dx + offset_in(at, p.h.in, p.w.in, at.row, at.column, p.channels));
}

/// Channels as far as packs of them are possible: one at a time where the winners' address allows no vectors.
std::int64_t packable_channels(std::int64_t channels, const std::uint16_t* winner) {
  return packs_aligned<std::uint16_t, 8>(winner) ? channels : 1;
}

template <class T, int N>
void launch_max_pool3(const Exec& exec, const Pool2dShape& shape, const T* x, T* y, std::uint16_t* winner) {
  launch_pool<N>(pool(shape), shape.batch, false,
                 [&](unsigned blocks, std::uint32_t threads, const Pool& p, std::int64_t from, std::int64_t to) {
                   max_pool3_kernel<T, N><<<blocks, kPoolThreads, 0, stream_of(exec)>>>(
                       x + from, y + to, winner ? winner + to : nullptr, p, threads);
                 });
}

template <class T, int N>
void launch_max_pool3_grad(const Exec& exec, const Pool2dShape& shape, const T* dy, const std::uint16_t* winner,
                           T* dx) {
  if (shape.y_elements() <= 0) return;
  const Pool p = pool(shape);
  launch_pool_places<N>(p, shape.batch, quads_along(p.h), quads_along(p.w),
                        [&](unsigned blocks, std::uint32_t threads, const Pool& q, std::int64_t to, std::int64_t from) {
                          max_pool3_grad_kernel<T, N><<<blocks, kPoolThreads, 0, stream_of(exec)>>>(
                              dy + from, winner + from, dx + to, q, threads);
                        });
}

template <class T, int N>
void launch_max_pool2_grad(const Exec& exec, const Pool2dShape& shape, const T* dy, const std::uint16_t* winner,
                           T* dx) {
  const Pool p = pool(shape);
  launch_pool_places<N>(p, shape.batch, (p.h.in + 1) / 2, (p.w.in + 1) / 2,
                        [&](unsigned blocks, std::uint32_t threads, const Pool& q, std::int64_t to, std::int64_t from) {
                          max_pool2_grad_kernel<T, N><<<blocks, kPoolThreads, 0, stream_of(exec)>>>(
                              dy + from, winner + from, dx + to, q, threads);
                        });
}

bool is_two(const Pool2dShape& s) {
  return s.window_h == 2 && s.window_w == 2 && s.stride_h == 2 && s.stride_w == 2 && s.dilation_h == 1 &&
         s.dilation_w == 1;
}

}  // namespace

void max_pool2d_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, const void* x, void* y,
                        std::uint16_t* winner) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = static_cast<const T*>(x);
    T* out = static_cast<T*>(y);
    const auto run = [&](auto n, auto two) {
      constexpr int N = decltype(n)::value;
      if constexpr (N > 1)
        if (is_three(shape)) return launch_max_pool3<T, N>(exec, shape, in, out, winner);
      launch_pool<N>(pool(shape), shape.batch, false,
                     [&](unsigned blocks, std::uint32_t threads, const Pool& p, std::int64_t from, std::int64_t to) {
                       max_pool_kernel<T, N, decltype(two)::value><<<blocks, kPoolThreads, 0, stream_of(exec)>>>(
                           in + from, out + to, winner ? winner + to : nullptr, p, threads);
                     });
    };
    with_pack<T>([&](auto n) { is_two(shape) ? run(n, std::true_type{}) : run(n, std::false_type{}); },
                 packable_channels(shape.channels, winner), x, y);
  });
}

void max_pool2d_grad_input(const Exec& exec, const Pool2dShape& shape, DType dtype, const void* dy,
                           const std::uint16_t* winner, void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* gradient = static_cast<const T*>(dy);
    T* out = static_cast<T*>(dx);
    const auto run = [&](auto n, auto two) {
      constexpr int N = decltype(n)::value;
      if constexpr (N > 1)
        if (is_three(shape)) return launch_max_pool3_grad<T, N>(exec, shape, gradient, winner, out);
      if (two && shape.pad_top == 0 && shape.pad_left == 0)
        return launch_max_pool2_grad<T, N>(exec, shape, gradient, winner, out);
      launch_pool<N>(pool(shape), shape.batch, true,
                     [&](unsigned blocks, std::uint32_t threads, const Pool& p, std::int64_t to, std::int64_t from) {
                       max_pool_grad_kernel<T, N, decltype(two)::value><<<blocks, kPoolThreads, 0, stream_of(exec)>>>(
                           gradient + from, winner + from, out + to, p, threads);
                     });
    };
    with_pack<T>([&](auto n) { is_two(shape) ? run(n, std::true_type{}) : run(n, std::false_type{}); },
                 packable_channels(shape.channels, winner), dy, dx);
  });
}

void avg_pool2d_forward(const Exec& exec, const Pool2dShape& shape, DType dtype, bool count_padding, const void* x,
                        void* y) {
  if (shape.y_elements() <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* in = static_cast<const T*>(x);
    T* out = static_cast<T*>(y);
    if (shape.window_h * shape.window_w >= kLargeWindow) {
      const std::int64_t windows = shape.batch * shape.out_h() * shape.out_w();
      const dim3 grid(static_cast<unsigned>(std::min<std::int64_t>(windows, 1 << 20)), blocks_for(shape.channels, 32));
      avg_pool_large_kernel<<<grid, dim3(32, kWarps), 0, stream_of(exec)>>>(in, out, count_padding, pool(shape),
                                                                            windows);
      check_launch("avg_pool_large_kernel");
      return;
    }
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          launch_pool<N>(
              pool(shape), shape.batch, false,
              [&](unsigned blocks, std::uint32_t threads, const Pool& p, std::int64_t from, std::int64_t to) {
                avg_pool_kernel<T, N>
                    <<<blocks, kPoolThreads, 0, stream_of(exec)>>>(in + from, out + to, count_padding, p, threads);
              });
        },
        shape.channels, x, y);
  });
}

void avg_pool2d_grad_input(const Exec& exec, const Pool2dShape& shape, DType dtype, bool count_padding, const void* dy,
                           void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* gradient = static_cast<const T*>(dy);
    T* out = static_cast<T*>(dx);
    with_pack<T>(
        [&](auto n) {
          constexpr int N = decltype(n)::value;
          launch_pool<N>(
              pool(shape), shape.batch, true,
              [&](unsigned blocks, std::uint32_t threads, const Pool& p, std::int64_t to, std::int64_t from) {
                avg_pool_grad_kernel<T, N><<<blocks, kPoolThreads, 0, stream_of(exec)>>>(gradient + from, out + to,
                                                                                         count_padding, p, threads);
              });
        },
        shape.channels, dy, dx);
  });
}

}  // namespace bantam::kernels::cuda

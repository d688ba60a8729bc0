// Launches the moment kernels, and the input gradient of blocks of few channels.
#include "bantam/kernels/separable/cuda/separable_backward.cuh"
#include "bantam/kernels/separable/cuda/separable_moments_float.cuh"
#include "bantam/kernels/separable/cuda/separable_moments_half.cuh"

namespace bantam::kernels::cuda {
namespace {

MomentGeometry moment_geometry(const SeparableBlockShape& s, const SeparableMomentTiles& t) {
  const auto i = [](std::int64_t n) { return static_cast<int>(n); };
  const std::int64_t columns = s.in_w + s.pad_left + s.pad_right;
  return {.in_h = i(s.in_h),
          .in_w = i(s.in_w),
          .out_h = i(s.out_h()),
          .out_w = i(s.out_w()),
          .out_channels = i(s.out_channels),
          .pad_top = i(s.pad_top),
          .pad_left = i(s.pad_left),
          .columns = i(columns),
          .window_rows = i(t.window_rows),
          .all_window_rows = i(t.all_window_rows),
          .window_columns = i(t.window_columns),
          .batch = i(s.batch),
          .images_each = i(t.images.each),
          .masked = s.pool == 2 || s.relu,
          .pairs_at = i(t.pairs_at),
          .places_at = i(t.places_at),
          .weights_at = i(t.weights_at),
          .by_window_columns = FastDivide(t.window_columns),
          .by_out_w = FastDivide(s.out_w()),
          .by_row = FastDivide(columns * s.in_channels)};
}

template <class T, int kIn>
void launch(const Exec& exec, const SeparableBlockShape& s, const SeparableMomentTiles& t, const SeparableOperands& o) {
  const MomentGeometry g = moment_geometry(s, t);
  const MomentPointers<T> at{static_cast<const T*>(o.x),
                             static_cast<const T*>(o.w_depthwise),
                             static_cast<const T*>(o.w_pointwise),
                             static_cast<const T*>(o.dy),
                             o.codes,
                             o.partials};
  const dim3 grid(static_cast<unsigned>(t.bands), static_cast<unsigned>(t.images.parts)), threads(kSeparableThreads);
  const auto bytes = static_cast<std::size_t>(t.shared_bytes);
  if constexpr (sizeof(T) == 4) {
    launch_spread(exec, separable_moments_kernel_float<kIn>, grid, threads, bytes, g, at, static_cast<int>(s.pool));
  } else if (s.pool == 2) {
    launch_spread(exec, separable_moments_kernel<T, kIn, 2>, grid, threads, bytes, g, at);
  } else {
    launch_spread(exec, separable_moments_kernel<T, kIn, 1>, grid, threads, bytes, g, at);
  }
}

/// dx[n, i, j, c] = Σ over taps and outputs of dz · depthwise · pointwise. A warp a pixel, lanes over outputs.
template <class T>
__global__ void __launch_bounds__(kSeparableThreads)
    few_channels_grad_input_kernel(const SeparableBlockShape s, int out_h, int out_w, bool masked, const T* w_depthwise,
                                   const T* w_pointwise, const T* dy, const std::uint8_t* codes, T* dx) {
  const std::int64_t pixel = static_cast<std::int64_t>(blockIdx.x) * (kSeparableThreads / 32) + threadIdx.x / 32;
  if (pixel >= s.batch * s.in_h * s.in_w) return;
  const int lane = static_cast<int>(threadIdx.x % 32), channels = static_cast<int>(s.in_channels);
  const auto i = static_cast<int>(pixel / s.in_w % s.in_h), j = static_cast<int>(pixel % s.in_w);
  const std::int64_t image = pixel / (s.in_w * s.in_h);
  float sums[4] = {};
  for (int tap = 0; tap < 9; ++tap) {
    const int h = i + static_cast<int>(s.pad_top) - tap / 3, w = j + static_cast<int>(s.pad_left) - tap % 3;
    const int pool = static_cast<int>(s.pool);
    if (h < 0 || w < 0 || h / pool >= out_h || w / pool >= out_w) continue;
    const std::int64_t first = ((image * out_h + h / pool) * out_w + w / pool) * s.out_channels;
    for (std::int64_t e = first + lane; e < first + s.out_channels; e += 32) {
      const int open = pool == 2 ? codes[e / 2] >> (e % 2 * 4 + h % 2 * 2 + w % 2) & 1
                       : masked  ? codes[e / 8] >> (e % 8) & 1
                                 : 1;
      if (!open) continue;
      const float dz = to_float(dy[e]);
      for (int c = 0; c < 4 && c < channels; ++c) {
        sums[c] += dz * to_float(w_pointwise[(e - first) * channels + c]) * to_float(w_depthwise[tap * channels + c]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    for (int apart = 16; apart > 0; apart /= 2) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], apart);
    if (lane == c && c < channels) dx[pixel * channels + c] = from_float<T>(sums[c]);
  }
}

}  // namespace

std::int64_t separable_moments(const Exec& exec, const SeparableBlockShape& s, DType dtype,
                               const SeparableOperands& operands) {
  const SeparableMomentTiles t = separable_moment_tiles(s, dtype);
  if (t.shared_bytes > kLeastSharedBytes) {
    throw ShapeError("separable_block_backward: rows of this shape do not fit shared memory");
  }
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    switch (s.in_channels) {
      case 1:
        return launch<T, 1>(exec, s, t, operands);
      case 2:
        return launch<T, 2>(exec, s, t, operands);
      case 3:
        return launch<T, 3>(exec, s, t, operands);
      default:
        return launch<T, 4>(exec, s, t, operands);
    }
  });
  return t.gradient_parts();
}

void separable_few_channels_grad_input(const Exec& exec, const SeparableBlockShape& s, DType dtype,
                                       const SeparableOperands& o) {
  constexpr std::int64_t kPixels = kSeparableThreads / 32;
  const auto blocks = static_cast<unsigned>((s.batch * s.in_h * s.in_w + kPixels - 1) / kPixels);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    few_channels_grad_input_kernel<T><<<blocks, kSeparableThreads, 0, stream_of(exec)>>>(
        s, static_cast<int>(s.out_h()), static_cast<int>(s.out_w()), s.relu, static_cast<const T*>(o.w_depthwise),
        static_cast<const T*>(o.w_pointwise), static_cast<const T*>(o.dy), o.codes, static_cast<T*>(o.dx));
  });
  check_launch("few_channels_grad_input_kernel");
}

}  // namespace bantam::kernels::cuda

// The separable block's forward pass on CUDA: which kernel takes a shape, its shared memory and its grid.
#include "bantam/kernels/cuda/fused/separable_block_rules.h"
#include "bantam/kernels/cuda/fused/separable_forward_float.cuh"
#include "bantam/kernels/cuda/fused/separable_forward_half.cuh"
#include "bantam/kernels/separable_block.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kMostBlocks = 2112;                    // of a grid; a block goes on with the unit that far on
constexpr std::int64_t kUnaskedSharedBytes = 49152;  // what a kernel gets without a call to ask for more

template <class T, bool kFolded, int kSteps, int kPool>
__global__ void __launch_bounds__(kSeparableThreads)
    separable_forward_half_kernel(SeparableTiles tiles, HalfLayout layout, const T* x, const T* depthwise,
                                  const T* pointwise, const T* bias, T* y, std::uint8_t* codes) {
  SeparableForwardHalf<T, kFolded, kSteps, kPool>::run(tiles, layout, x, depthwise, pointwise, bias, y, codes);
}

template <int kPool>
__global__ void __launch_bounds__(kSeparableFloatThreads)
    separable_forward_float_kernel(SeparableTiles tiles, FloatLayout layout, const float* x, const float* depthwise,
                                   const float* pointwise, const float* bias, float* y, std::uint8_t* codes) {
  SeparableForwardFloat<kPool>::run(tiles, layout, x, {depthwise, pointwise, bias}, y, codes);
}

/// Output rows whose tile has at most `bytes`, at least 1.
std::int64_t rows_within(const SeparableBlockShape& s, std::int64_t row_bytes, std::int64_t bytes) {
  return std::clamp<std::int64_t>((bytes / row_bytes - 2) / s.pool, 1, s.out_h());
}

template <class Kernel>
void allow_shared_bytes(Kernel kernel, std::int64_t bytes) {
  if (bytes <= kUnaskedSharedBytes) return;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
             "cudaFuncSetAttribute");
}

int rounded_up(std::int64_t value, std::int64_t step) { return static_cast<int>((value + step - 1) / step * step); }

/// All but the tile, whose size depends on its rows.
HalfLayout half_layout(const SeparableBlockShape& s, bool folded, int steps) {
  HalfLayout at{};
  at.groups = rounded_up(s.out_channels, 32) / 32;
  at.chunks = folded ? 0 : static_cast<int>(s.in_channels / 8);
  at.pixel_stride = static_cast<int>(folded ? s.in_channels : (s.in_channels / 8 | 1) * 8);
  at.row_stride = static_cast<int>((s.conv_w() + 2) * at.pixel_stride);
  if (folded) at.row_stride = rounded_up(at.row_stride + 1, 2);  // a patch's pairs may end one element on
  at.depthwise_at = at.groups * steps * 1024;
  at.bias_at = at.depthwise_at + at.chunks * 1536;
  at.tile_at = at.bias_at + at.groups * 128;
  return at;
}

template <class T, bool kFolded, int kSteps, int kPool>
void launch_half(const Exec& exec, const SeparableBlockShape& s, const T* x, const T* depthwise, const T* pointwise,
                 const T* bias, T* y, std::uint8_t* codes) {
  HalfLayout at = half_layout(s, kFolded, kSteps);
  const std::int64_t copies = kFolded ? 2 : 1;
  SeparableTiles t =
      separable_tiles(s, rows_within(s, copies * 2 * at.row_stride, kUnaskedSharedBytes - at.tile_at - 64));
  at.shifted = rounded_up(t.tile_rows(kPool) * at.row_stride + 2, 8);
  at.bytes = rounded_up(at.tile_at + copies * 2 * (at.shifted + 2), 16);
  const std::int64_t elements = s.in_w * s.in_channels;
  t.by_row = FastDivide(kFolded ? (elements % 2 == 0 ? elements / 2 : elements) : elements / 8);
  t.by_pixel = FastDivide(std::max(at.chunks, 1));
  const auto kernel = separable_forward_half_kernel<T, kFolded, kSteps, kPool>;
  allow_shared_bytes(kernel, at.bytes);
  kernel<<<static_cast<unsigned>(std::min(t.units, kMostBlocks)), kSeparableThreads, static_cast<std::size_t>(at.bytes),
           stream_of(exec)>>>(t, at, x, depthwise, pointwise, bias, y, codes);
  check_launch("separable_forward_half_kernel");
}

template <class T>
void forward(const Exec& exec, const SeparableBlockShape& s, const T* x, const T* depthwise, const T* pointwise,
             const T* bias, T* y, std::uint8_t* codes) {
  const auto launch = [&](auto folded, auto steps, auto pool) {
    launch_half<T, decltype(folded)::value, decltype(steps)::value, decltype(pool)::value>(exec, s, x, depthwise,
                                                                                           pointwise, bias, y, codes);
  };
  const auto with_pool = [&](auto folded, auto steps) {
    if (s.pool == 2) {
      launch(folded, steps, std::integral_constant<int, 2>{});
    } else {
      launch(folded, steps, std::integral_constant<int, 1>{});
    }
  };
  constexpr std::integral_constant<int, 2> two;  // values of the product's depth, by 16
  constexpr std::integral_constant<int, 3> three;
  constexpr std::integral_constant<int, 4> four;
  if (s.in_channels == 4) return with_pool(std::true_type{}, three);
  if (s.in_channels < 4) return with_pool(std::true_type{}, two);
  if (s.in_channels <= 32) return with_pool(std::false_type{}, two);
  with_pool(std::false_type{}, four);
}

FloatLayout float_layout(const SeparableBlockShape& s) {
  constexpr std::int64_t kSliceFloats = 2048, kMiddleQuads = 1024, kItemsOfThreads = 2048;
  const std::int64_t slices = (s.in_channels * s.out_channels + kSliceFloats - 1) / kSliceFloats;
  FloatLayout at{};
  at.slice = rounded_up((s.out_channels + slices - 1) / slices, 8);
  at.quads = 16;  // more where few channels leave room, until each thread has a part of the product
  while (at.quads < 64 && at.quads * 2 * s.in_channels <= kMiddleQuads && at.quads * 2 * at.slice <= kItemsOfThreads)
    at.quads *= 2;
  at.pixel_stride = static_cast<int>(s.in_channels | 1);
  at.depthwise_at = static_cast<int>(s.in_channels) * at.slice;
  at.bias_at = at.depthwise_at + rounded_up(9 * s.in_channels, 4);
  at.middle_at = at.bias_at + at.slice;
  at.tile_at = at.middle_at + static_cast<int>(s.in_channels) * at.quads * 4;
  return at;
}

template <int kPool>
void launch_float(const Exec& exec, const SeparableBlockShape& s, const float* x, const float* depthwise,
                  const float* pointwise, const float* bias, float* y, std::uint8_t* codes) {
  FloatLayout at = float_layout(s);
  const std::int64_t row_floats = (s.conv_w() + 2) * at.pixel_stride;
  SeparableTiles t = separable_tiles(s, rows_within(s, 4 * row_floats, kUnaskedSharedBytes - 4 * at.tile_at));
  at.floats = at.tile_at + static_cast<int>(t.tile_rows(kPool) * row_floats);
  t.by_row = FastDivide(s.in_w * s.in_channels);
  t.by_pixel = FastDivide(s.in_channels);
  const auto kernel = separable_forward_float_kernel<kPool>;
  allow_shared_bytes(kernel, 4 * at.floats);
  const dim3 grid(static_cast<unsigned>(std::min(t.units, kMostBlocks)),
                  static_cast<unsigned>((s.out_channels + at.slice - 1) / at.slice));
  kernel<<<grid, kSeparableFloatThreads, 4 * static_cast<std::size_t>(at.floats), stream_of(exec)>>>(
      t, at, x, depthwise, pointwise, bias, y, codes);
  check_launch("separable_forward_float_kernel");
}

void forward(const Exec& exec, const SeparableBlockShape& s, const float* x, const float* depthwise,
             const float* pointwise, const float* bias, float* y, std::uint8_t* codes) {
  if (s.pool == 2) {
    launch_float<2>(exec, s, x, depthwise, pointwise, bias, y, codes);
  } else {
    launch_float<1>(exec, s, x, depthwise, pointwise, bias, y, codes);
  }
}

}  // namespace

void separable_block_forward(const Exec& exec, const SeparableBlockShape& s, DType dtype, const void* x,
                             const void* w_depthwise, const void* w_pointwise, const void* bias, void* y,
                             std::uint8_t* codes, Workspace) {
  check_separable_block(s, dtype, DeviceKind::cuda);
  if (s.batch == 0) return;
  if (separable_block_code_bytes(s) == 0) codes = nullptr;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    forward(exec, s, static_cast<const T*>(x), static_cast<const T*>(w_depthwise), static_cast<const T*>(w_pointwise),
            static_cast<const T*>(bias), static_cast<T*>(y), codes);
  });
}

}  // namespace bantam::kernels::cuda

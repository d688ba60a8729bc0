// The separable block's forward pass on CUDA: which kernel runs for a shape, its shared memory and its grid.
#include "bantam/kernels/common/cuda/shared_bytes.h"
#include "bantam/kernels/separable/cuda/separable_forward_float.cuh"
#include "bantam/kernels/separable/cuda/separable_forward_half.cuh"
#include "bantam/kernels/separable/separable_block.h"
#include "bantam/kernels/separable/separable_block_rules.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels::cuda {
namespace {

/// A grid has at most as many blocks as an H200 runs at once (4 a multiprocessor). A block continues with the unit that
/// many further, and loads weights once.
constexpr int kMostBlocks = static_cast<int>(4 * kReferenceMultiprocessors);

template <class T, int kFolded, int kSteps, int kPool>
__global__ void __launch_bounds__(kForwardThreads)
    separable_forward_half_kernel(SeparableTiles tiles, HalfLayout layout, const T* x, const T* depthwise,
                                  const T* pointwise, const T* bias, T* y, std::uint8_t* codes) {
  SeparableForwardHalf<T, kFolded, kSteps, kPool>::run(tiles, layout, x, depthwise, pointwise, bias, y, codes);
}

template <int kPool>
__global__ void __launch_bounds__(kForwardThreads)
    separable_forward_float_kernel(SeparableTiles tiles, FloatLayout layout, const float* x, const float* depthwise,
                                   const float* pointwise, const float* bias, float* y, std::uint8_t* codes) {
  SeparableForwardFloat<kPool>::run(tiles, layout, x, {depthwise, pointwise, bias}, y, codes);
}

/// Output rows whose tile has at most `bytes`, at least 1.
std::int64_t rows_within(const SeparableBlockShape& s, std::int64_t row_bytes, std::int64_t bytes) {
  return std::clamp<std::int64_t>((bytes / row_bytes - 2) / s.pool, 1, s.out_h());
}

unsigned blocks_of(const SeparableTiles& t) { return static_cast<unsigned>(std::min(t.units, kMostBlocks)); }

int rounded_up(std::int64_t value, std::int64_t step) { return static_cast<int>((value + step - 1) / step * step); }

/// All but the tile, whose size depends on its rows.
HalfLayout half_layout(const SeparableBlockShape& s, bool folded, int steps) {
  HalfLayout at{};
  at.groups = rounded_up(s.out_channels, 32) / 32;
  at.chunks = folded ? 0 : static_cast<int>(s.in_channels / 8);
  // Chunks of pixels side by side then lie in different banks.
  at.pixel_stride = static_cast<int>(folded ? s.in_channels : (s.in_channels / 8 | 1) * 8);
  at.row_stride = static_cast<int>((s.conv_w() + 2) * at.pixel_stride);
  if (folded) at.row_stride = rounded_up(at.row_stride + 1, 2);  // a patch's pairs may end one element on
  const std::int64_t elements = s.in_w * s.in_channels;
  at.vector = elements % 4 == 0 ? 4 : elements % 2 == 0 ? 2 : 1;
  at.depthwise_at = at.groups * steps * 1024;
  at.bias_at = at.depthwise_at + at.chunks * 1536;
  at.tile_at = at.bias_at + at.groups * 64;
  return at;
}

template <class T, int kFolded, int kSteps, int kPool>
void launch_half(const Exec& exec, const SeparableBlockShape& s, const T* x, const T* depthwise, const T* pointwise,
                 const T* bias, T* y, std::uint8_t* codes) {
  constexpr bool kIsFolded = kFolded > 0;
  HalfLayout at = half_layout(s, kIsFolded, kSteps);
  const std::int64_t copies = kIsFolded ? 2 : 1;
  SeparableTiles t =
      separable_tiles(s, rows_within(s, copies * 2 * at.row_stride, kUnaskedSharedBytes - at.tile_at - 64));
  at.shifted = rounded_up(t.tile_rows(kPool) * at.row_stride + 2, 8);
  at.bytes = rounded_up(at.tile_at + copies * 2 * (at.shifted + 2), 16);
  t.framed |= kIsFolded;
  t.by_row = FastDivide(s.in_w * s.in_channels / (kIsFolded ? at.vector : 8));
  t.by_pixel = FastDivide(std::max(at.chunks, 1));
  const auto kernel = separable_forward_half_kernel<T, kFolded, kSteps, kPool>;
  launch_spread(exec, kernel, dim3(blocks_of(t)), dim3(kForwardThreads), static_cast<std::size_t>(at.bytes), t, at, x,
                depthwise, pointwise, bias, y, codes);
}

template <class T, int kFolded, int kSteps>
void launch_half(const Exec& exec, const SeparableBlockShape& s, const T* x, const T* depthwise, const T* pointwise,
                 const T* bias, T* y, std::uint8_t* codes) {
  if (s.pool == 2) {
    launch_half<T, kFolded, kSteps, 2>(exec, s, x, depthwise, pointwise, bias, y, codes);
  } else {
    launch_half<T, kFolded, kSteps, 1>(exec, s, x, depthwise, pointwise, bias, y, codes);
  }
}

template <class T>
void forward(const Exec& exec, const SeparableBlockShape& s, const T* x, const T* depthwise, const T* pointwise,
             const T* bias, T* y, std::uint8_t* codes) {
  const auto launch = [&](auto folded, auto steps) {
    launch_half<T, decltype(folded)::value, decltype(steps)::value>(exec, s, x, depthwise, pointwise, bias, y, codes);
  };
  constexpr std::integral_constant<int, 0> plain;
  constexpr std::integral_constant<int, 1> one;
  constexpr std::integral_constant<int, 2> two;
  constexpr std::integral_constant<int, 3> three;
  constexpr std::integral_constant<int, 4> four;
  switch (s.in_channels) {  // the GEMM's depth divided by 16: rows of a folded patch are whole pairs
    case 1:
      return launch(one, one);
    case 2:
      return launch(two, two);
    case 3:
      return launch(three, two);
    case 4:
      return launch(four, three);
    default:
      return s.in_channels <= 32 ? launch(plain, two) : launch(plain, four);
  }
}

FloatLayout float_layout(const SeparableBlockShape& s) {
  constexpr std::int64_t kSliceFloats = 2048;
  const std::int64_t slices = (s.in_channels * s.out_channels + kSliceFloats - 1) / kSliceFloats;
  FloatLayout at{};
  at.slice = rounded_up((s.out_channels + slices - 1) / slices, 8);
  at.quads = 64;  // until each lane has one part of the product
  while (at.quads > 4 && at.quads / 2 * (at.slice / 8) > 32) at.quads /= 2;
  while (at.quads > 4 && at.quads * s.in_channels > 256) at.quads /= 2;
  at.side_by_side = s.in_channels % 4 == 0 ? 4 : 1;
  // Four channels of eight pixels side by side then lie in different banks.
  at.pixel_stride = static_cast<int>(s.in_channels < 8 ? s.in_channels : s.in_channels + 4);
  at.depthwise_at = static_cast<int>(s.in_channels) * at.slice;
  at.bias_at = at.depthwise_at + rounded_up(9 * s.in_channels, 4);
  at.middle_at = at.bias_at + at.slice;
  at.tile_at = at.middle_at + kForwardWarps * static_cast<int>(s.in_channels) * at.quads * 4;
  return at;
}

template <int kPool>
void launch_float(const Exec& exec, const SeparableBlockShape& s, const float* x, const float* depthwise,
                  const float* pointwise, const float* bias, float* y, std::uint8_t* codes) {
  FloatLayout at = float_layout(s);
  const std::int64_t row_floats = (s.conv_w() + 2) * at.pixel_stride;
  SeparableTiles t = separable_tiles(s, rows_within(s, 4 * row_floats, kUnaskedSharedBytes - 4 * at.tile_at));
  at.floats = at.tile_at + static_cast<int>(t.tile_rows(kPool) * row_floats);
  t.by_row = FastDivide(s.in_w * s.in_channels / at.side_by_side);
  t.by_pixel = FastDivide(s.in_channels / at.side_by_side);
  const auto kernel = separable_forward_float_kernel<kPool>;
  const dim3 grid(blocks_of(t), static_cast<unsigned>((s.out_channels + at.slice - 1) / at.slice));
  launch_spread(exec, kernel, grid, dim3(kForwardThreads), 4 * static_cast<std::size_t>(at.floats), t, at, x, depthwise,
                pointwise, bias, y, codes);
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
                             const SeparableBlockWeights& weights, void* y, std::uint8_t* codes, Workspace) {
  check_separable_block(s, dtype, DeviceKind::cuda);
  if (s.batch == 0) return;
  if (separable_block_code_bytes(s) == 0) codes = nullptr;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    forward(exec, s, static_cast<const T*>(x), static_cast<const T*>(weights.depthwise),
            static_cast<const T*>(weights.pointwise), static_cast<const T*>(weights.bias), static_cast<T*>(y), codes);
  });
}

}  // namespace bantam::kernels::cuda

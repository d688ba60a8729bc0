// The launches of 3x3 convolutions with wgmma: their cut, their tensor maps and their shared memory. Compiled for 90a
// only, whatever the build is for.
#include "bantam/kernels/common/cuda/tensor_boxes.h"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/conv/cuda/warpgroup_conv3x3.cuh"
#include "bantam/kernels/conv/cuda/warpgroup_conv3x3.h"

namespace bantam::kernels::cuda {
namespace {

using Extents = WarpgroupConv3x3::Extents;

Conv3x3Place place_of(const Extents& extents) {
  return {{static_cast<int>(extents[0]), static_cast<int>(extents[1]), static_cast<int>(extents[2])}};
}

/// A tile's input.
Extents input_box(const WarpgroupConv3x3& s) {
  Extents box = s.tile();
  for (std::size_t i = 0; i < 3; ++i) box[i] += 2 * s.halo()[i];
  return box;
}

/// (batch, height, width, channels) in boxes along the problem's axes.
TensorBoxes images(const WarpgroupConv3x3& s, const void* data, std::int64_t channels, const Extents& box) {
  const std::int64_t pixel = channels, row = s.width * pixel, image = s.height * row;
  const Extents sizes = s.sizes(), strides = s.small() ? Extents{image, pixel, row} : Extents{pixel, row, image};
  return {.data = data,
          .a = sizes[1],
          .b = sizes[0],
          .c = channels,
          .a_stride = strides[1],
          .b_stride = strides[0],
          .box_a = box[1],
          .box_b = box[0],
          .d = sizes[2],
          .d_stride = strides[2],
          .box_d = box[2]};
}

/// w (filters, 9, channels) in boxes of one tap.
TensorBoxes taps(const void* w, std::int64_t filters, std::int64_t channels, std::int64_t box_filters) {
  return {.data = w,
          .a = filters,
          .b = kConvTaps,
          .c = channels,
          .a_stride = kConvTaps * channels,
          .b_stride = channels,
          .box_a = box_filters,
          .box_b = 1};
}

Conv3x3Cut cut_of(const WarpgroupConv3x3& s, const PartMoments& moments) {
  const Extents box = input_box(s), along = s.tiles_along(), units = s.units();
  const std::int64_t bytes = box[0] * box[1] * box[2] * 128;
  const int second = static_cast<int>(box[0]), third = static_cast<int>(box[0] * box[1]);
  return {.depths = static_cast<int>(s.in / 64),
          .out = static_cast<int>(s.out),
          .tiles = static_cast<int>(s.tiles()),
          .column_blocks = static_cast<int>(s.column_blocks()),
          .stages = 0,
          .box_bytes = static_cast<int>(bytes),
          .pixel_bytes = static_cast<int>((bytes + 1023) / 1024 * 1024),
          .sizes = place_of(s.sizes()),
          .tile = place_of(s.tile()),
          .unit = place_of(s.unit()),
          .halo = place_of(s.halo()),
          .by_first = FastDivide(along[0]),
          .by_second = FastDivide(along[1]),
          .units = {static_cast<int>(units[0]), static_cast<int>(units[1])},
          .pitch = {second, third},
          .tap_row = s.small() ? third : second,
          .tap_column = s.small() ? second : 1,
          .rows_between_groups = s.small() ? 8 : second,
          .unit_shift = s.small() ? 4 : 3,
          .partials = moments.moments,
          .counts = moments.counts};
}

template <class T, bool kGradient>
bool launch_tall(const Exec& exec, const WarpgroupConv3x3& s, DType dtype, const void* x, const void* w, void* y,
                 const PartMoments& moments) {
  CUtensorMap x_map, w_map, y_map;
  if (!images(s, x, s.in, input_box(s)).describe(dtype, 4, x_map) || !taps(w, 64, 64, 64).describe(dtype, 3, w_map) ||
      !images(s, y, s.out, s.unit()).describe(dtype, 4, y_map))
    return false;
  launch_early_with_shared(exec, tall_conv3x3_kernel<T, kGradient>, static_cast<unsigned>(s.row_blocks()),
                           TallConv::kThreads, TallConv::kBytes, x_map, w_map, y_map, cut_of(s, moments));
  return true;
}

template <class T, int kColumns, bool kGradient>
bool launch_wide(const Exec& exec, const WarpgroupConv3x3& s, DType dtype, const void* x, const void* w, void* y,
                 const PartMoments& moments) {
  using Tile = WideConv<kColumns>;
  constexpr int kSharedBytes = 227 << 10;
  Conv3x3Cut cut = cut_of(s, moments);
  cut.stages = std::min((kSharedBytes - Tile::bytes(cut.pixel_bytes, 0)) / Tile::kWeightBytes, Tile::kMostStages);
  CUtensorMap x_map, w_map, y_map;
  const TensorBoxes weights = kGradient ? taps(w, s.in, s.out, 64) : taps(w, s.out, s.in, kColumns);
  if (!images(s, x, s.in, input_box(s)).describe(dtype, 4, x_map) || !weights.describe(dtype, 3, w_map) ||
      !images(s, y, s.out, s.unit()).describe(dtype, 4, y_map))
    return false;
  launch_early_with_shared(
      exec, wide_conv3x3_kernel<T, kColumns, kGradient>, static_cast<unsigned>(s.row_blocks() * s.column_blocks()),
      Tile::kThreads, static_cast<std::size_t>(Tile::bytes(cut.pixel_bytes, cut.stages)), x_map, w_map, y_map, cut);
  return true;
}

template <class T, bool kGradient>
bool run(const Exec& exec, const WarpgroupConv3x3& s, DType dtype, const void* x, const void* w, void* y,
         const PartMoments& moments) {
  if (s.tall()) return launch_tall<T, kGradient>(exec, s, dtype, x, w, y, moments);
  if (s.columns() == 64) return launch_wide<T, 64, kGradient>(exec, s, dtype, x, w, y, moments);
  return launch_wide<T, 128, kGradient>(exec, s, dtype, x, w, y, moments);
}

template <class T>
bool run(const Exec& exec, const WarpgroupConv3x3& s, DType dtype, const void* x, const void* w, void* y,
         const PartMoments& moments) {
  return s.gradient ? run<T, true>(exec, s, dtype, x, w, y, moments) : run<T, false>(exec, s, dtype, x, w, y, moments);
}

}  // namespace

bool warpgroup_conv3x3(const Exec& exec, const WarpgroupConv3x3& s, DType dtype, const void* x, const void* w, void* y,
                       const PartMoments& moments) {
  if (s.batch == 0 || !has_warpgroups(exec) || !packs_aligned<uint4, 1>(x, w, y)) return false;
  return dtype == DType::float16 ? run<__half>(exec, s, dtype, x, w, y, moments)
                                 : run<__nv_bfloat16>(exec, s, dtype, x, w, y, moments);
}

}  // namespace bantam::kernels::cuda

// Launches the tile kernel: geometry of the tiles, and the kernel for a type and a group of channels.
#include "bantam/kernels/separable/cuda/separable_backward.cuh"
#include "bantam/kernels/separable/cuda/separable_tile_backward.cuh"

namespace bantam::kernels::cuda {
namespace {

TileGeometry tile_geometry(const SeparableBlockShape& s, const SeparableBackwardTiles& t,
                           const SeparableBackwardMemory& m) {
  const auto i = [](std::int64_t n) { return static_cast<int>(n); };
  const std::int64_t walkers = kSeparableThreads / (t.channels / 2);
  return {.in_h = i(s.in_h),
          .in_w = i(s.in_w),
          .conv_h = i(s.conv_h()),
          .conv_w = i(s.conv_w()),
          .out_h = i(s.out_h()),
          .out_w = i(s.out_w()),
          .in_channels = i(s.in_channels),
          .out_channels = i(s.out_channels),
          .pad_top = i(s.pad_top),
          .pad_left = i(s.pad_left),
          .pool = i(s.pool),
          .band_rows = i(t.band_rows),
          .bands = i(t.bands),
          .batch = i(s.batch),
          .images_each = i(t.images.each),
          .masked = s.pool == 2 || s.relu,
          .sparse_dz = s.pool == 2 || s.out_channels % 16 != 0,
          .dz_stride = i(m.dz_stride),
          .weights_at = i(m.weights),
          .codes_at = i(m.codes),
          .zeros_at = i(m.zeros),
          .region_at = i(m.region),
          .region_bytes = i(m.region_bytes),
          .d_mid_at = i(m.d_mid),
          .mid_runs = RowRuns::of(std::min(s.conv_h(), t.band_rows), s.conv_w(), walkers),
          .dx_runs = RowRuns::of(t.band_rows, s.in_w, walkers),
          .by_conv_w = FastDivide(s.conv_w()),
          .by_out_w = FastDivide(s.out_w()),
          .by_chunks = FastDivide(s.out_channels / 8)};
}

template <class T, int kChannels>
void launch(const Exec& exec, const SeparableBlockShape& s, DType dtype, const SeparableBackwardTiles& t,
            const SeparableOperands& o) {
  const SeparableBackwardMemory memory = SeparableBackwardMemory::of(s, dtype, t.channels, t.band_rows);
  const TilePointers<T> at{static_cast<const T*>(o.x),
                           static_cast<const T*>(o.w_depthwise),
                           static_cast<const T*>(o.w_pointwise),
                           static_cast<const T*>(o.dy),
                           o.codes,
                           static_cast<T*>(o.dx),
                           o.partials};
  const auto kernel = separable_tile_backward_kernel<T, kChannels>;
  const dim3 grid(static_cast<unsigned>(t.bands * t.groups), static_cast<unsigned>(t.images.parts));
  launch_spread(exec, kernel, grid, dim3(kSeparableThreads), static_cast<std::size_t>(memory.total),
                tile_geometry(s, t, memory), at);
}

}  // namespace

std::int64_t separable_tile_backward(const Exec& exec, const SeparableBlockShape& s, DType dtype,
                                     const SeparableOperands& operands) {
  const std::int64_t shared_limit = Libraries::of(exec).kernel_limits().block_shared_bytes();
  const SeparableBackwardTiles t = separable_backward_tiles(s, dtype, shared_limit);
  if (t.channels == 0) throw ShapeError("separable_block_backward: no tile of this shape fits shared memory");
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (t.channels == 32) {
      launch<T, 32>(exec, s, dtype, t, operands);
    } else if (t.channels == 16) {
      launch<T, 16>(exec, s, dtype, t, operands);
    } else {
      launch<T, 8>(exec, s, dtype, t, operands);
    }
  });
  return t.gradient_parts();
}

}  // namespace bantam::kernels::cuda

// Permutation of axes on CUDA: runs of memory in packs where the last axis stays the last, else tiles of the two axes
// that are contiguous in x and in y, turned in shared memory, so that loads and stores are both coalesced.
#include "bantam/kernels/common/cuda/reduce/image_chunks.cuh"
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/image/permute.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kTile = 32, kTileRows = 8, kRunThreads = 256;

struct Places {
  std::int64_t x, y;
};

/// Axes of y, the innermost first, over which an index runs.
struct OuterAxes {
  int count = 0;
  FastDivide by[Shape::kMaxRank];
  std::int64_t x_stride[Shape::kMaxRank] = {}, y_stride[Shape::kMaxRank] = {};

  __device__ Places at(std::uint32_t index) const {
    Places places{0, 0};
    for (int i = 0; i < count; ++i) {
      const Divided divided = by[i].divide(index);
      places.x += divided.remainder * x_stride[i];
      places.y += divided.remainder * y_stride[i];
      index = divided.quotient;
    }
    return places;
  }
};

/// All but the axes `first` and `last`.
OuterAxes outer_axes(const PermuteShape& s, int first, int last) {
  OuterAxes outer;
  std::int64_t y_stride = 1;
  for (int axis = s.axes - 1; axis >= 0; --axis) {
    if (axis != first && axis != last) {
      outer.by[outer.count] = FastDivide(s.extent[axis]);
      outer.x_stride[outer.count] = s.stride[axis];
      outer.y_stride[outer.count++] = y_stride;
    }
    y_stride *= s.extent[axis];
  }
  return outer;
}

/// A thread copies N values of a run.
template <class T, int N>
__global__ void __launch_bounds__(kRunThreads)
    copy_runs_kernel(const T* __restrict__ x, T* __restrict__ y, OuterAxes outer, FastDivide by_packs,
                     std::uint32_t threads) {
  const std::uint32_t thread = blockIdx.x * kRunThreads + threadIdx.x;
  if (thread >= threads) return;
  const Divided place = by_packs.divide(thread);
  const std::int64_t from = outer.at(place.quotient).x + static_cast<std::int64_t>(place.remainder) * N;
  *reinterpret_cast<Pack<T, N>*>(y + static_cast<std::int64_t>(thread) * N) = load_pack<N>(x + from);
}

/// The two axes of tiles: `rows` are contiguous in x, `columns` in y.
struct TileAxes {
  std::int64_t rows, columns, x_stride, y_stride;
  FastDivide by_row_tiles, by_column_tiles;
};

/// A block turns one tile.
template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    copy_tiles_kernel(const T* __restrict__ x, T* __restrict__ y, OuterAxes outer, TileAxes axes) {
  __shared__ T tile[kTile][kTile + 1];
  const Divided column_tile = axes.by_column_tiles.divide(blockIdx.x);
  const Divided row_tile = axes.by_row_tiles.divide(column_tile.quotient);
  const Places at = outer.at(row_tile.quotient);
  const std::int64_t first_row = static_cast<std::int64_t>(row_tile.remainder) * kTile;
  const std::int64_t first_column = static_cast<std::int64_t>(column_tile.remainder) * kTile;
  const int lane = static_cast<int>(threadIdx.x), line = static_cast<int>(threadIdx.y);
#pragma unroll
  for (int k = line; k < kTile; k += kTileRows)
    if (first_column + k < axes.columns && first_row + lane < axes.rows)
      tile[k][lane] = x[at.x + (first_column + k) * axes.x_stride + first_row + lane];
  __syncthreads();
#pragma unroll
  for (int k = line; k < kTile; k += kTileRows)
    if (first_row + k < axes.rows && first_column + lane < axes.columns)
      y[at.y + (first_row + k) * axes.y_stride + first_column + lane] = tile[lane][k];
}

template <class T>
void copy_runs(const Exec& exec, const PermuteShape& s, const T* x, T* y) {
  const std::int64_t run = s.extent[s.axes - 1], rest = s.elements() / s.extent[0];
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        const OuterAxes outer = outer_axes(s, s.axes - 1, s.axes - 1);
        for_image_chunks(s.extent[0], rest / N, [&](std::int64_t first, std::int64_t, std::uint32_t threads) {
          copy_runs_kernel<T, N><<<blocks_for(threads, kRunThreads), kRunThreads, 0, stream_of(exec)>>>(
              x + first * s.stride[0], y + first * rest, outer, FastDivide(run / N), threads);
          check_launch("permute");
        });
      },
      run, x, y);
}

template <class T>
void copy_tiles(const Exec& exec, const PermuteShape& s, const T* x, T* y) {
  const int first = s.contiguous(), last = s.axes - 1;
  std::int64_t y_stride = 1;
  for (int axis = first + 1; axis < s.axes; ++axis) y_stride *= s.extent[axis];
  const std::int64_t rows = s.extent[first], columns = s.extent[last];
  const std::int64_t row_tiles = (rows + kTile - 1) / kTile, column_tiles = (columns + kTile - 1) / kTile;
  const std::int64_t tiles = s.elements() / (rows * columns) * row_tiles * column_tiles;
  if (tiles > 0x7fffffff) throw ShapeError("permute: an array of 2^31 tiles or more is too large for a CUDA kernel");
  const TileAxes axes{rows, columns, s.stride[last], y_stride, FastDivide(row_tiles), FastDivide(column_tiles)};
  copy_tiles_kernel<<<static_cast<unsigned>(tiles), dim3(kTile, kTileRows), 0, stream_of(exec)>>>(
      x, y, outer_axes(s, first, last), axes);
  check_launch("permute");
}

template <class T>
void permute_values(const Exec& exec, const PermuteShape& s, const T* x, T* y) {
  s.contiguous() == s.axes - 1 ? copy_runs(exec, s, x, y) : copy_tiles(exec, s, x, y);
}

}  // namespace

void permute(const Exec& exec, const PermuteShape& s, DType dtype, const void* x, void* y) {
  if (size_of(dtype) == sizeof(float))
    return permute_values(exec, s, static_cast<const std::uint32_t*>(x), static_cast<std::uint32_t*>(y));
  permute_values(exec, s, static_cast<const std::uint16_t*>(x), static_cast<std::uint16_t*>(y));
}

}  // namespace bantam::kernels::cuda

// Permutation of axes on the CPU: runs of memory where the last axis stays the last, else tiles of the two axes that
// are contiguous in x and in y, so that both are read and written line by line.
#include "bantam/kernels/image/permute.h"

#include <algorithm>
#include <cstring>

#include "bantam/base/parallel.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kTile = 32, kGrain = 16384;

/// All axes of y but two (or one), and where the elements of an index over them begin in x and y.
struct OuterAxes {
  struct Places {
    std::int64_t x = 0, y = 0;
  };

  OuterAxes(const PermuteShape& s, int first, int second) {
    std::int64_t y_stride = 1;
    for (int axis = s.axes - 1; axis >= 0; --axis) {
      y_strides[axis] = y_stride;
      y_stride *= s.extent[axis];
      if (axis == first || axis == second) continue;
      axes[count++] = axis;
      elements *= s.extent[axis];
    }
  }
  Places at(const PermuteShape& s, std::int64_t index) const {
    Places places;
    for (int i = 0; i < count; ++i) {
      const int axis = axes[i];
      const std::int64_t position = index % s.extent[axis];
      index /= s.extent[axis];
      places.x += position * s.stride[axis];
      places.y += position * y_strides[axis];
    }
    return places;
  }

  int count = 0, axes[Shape::kMaxRank] = {};  ///< the innermost one first
  std::int64_t y_strides[Shape::kMaxRank] = {}, elements = 1;
};

template <class T>
void copy_runs(const Exec& exec, const PermuteShape& s, const T* x, T* y) {
  const int last = s.axes - 1;
  const std::int64_t run = s.extent[last];
  const OuterAxes outer(s, last, last);
  parallel_ranges(outer.elements, std::max<std::int64_t>(1, kGrain / run), exec.threads,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t row = begin; row < end; ++row)
                      std::memcpy(y + row * run, x + outer.at(s, row).x, static_cast<std::size_t>(run) * sizeof(T));
                  });
}

template <class T>
void copy_tiles(const Exec& exec, const PermuteShape& s, const T* x, T* y) {
  const int first = s.contiguous(), last = s.axes - 1;
  const std::int64_t rows = s.extent[first], columns = s.extent[last], x_stride = s.stride[last];
  const OuterAxes outer(s, first, last);
  const std::int64_t y_stride = outer.y_strides[first], blocks = (rows + kTile - 1) / kTile;
  parallel_ranges(outer.elements * blocks, std::max<std::int64_t>(1, kGrain / (std::min(rows, kTile) * columns)),
                  exec.threads, [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t item = begin; item < end; ++item) {
                      const OuterAxes::Places at = outer.at(s, item / blocks);
                      const std::int64_t row_begin = item % blocks * kTile, row_end = std::min(row_begin + kTile, rows);
                      for (std::int64_t tile = 0; tile < columns; tile += kTile)
                        for (std::int64_t row = row_begin; row < row_end; ++row)
                          for (std::int64_t column = tile; column < std::min(tile + kTile, columns); ++column)
                            y[at.y + row * y_stride + column] = x[at.x + row + column * x_stride];
                    }
                  });
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

}  // namespace bantam::kernels::cpu

// Tables of rows, and copies with zeros.
#include "bantam/kernels/conv/cpu/window_rows.h"

#include <algorithm>
#include <cstring>

namespace bantam::kernels::cpu {
namespace {

/// Copies rows [first, last) of an image, counted from the first window's first, with zeros where there is no image.
float* copy_padded(const WindowConv& s, const float* image, std::int64_t first, std::int64_t last, float* to) {
  const std::int64_t begin = std::max<std::int64_t>(0, -s.left), left = std::max<std::int64_t>(0, s.left);
  const std::int64_t inner = std::clamp<std::int64_t>(s.in_w - begin, 0, std::max<std::int64_t>(0, s.padded_w - left));
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t from = row - s.top;
    if (from < 0 || from >= s.in_h || inner == 0) {
      to = std::fill_n(to, s.padded_w * s.in_channels, 0.0f);
      continue;
    }
    to = std::fill_n(to, left * s.in_channels, 0.0f);
    std::memcpy(to, image + (from * s.in_w + begin) * s.in_channels,
                static_cast<std::size_t>(inner * s.in_channels) * sizeof(float));
    to = std::fill_n(to + inner * s.in_channels, (s.padded_w - left - inner) * s.in_channels, 0.0f);
  }
  return to;
}

}  // namespace

void find_rows(const WindowConv& s, const float* x, RowRange range, float* padded, const float** table) {
  const std::int64_t row_length = (s.pads ? s.padded_w : s.in_w) * s.in_channels;
  for (std::int64_t done = 0; done < range.count;) {  // an image at a time
    const std::int64_t row = range.first + done, image = row / s.out_h, first = row % s.out_h;
    const std::int64_t rows = std::min(range.count - done, s.out_h - first);
    const float* from = x + image * s.in_h * s.in_w * s.in_channels;
    const std::int64_t begin = first * s.stride_h, end = (first + rows - 1) * s.stride_h + s.read_h();
    const float* base = s.pads ? padded : from + begin * row_length;
    if (s.pads) padded = copy_padded(s, from, begin, end, padded);
    for (std::int64_t i = 0; i < rows; ++i) table[done + i] = base + i * s.stride_h * row_length;
    done += rows;
  }
}

}  // namespace bantam::kernels::cpu

// Views of finished images on the CPU, images in parallel: rows are copied, or read column by column.
#include "bantam/kernels/input/image_views.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/base/parallel.h"
#include "bantam/kernels/input/source_position.h"

namespace bantam::kernels::cpu {
namespace {

/// Lists, for each output column, the input column that it reads, or -1 for zero.
std::vector<std::int64_t> source_columns(const ImageViewShape& s) {
  std::vector<std::int64_t> columns;
  for (std::int64_t j = 0; j < s.width; ++j)
    columns.push_back(source_position((s.flip ? s.width - 1 - j : j) + s.left, s.width, s.pad_mode));
  return columns;
}

void write_view(const ImageViewShape& s, const std::vector<std::int64_t>& columns, std::size_t pixel_bytes,
                const std::byte* x, std::byte* y) {
  const auto width = static_cast<std::size_t>(s.width);
  const bool whole_rows = !s.flip && s.left == 0;
  for (std::int64_t i = 0; i < s.height; ++i, y += width * pixel_bytes) {
    const std::int64_t row = source_position(i + s.top, s.height, s.pad_mode);
    const std::byte* from = x + static_cast<std::size_t>(std::max<std::int64_t>(row, 0)) * width * pixel_bytes;
    if (row < 0) {
      std::memset(y, 0, width * pixel_bytes);
    } else if (whole_rows) {
      std::memcpy(y, from, width * pixel_bytes);
    } else {
      for (std::size_t j = 0; j < width; ++j) {
        if (columns[j] < 0)
          std::memset(y + j * pixel_bytes, 0, pixel_bytes);
        else
          std::memcpy(y + j * pixel_bytes, from + static_cast<std::size_t>(columns[j]) * pixel_bytes, pixel_bytes);
      }
    }
  }
}

}  // namespace

void image_views(const Exec& exec, const ImageViewShape& s, DType dtype, const void* x, const std::int32_t* rows,
                 void* y) {
  if (dtype != DType::float32 && !is_half(dtype))
    throw DTypeError("image_views: images are of a floating type, not " + std::string(to_string(dtype)));
  const std::vector<std::int64_t> columns = source_columns(s);
  const std::size_t pixel_bytes = static_cast<std::size_t>(s.channels) * size_of(dtype);
  const std::size_t image_bytes = static_cast<std::size_t>(s.height * s.width) * pixel_bytes;
  parallel_parts(s.count, exec.threads, [&](std::int64_t n) {
    const std::int64_t from = rows != nullptr ? rows[n] - s.first_row : n;
    write_view(s, columns, pixel_bytes, static_cast<const std::byte*>(x) + static_cast<std::size_t>(from) * image_bytes,
               static_cast<std::byte*>(y) + static_cast<std::size_t>(n) * image_bytes);
  });
}

}  // namespace bantam::kernels::cpu

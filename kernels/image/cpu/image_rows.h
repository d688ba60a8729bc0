// Rows of images on the CPU: outputs that are copies of inputs, and inputs that are read by several outputs.
#pragma once

#include <vector>

#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/image/axis_maps.h"

namespace bantam::kernels::cpu {

/// Calls row(image, r) for each of `height` rows of every image, in parallel; a row writes `elements`.
template <class Row>
void for_image_rows(std::int64_t batch, std::int64_t height, std::int64_t elements, int threads, Row&& row) {
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(elements, 1));
  parallel_ranges(batch * height, grain, threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r / height, static_cast<std::int32_t>(r % height));
  });
}

/// The part of an image op's shape that rows need.
struct ImageRows {
  std::int64_t batch, channels;
};

/// y = x at source(row), source(column) of the axes, 0 where either is -1. Neighbours are copied together.
template <class Axis>
void copy_sources(const Exec& exec, const ImageRows& rows, const Axis& h, const Axis& w, std::int64_t element_bytes,
                  const void* x, void* y) {
  const std::int64_t pixel = rows.channels * element_bytes;
  if (pixel == 0) return;
  for_image_rows(rows.batch, h.out, w.out * rows.channels, exec.threads, [&](std::int64_t n, std::int32_t row) {
    char* to = static_cast<char*>(y) + (n * h.out + row) * w.out * pixel;
    const std::int32_t from_row = h.source(row);
    if (from_row < 0) {
      std::memset(to, 0, static_cast<std::size_t>(w.out * pixel));
      return;
    }
    const char* from = static_cast<const char*>(x) + (n * h.in + from_row) * w.in * pixel;
    for (std::int32_t begin = 0, end = 0; begin < w.out; begin = end) {
      const std::int32_t first = w.source(begin);
      for (end = begin + 1; end < w.out && w.source(end) == (first < 0 ? -1 : first + end - begin);) ++end;
      const auto bytes = static_cast<std::size_t>((end - begin) * pixel);
      if (first < 0)
        std::memset(to + begin * pixel, 0, bytes);
      else
        std::memcpy(to + begin * pixel, from + first * pixel, bytes);
    }
  });
}

/// An output that reads an input.
struct Reader {
  std::int64_t o;
  float weight;
};

template <class Axis>
void find_readers(const Axis& axis, std::int32_t i, std::vector<Reader>& readers) {
  readers.clear();
  axis.for_each_reader(i, [&](std::int32_t o, float weight) { readers.push_back({o, weight}); });
}

/// dx = Σ weight·dy over the outputs that read each input, row after row of them.
template <class T, class Axis>
void sum_readers(const Exec& exec, const ImageRows& shape, const Axis& h, const Axis& w, const T* dy, T* dx) {
  const std::int64_t channels = shape.channels;
  if (channels == 0) return;
  for_image_rows(shape.batch, h.in, w.in * channels, exec.threads, [&](std::int64_t n, std::int32_t row) {
    std::vector<Reader> rows, columns;
    find_readers(h, row, rows);
    for (std::int32_t column = 0; column < w.in; ++column) {
      find_readers(w, column, columns);
      T* to = dx + ((n * h.in + row) * w.in + column) * channels;
      for (std::int64_t c = 0; c < channels; c += kLanes) {
        const std::int64_t lanes = std::min(kLanes, channels - c);
        Float8 sum{};
        for (const Reader& r : rows)
          for (const Reader& q : columns)
            sum += load_lanes(dy + ((n * h.out + r.o) * w.out + q.o) * channels + c, lanes) * (r.weight * q.weight);
        store_lanes(to + c, lanes, sum);
      }
    }
  });
}

}  // namespace bantam::kernels::cpu

// Views of images, means of their outputs and the least certain rows as plain loops: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "bantam/kernels/input/image_batch_reference.h"
#include "bantam/kernels/input/image_views.h"
#include "bantam/kernels/metric/view_outputs.h"

namespace bantam::kernels::reference {

inline void image_views(const ImageViewShape& s, const float* x, const std::int32_t* rows, float* y) {
  const ImageBatchShape image{.in_h = s.height, .in_w = s.width, .channels = s.channels, .pad_mode = s.pad_mode};
  for (std::int64_t n = 0; n < s.count; ++n) {
    const float* from = x + (rows != nullptr ? rows[n] - s.first_row : n) * s.height * s.width * s.channels;
    for (std::int64_t i = 0; i < s.height; ++i)
      for (std::int64_t j = 0; j < s.width; ++j)
        for (std::int64_t c = 0; c < s.channels; ++c)
          *y++ = padded_pixel(image, from, i + s.top, (s.flip ? s.width - 1 - j : j) + s.left, c);
  }
}

inline void view_outputs(const ViewOutputShape& s, const float* y, const std::int32_t* places, float* to) {
  for (std::int64_t n = 0; n < s.rows; ++n)
    for (std::int64_t c = 0; c < s.columns; ++c) {
      float& value = to[(places != nullptr ? places[n] : n) * s.columns + c];
      volatile float sum = (s.adds ? value : 0.0f) + y[n * s.columns + c];  // rounded before the division
      value = sum / s.divisor;
    }
}

inline std::vector<std::int32_t> least_certain(const LeastCertainShape& s, const float* outputs) {
  std::vector<double> top;  // probability of each row
  for (std::int64_t n = 0; n < s.rows; ++n) {
    const float* row = outputs + n * s.classes;
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (std::int64_t c = 0; c < s.classes; ++c) most = std::max<double>(most, row[c]);
    for (std::int64_t c = 0; c < s.classes; ++c) sum += std::exp(row[c] - most);
    top.push_back(std::isnan(sum) ? -1.0 : 1.0 / sum);
  }
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(s.rows));
  std::iota(chosen.begin(), chosen.end(), 0);
  std::ranges::stable_sort(chosen, {}, [&](std::int32_t n) { return top[static_cast<std::size_t>(n)]; });
  chosen.resize(static_cast<std::size_t>(s.count));
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace bantam::kernels::reference

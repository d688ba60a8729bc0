// Rows of images as windows read them: in place, or copied with zeros around them.
#pragma once

#include <cstdint>

#include "bantam/kernels/conv/window_conv.h"

namespace bantam::kernels::cpu {

/// Output rows, counted over all images of the batch.
struct RowRange {
  std::int64_t first = 0, count = 0;
};

/// Fills table[i] with where the first window of output row `rows.first` + i reads x. Where the convolution pads, what
/// these rows read is copied to `padded`, of padded_w · in_channels floats a row; else it is read in place.
void find_rows(const WindowConv& conv, const float* x, RowRange rows, float* padded, const float** table);

}  // namespace bantam::kernels::cpu

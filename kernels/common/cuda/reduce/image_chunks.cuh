// Launches with a thread an output: chunks of images small enough for 32-bit indices, with 64-bit offsets between them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "bantam/base/error.h"
#include "bantam/kernels/common/fast_divide.h"

namespace bantam::kernels::cuda {

/// An extent as the kernels' 32-bit coordinate; sums and products with strides and paddings then stay below 2^31.
inline int extent(std::int64_t value) {
  if (value < 0 || value > (std::int64_t{1} << 28)) {
    throw ShapeError("a CUDA image kernel supports extents from 0 to 2^28, not " + std::to_string(value));
  }
  return static_cast<int>(value);
}

/// Calls launch(first image, images, threads) for chunks of a batch, each of fewer than 2^31 threads.
template <class Launch>
void for_image_chunks(std::int64_t batch, std::int64_t threads_per_image, Launch&& launch) {
  constexpr std::int64_t kMost = 0x7fffffff;
  if (threads_per_image <= 0) return;
  if (threads_per_image > kMost) throw ShapeError("an image is too large for a CUDA kernel: 2^31 outputs or more");
  const std::int64_t each = kMost / threads_per_image;
  for (std::int64_t first = 0; first < batch; first += each) {
    const std::int64_t images = std::min(each, batch - first);
    launch(first, images, static_cast<std::uint32_t>(images * threads_per_image));
  }
}

}  // namespace bantam::kernels::cuda

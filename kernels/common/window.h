// How many positions a window has along one axis: the output size of convolutions and pooling.
#pragma once

#include <cstdint>

namespace bantam::kernels {

/// Positions, `stride` apart, of a window of `kernel` elements that lie `dilation` apart, within `padded` elements.
constexpr std::int64_t window_positions(std::int64_t padded, std::int64_t kernel, std::int64_t stride,
                                        std::int64_t dilation = 1) {
  return (padded - (kernel - 1) * dilation - 1) / stride + 1;
}

}  // namespace bantam::kernels

// The separable block as plain loops: the oracle of the tests. Work with T = double to judge the fast kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/kernels/depthwise/depthwise_conv2d_reference.h"
#include "bantam/kernels/matmul/matmul_reference.h"
#include "bantam/kernels/separable/separable_block.h"

namespace bantam::kernels::reference {

inline DepthwiseConv2dShape depthwise_of(const SeparableBlockShape& s) {
  return {.batch = s.batch,
          .in_h = s.in_h,
          .in_w = s.in_w,
          .channels = s.in_channels,
          .kernel_h = 3,
          .kernel_w = 3,
          .pad_top = s.pad_top,
          .pad_bottom = s.pad_bottom,
          .pad_left = s.pad_left,
          .pad_right = s.pad_right};
}

/// Place of pixel (row, column) of the window of y's element `i`, in the tensor before pooling.
inline std::size_t pixel_of(const SeparableBlockShape& s, std::int64_t i, std::int64_t row, std::int64_t column) {
  const std::int64_t o = i % s.out_channels, position = i / s.out_channels;
  const std::int64_t ow = position % s.out_w(), oh = position / s.out_w() % s.out_h();
  const std::int64_t n = position / (s.out_w() * s.out_h());
  const std::int64_t h = oh * s.pool + row, w = ow * s.pool + column;
  return static_cast<std::size_t>(((n * s.conv_h() + h) * s.conv_w() + w) * s.out_channels + o);
}

/// y, what it was pooled from (before ReLU), and which pixel of each window it came from: bit 2·row + column, or 0
/// where ReLU is closed. Without pooling the only pixel is bit 0.
template <class T>
struct SeparableBlock {
  std::vector<T> sums, y;
  std::vector<std::uint8_t> pixel;
};

template <class T>
SeparableBlock<T> separable_block_forward(const SeparableBlockShape& s, const std::vector<T>& x,
                                          const std::vector<T>& w_depthwise, const std::vector<T>& w_pointwise,
                                          const std::vector<T>& bias) {
  const std::vector<T> mid = depthwise_conv2d_forward(depthwise_of(s), x, w_depthwise);
  const std::int64_t rows = s.batch * s.conv_h() * s.conv_w();
  SeparableBlock<T> out;
  out.sums.resize(static_cast<std::size_t>(rows * s.out_channels));
  matmul<T>({.m = rows, .n = s.out_channels, .k = s.in_channels, .transpose_b = true}, mid.data(), w_pointwise.data(),
            out.sums.data(), false);
  for (std::size_t i = 0; i < out.sums.size() && s.bias; ++i)
    out.sums[i] += bias[i % static_cast<std::size_t>(s.out_channels)];
  for (std::int64_t i = 0; i < s.y_elements(); ++i) {
    T best = out.sums[pixel_of(s, i, 0, 0)];
    std::uint8_t winner = 1;
    for (std::int64_t place = 1; place < s.pool * s.pool; ++place) {
      const T value = out.sums[pixel_of(s, i, place / 2, place % 2)];
      if (!(value > best) && !(value != value && best == best)) continue;
      best = value;
      winner = static_cast<std::uint8_t>(1 << place);
    }
    out.y.push_back(s.relu && best < T(0) ? T(0) : best);
    out.pixel.push_back(s.relu && !(best > T(0)) ? std::uint8_t{0} : winner);
  }
  return out;
}

/// SeparableBlock::pixel as kernels keep it.
inline std::vector<std::uint8_t> pack_codes(const SeparableBlockShape& s, const std::vector<std::uint8_t>& pixel) {
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(separable_block_code_bytes(s)), 0);
  const std::size_t in_byte = s.pool == 2 ? 2 : 8, bits = 8 / in_byte;
  for (std::size_t i = 0; i < pixel.size() && !codes.empty(); ++i)
    codes[i / in_byte] = static_cast<std::uint8_t>(codes[i / in_byte] | pixel[i] << (i % in_byte * bits));
  return codes;
}

/// The inverse of pack_codes; all open where there are no codes.
inline std::vector<std::uint8_t> unpack_codes(const SeparableBlockShape& s, const std::vector<std::uint8_t>& codes) {
  std::vector<std::uint8_t> pixel(static_cast<std::size_t>(s.y_elements()), 1);
  const std::size_t in_byte = s.pool == 2 ? 2 : 8, bits = 8 / in_byte;
  for (std::size_t i = 0; i < pixel.size() && !codes.empty(); ++i)
    pixel[i] = static_cast<std::uint8_t>(codes[i / in_byte] >> (i % in_byte * bits) & ((1u << bits) - 1u));
  return pixel;
}

template <class T>
struct SeparableBlockGradients {
  std::vector<T> dx, d_depthwise, d_pointwise, d_bias;
};

template <class T>
SeparableBlockGradients<T> separable_block_backward(const SeparableBlockShape& s, const std::vector<T>& x,
                                                    const std::vector<T>& w_depthwise,
                                                    const std::vector<T>& w_pointwise, const std::vector<T>& dy,
                                                    const std::vector<std::uint8_t>& pixel) {
  const DepthwiseConv2dShape depthwise = depthwise_of(s);
  const std::vector<T> mid = depthwise_conv2d_forward(depthwise, x, w_depthwise);
  const std::int64_t rows = s.batch * s.conv_h() * s.conv_w();
  std::vector<T> dz(static_cast<std::size_t>(rows * s.out_channels), T(0)), d_mid(mid.size());
  SeparableBlockGradients<T> out;
  out.d_pointwise.resize(static_cast<std::size_t>(s.pointwise_elements()));
  out.d_bias.assign(static_cast<std::size_t>(s.out_channels), T(0));
  for (std::int64_t i = 0; i < s.y_elements(); ++i) {
    for (std::int64_t place = 0; place < s.pool * s.pool; ++place) {
      if ((pixel[static_cast<std::size_t>(i)] >> place & 1) == 0) continue;
      const T gradient = dy[static_cast<std::size_t>(i)];
      dz[pixel_of(s, i, place / 2, place % 2)] = gradient;
      out.d_bias[static_cast<std::size_t>(i % s.out_channels)] += gradient;
    }
  }
  matmul<T>({.m = s.out_channels, .n = s.in_channels, .k = rows, .transpose_a = true}, dz.data(), mid.data(),
            out.d_pointwise.data(), false);
  matmul<T>({.m = rows, .n = s.in_channels, .k = s.out_channels}, dz.data(), w_pointwise.data(), d_mid.data(), false);
  out.dx = depthwise_conv2d_grad_input(depthwise, d_mid, w_depthwise);
  out.d_depthwise = depthwise_conv2d_grad_weight(depthwise, x, d_mid);
  return out;
}

}  // namespace bantam::kernels::reference

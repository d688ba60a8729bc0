// Padding, resizing and depth to space as plain loops: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "bantam/kernels/image/depth_to_space.h"
#include "bantam/kernels/image/pad2d.h"
#include "bantam/kernels/image/resize2d.h"

namespace bantam::kernels::reference {

/// An input that an output reads, and its weight.
struct Source {
  std::int64_t at;
  double weight;
};

/// The inputs along one axis that output o of a padded axis is: none where it is zero.
inline std::vector<Source> pad_sources(std::int64_t in, std::int64_t before, std::int64_t after, EdgeMode mode,
                                       std::int64_t o) {
  std::vector<std::int64_t> kept;
  for (std::int64_t i = std::max<std::int64_t>(0, -before); i < in - std::max<std::int64_t>(0, -after); ++i)
    kept.push_back(i);
  const auto count = static_cast<std::int64_t>(kept.size());
  std::int64_t at = o - std::max<std::int64_t>(0, before);
  if (mode == EdgeMode::zeros && (at < 0 || at >= count)) return {};
  if (mode == EdgeMode::replicate) at = std::clamp<std::int64_t>(at, 0, count - 1);
  if (mode == EdgeMode::circular) at = (at + count) % count;
  if (mode == EdgeMode::reflect) {
    if (at < 0) at = -at;
    if (at >= count) at = 2 * (count - 1) - at;
  }
  return {{kept[static_cast<std::size_t>(at)], 1.0}};
}

/// The inputs along one axis that output o of a resized axis reads; places in float32, as PyTorch has them.
inline std::vector<Source> resize_sources(std::int64_t in, std::int64_t out, ResizeMode mode, std::int64_t o) {
  const auto ratio = [](std::int64_t a, std::int64_t b) { return static_cast<float>(a) / static_cast<float>(b); };
  const auto at = static_cast<float>(o);
  if (mode == ResizeMode::nearest) {
    const float place = at * ratio(in, out);
    return {{std::min(static_cast<std::int64_t>(std::floor(place)), in - 1), 1.0}};
  }
  float place = 0;  // by fma: rounded once, whatever products and sums the compiler fuses
  if (mode == ResizeMode::bilinear) {
    place = std::max(std::fma(at + 0.5f, ratio(in, out), -0.5f), 0.0f);
  } else if (out > 1) {
    place = std::fma(at, ratio(in - 1, out - 1), 0.0f);
  }
  const std::int64_t low = std::min(static_cast<std::int64_t>(place), in - 1);
  const double weight = std::min<double>(place - static_cast<float>(low), 1.0);
  if (low == in - 1) return {{low, 1.0}};
  return {{low, 1.0 - weight}, {low + 1, weight}};
}

/// Calls visit(x index, y index, weight) for every input that every output reads.
template <class Visit>
void visit_pad2d(const Pad2dShape& s, Visit&& visit) {
  for (std::int64_t y = 0; y < s.y_elements(); ++y) {
    const std::int64_t c = y % s.channels, column = y / s.channels % s.out_w();
    const std::int64_t row = y / (s.channels * s.out_w()) % s.out_h(), n = y / (s.channels * s.out_w() * s.out_h());
    for (const Source& h : pad_sources(s.in_h, s.top, s.bottom, s.mode, row))
      for (const Source& w : pad_sources(s.in_w, s.left, s.right, s.mode, column))
        visit(static_cast<std::size_t>(((n * s.in_h + h.at) * s.in_w + w.at) * s.channels + c),
              static_cast<std::size_t>(y), 1.0);
  }
}
template <class Visit>
void visit_resize2d(const Resize2dShape& s, Visit&& visit) {
  for (std::int64_t y = 0; y < s.y_elements(); ++y) {
    const std::int64_t c = y % s.channels, column = y / s.channels % s.out_w;
    const std::int64_t row = y / (s.channels * s.out_w) % s.out_h, n = y / (s.channels * s.out_w * s.out_h);
    for (const Source& h : resize_sources(s.in_h, s.out_h, s.mode, row))
      for (const Source& w : resize_sources(s.in_w, s.out_w, s.mode, column))
        visit(static_cast<std::size_t>(((n * s.in_h + h.at) * s.in_w + w.at) * s.channels + c),
              static_cast<std::size_t>(y), h.weight * w.weight);
  }
}
inline void visit_image(const Pad2dShape& s, auto&& visit) { visit_pad2d(s, visit); }
inline void visit_image(const Resize2dShape& s, auto&& visit) { visit_resize2d(s, visit); }

/// y of padding or resizing.
template <class ImageShape>
std::vector<double> image_forward(const ImageShape& s, const std::vector<double>& x) {
  std::vector<double> y(static_cast<std::size_t>(s.y_elements()), 0.0);
  visit_image(s, [&](std::size_t i, std::size_t o, double weight) { y[o] += weight * x[i]; });
  return y;
}
template <class ImageShape>
std::vector<double> image_grad_input(const ImageShape& s, const std::vector<double>& dy) {
  std::vector<double> dx(static_cast<std::size_t>(s.x_elements()), 0.0);
  visit_image(s, [&](std::size_t i, std::size_t o, double weight) { dx[i] += weight * dy[o]; });
  return dx;
}

/// The place in the deep image of every element of the wide one.
inline std::vector<std::size_t> depth_to_space_sources(const DepthToSpaceShape& s) {
  std::vector<std::size_t> sources;
  const std::int64_t b = s.block, depth = s.channels * b * b;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t row = 0; row < s.h * b; ++row)
      for (std::int64_t column = 0; column < s.w * b; ++column)
        for (std::int64_t c = 0; c < s.channels; ++c) {
          const std::int64_t place = row % b * b + column % b;
          const std::int64_t channel = s.channel_first ? c * b * b + place : place * s.channels + c;
          sources.push_back(static_cast<std::size_t>(((n * s.h + row / b) * s.w + column / b) * depth + channel));
        }
  return sources;
}

}  // namespace bantam::kernels::reference

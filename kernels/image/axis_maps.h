// One axis of padding and resizing: which inputs an output reads, and which outputs an input is read by, in their
// order. The same arithmetic on the CPU and on CUDA, to the bit.
#pragma once

#include <cmath>
#include <cstdint>

#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE
#include "bantam/kernels/image/pad2d.h"
#include "bantam/kernels/image/resize2d.h"

namespace bantam::kernels {

/// Axes have `in` and `out`; `for_each_reader(i, read)` calls read(o, weight) for the outputs that read input i, from
/// the first to the last. Those whose outputs are copies have `source(o)`: the input that output o is, -1: zero.
struct PadAxis {
  std::int32_t in = 0, out = 0;
  std::int32_t begin = 0, extent = 0;  ///< what is left of the input after cropping
  std::int32_t pad = 0;                ///< added before it
  EdgeMode mode = EdgeMode::zeros;

  BANTAM_HOST_DEVICE std::int32_t source(std::int32_t o) const {
    std::int32_t at = o - pad;
    if (at >= 0 && at < extent) return begin + at;
    if (mode == EdgeMode::zeros) return -1;
    if (mode == EdgeMode::replicate) return begin + (at < 0 ? 0 : extent - 1);
    if (mode == EdgeMode::circular) return begin + (at < 0 ? at + extent : at - extent);
    return begin + (at < 0 ? -at : 2 * (extent - 1) - at);
  }

  template <class Read>
  BANTAM_HOST_DEVICE void for_each_reader(std::int32_t i, Read&& read) const {
    const std::int32_t at = i - begin, same = at + pad;
    if (at < 0 || at >= extent) return;
    if (mode == EdgeMode::replicate) {
      const std::int32_t first = at == 0 ? 0 : same, last = at == extent - 1 ? out - 1 : same;
      for (std::int32_t o = first; o <= last; ++o) read(o, 1.0f);
      return;
    }
    const bool mirrors = mode == EdgeMode::reflect;
    const std::int32_t before = mirrors ? pad - at : same - extent;
    const std::int32_t after = mirrors ? same + 2 * (extent - 1 - at) : same + extent;
    if (mode != EdgeMode::zeros && before >= 0 && before != same) read(before, 1.0f);
    read(same, 1.0f);
    if (mode != EdgeMode::zeros && after < out && after != same) read(after, 1.0f);
  }
};

/// By `low(o)`, which never falls as o grows, from a guess on: the first o with low(o) ≥ i; `out` where there is none.
template <class Low>
BANTAM_HOST_DEVICE inline std::int32_t first_output(float guess, std::int32_t out, std::int32_t i, Low&& low) {
  std::int32_t o = guess <= 0.0f ? 0 : (guess >= static_cast<float>(out) ? out : static_cast<std::int32_t>(guess));
  while (o > 0 && low(o - 1) >= i) --o;
  while (o < out && low(o) < i) ++o;
  return o;
}

struct NearestAxis {
  std::int32_t in = 0, out = 0;
  float scale = 1.0f;  ///< in/out

  BANTAM_HOST_DEVICE std::int32_t source(std::int32_t o) const {
    const auto at = static_cast<std::int32_t>(static_cast<float>(o) * scale);
    return at < in - 1 ? at : in - 1;
  }
  BANTAM_HOST_DEVICE std::int32_t first(std::int32_t i) const {
    return first_output(static_cast<float>(i) / scale, out, i, [this](std::int32_t o) { return source(o); });
  }
  template <class Read>
  BANTAM_HOST_DEVICE void for_each_reader(std::int32_t i, Read&& read) const {
    const std::int32_t end = i + 1 < in ? first(i + 1) : out;
    for (std::int32_t o = first(i); o < end; ++o) read(o, 1.0f);
  }
};

/// Two neighbours, and the second's weight; the first's is one minus it.
struct Blend {
  std::int32_t low, high;
  float weight;
};

struct BilinearAxis {
  std::int32_t in = 0, out = 0;
  float scale = 1.0f;  ///< in/out, or (in - 1)/(out - 1); 0 where the latter has one output
  bool align_corners = false;

  BANTAM_HOST_DEVICE Blend blend(std::int32_t o) const {
    const float half = align_corners ? 0.0f : 0.5f;
    const float place = std::fma(static_cast<float>(o) + half, scale, -half);
    const float at = place > 0.0f ? place : 0.0f;
    const auto whole = static_cast<std::int32_t>(at);
    const std::int32_t low = whole < in - 1 ? whole : in - 1;
    const float above = at - static_cast<float>(low);
    return {low, low < in - 1 ? low + 1 : low, above < 1.0f ? above : 1.0f};
  }
  BANTAM_HOST_DEVICE std::int32_t first(std::int32_t i) const {
    const float half = align_corners ? 0.0f : 0.5f;
    const float guess = scale > 0.0f ? (static_cast<float>(i) + half) / scale - half : static_cast<float>(out);
    return first_output(guess, out, i, [this](std::int32_t o) { return blend(o).low; });
  }
  template <class Read>
  BANTAM_HOST_DEVICE void for_each_reader(std::int32_t i, Read&& read) const {
    const std::int32_t begin = i > 0 ? first(i - 1) : 0, end = i + 1 < in ? first(i + 1) : out;
    for (std::int32_t o = begin; o < end; ++o) {
      const Blend b = blend(o);
      const float weight = (b.low == i ? 1.0f - b.weight : 0.0f) + (b.high == i ? b.weight : 0.0f);
      read(o, weight);
    }
  }
};

inline PadAxis pad_axis(std::int64_t in, std::int64_t before, std::int64_t after, EdgeMode mode) {
  const std::int64_t cropped = before < 0 ? -before : 0, lost = cropped + (after < 0 ? -after : 0);
  return {static_cast<std::int32_t>(in),
          static_cast<std::int32_t>(in + before + after),
          static_cast<std::int32_t>(cropped),
          static_cast<std::int32_t>(in - lost),
          static_cast<std::int32_t>(before > 0 ? before : 0),
          mode};
}
inline NearestAxis nearest_axis(std::int64_t in, std::int64_t out) {
  return {static_cast<std::int32_t>(in), static_cast<std::int32_t>(out),
          static_cast<float>(in) / static_cast<float>(out)};
}
inline BilinearAxis bilinear_axis(std::int64_t in, std::int64_t out, bool align_corners) {
  const std::int64_t shorter = align_corners ? 1 : 0;
  const float scale = out == shorter ? 0.0f : static_cast<float>(in - shorter) / static_cast<float>(out - shorter);
  return {static_cast<std::int32_t>(in), static_cast<std::int32_t>(out), scale, align_corners};
}

}  // namespace bantam::kernels

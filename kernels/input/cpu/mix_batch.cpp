// Mixed pairs on the CPU: row by row of both images of a pair; targets sample by sample.
#include "bantam/kernels/input/mix_batch.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = 1024;

bool has_window(const SampleMix& mix) { return mix.top < mix.bottom && mix.left < mix.right; }

/// y = share·own + (1 - share)·other.
BANTAM_NO_FUSED_MULTIPLY_ADD void blend(float share, const float* own, const float* other, std::int64_t count,
                                        float* y) {
  const float rest = 1.0f - share;
#pragma omp simd
  for (std::int64_t k = 0; k < count; ++k) {
    const float first = share * own[k];
    const float second = rest * other[k];
    y[k] = first + second;
  }
}

BANTAM_NO_FUSED_MULTIPLY_ADD float smoothed(float q, float smoothing, std::int64_t classes) {
  if (smoothing == 0.0f) return q;
  const float scaled = (1.0f - smoothing) * q;
  return smoothing / static_cast<float>(classes) + scaled;
}

/// Row `i` of one image, from both of before.
template <class T>
void mix_row(const MixShape& s, const SampleMix& mix, std::int64_t i, const T* own, const T* other, T* y) {
  if (has_window(mix)) {
    if (i >= mix.top && i < mix.bottom)
      std::copy(other + mix.left * s.channels, other + mix.right * s.channels, y + mix.left * s.channels);
    return;
  }
  if (mix.share == 1.0f) return;
  float first[kBlock], second[kBlock], mixed[kBlock];
  for (std::int64_t at = 0; at < s.width * s.channels; at += kBlock) {
    const std::int64_t count = std::min(kBlock, s.width * s.channels - at);
    widen(own + at, first, count);
    widen(other + at, second, count);
    blend(mix.share, first, second, count, mixed);
    narrow(mixed, y + at, count);
  }
}

template <class T>
void mix_pair(MixShape s, const SampleMix& upper, const SampleMix& lower, T* a, T* b) {
  if (!has_window(upper) && !has_window(lower)) s = {s.batch, 1, s.height * s.width, s.channels};  // one long row
  const std::int64_t row = s.width * s.channels;
  std::vector<T> before(static_cast<std::size_t>(2 * row));
  T *own = before.data(), *other = own + row;
  for (std::int64_t i = 0; i < s.height; ++i, a += row, b += row) {
    std::copy(a, a + row, own);
    std::copy(b, b + row, other);
    mix_row(s, upper, i, own, other, a);
    mix_row(s, lower, i, other, own, b);
  }
}

/// A sample of a pair: its share of its own target, and the labels of both.
struct Pairing {
  float share = 1.0f;
  std::int32_t label = 0, partner = 0;
};

void write_target(const TargetMixShape& s, const Pairing& pair, float* target) {
  const auto outside = [&](std::int32_t label) { return label < 0 || label >= s.classes; };
  const bool unknown = outside(pair.label) || (pair.share != 1.0f && outside(pair.partner));
  for (std::int64_t c = 0; c < s.classes; ++c) {
    const float q = (c == pair.label ? pair.share : 0.0f) + (c == pair.partner ? 1.0f - pair.share : 0.0f);
    target[c] = unknown ? std::numeric_limits<float>::quiet_NaN() : smoothed(q, s.smoothing, s.classes);
  }
}

/// In place: `first` and `second` are read before either is written.
void mix_values(std::int64_t count, float upper, float lower, float* first, float* second) {
  for (std::int64_t c = 0; c < count; ++c) {
    const float x = first[c], y = second[c];
    if (upper != 1.0f) blend(upper, &x, &y, 1, first + c);
    if (lower != 1.0f) blend(lower, &y, &x, 1, second + c);
  }
}

}  // namespace

void mix_images(const Exec& exec, const MixShape& shape, const SampleMix* mixes, DType dtype, void* images) {
  const std::int64_t values = shape.height * shape.width * shape.channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_parts(shape.batch / 2, exec.threads, [&](std::int64_t b) {
      const std::int64_t partner = shape.batch - 1 - b;
      T* all = static_cast<T*>(images);
      mix_pair(shape, mixes[b], mixes[partner], all + b * values, all + partner * values);
    });
  });
}

void mix_targets(const Exec&, const TargetMixShape& s, const SampleMix* mixes, std::int32_t* labels, float* targets) {
  for (std::int64_t b = 0; b < (s.batch + 1) / 2; ++b) {
    const std::int64_t partner = s.batch - 1 - b;
    const bool mixed = mixes != nullptr && partner != b;
    const float upper = mixed ? mixes[b].share : 1.0f, lower = mixed ? mixes[partner].share : 1.0f;
    const std::int32_t own = labels != nullptr ? labels[b] : 0, other = labels != nullptr ? labels[partner] : 0;
    float *first = targets + b * s.classes, *second = targets + partner * s.classes;
    if (s.from_labels) {
      write_target(s, {upper, own, other}, first);
      write_target(s, {lower, other, own}, second);
    } else {
      mix_values(s.classes, upper, lower, first, second);
    }
    if (labels != nullptr && upper < 0.5f) labels[b] = other;
    if (labels != nullptr && lower < 0.5f) labels[partner] = own;
  }
}

}  // namespace bantam::kernels::cpu

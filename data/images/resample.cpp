#include "bantam/data/images/resample.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "bantam/data/images/filter.h"
#include "bantam/data/images/resample_box.h"

namespace bantam {
namespace {

/// Eight values at once, as the compiler makes them of what the CPU has.
constexpr int kLanes = 8;
static_assert(std::endian::native == std::endian::little, "pixels' bytes are shifted out of words");
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t IntLanes __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
typedef std::int16_t ShortLanes __attribute__((vector_size(kLanes * sizeof(std::int16_t))));
typedef std::uint8_t ByteLanes __attribute__((vector_size(kLanes)));

/// Most channels that are filtered at once.
constexpr std::int64_t kMostChannels = 4;

/// How pixels of `channels` lie in lanes: a pixel of a row takes 1 or 4, and rows beside it fill the others.
template <int channels>
struct LanesOf {
  static constexpr int pixel = channels == 1 ? 1 : 4;
  static constexpr int rows = kLanes / pixel;
};

/// The sum of `count` lanes times their weights, to 8-bit values again, rounded to nearest. `taps`: the count, where it
/// is known when this is compiled, else 0. `lanes(k)` points to lanes.
template <int taps, class LanesAt>
[[gnu::always_inline]] inline void weigh(const LanesAt& lanes, const float* weights, std::int64_t count,
                                         IntLanes& values) {
  constexpr float kScale = 1.0f / TriangleFilter::kOne;
  Lanes sum{}, lane;
  const std::int64_t all = taps == 0 ? count : taps;
#pragma GCC unroll 8
  for (std::int64_t k = 0; k < all; ++k) {
    std::memcpy(&lane, lanes(k), sizeof lane);
    sum += lane * weights[k];
  }
  values = __builtin_convertvector(sum * kScale + 0.5f, IntLanes);
}

/// Calls `work` with the number of taps as a constant, where it is small.
template <class Work>
void with_taps(std::int64_t taps, const Work& work) {
  switch (taps) {
    case 2:
      return work(std::integral_constant<int, 2>());
    case 3:
      return work(std::integral_constant<int, 3>());
    case 4:
      return work(std::integral_constant<int, 4>());
    case 5:
      return work(std::integral_constant<int, 5>());
    default:
      return work(std::integral_constant<int, 0>());
  }
}

/// Buffers of one thread, which grow to what its largest image needs.
struct Workspace {
  TriangleFilter across, down;
  std::vector<float> lanes;  ///< input rows, a group of LanesOf::rows
  std::vector<float> ring;   ///< rows of output width that the next output row may need
  std::vector<const float*> rows;
  std::vector<std::size_t> columns;
  Image group_in, group_out;  ///< some of the channels of images that have more than kMostChannels

  static Workspace& of_this_thread() {
    thread_local Workspace workspace;
    return workspace;
  }
};

/// Rows of the input that may be read: `count` of `pixels` each, from `origin`.
struct Rows {
  const std::uint8_t* origin = nullptr;
  std::size_t stride = 0;
  std::int64_t count = 0, pixels = 0;

  /// Rows after the last are the last.
  const std::uint8_t* at(std::int64_t row) const {
    return origin + static_cast<std::size_t>(std::min(row, count - 1)) * stride;
  }
};

/// Pixel `x` of each of `rows` as lanes. `bytes`: of a row, at least its channels. (GCC 12 converts a vector of bytes
/// one by one: hence the shifts.)
template <int channels, int bytes>
void spread_pixel(const std::uint8_t* const (&rows)[LanesOf<channels>::rows], std::int64_t x, float* lanes) {
  IntLanes values;
  if constexpr (channels == 1) {
    values = IntLanes{rows[0][x], rows[1][x], rows[2][x], rows[3][x], rows[4][x], rows[5][x], rows[6][x], rows[7][x]};
  } else {
    std::int32_t a = 0, b = 0;
    std::memcpy(&a, rows[0] + x * channels, bytes);
    std::memcpy(&b, rows[1] + x * channels, bytes);
    values = (IntLanes{a, a, a, a, b, b, b, b} >> IntLanes{0, 8, 16, 24, 0, 8, 16, 24}) & 255;
  }
  const Lanes floats = __builtin_convertvector(values, Lanes);
  std::memcpy(lanes + x * kLanes, &floats, sizeof floats);
}

/// Writes LanesOf::rows rows from `row` on as lanes: pixel after pixel, of each all rows.
template <int channels>
void spread(const Rows& in, std::int64_t row, float* lanes) {
  using L = LanesOf<channels>;
  const std::uint8_t* rows[L::rows];
  for (int r = 0; r < L::rows; ++r) rows[r] = in.at(row + r);
  // Three channels are read with the next pixel's first, except at a row's end, where there may be none.
  const std::int64_t last = in.pixels - 1;
  for (std::int64_t x = 0; x < last; ++x) spread_pixel<channels, L::pixel>(rows, x, lanes);
  spread_pixel<channels, channels>(rows, last, lanes);
}

/// Filters a group of rows across: writes each row to its place in the ring.
template <int channels, int taps>
void filter_across(const TriangleFilter& filter, const float* lanes, std::int64_t size,
                   float* const (&to)[LanesOf<channels>::rows]) {
  using L = LanesOf<channels>;
  for (std::int64_t x = 0; x < size; ++x) {
    const float* in = lanes + filter.first(x) * kLanes;
    IntLanes rounded;
    weigh<taps>([&](std::int64_t k) { return in + k * kLanes; }, filter.weights(x), filter.taps(), rounded);
    const Lanes values = __builtin_convertvector(rounded, Lanes);
    for (int r = 0; r < L::rows; ++r)
      std::memcpy(to[r] + x * L::pixel, reinterpret_cast<const float*>(&values) + r * L::pixel,
                  L::pixel * sizeof(float));
  }
}

/// Writes one output row of `size` pixels of the ring's rows: `rows` has one for each weight.
template <int channels, int taps>
void filter_down(const std::vector<const float*>& rows, const float* weights, std::int64_t size, std::uint8_t* out) {
  using L = LanesOf<channels>;
  constexpr std::int64_t kPixels = kLanes / L::pixel;
  const auto count = static_cast<std::int64_t>(rows.size());
  const float* const* row = rows.data();
  for (std::int64_t x = 0; x < size; x += kPixels) {
    IntLanes rounded;
    weigh<taps>([&](std::int64_t k) { return row[k] + x * L::pixel; }, weights, count, rounded);
    const ByteLanes values = __builtin_convertvector(__builtin_convertvector(rounded, ShortLanes), ByteLanes);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&values);
    if (x + kPixels < size) {  // a pixel of three channels writes the next one's first, which is then overwritten
      for (int p = 0; p < kPixels; ++p) std::memcpy(out + (x + p) * channels, bytes + p * L::pixel, L::pixel);
    } else {
      for (std::int64_t p = 0; x + p < size; ++p) std::memcpy(out + (x + p) * channels, bytes + p * L::pixel, channels);
    }
  }
}

/// Both passes, a group of rows at a time: what the second reads is still in the nearest cache.
template <int channels>
void filter(const Rows& in, Workspace& work, Image& out) {
  using L = LanesOf<channels>;
  const std::int64_t taps = work.down.taps(), capacity = taps + L::rows;
  const std::size_t stride = static_cast<std::size_t>(out.size.width * L::pixel + kLanes);
  work.lanes.resize(static_cast<std::size_t>(in.pixels * kLanes));
  work.ring.resize(static_cast<std::size_t>(capacity) * stride);
  const auto ring_row = [&](std::int64_t row) {
    return work.ring.data() + static_cast<std::size_t>(row % capacity) * stride;
  };
  work.rows.resize(static_cast<std::size_t>(taps));
  std::int64_t ready = 0;
  for (std::int64_t y = 0; y < out.size.height; ++y) {
    const std::int64_t first = work.down.first(y);
    for (; ready < first + taps; ready += L::rows) {
      float* to[L::rows];
      for (int r = 0; r < L::rows; ++r) to[r] = ring_row(ready + r);
      spread<channels>(in, ready, work.lanes.data());
      with_taps(work.across.taps(), [&](auto known) {
        filter_across<channels, known()>(work.across, work.lanes.data(), out.size.width, to);
      });
    }
    for (std::int64_t k = 0; k < taps; ++k) work.rows[static_cast<std::size_t>(k)] = ring_row(first + k);
    with_taps(taps, [&](auto known) {
      filter_down<channels, known()>(work.rows, work.down.weights(y), out.size.width,
                                     out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes());
    });
  }
}

/// The pixel of a window whose area holds an output pixel's centre.
std::int64_t nearest(std::int64_t position, std::int64_t window, std::int64_t size) {
  return (2 * position + 1) * window / (2 * size);
}

void copy_nearest(const Rows& in, const Sampling& sampling, Image& out) {
  const auto channels = static_cast<std::size_t>(out.channels);
  std::vector<std::size_t>& columns = Workspace::of_this_thread().columns;  // where they start in a row
  columns.resize(static_cast<std::size_t>(sampling.size.width));
  for (std::int64_t x = 0; x < sampling.size.width; ++x)
    columns[static_cast<std::size_t>(sampling.mirrored ? sampling.size.width - 1 - x : x)] =
        static_cast<std::size_t>(nearest(x, sampling.window.width, sampling.size.width)) * channels;
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < sampling.size.height; ++y) {
    const std::uint8_t* row = in.at(nearest(y, sampling.window.height, sampling.size.height));
    for (const std::size_t column : columns) {
      for (std::size_t c = 0; c < channels; ++c) to[c] = row[column + c];
      to += channels;
    }
  }
}

void copy_window(const Rows& in, const Sampling& sampling, Image& out) {
  if (sampling.mirrored) return copy_nearest(in, sampling, out);
  for (std::int64_t y = 0; y < out.size.height; ++y)
    std::memcpy(out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(), in.at(y), out.row_bytes());
}

/// `in` as images of at most kMostChannels.
void filter_channels(const Rows& in, Workspace& work, Image& out) {
  switch (out.channels) {
    case 1:
      return filter<1>(in, work, out);
    case 2:
      return filter<2>(in, work, out);
    case 3:
      return filter<3>(in, work, out);
    default:
      return filter<kMostChannels>(in, work, out);
  }
}

/// Channels that are each `step` bytes after those of the pixel before: `channels` of each of `pixels`.
struct ChannelGroup {
  std::int64_t pixels, channels;

  void copy(const std::uint8_t* from, std::int64_t from_step, std::uint8_t* to, std::int64_t to_step) const {
    for (std::int64_t x = 0; x < pixels; ++x, from += from_step, to += to_step)
      for (std::int64_t c = 0; c < channels; ++c) to[c] = from[c];
  }
};

/// A group of channels after the other, each as an image of its own.
void filter_groups(const Rows& in, Workspace& work, Image& out) {
  const std::int64_t step = out.channels;
  for (std::int64_t first = 0; first < step; first += kMostChannels) {
    const std::int64_t channels = std::min(kMostChannels, step - first);
    work.group_in.reshape({in.count, in.pixels}, channels);
    work.group_out.reshape(out.size, channels);
    const std::size_t in_bytes = work.group_in.row_bytes(), out_bytes = work.group_out.row_bytes();
    for (std::int64_t y = 0; y < in.count; ++y)
      ChannelGroup{in.pixels, channels}.copy(
          in.at(y) + first, step, work.group_in.pixels.data() + static_cast<std::size_t>(y) * in_bytes, channels);
    filter_channels({work.group_in.pixels.data(), in_bytes, in.count, in.pixels}, work, work.group_out);
    for (std::int64_t y = 0; y < out.size.height; ++y)
      ChannelGroup{out.size.width, channels}.copy(
          work.group_out.pixels.data() + static_cast<std::size_t>(y) * out_bytes, channels,
          out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes() + first, step);
  }
}

void filter_window(const Rows& in, const ReducedWindow& place, const Sampling& sampling, Image& out) {
  Workspace& work = Workspace::of_this_thread();
  work.across.set({.pixels = in.pixels,
                   .offset = place.left,
                   .window = sampling.window.width,
                   .size = sampling.size.width,
                   .denominator = place.denominator,
                   .mirrored = sampling.mirrored});
  work.down.set({.pixels = in.count,
                 .offset = place.top,
                 .window = sampling.window.height,
                 .size = sampling.size.height,
                 .denominator = place.denominator});
  if (out.channels > kMostChannels)
    filter_groups(in, work, out);
  else
    filter_channels(in, work, out);
}

}  // namespace

void resample(const Image& in, const Sampling& sampling, Interpolation interpolation, Image& out) {
  out.reshape(sampling.size, in.channels);
  const Rows window{in.pixels.data() + static_cast<std::size_t>(sampling.top) * in.row_bytes() +
                        static_cast<std::size_t>(sampling.left * in.channels),
                    in.row_bytes(), sampling.window.height, sampling.window.width};
  if (sampling.window == sampling.size) return copy_window(window, sampling, out);
  if (interpolation == Interpolation::nearest) return copy_nearest(window, sampling, out);
  filter_window(window, {}, sampling, out);
}

void resample_reduced(const Image& in, const ReducedWindow& place, const Sampling& sampling, Image& out) {
  out.reshape(sampling.size, in.channels);
  const Rows all{in.pixels.data(), in.row_bytes(), in.size.height, in.size.width};
  if (sampling.window == sampling.size) return copy_window(all, sampling, out);
  filter_window(all, place, sampling, out);
}

void resample_values(const Image& in, const Sampling& sampling, Image& out) {
  out.reshape(sampling.size, in.channels);
  const Rows window{in.pixels.data() + static_cast<std::size_t>(sampling.top) * in.row_bytes() +
                        static_cast<std::size_t>(sampling.left * in.channels),
                    in.row_bytes(), sampling.window.height, sampling.window.width};
  if (sampling.window == sampling.size) return copy_window(window, sampling, out);
  const auto channels = static_cast<std::size_t>(in.channels) / sizeof(float);
  const std::size_t row_values = static_cast<std::size_t>(sampling.size.width) * channels;
  TriangleFilter across, down;
  across.set({.pixels = sampling.window.width,
              .window = sampling.window.width,
              .size = sampling.size.width,
              .mirrored = sampling.mirrored});
  down.set({.pixels = sampling.window.height, .window = sampling.window.height, .size = sampling.size.height});
  constexpr float kScale = 1.0f / TriangleFilter::kOne;
  std::vector<float> rows(static_cast<std::size_t>(sampling.window.height) * row_values);
  std::vector<float> row(static_cast<std::size_t>(sampling.window.width) * channels);
  for (std::int64_t y = 0; y < sampling.window.height; ++y) {
    std::memcpy(row.data(), window.at(y), row.size() * sizeof(float));
    float* to = rows.data() + static_cast<std::size_t>(y) * row_values;
    for (std::int64_t x = 0; x < sampling.size.width; ++x)
      for (std::size_t c = 0; c < channels; ++c, ++to) {
        const float* from = row.data() + static_cast<std::size_t>(across.first(x)) * channels + c;
        float sum = 0;
        for (std::int64_t k = 0; k < across.taps(); ++k, from += channels)
          sum += *from * (across.weights(x)[k] * kScale);
        *to = sum;
      }
  }
  std::vector<float> sums(row_values);
  for (std::int64_t y = 0; y < sampling.size.height; ++y) {
    std::ranges::fill(sums, 0.0f);
    for (std::int64_t k = 0; k < down.taps(); ++k) {
      const float weight = down.weights(y)[k] * kScale;
      const float* from = rows.data() + static_cast<std::size_t>(down.first(y) + k) * row_values;
      for (std::size_t i = 0; i < row_values; ++i) sums[i] += from[i] * weight;
    }
    std::memcpy(out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(), sums.data(), out.row_bytes());
  }
}

}  // namespace bantam

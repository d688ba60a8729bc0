#include "bantam/data/images/resample.h"

#include <algorithm>
#include <cstring>

#include "bantam/data/images/filter.h"
#include "bantam/data/images/resample_box.h"

namespace bantam {
namespace {

/// Eight values at once, as the compiler makes them of what the CPU has.
constexpr int kLanes = 8;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef std::int32_t IntLanes __attribute__((vector_size(kLanes * sizeof(std::int32_t))));
typedef std::uint8_t ByteLanes __attribute__((vector_size(kLanes)));

/// How pixels of `channels` lie in lanes: a pixel of a row takes 1 or 4, and rows beside it fill the others.
template <int channels>
struct LanesOf {
  static constexpr int pixel = channels == 1 ? 1 : 4;
  static constexpr int rows = kLanes / pixel;
};

inline Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

/// Sums of 8-bit values times weights to values again, rounded to nearest.
inline IntLanes rounded(Lanes sums) {
  constexpr float kScale = 1.0f / TriangleFilter::kOne;
  return __builtin_convertvector(sums * kScale + 0.5f, IntLanes);
}

/// Buffers of one thread, which grow to what its largest image needs.
struct Workspace {
  TriangleFilter across, down;
  std::vector<float> lanes;  ///< input rows, a group of LanesOf::rows
  std::vector<float> ring;   ///< rows of output width that the next output row may need

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

/// Writes LanesOf::rows rows from `row` on as lanes: pixel after pixel, of each all rows.
template <int channels>
void spread(const Rows& in, std::int64_t row, float* lanes) {
  using L = LanesOf<channels>;
  const std::uint8_t* rows[L::rows];
  for (int r = 0; r < L::rows; ++r) rows[r] = in.at(row + r);
  const auto write = [&](std::int64_t x, std::size_t bytes) {
    ByteLanes values{};
    for (int r = 0; r < L::rows; ++r)
      std::memcpy(reinterpret_cast<std::uint8_t*>(&values) + r * L::pixel, rows[r] + x * channels, bytes);
    const Lanes floats = __builtin_convertvector(values, Lanes);
    std::memcpy(lanes + x * kLanes, &floats, sizeof floats);
  };
  // Three channels are read with the next pixel's first, except at a row's end, where there may be none.
  for (std::int64_t x = 0; x + 1 < in.pixels; ++x) write(x, L::pixel);
  write(in.pixels - 1, channels);
}

/// Filters a group of rows across: writes each row to its place in the ring.
template <int channels>
void filter_across(const TriangleFilter& filter, const float* lanes, std::int64_t size,
                   float* const (&to)[LanesOf<channels>::rows]) {
  using L = LanesOf<channels>;
  for (std::int64_t x = 0; x < size; ++x) {
    const float* in = lanes + filter.first(x) * kLanes;
    const float* weights = filter.weights(x);
    Lanes sum = load(in) * weights[0];
    for (std::int64_t k = 1; k < filter.count(x); ++k) sum += load(in + k * kLanes) * weights[k];
    const Lanes values = __builtin_convertvector(rounded(sum), Lanes);
    for (int r = 0; r < L::rows; ++r)
      std::memcpy(to[r] + x * L::pixel, reinterpret_cast<const float*>(&values) + r * L::pixel,
                  L::pixel * sizeof(float));
  }
}

/// Writes one output row of `size` pixels of the ring's rows: `rows` has one for each weight.
template <int channels>
void filter_down(const float* const* rows, const float* weights, std::int64_t count, std::int64_t size,
                 std::uint8_t* out) {
  using L = LanesOf<channels>;
  constexpr std::int64_t kPixels = kLanes / L::pixel;
  for (std::int64_t x = 0; x < size; x += kPixels) {
    const std::int64_t lane = x * L::pixel;
    Lanes sum = load(rows[0] + lane) * weights[0];
    for (std::int64_t k = 1; k < count; ++k) sum += load(rows[k] + lane) * weights[k];
    const ByteLanes values = __builtin_convertvector(rounded(sum), ByteLanes);
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
  const std::int64_t most = work.down.most(), capacity = most + L::rows;
  const std::size_t stride = static_cast<std::size_t>(out.size.width * L::pixel + kLanes);
  work.lanes.resize(static_cast<std::size_t>(in.pixels * kLanes));
  work.ring.resize(static_cast<std::size_t>(capacity) * stride);
  const auto ring_row = [&](std::int64_t row) {
    return work.ring.data() + static_cast<std::size_t>(row % capacity) * stride;
  };
  std::vector<const float*> rows(static_cast<std::size_t>(most));
  std::int64_t ready = 0;
  for (std::int64_t y = 0; y < out.size.height; ++y) {
    const std::int64_t first = work.down.first(y), count = work.down.count(y);
    for (; ready < first + count; ready += L::rows) {
      float* to[L::rows];
      for (int r = 0; r < L::rows; ++r) to[r] = ring_row(ready + r);
      spread<channels>(in, ready, work.lanes.data());
      filter_across<channels>(work.across, work.lanes.data(), out.size.width, to);
    }
    for (std::int64_t k = 0; k < count; ++k) rows[static_cast<std::size_t>(k)] = ring_row(first + k);
    filter_down<channels>(rows.data(), work.down.weights(y), count, out.size.width,
                          out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes());
  }
}

/// Each output pixel is one input pixel: `column` names that of a window's column.
template <class Place>
void copy_pixels(const Rows& in, const Place& place, Image& out) {
  const auto channels = static_cast<std::size_t>(out.channels);
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < out.size.height; ++y) {
    const std::uint8_t* row = in.at(place.row(y));
    for (std::int64_t x = 0; x < out.size.width; ++x, to += channels)
      std::memcpy(to, row + static_cast<std::size_t>(place.column(x)) * channels, channels);
  }
}

/// The nearest pixel of a window: that whose area holds the output pixel's centre.
struct NearestPlace {
  const Sampling& sampling;

  static std::int64_t of(std::int64_t position, std::int64_t window, std::int64_t size) {
    return (2 * position + 1) * window / (2 * size);
  }
  std::int64_t row(std::int64_t y) const { return of(y, sampling.window.height, sampling.size.height); }
  std::int64_t column(std::int64_t x) const {
    return of(sampling.mirrored ? sampling.size.width - 1 - x : x, sampling.window.width, sampling.size.width);
  }
};

void copy_window(const Rows& in, const Sampling& sampling, Image& out) {
  if (sampling.mirrored) return copy_pixels(in, NearestPlace{sampling}, out);
  for (std::int64_t y = 0; y < out.size.height; ++y)
    std::memcpy(out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(), in.at(y), out.row_bytes());
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
  switch (out.channels) {
    case 1:
      return filter<1>(in, work, out);
    case 2:
      return filter<2>(in, work, out);
    case 3:
      return filter<3>(in, work, out);
    default:
      return filter<4>(in, work, out);
  }
}

}  // namespace

void resample(const Image& in, const Sampling& sampling, Interpolation interpolation, Image& out) {
  out.reshape(sampling.size, in.channels);
  const Rows window{in.pixels.data() + static_cast<std::size_t>(sampling.top) * in.row_bytes() +
                        static_cast<std::size_t>(sampling.left * in.channels),
                    in.row_bytes(), sampling.window.height, sampling.window.width};
  if (sampling.window == sampling.size) return copy_window(window, sampling, out);
  if (interpolation == Interpolation::nearest) return copy_pixels(window, NearestPlace{sampling}, out);
  filter_window(window, {}, sampling, out);
}

void resample_reduced(const Image& in, const ReducedWindow& place, const Sampling& sampling, Image& out) {
  out.reshape(sampling.size, in.channels);
  const Rows all{in.pixels.data(), in.row_bytes(), in.size.height, in.size.width};
  if (sampling.window == sampling.size) return copy_window(all, sampling, out);
  filter_window(all, place, sampling, out);
}

}  // namespace bantam

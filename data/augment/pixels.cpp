// Changes of pixels: where a new value follows from the old one alone it is looked up in a table of 256.
#include "bantam/data/augment/pixels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

using Table = std::array<std::uint8_t, 256>;

/// Clamped, then cut off: torchvision's conversion.
std::uint8_t to_byte(float value) { return static_cast<std::uint8_t>(std::clamp(value, 0.0f, 255.0f)); }

template <class F>
Table table_of(F&& f) {
  Table table;
  for (int v = 0; v < 256; ++v) table[static_cast<std::size_t>(v)] = f(v);
  return table;
}

void look_up(const PixelView& image, const Table& table) {
  for (std::int64_t i = 0; i < image.values(); ++i) image.data[i] = table[image.data[i]];
}

/// A table of each channel's own.
void look_up(const PixelView& image, std::span<const Table> tables) {
  for (std::int64_t i = 0; i < image.values();)
    for (const Table& table : tables) {
      image.data[i] = table[image.data[i]];
      ++i;
    }
}

using Histogram = std::array<std::int64_t, 256>;

std::vector<Histogram> histograms(const PixelView& image) {
  std::vector<Histogram> counts(static_cast<std::size_t>(image.channels), Histogram{});
  for (std::int64_t i = 0; i < image.values();)
    for (Histogram& count : counts) ++count[image.data[i++]];
  return counts;
}

struct Hsv {
  float h, s, v;
};

Hsv to_hsv(float r, float g, float b) {
  const float most = std::max({r, g, b}), range = most - std::min({r, g, b});
  if (range == 0.0f) return {0.0f, 0.0f, most};
  const float from_r = (most - r) / range, from_g = (most - g) / range, from_b = (most - b) / range;
  const float sixths = most == r ? from_b - from_g : most == g ? 2.0f + from_r - from_b : 4.0f + from_g - from_r;
  return {std::fmod(sixths / 6.0f + 1.0f, 1.0f), range / most, most};
}

void to_rgb(const Hsv& color, std::uint8_t* rgb) {
  const float sixths = color.h * 6.0f, sector = std::floor(sixths), f = sixths - sector;
  const float v = color.v, p = v * (1.0f - color.s), q = v * (1.0f - color.s * f);
  const float t = v * (1.0f - color.s * (1.0f - f));
  const float all[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
  const float* chosen = all[static_cast<int>(sector) % 6];
  for (int c = 0; c < 3; ++c) rgb[c] = to_byte(chosen[c] * 255.999f);
}

template <class View>
void swap_rows(const View& view, std::size_t row_bytes) {
  auto* bytes = reinterpret_cast<std::byte*>(view.data);
  for (std::int64_t top = 0, bottom = view.height - 1; top < bottom; ++top, --bottom) {
    std::byte* upper = bytes + static_cast<std::size_t>(top) * row_bytes;
    std::swap_ranges(upper, upper + row_bytes, bytes + static_cast<std::size_t>(bottom) * row_bytes);
  }
}

}  // namespace

void check_pixels(std::string_view stage, const Shape& images, DType dtype) {
  if (dtype != DType::uint8 || images.rank() != 3)
    throw ShapeError(fmt::format("{} changes images (height, width, channels) of uint8; these are {} of {}", stage,
                                 to_string(images), to_string(dtype)));
}

void check_colors(std::string_view stage, const Shape& images, DType dtype) {
  check_pixels(stage, images, dtype);
  if (images[2] != 1 && images[2] != 3)
    throw ShapeError(
        fmt::format("{} changes grey or RGB images (1 or 3 channels); these have {} channels", stage, images[2]));
}

PixelView image_of(const AugmentedSample& sample, std::string_view stage) {
  const SampleField& field = sample.fields[0];
  check_pixels(stage, field.shape, field.dtype);
  return {reinterpret_cast<std::uint8_t*>(sample.buffers[0].data()), field.shape[0], field.shape[1], field.shape[2]};
}

void for_each_mask(const AugmentedSample& sample, const std::function<void(const MaskView&)>& change) {
  const Shape& image = sample.fields[0].shape;
  for (std::size_t f = 1; f < sample.fields.size(); ++f) {
    const SampleField& field = sample.fields[f];
    if (field.shape.rank() < 2 || field.shape[0] != image[0] || field.shape[1] != image[1]) continue;
    const std::size_t pixels = static_cast<std::size_t>(image[0] * image[1]);
    change({sample.buffers[f].data(), image[0], image[1], field.bytes() / pixels, field.dtype});
  }
}

std::vector<std::byte> mask_element(const MaskView& mask, std::int32_t fill) {
  std::vector<std::byte> element(mask.element_bytes, std::byte{0});
  const std::size_t unit = size_of(mask.dtype);
  const auto wide = static_cast<std::int64_t>(fill);
  // The low bytes of a small number are the number in each integer type.
  const bool whole = mask.dtype == DType::uint8 || mask.dtype == DType::int32 || mask.dtype == DType::int64;
  if (whole)
    for (std::size_t at = 0; at < element.size(); at += unit) std::memcpy(element.data() + at, &wide, unit);
  return element;
}

void adjust_brightness(const PixelView& image, float factor) {
  look_up(image, table_of([&](int v) { return to_byte(factor * static_cast<float>(v)); }));
}

void adjust_contrast(const PixelView& image, float factor) {
  std::uint64_t sum = 0;
  const std::int64_t pixels = image.height * image.width;
  for (std::int64_t i = 0; i < pixels; ++i)
    sum += image.channels == 3 ? grey_of(image.data + 3 * i) : image.data[i * image.channels];
  const auto mean = static_cast<float>(static_cast<double>(sum) / static_cast<double>(pixels));
  look_up(image, table_of([&](int v) { return to_byte(factor * static_cast<float>(v) + (1.0f - factor) * mean); }));
}

void adjust_saturation(const PixelView& image, float factor) {
  if (image.channels != 3) return;
  for (std::int64_t i = 0; i < image.values(); i += 3) {
    std::uint8_t* rgb = image.data + i;
    const float rest = (1.0f - factor) * static_cast<float>(grey_of(rgb));
    for (int c = 0; c < 3; ++c) rgb[c] = to_byte(factor * static_cast<float>(rgb[c]) + rest);
  }
}

void adjust_hue(const PixelView& image, float shift) {
  if (image.channels != 3) return;
  for (std::int64_t i = 0; i < image.values(); i += 3) {
    std::uint8_t* rgb = image.data + i;
    const auto unit = [&](int c) { return static_cast<float>(rgb[c]) / 255.0f; };
    Hsv color = to_hsv(unit(0), unit(1), unit(2));
    color.h += shift;
    color.h -= std::floor(color.h);
    to_rgb(color, rgb);
  }
}

void adjust_sharpness(const PixelView& image, float factor) {
  if (image.height < 3 || image.width < 3) return;
  thread_local std::vector<std::uint8_t> before;
  before.assign(image.data, image.data + image.values());
  const std::int64_t c = image.channels, row = image.width * c;
  for (std::int64_t y = 1; y + 1 < image.height; ++y) {
    for (std::int64_t x = c; x + c < row; ++x) {
      const std::uint8_t* at = before.data() + y * row + x;
      const int sum =
          at[-row - c] + at[-row] + at[-row + c] + at[-c] + 5 * at[0] + at[c] + at[row - c] + at[row] + at[row + c];
      const int smooth = (2 * sum + 13) / 26;  // sum / 13, rounded
      image.data[y * row + x] =
          to_byte(factor * static_cast<float>(at[0]) + (1.0f - factor) * static_cast<float>(smooth));
    }
  }
}

void to_grey(const PixelView& image) {
  if (image.channels != 3) return;
  for (std::int64_t i = 0; i < image.values(); i += 3) std::memset(image.data + i, grey_of(image.data + i), 3);
}

void posterize(const PixelView& image, int bits) {
  look_up(image, table_of([&](int v) { return static_cast<std::uint8_t>(v & (0xff00 >> bits)); }));
}

void solarize(const PixelView& image, float threshold) {
  look_up(image,
          table_of([&](int v) { return static_cast<std::uint8_t>(static_cast<float>(v) >= threshold ? 255 - v : v); }));
}

void autocontrast(const PixelView& image) {
  std::vector<Table> tables;
  for (const Histogram& counts : histograms(image)) {
    const auto seen = [](std::int64_t count) { return count > 0; };
    const auto low = static_cast<float>(std::ranges::find_if(counts, seen) - counts.begin());
    const auto high = static_cast<float>(255 - (std::find_if(counts.rbegin(), counts.rend(), seen) - counts.rbegin()));
    tables.push_back(table_of([&](int v) {
      if (high <= low) return static_cast<std::uint8_t>(v);
      return to_byte((static_cast<float>(v) - low) * (255.0f / (high - low)));
    }));
  }
  look_up(image, tables);
}

void equalize(const PixelView& image) {
  std::vector<Table> tables;
  for (const Histogram& counts : histograms(image)) {
    const auto last = std::find_if(counts.rbegin(), counts.rend(), [](std::int64_t count) { return count > 0; });
    const std::int64_t step = (image.height * image.width - (last == counts.rend() ? 0 : *last)) / 255;
    std::int64_t before = step / 2;
    tables.push_back(table_of([&](int v) {
      if (step == 0) return static_cast<std::uint8_t>(v);
      const std::int64_t value = before / step;
      before += counts[static_cast<std::size_t>(v)];
      return static_cast<std::uint8_t>(std::min<std::int64_t>(value, 255));
    }));
  }
  look_up(image, tables);
}

void mirror_rows(const PixelView& image) { swap_rows(image, static_cast<std::size_t>(image.width * image.channels)); }
void mirror_rows(const MaskView& mask) { swap_rows(mask, static_cast<std::size_t>(mask.width) * mask.element_bytes); }

}  // namespace bantam

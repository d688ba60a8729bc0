// Affine maps, backwards: for each pixel of the result the place in the image that it comes from.
#include "bantam/data/augment/warp.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

namespace bantam {
namespace {

/// x = xx·column + xy·row + x0, y likewise: columns and rows of the result to places in the image, whole at pixels'
/// centres.
struct Places {
  double xx, xy, x0, yx, yy, y0;
};

double radians(double degrees) { return degrees * std::numbers::pi / 180.0; }

/// The inverse of rotation · shear · scale, which torchvision writes out.
Places places_of(const AffineMap& map, std::int64_t height, std::int64_t width) {
  const double turn = radians(map.degrees), sx = radians(map.shear_x), sy = radians(map.shear_y);
  const double a = std::cos(turn - sy) / std::cos(sy);
  const double b = -std::cos(turn - sy) * std::tan(sx) / std::cos(sy) - std::sin(turn);
  const double c = std::sin(turn - sy) / std::cos(sy);
  const double d = -std::sin(turn - sy) * std::tan(sx) / std::cos(sy) + std::cos(turn);
  const double middle_x = 0.5 * static_cast<double>(width) - 0.5, middle_y = 0.5 * static_cast<double>(height) - 0.5;
  const double about_x = map.about_corner ? -0.5 : middle_x, about_y = map.about_corner ? -0.5 : middle_y;
  Places places{d / map.scale, -b / map.scale, about_x, -c / map.scale, a / map.scale, about_y};
  const double from_x = -about_x - map.translate_x, from_y = -about_y - map.translate_y;
  places.x0 += places.xx * from_x + places.xy * from_y;
  places.y0 += places.yx * from_x + places.yy * from_y;
  return places;
}

/// Calls `write(row, column, x, y)` for each pixel of the result.
template <class F>
void for_each_place(const Places& p, std::int64_t height, std::int64_t width, F&& write) {
  for (std::int64_t row = 0; row < height; ++row) {
    const auto x0 = static_cast<float>(p.x0 + p.xy * static_cast<double>(row));
    const auto y0 = static_cast<float>(p.y0 + p.yy * static_cast<double>(row));
    const auto xx = static_cast<float>(p.xx), yx = static_cast<float>(p.yx);
    for (std::int64_t column = 0; column < width; ++column)
      write(row, column, x0 + xx * static_cast<float>(column), y0 + yx * static_cast<float>(column));
  }
}

/// Elements of `bytes` bytes; `fill` is one.
void warp_nearest(std::byte* data, const Places& places, std::int64_t height, std::int64_t width,
                  std::span<const std::byte> fill) {
  thread_local std::vector<std::byte> before;
  const std::size_t bytes = fill.size();
  before.assign(data, data + static_cast<std::size_t>(height * width) * bytes);
  for_each_place(places, height, width, [&](std::int64_t row, std::int64_t column, float x, float y) {
    // Compared as floats: a place far outside is no integer.
    const float nearest_x = std::nearbyint(x), nearest_y = std::nearbyint(y);
    const bool inside = nearest_x >= 0.0f && nearest_x < static_cast<float>(width) && nearest_y >= 0.0f &&
                        nearest_y < static_cast<float>(height);
    const std::byte* from = fill.data();
    if (inside)
      from = before.data() + (static_cast<std::size_t>(nearest_y) * static_cast<std::size_t>(width) +
                              static_cast<std::size_t>(nearest_x)) *
                                 bytes;
    std::memcpy(data + static_cast<std::size_t>(row * width + column) * bytes, from, bytes);
  });
}

void warp_bilinear(const PixelView& image, const Places& places, std::span<const std::uint8_t> fill) {
  thread_local std::vector<std::uint8_t> before;
  before.assign(image.data, image.data + image.values());
  const std::int64_t width = image.width, height = image.height, channels = image.channels;
  for_each_place(places, height, width, [&](std::int64_t row, std::int64_t column, float x, float y) {
    std::uint8_t* to = image.data + (row * width + column) * channels;
    if (!(x > -1.0f && y > -1.0f && x < static_cast<float>(width) && y < static_cast<float>(height))) {
      std::memcpy(to, fill.data(), fill.size());
      return;
    }
    const float left = std::floor(x), top = std::floor(y), fx = x - left, fy = y - top;
    const auto ix = static_cast<std::int64_t>(left), iy = static_cast<std::int64_t>(top);
    const auto pixel = [&](std::int64_t py, std::int64_t px) {
      const bool inside = px >= 0 && px < width && py >= 0 && py < height;
      return inside ? before.data() + (py * width + px) * channels : fill.data();
    };
    const std::uint8_t *p00 = pixel(iy, ix), *p01 = pixel(iy, ix + 1), *p10 = pixel(iy + 1, ix),
                       *p11 = pixel(iy + 1, ix + 1);
    constexpr float kHalf = 0.5f;  // rounds what is never negative, and vectorises
    for (std::int64_t c = 0; c < channels; ++c) {
      const float upper = static_cast<float>(p00[c]) * (1.0f - fx) + static_cast<float>(p01[c]) * fx;
      const float lower = static_cast<float>(p10[c]) * (1.0f - fx) + static_cast<float>(p11[c]) * fx;
      to[c] = static_cast<std::uint8_t>(upper * (1.0f - fy) + lower * fy + kHalf);
    }
  });
}

}  // namespace

void warp(const PixelView& image, const AffineMap& map, Interpolation interpolation,
          std::span<const std::uint8_t> fill) {
  std::vector<std::uint8_t> pixel(static_cast<std::size_t>(image.channels));
  for (std::size_t c = 0; c < pixel.size(); ++c) pixel[c] = fill[fill.size() == 1 ? 0 : c];
  const Places places = places_of(map, image.height, image.width);
  if (interpolation == Interpolation::bilinear)
    warp_bilinear(image, places, pixel);
  else
    warp_nearest(reinterpret_cast<std::byte*>(image.data), places, image.height, image.width,
                 std::as_bytes(std::span(pixel)));
}

void warp(const MaskView& mask, const AffineMap& map, std::int32_t fill) {
  warp_nearest(mask.data, places_of(map, mask.height, mask.width), mask.height, mask.width, mask_element(mask, fill));
}

void warp(const AugmentedSample& sample, const PixelView& image, const AffineMap& map, Interpolation interpolation,
          const WarpFill& fill) {
  warp(image, map, interpolation, fill.image);
  for_each_mask(sample, [&](const MaskView& mask) { warp(mask, map, fill.mask); });
}

}  // namespace bantam

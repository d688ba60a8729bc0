// Test support: drawn pictures of discs, squares and crosses, with their classes a pixel, as files.
#pragma once

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "bantam/base/philox.h"
#include "tests/data/formats/format_files.h"
#include "tests/data/images/image_files.h"

namespace bantam::testing {

inline constexpr std::int64_t kShapeKinds = 3;
inline constexpr std::array<const char*, kShapeKinds> kShapeNames = {"disc", "square", "cross"};

/// A picture of 40 x 44 pixels on a noisy background, and what is in it.
struct ShapePicture {
  Image image;                              ///< RGB
  Image classes;                            ///< 0 outside shapes, 1 + the kind of the topmost one inside
  std::array<bool, kShapeKinds> present{};  ///< kinds of which something is seen
};

inline bool inside_shape(std::int64_t kind, std::int64_t dy, std::int64_t dx, std::int64_t radius) {
  const std::int64_t y = std::abs(dy), x = std::abs(dx);
  if (kind == 0) return y * y + x * x <= radius * radius;
  if (kind == 1) return std::max(y, x) <= radius - 1;
  return std::max(y, x) <= radius && std::min(y, x) <= 1;
}

/// Discs are reddish, squares greenish, crosses bluish, of random brightness; each kind is there in about half of the
/// pictures, `only` alone in all where it is not negative.
inline ShapePicture draw_shapes(std::uint64_t number, std::int64_t only = -1) {
  PhiloxSequence random(philox_key(23, RandomPurpose::test, number));
  const auto below = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random.below(bound)); };
  ShapePicture picture;
  picture.image.reshape({40, 44}, 3);
  picture.classes.reshape({40, 44}, 1);
  for (std::uint8_t& value : picture.image.pixels) value = static_cast<std::uint8_t>(40 + below(50));
  std::ranges::fill(picture.classes.pixels, std::uint8_t{0});
  for (std::int64_t kind = 0; kind < kShapeKinds; ++kind) {
    if (only >= 0 ? kind != only : below(2) == 0) continue;
    const std::int64_t radius = 5 + below(4), top = 9 + below(22), left = 9 + below(26), bright = 130 + below(100);
    for (std::int64_t y = 0; y < 40; ++y) {
      for (std::int64_t x = 0; x < 44; ++x) {
        if (!inside_shape(kind, y - top, x - left, radius)) continue;
        const auto pixel = static_cast<std::size_t>(y * 44 + x);
        picture.classes.pixels[pixel] = static_cast<std::uint8_t>(1 + kind);
        for (std::int64_t c = 0; c < 3; ++c)
          picture.image.pixels[pixel * 3 + static_cast<std::size_t>(c)] =
              static_cast<std::uint8_t>((c == kind ? bright : 60) + below(25));
      }
    }
  }
  for (const std::uint8_t value : picture.classes.pixels)
    if (value > 0) picture.present[value - 1] = true;
  return picture;
}

inline void write_file(const std::filesystem::path& path, const FileBytes& bytes) {
  write_file(path, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

}  // namespace bantam::testing

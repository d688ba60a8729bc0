// Internal: draws one image of the generated data set: a pure function of (seed, split, index), apart from any memory
// or thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace bantam {

inline constexpr std::int64_t kGeneratedExtent = 32;  ///< height and width
inline constexpr std::int64_t kGeneratedBytes = kGeneratedExtent * kGeneratedExtent * 3;
inline constexpr std::int64_t kGeneratedPixels = kGeneratedExtent * kGeneratedExtent;
inline constexpr std::int64_t kGeneratedClasses = 10;

enum class GeneratedSplit : std::uint8_t { train = 0, test = 1 };

/// Label of image `index` of either split: classes alternate, so every prefix is balanced.
constexpr std::int32_t generated_label(std::int64_t index) {
  return static_cast<std::int32_t>(index % kGeneratedClasses);
}

/// Draws image `index` into `rgb` (32, 32, 3). Thread-safe; the same bytes for the same arguments in one build of the
/// program.
void draw_generated_image(std::uint64_t seed, GeneratedSplit split, std::int64_t index,
                          std::span<std::uint8_t, kGeneratedBytes> rgb);

/// The class of each pixel of image `index`: 1 + its label where the pixel's centre lies inside the figure (or inside
/// the outline of a texture) and no occluder covers it, else 0. As draw_generated_image otherwise.
void draw_generated_pixels(std::uint64_t seed, GeneratedSplit split, std::int64_t index,
                           std::span<std::int32_t, kGeneratedPixels> labels);

/// Where the figure of image `index` is: x and y of its centre and its size, in half extents of the image, y down.
std::array<float, 3> generated_place(std::uint64_t seed, GeneratedSplit split, std::int64_t index);

}  // namespace bantam

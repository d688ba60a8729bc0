// Internal: draws one image of the generated data set: a pure function of (seed, split, index), apart from any memory
// or thread.
#pragma once

#include <cstdint>
#include <span>

namespace bantam {

inline constexpr std::int64_t kGeneratedExtent = 32;  ///< height and width
inline constexpr std::int64_t kGeneratedBytes = kGeneratedExtent * kGeneratedExtent * 3;
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

}  // namespace bantam

// Internal: keys that several augmentations have.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/data/augment/warp.h"

namespace bantam {

/// Both ends of what is drawn, evenly between them; equal ends draw nothing.
struct DrawRange {
  double low = 0.0, high = 0.0;

  bool fixed() const { return low == high; }
  double draw(PhiloxSequence& random) const {
    return fixed() ? low : low + (high - low) * static_cast<double>(random.uniform());
  }
};

/// `size`: N is {N, 0} (the shorter side, or both, as the stage says), [H, W] is both.
ImageSize read_image_size(ConfigMap& map, std::string_view meaning);
/// A list of two numbers, the first no larger than the second.
DrawRange as_two(const ConfigNode& node, NumberRange range);
/// The same of a key that may be missing.
DrawRange read_two(ConfigMap& map, ConfigKey key, NumberRange range, DrawRange otherwise);
/// `x` is [-x, x]; a list has both ends.
DrawRange read_degrees(ConfigMap& map, ConfigKey key, std::string_view otherwise);
/// Key `p`: the share of images that the stage changes.
float read_share(ConfigMap& map, double otherwise);
Interpolation read_interpolation(ConfigMap& map, std::string_view otherwise);
/// Key `mask_fill`.
std::int32_t read_mask_fill(ConfigMap& map);
/// Keys `fill` and `mask_fill`.
WarpFill read_warp_fill(ConfigMap& map);
/// One value of a byte, or a list of one a channel.
std::vector<std::uint8_t> as_bytes(const ConfigNode& node);
/// Throws ShapeError where there are neither one nor `channels` values.
void check_fill(std::string_view stage, const std::vector<std::uint8_t>& fill, std::int64_t channels);

/// True for a share of `share` of all calls.
inline bool happens(float share, PhiloxSequence& random) { return share >= 1.0f || random.uniform() < share; }

}  // namespace bantam

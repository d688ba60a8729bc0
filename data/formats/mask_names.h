// Internal: which file is an image's mask, by their names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/config/config.h"

namespace bantam {

/// The text around the part that a mask's name shares with its image's, in the names of both: image_07.jpg
/// and mask_07.png have the prefixes image_ and mask_. Names are without their last suffix (".png").
struct MaskNames {
  std::string prefix, suffix, image_prefix, image_suffix;

  bool is_plain() const { return prefix.empty() && suffix.empty() && image_prefix.empty() && image_suffix.empty(); }
  /// The mask's name of an image's, both with the folder that they lie in; nullopt: the image's name lacks its prefix
  /// or suffix.
  std::optional<std::string> mask_of(const std::string& image) const;
  /// Whether a file has the prefix and suffix of masks.
  bool is_mask(const std::string& name) const;
  bool operator==(const MaskNames&) const = default;
};

/// The keys prefix, suffix, image_prefix and image_suffix of `data.masks`; nullopt: none is given.
std::optional<MaskNames> read_mask_names(ConfigMap& masks);

/// The names that most masks follow, where at least half of them are an image's. `images` and `masks` are names without
/// suffix; of one folder of both they are the same, and only usual names ("_mask", "mask_") are tried. nullopt: none.
std::optional<MaskNames> find_mask_names(std::span<const std::string> images, std::span<const std::string> masks);

}  // namespace bantam

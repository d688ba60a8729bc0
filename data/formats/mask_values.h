// Internal: class numbers of a mask's stored values: `data.masks.values`, `others`, `data.ignore` and `data.classes`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// A stored value of a mask's pixels: a number, or a colour.
struct MaskValue {
  bool is_colour = false;
  std::int64_t number = 0;            ///< of one channel, or of a palette's entry
  std::array<std::uint8_t, 3> rgb{};  ///< of a colour

  static MaskValue of_number(std::int64_t number) { return {.number = number}; }
  static MaskValue of_colour(std::array<std::uint8_t, 3> rgb) { return {.is_colour = true, .rgb = rgb}; }
  auto operator<=>(const MaskValue&) const = default;
};

/// "255", "[128, 0, 0]": also how a configuration spells it.
std::string to_string(const MaskValue& value);

/// "255", "[128, 0, 0]", "128, 0, 0", "#800000".
std::optional<MaskValue> parse_mask_value(const std::string& text);

/// Pixels whose value is none of those that are named.
enum class OtherMaskValues : std::uint8_t { error, ignore, nearest, a_class };

/// Stored values as class numbers. Without `values` the numbers are stored: then values that are none are refused.
struct MaskReading {
  static constexpr std::int32_t kIgnored = 255;  ///< the class number of ignored pixels, where there are `values`

  std::vector<std::string> classes;
  std::map<MaskValue, std::uint8_t> values = {};  ///< to class numbers or kIgnored; empty: they are stored
  OtherMaskValues others = OtherMaskValues::error;
  std::uint8_t other_class = 0;              ///< the class number of other values, where `others` is a_class
  bool resize = false;                       ///< masks of another size than their image's get that, else an error
  std::optional<std::int32_t> ignored = {};  ///< label of pixels of no class

  /// All that decides what it makes of a mask, in words: for caches of what was read.
  std::string fingerprint() const;
};

/// Reads `data.classes`, `data.ignore`, and `values`, `others` and `resize` of `data.masks` (`masks` is null where that
/// is no map). Throws ConfigError.
MaskReading read_mask_reading(ConfigMap& data, ConfigMap* masks);

}  // namespace bantam

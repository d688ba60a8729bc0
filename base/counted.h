// A number with its noun, for messages: "1 image", "2,000 images".
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "bantam/base/text.h"

namespace bantam {

/// `one` is the noun of 1; that of other numbers has an s, or is `many`: counted(2, "batch", "batches").
inline std::string counted(std::integral auto count, std::string_view one, std::string_view many = {}) {
  std::string text = format_count(static_cast<std::int64_t>(count)) + " ";
  if (count == 1) return text.append(one);
  return many.empty() ? text.append(one).append("s") : text.append(many);
}

}  // namespace bantam

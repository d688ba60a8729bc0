// Names of categories.
#include "bantam/memory/allocator/accounting.h"

namespace bantam {

std::string_view to_string(Category category) {
  static constexpr std::array<std::string_view, kCategories> kNames = {
      "parameter", "gradient", "optimizer", "activation", "workspace", "input", "other"};
  const auto index = static_cast<std::size_t>(category);
  return index < kNames.size() ? kNames[index] : "?";
}

}  // namespace bantam

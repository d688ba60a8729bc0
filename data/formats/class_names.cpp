// Two classes of one name would be told apart by nothing that a user sees.
#include "bantam/data/formats/class_names.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/text.h"

namespace bantam {

std::string fault_of_class_names(std::span<const std::string> names, std::size_t most) {
  if (most > 0 && (names.empty() || names.size() > most))
    return fmt::format("{} class names; expected 1 to {} class names", names.size(), most);
  if (names.empty()) return "expected at least one class name";
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (names[c].empty()) return fmt::format("the name of class {} is empty", c);
    const auto [first, is_new] = seen.emplace(names[c], c);
    if (!is_new)
      return fmt::format("classes {} and {} are both called '{}': name each once", first->second, c, shown(names[c]));
  }
  return "";
}

std::vector<std::string> numbered_classes(std::int64_t classes) {
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < classes; ++c) names.push_back(std::to_string(c));
  return names;
}

void sort_class_names(std::vector<std::string>& names) {
  std::vector<std::pair<double, std::string>> numbered;
  for (const std::string& name : names) {
    double number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size() || !std::isfinite(number)) break;
    numbered.emplace_back(number, name);
  }
  if (numbered.size() < names.size()) return std::ranges::sort(names), void();
  std::ranges::sort(numbered);
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = std::move(numbered[i].second);
}

std::vector<std::string> read_class_names(const ConfigNode& node, std::size_t most) {
  std::vector<std::string> names = node.as_texts();
  if (const std::string fault = fault_of_class_names(names, most); !fault.empty()) node.fail(fault);
  return names;
}

}  // namespace bantam

// Which group a parameter belongs to, by its name.
#include "bantam/engine/autograd/parameter_groups.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/autograd/parameters.h"

namespace bantam {

std::string nearest_match(std::string_view pattern, std::span<const std::string> names, std::string_view what) {
  if (names.empty()) return fmt::format("there are no {}", what);
  std::string plain(pattern);
  std::erase(plain, '*');
  std::vector<std::string> candidates(names.begin(), names.end());
  for (const std::string& name : names) candidates.push_back(name.substr(0, plain.size()));  // "sten*" is near "stem"
  if (const auto near = nearest(plain, candidates)) return fmt::format("did you mean '{}'?", *near);
  return fmt::format("there are {} {}, from '{}' to '{}'", names.size(), what, names.front(), names.back());
}

int group_of(std::span<const ParameterGroup> groups, std::string_view name) {
  const auto found =
      std::ranges::find_if(groups, [&](const ParameterGroup& group) { return matches_glob(name, group.match); });
  return found == groups.end() ? -1 : static_cast<int>(found - groups.begin());
}

void check_groups(std::span<const ParameterGroup> groups, std::span<const std::string> names) {
  std::vector<std::int64_t> members(groups.size());
  std::size_t frozen = 0;
  for (const std::string& name : names) {
    const int group = group_of(groups, name);
    if (group < 0) continue;
    ++members[static_cast<std::size_t>(group)];
    frozen += groups[static_cast<std::size_t>(group)].is_frozen_for_good() ? 1 : 0;
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (members[i] > 0) continue;
    const std::string& match = groups[i].match;
    if (std::ranges::any_of(names, [&](const std::string& name) { return matches_glob(name, match); }))
      throw ConfigError(
          fmt::format("train.groups: '{}' has no parameter: those that it matches are in groups before it", match));
    throw ConfigError(
        fmt::format("train.groups: '{}' matches no parameter; {}", match, nearest_match(match, names, "parameters")));
  }
  if (frozen > 0 && frozen == names.size())
    throw ConfigError("train.groups: every parameter is frozen; nothing is left to train");
}

}  // namespace bantam

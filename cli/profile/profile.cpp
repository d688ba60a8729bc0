// `bantam profile`: what its subcommands share.
#include "bantam/cli/profile/profile.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::cli {

StepRange parse_step_range(const std::string& text, std::int64_t most) {
  const std::size_t dash = std::min(text.find('-'), text.size());
  const auto number = [&](std::string_view part) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 1 || value > most)
      throw ConfigError(
          fmt::format("--steps: expected a step or first-last, from 1 to {}, such as 2-4, got '{}'", most, text));
    return value;
  };
  StepRange range;
  range.first = number(std::string_view(text).substr(0, dash));
  range.last = dash == text.size() ? range.first : number(std::string_view(text).substr(dash + 1));
  if (range.last < range.first)
    throw ConfigError(fmt::format("--steps: the last step comes before the first in '{}'", text));
  return range;
}

void add_profile(CLI::App& app, Action& action) {
  CLI::App* profile = app.add_subcommand("profile", "Where a step's time or memory goes");
  profile->require_subcommand(1);
  profile->footer("Example: bantam profile step configs/quickstart.yaml");
  add_profile_memory(*profile, action);
  add_profile_step(*profile, action);
}

}  // namespace bantam::cli

// Words error messages about a pattern that matches no name: the nearest name, or how many names there are.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// "did you mean 'head/weight'?", or where no name is near, how many `what` ("parameters") there are.
std::string nearest_match(std::string_view pattern, std::span<const std::string> names, std::string_view what);

}  // namespace bantam

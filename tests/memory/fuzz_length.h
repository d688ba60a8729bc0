// Test support: how long the fuzzers run: 10^6 operations in all, or as many as BANTAM_FUZZ_OPERATIONS says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace bantam::testing {

/// A share of all operations; the long runs' shares add up to 1.
inline std::uint64_t fuzz_steps(double share) {
  const char* text = std::getenv("BANTAM_FUZZ_OPERATIONS");
  const double all = text == nullptr ? 1e6 : std::max(1e6, std::strtod(text, nullptr));
  return static_cast<std::uint64_t>(all * share);
}

}  // namespace bantam::testing

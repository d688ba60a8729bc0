// Durations of training, as people write them: "500" or "500updates", "2epochs", "30s", "10min", "1h".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bantam {

/// How long something lasts, or how often it happens: in updates, in epochs or in seconds of the clock.
struct Duration {
  enum class Unit : std::uint8_t { updates, epochs, seconds };
  Unit unit = Unit::updates;
  std::int64_t count = 0;

  static constexpr Duration updates(std::int64_t count) { return {Unit::updates, count}; }
  static constexpr Duration epochs(std::int64_t count) { return {Unit::epochs, count}; }
  static constexpr Duration seconds(std::int64_t count) { return {Unit::seconds, count}; }
  bool operator==(const Duration&) const = default;
};

/// "500", "500updates", "500 updates" or "1update"; "2epochs", "1epoch"; "30s", "10min", "1h". Whole numbers from 0 on,
/// in seconds up to 1e12. Throws ConfigError naming the text and what is expected.
Duration parse_duration(std::string_view text);

/// The shortest spelling that parse_duration reads as the same: "500updates", "1epoch", "90s", "2h".
std::string to_string(Duration duration);

/// What parse_duration reads: "500 or 500updates, 2epochs, 30s, 10min or 1h".
std::string duration_spellings(bool updates = true, bool epochs = true, bool seconds = true);

}  // namespace bantam

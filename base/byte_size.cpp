// Byte counts read and written exactly: decimal digits are kept as integers, never as floating point, when reading.
#include "bantam/base/byte_size.h"

#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

__extension__ using Wide = unsigned __int128;

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array<Unit, 9> kUnits = {{
    {"B", 1},
    {"KiB", 1ULL << 10},
    {"MiB", 1ULL << 20},
    {"GiB", 1ULL << 30},
    {"TiB", 1ULL << 40},
    {"kB", 1'000ULL},
    {"MB", 1'000'000ULL},
    {"GB", 1'000'000'000ULL},
    {"TB", 1'000'000'000'000ULL},
}};

constexpr std::string_view kUnitNames = "B, KiB, MiB, GiB, TiB, kB, MB, GB or TB";

[[noreturn]] void refuse(std::string_view text, const std::string& reason) {
  throw ConfigError(fmt::format("'{}' is not a byte size: {}", shown(text), reason));
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

/// Removes the digits at the start of `rest` and returns them.
std::string_view take_digits(std::string_view& rest) {
  std::size_t count = 0;
  while (count < rest.size() && rest[count] >= '0' && rest[count] <= '9') ++count;
  const std::string_view digits = rest.substr(0, count);
  rest.remove_prefix(count);
  return digits;
}

std::uint64_t unit_bytes(std::string_view text, std::string_view name) {
  if (name.empty()) return 1;
  std::vector<std::string> names;
  for (const Unit& unit : kUnits) {
    if (unit.name == name) return unit.bytes;
    names.emplace_back(unit.name);
  }
  const auto near = nearest(name, names);
  refuse(text, fmt::format("unknown unit '{}'; expected {}{}", shown(name), kUnitNames,
                           near ? fmt::format(" (did you mean '{}'?)", *near) : ""));
}

/// whole.fraction * unit, in whole bytes. Digits of the fraction past the 15th are below one byte's weight in any unit
/// that fits.
std::uint64_t scaled(std::string_view text, std::string_view whole, std::string_view fraction, std::uint64_t unit) {
  while (!fraction.empty() && fraction.back() == '0') fraction.remove_suffix(1);
  if (unit == 1 && !fraction.empty()) refuse(text, "a byte has no fractions");
  Wide total = 0;
  for (const char digit : whole) {
    total = total * 10 + static_cast<unsigned>(digit - '0');
    if (total > UINT64_MAX) refuse(text, "it is more than 64 bits can count");
  }
  total *= unit;
  Wide numerator = 0;
  Wide denominator = 1;
  for (const char digit : fraction.substr(0, 15)) {
    numerator = numerator * 10 + static_cast<unsigned>(digit - '0');
    denominator *= 10;
  }
  total += numerator * unit / denominator;
  if (total > UINT64_MAX) refuse(text, "it is more than 64 bits can count");
  if (total == 0 && !fraction.empty()) refuse(text, "it is less than one byte");
  return static_cast<std::uint64_t>(total);
}

}  // namespace

std::uint64_t parse_byte_size(std::string_view text) {
  std::string_view rest = trimmed(text);
  if (!rest.empty() && rest.front() == '-') refuse(text, "it is negative");
  const std::string_view whole = take_digits(rest);
  std::string_view fraction;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    fraction = take_digits(rest);
    if (fraction.empty()) refuse(text, "digits must follow the point");
  }
  if (whole.size() > 1 && whole.front() == '0') refuse(text, "numbers begin with no extra 0");
  if (whole.empty()) refuse(text, fmt::format("expected a number, then {} (or no unit, for bytes)", kUnitNames));
  return scaled(text, whole, fraction, unit_bytes(text, trimmed(rest)));
}

std::string format_byte_size(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 6> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.5 would round to 1024: that is 1.00 of the next unit.
  for (; value >= 1023.5 && unit + 1 < kNames.size(); ++unit) value /= 1024;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kNames[unit]);
}

}  // namespace bantam

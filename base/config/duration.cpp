// A number and its unit.
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

using Unit = Duration::Unit;

constexpr std::int64_t kMost = 1'000'000'000'000;

struct Spelling {
  std::string_view name;
  Unit unit;
  std::int64_t of_unit;
};

constexpr Spelling kSpellings[] = {
    {"", Unit::updates, 1},      {"updates", Unit::updates, 1}, {"update", Unit::updates, 1},
    {"epochs", Unit::epochs, 1}, {"epoch", Unit::epochs, 1},    {"s", Unit::seconds, 1},
    {"min", Unit::seconds, 60},  {"h", Unit::seconds, 3600},
};

[[noreturn]] void refuse(std::string_view text) {
  throw ConfigError(
      fmt::format("expected a duration such as {}, got '{}'", duration_spellings(), shown(std::string(text), 40)));
}

}  // namespace

Duration parse_duration(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count < 0) refuse(text);
  if (text.size() > 1 && text[0] == '0' && end != text.data() + 1) refuse(text);  // 010: octal to some
  std::string_view name = text.substr(static_cast<std::size_t>(end - text.data()));
  if (name.size() > 1 && name.front() == ' ') name.remove_prefix(1);
  for (const Spelling& spelling : kSpellings) {
    if (name != spelling.name) continue;
    if (count > kMost / spelling.of_unit) refuse(text);
    return {spelling.unit, count * spelling.of_unit};
  }
  refuse(text);
}

std::string to_string(Duration duration) {
  const std::int64_t count = duration.count;
  switch (duration.unit) {
    case Unit::updates:
      return fmt::format("{}update{}", count, count == 1 ? "" : "s");
    case Unit::epochs:
      return fmt::format("{}epoch{}", count, count == 1 ? "" : "s");
    case Unit::seconds:
      break;
  }
  if (count > 0 && count % 3600 == 0) return fmt::format("{}h", count / 3600);
  return count > 0 && count % 60 == 0 ? fmt::format("{}min", count / 60) : fmt::format("{}s", count);
}

std::string duration_spellings(bool updates, bool epochs, bool seconds) {
  std::vector<std::string> spellings;
  if (updates) spellings.emplace_back("500 or 500updates");
  if (epochs) spellings.emplace_back("2epochs");
  if (!seconds) return join(spellings, ", ", updates ? ", " : " or ");
  spellings.insert(spellings.end(), {"30s", "10min", "1h"});
  return join(spellings, ", ", " or ");
}

}  // namespace bantam

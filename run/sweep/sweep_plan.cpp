// Lists of values, their combinations, and the configuration of each.
#include "bantam/run/sweep/sweep_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::run {
namespace {

constexpr std::size_t kMostSettings = 10'000, kMostRuns = 100'000;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

[[noreturn]] void fail(std::string_view text, std::string_view what) {
  throw ConfigError(
      fmt::format("--set: {} in '{}'; expected KEY=VALUE,VALUE,… such as train.epochs=1,2", what, shown(text)));
}

/// Follows a text and knows which quotes, brackets and braces are open at its place, as in YAML's flow style.
class OpenMarks {
 public:
  /// False for a bracket that closes nothing.
  bool read(char c) {
    if (quote_ != 0) {
      read_quoted(c);
      return true;
    }
    if (c == '[' || c == '{') closing_ += c == '[' ? ']' : '}';
    if (c == ']' || c == '}') {
      if (closing_.empty() || closing_.back() != c) return false;
      closing_.pop_back();
    }
    if ((c == '"' || c == '\'') && begins_) quote_ = c;
    // A quote within a word (it's) is a letter.
    if (c != ' ') begins_ = c == ',' || c == '[' || c == '{' || c == ':';
    return true;
  }
  bool none() const { return quote_ == 0 && closing_.empty(); }
  std::string_view name() const { return quote_ != 0 ? "a quote" : "a bracket"; }

 private:
  void read_quoted(char c) {
    const bool escaped = std::exchange(escaped_, quote_ == '"' && c == '\\' && !escaped_);
    if (c != quote_ || escaped) return;
    begins_ = quote_ == '\'';  // a doubled one, 'it''s', goes on
    quote_ = 0;
  }

  std::string closing_;  // of what is open, the innermost last
  char quote_ = 0;
  bool escaped_ = false, begins_ = true;
};

std::vector<std::string> split_values(std::string_view list, std::string_view text) {
  std::vector<std::string> values;
  OpenMarks open;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    const bool ends = i == list.size();
    if (ends && !open.none()) fail(text, fmt::format("{} is not closed", open.name()));
    if (ends || (list[i] == ',' && open.none())) {
      values.emplace_back(trimmed(list.substr(begin, i - begin)));
      begin = i + 1;
    }
    if (!ends && !open.read(list[i])) fail(text, fmt::format("a '{}' that closes nothing", list[i]));
  }
  return values;
}

/// The last `steps` steps of the key.
std::string end_of_key(const std::string& key, std::size_t steps) {
  std::size_t begin = key.size();
  for (std::size_t i = 0; i < steps && begin != 0; ++i) {
    const std::size_t dot = key.rfind('.', begin - 1);
    if (dot == std::string::npos) return key;
    begin = dot;
  }
  return key.substr(begin + 1);
}

std::string_view key_of(std::string_view text) { return trimmed(text.substr(0, text.find('='))); }

/// A list of values for the whole of a section replaces what was set within it before.
void check_sections(const SweepPlan& plan) {
  std::vector<std::string> before = plan.overrides;
  for (const SweepAxis& axis : plan.axes) {
    for (const std::string& earlier : before)
      if (key_of(earlier).starts_with(axis.key + "."))
        throw ConfigError(
            fmt::format("--set: values of {} replace {}; write it within each of them, or name it after "
                        "them with --set",
                        shown(axis.key), shown(earlier)));
    before.push_back(axis.key);
  }
}

}  // namespace

SweepAxis parse_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) fail(text, "no '='");
  SweepAxis axis{.key = std::string(trimmed(text.substr(0, equals)))};
  if (axis.key.empty()) fail(text, "no key before '='");
  axis.values = split_values(text.substr(equals + 1), text);
  std::set<std::string> known;
  for (const std::string& value : axis.values) {
    if (value.empty()) fail(text, "an empty value");
    if (!known.insert(value).second) fail(text, fmt::format("value {} stands twice", shown(value)));
  }
  return axis;
}

std::vector<SweepSetting> settings_of(const SweepPlan& plan) {
  check_sections(plan);
  std::set<std::string> known;
  std::vector<SweepSetting> settings = {{}};
  for (const SweepAxis& axis : plan.axes) {
    if (!known.insert(axis.key).second)
      throw ConfigError(fmt::format("--set: {} is named twice; write all of its values in one list", shown(axis.key)));
    if (axis.key == "seed" && plan.repeat > 1)
      throw ConfigError("--set: seed is what --repeat varies; name one of the two");
    if (settings.size() * axis.values.size() > kMostSettings)
      throw ConfigError(fmt::format("--set: more than {} settings", format_count(kMostSettings)));
    std::vector<SweepSetting> longer;
    for (const SweepSetting& setting : settings)
      for (const std::string& value : axis.values) {
        longer.push_back(setting);
        longer.back().push_back(value);
      }
    settings = std::move(longer);
  }
  const auto repeat = static_cast<std::size_t>(plan.repeat);
  if (repeat > kMostRuns || settings.size() * repeat > kMostRuns)
    throw ConfigError(fmt::format("--repeat: more than {} runs", format_count(kMostRuns)));
  return settings;
}

RunConfig config_of(const SweepPlan& plan, const SweepSetting& setting, std::optional<std::uint64_t> seed,
                    DataSection data) {
  std::vector<std::string> overrides = plan.overrides;
  for (std::size_t i = 0; i < setting.size(); ++i) overrides.push_back(plan.axes.at(i).key + "=" + setting[i]);
  if (seed) overrides.push_back(fmt::format("seed={}", *seed));
  return parse_run_config(plan.config, plan.config_path, overrides, data);
}

std::vector<std::size_t> varied_axes(const SweepPlan& plan) {
  std::vector<std::size_t> varied;
  for (std::size_t i = 0; i < plan.axes.size(); ++i)
    if (plan.axes[i].values.size() > 1) varied.push_back(i);
  return varied;
}

std::vector<std::string> short_keys(const SweepPlan& plan) {
  std::vector<std::string> names;
  for (const SweepAxis& axis : plan.axes) {
    std::size_t steps = 1;
    const auto is_shared = [&](const SweepAxis& other) {
      return &other != &axis && end_of_key(other.key, steps) == end_of_key(axis.key, steps);
    };
    const auto count = static_cast<std::size_t>(std::ranges::count(axis.key, '.')) + 1;
    while (steps < count && std::ranges::any_of(plan.axes, is_shared)) ++steps;
    names.push_back(end_of_key(axis.key, steps));
  }
  return names;
}

std::string setting_text(const SweepPlan& plan, const SweepSetting& setting, std::string_view separator) {
  const std::vector<std::string> keys = short_keys(plan);
  std::string text;
  for (const std::size_t i : varied_axes(plan))
    text += fmt::format("{}{}={}", text.empty() ? "" : separator, keys.at(i), setting.at(i));
  return text;
}

}  // namespace bantam::run

// One value read in its type, with errors that say what was expected and what came.
#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/config/config_recording.h"
#include "bantam/base/config/config_tree.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

[[noreturn]] void fail_expected(const Data& node, const std::string& expected, const std::string& advice = "") {
  const std::string path = path_of(node);
  fail_at(node.mark,
          fmt::format("{}{}expected {}, got {}{}", path, path.empty() ? "" : ": ", expected, describe(node), advice));
}

/// Returns advice for an error about a number that begins with an extra 0; empty for any other value.
std::string advice_on_number(const Data& node) {
  if (node.kind != ConfigKind::scalar || node.quoted || !looks_like_number(node.scalar)) return "";
  if (has_leading_zero(node.scalar)) return " (numbers begin with no extra 0: some read it as decimal, some as octal)";
  return "";
}

bool is_plain(const Data& node) { return node.kind == ConfigKind::scalar && !node.quoted; }

/// Throws where an override adds a second key to a map that should have one: the override is wrong then, not the file.
void fail_second_name(const Data& map) {
  for (const auto& child : map.children) {
    if (child->key_mark.source == nullptr || !child->key_mark.source->command_line || map.mark.source->command_line)
      continue;
    const std::string path = address_of(map), first = map.children.front()->key;
    fail_at(child->key_mark,
            fmt::format("{} is '{}' with its options, and '{}' would stand beside it: write {}.{}.KEY=VALUE for an "
                        "option, or {}={{NAME: {{…}}}} for another",
                        path, shown(first), shown(child->key), path, shown(first), path));
  }
}

std::string integers_in(IntegerRange range) {
  constexpr IntegerRange kAll;
  if (range.min == kAll.min && range.max == kAll.max) return "an integer";
  if (range.max == kAll.max) return fmt::format("an integer ≥ {}", range.min);
  if (range.min == kAll.min) return fmt::format("an integer ≤ {}", range.max);
  return fmt::format("an integer from {} to {}", range.min, range.max);
}

std::string numbers_in(NumberRange range) {
  const bool low = std::isfinite(range.min);
  const bool high = std::isfinite(range.max);
  if (low && high)
    return fmt::format("a number in {}{}, {}{}", range.min_open ? "(" : "[", range.min, range.max,
                       range.max_open ? ")" : "]");
  if (low) return fmt::format("a number {} {}", range.min_open ? ">" : "≥", range.min);
  if (high) return fmt::format("a number {} {}", range.max_open ? "<" : "≤", range.max);
  return "a number";
}

/// The double of a number's text; nothing when it is not a number or no finite double can hold it.
std::optional<double> to_double(std::string_view text) {
  if (!looks_like_number(text) || has_leading_zero(text)) return std::nullopt;
  if (text.front() == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Integers exactly; 16.0 and 1e3 through double, as far as doubles hold every integer (2^53).
std::optional<std::int64_t> to_integer(std::string_view text) {
  std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (looks_like_number(text) && !has_leading_zero(text) && error == std::errc() &&
      end == digits.data() + digits.size())
    return value;
  const auto number = to_double(text);
  constexpr double kExact = 9007199254740992.0;
  const bool whole_digits_only = text.find_first_of(".eE") == std::string_view::npos;
  if (!number || whole_digits_only || std::trunc(*number) != *number || std::abs(*number) > kExact) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

/// Values in a range, for descriptions without an example.
std::int64_t any_in(IntegerRange range) { return std::clamp<std::int64_t>(1, range.min, range.max); }

double any_in(NumberRange range) {
  if (!std::isfinite(range.min)) return std::min(0.0, range.max);
  return std::isfinite(range.max) ? (range.min + range.max) / 2 : range.min + 1;
}

}  // namespace

ConfigKind ConfigNode::kind() const { return data_->kind; }

bool ConfigNode::is_text(std::string_view text) const {
  if (data_->facts) note_word(*data_->facts, text);
  return is_scalar() && data_->scalar == text;
}

std::string ConfigNode::path() const { return path_of(*data_); }

std::string ConfigNode::position() const { return position_of(data_->mark); }

std::int64_t ConfigNode::as_integer(IntegerRange range) const {
  if (is_noted(*data_, [&](ValueFacts& facts) { facts.integer = range; })) return any_in(range);
  const auto value = is_plain(*data_) ? to_integer(data_->scalar) : std::nullopt;
  if (!value || *value < range.min || *value > range.max)
    fail_expected(*data_, integers_in(range), advice_on_number(*data_));
  return *value;
}

std::optional<std::int64_t> ConfigNode::as_integer_or_auto(IntegerRange range) const {
  const auto note = [&](ValueFacts& facts) {
    facts.integer = range;
    note_word(facts, "auto");
  };
  if (is_noted(*data_, note)) return any_in(range);
  if (is_text("auto")) return std::nullopt;
  const auto value = is_plain(*data_) ? to_integer(data_->scalar) : std::nullopt;
  if (!value || *value < range.min || *value > range.max)
    fail_expected(*data_, integers_in(range) + " or auto", advice_on_number(*data_));
  return value;
}

double ConfigNode::as_number(NumberRange range) const {
  if (is_noted(*data_, [&](ValueFacts& facts) { facts.number = range; })) return any_in(range);
  const auto value = is_plain(*data_) ? to_double(data_->scalar) : std::nullopt;
  if (!value) {
    const bool number = is_plain(*data_) && looks_like_number(data_->scalar);
    const std::string advice = advice_on_number(*data_);
    fail_expected(*data_, numbers_in(range), number && advice.empty() ? " (a 64-bit float cannot hold it)" : advice);
  }
  const bool low = *value < range.min || (range.min_open && *value == range.min);
  const bool high = *value > range.max || (range.max_open && *value == range.max);
  if (low || high) fail_expected(*data_, numbers_in(range));
  return *value;
}

bool ConfigNode::as_boolean() const {
  if (is_noted(*data_, [](ValueFacts& facts) { facts.boolean = true; })) return false;
  if (is_plain(*data_) && looks_like_boolean(data_->scalar)) return data_->scalar == "true";
  std::string word = is_scalar() ? data_->scalar : "";
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::string advice;
  if (word == "true" || word == "yes" || word == "on") advice = " (write true)";
  if (word == "false" || word == "no" || word == "off") advice = " (write false)";
  fail_expected(*data_, "true or false", advice);
}

std::string ConfigNode::as_text() const {
  if (is_noted(*data_, [](ValueFacts& facts) { facts.text = true; })) return "text";
  if (!is_scalar()) fail_expected(*data_, "text");
  if (!data_->quoted && (looks_like_number(data_->scalar) || looks_like_boolean(data_->scalar)))
    fail_expected(*data_, "text", fmt::format(" (write \"{}\" to mean text)", shown(data_->scalar)));
  return data_->scalar;
}

std::string ConfigNode::as_choice(std::span<const std::string_view> allowed) const {
  const auto note = [&](ValueFacts& facts) {
    for (const std::string_view word : allowed) note_word(facts, word);
  };
  if (is_noted(*data_, note)) return allowed.empty() ? std::string() : std::string(allowed.front());
  if (is_scalar() && std::ranges::find(allowed, data_->scalar) != allowed.end()) return data_->scalar;
  const std::vector<std::string> names(allowed.begin(), allowed.end());
  const auto near = is_scalar() && document_->advises() ? nearest(data_->scalar, names) : std::nullopt;
  fail_expected(*data_, join(names, ", ", " or "), near ? fmt::format("; did you mean '{}'?", *near) : "");
}

std::string ConfigNode::as_choice(std::initializer_list<std::string_view> allowed) const {
  return as_choice(std::span(allowed.begin(), allowed.size()));
}

std::uint64_t ConfigNode::as_byte_size(std::uint64_t min) const {
  if (is_noted(*data_, [&](ValueFacts& facts) { facts.byte_size = min; })) return min;
  if (!is_scalar()) fail_expected(*data_, "a byte size such as 4GiB");
  try {
    const std::uint64_t bytes = parse_byte_size(data_->scalar);
    if (bytes < min) throw ConfigError(fmt::format("expected a byte size of at least {}, got {}", min, bytes));
    return bytes;
  } catch (const ConfigError& error) {
    const std::string at = path();
    fail(fmt::format("{}{}{}", at, at.empty() ? "" : ": ", error.what()));
  }
}

Duration ConfigNode::as_duration(DurationRange range) const {
  if (is_noted(*data_, [&](ValueFacts& facts) { facts.duration = range; }))
    return {range.updates  ? Duration::Unit::updates
            : range.epochs ? Duration::Unit::epochs
                           : Duration::Unit::seconds,
            range.min};
  std::optional<Duration> duration;
  if (is_plain(*data_))
    if (const auto updates = to_integer(data_->scalar)) duration = Duration::updates(*updates);
  try {
    if (!duration && is_scalar()) duration = parse_duration(data_->scalar);
  } catch (const ConfigError&) {  // said below, with the units that are allowed here
  }
  const bool allowed[] = {range.updates, range.epochs, range.seconds};
  if (!duration || !allowed[static_cast<std::size_t>(duration->unit)])
    fail_expected(*data_, "a duration such as " + duration_spellings(range.updates, range.epochs, range.seconds));
  if (duration->count < range.min) fail_expected(*data_, "at least " + to_string(Duration{duration->unit, range.min}));
  return *duration;
}

std::vector<std::int64_t> ConfigNode::as_integers(IntegerRange range) const {
  if (is_noted(*data_, [&](ValueFacts& facts) { note_list(facts).items.integer = range; })) return {any_in(range)};
  if (!is_list()) fail_expected(*data_, "a list of integers");
  std::vector<std::int64_t> values;
  for (const ConfigNode& item : items()) values.push_back(item.as_integer(range));
  return values;
}

std::vector<std::string> ConfigNode::as_texts() const {
  if (is_noted(*data_, [](ValueFacts& facts) { note_list(facts).items.text = true; })) return {};
  if (!is_list()) fail_expected(*data_, "a list of texts");
  std::vector<std::string> values;
  for (const ConfigNode& item : items()) values.push_back(item.as_text());
  return values;
}

std::array<std::int64_t, 2> ConfigNode::as_pair(IntegerRange range) const {
  const auto note = [&](ValueFacts& facts) {
    facts.integer = note_list(facts).items.integer = range;
    facts.list->least = facts.list->most = 2;
  };
  if (is_noted(*data_, note)) return {any_in(range), any_in(range)};
  if (is_scalar()) {
    const std::int64_t both = as_integer(range);
    return {both, both};
  }
  const std::string expected = integers_in(range) + " or a list of two";
  if (!is_list()) fail_expected(*data_, expected);
  const auto values = as_integers(range);
  if (values.size() != 2) fail_expected(*data_, expected, fmt::format(" of {}", values.size()));
  return {values[0], values[1]};
}

std::vector<ConfigNode> ConfigNode::items() const {
  if (is_noted(*data_, [](ValueFacts& facts) { note_list(facts); })) return {};
  if (!is_list()) fail_expected(*data_, "a list");
  std::vector<ConfigNode> nodes;
  for (const auto& child : data_->children) {
    if (data_->facts) child->facts = &note_list(*data_->facts).items;
    nodes.push_back(ConfigNode(document_, child.get()));
  }
  return nodes;
}

std::vector<std::pair<std::string, ConfigNode>> ConfigNode::entries() const {
  const auto note = [](ValueFacts& facts) {
    if (!note_map(facts).any) facts.map->any = std::make_shared<ValueFacts>();
  };
  if (is_noted(*data_, note)) return {};
  if (!is_map()) fail_expected(*data_, "a map");
  std::vector<std::pair<std::string, ConfigNode>> pairs;
  for (const auto& child : data_->children) {
    if (data_->facts) child->facts = data_->facts->map->any.get();
    pairs.emplace_back(child->key, ConfigNode(document_, child.get()));
  }
  return pairs;
}

ConfigMap ConfigNode::as_map() const {
  if (data_->facts) {
    const MapFacts& map = note_map(*data_->facts);
    document_->recording->conditions.erase(&map);
    ++document_->recording->visits[&map];
  }
  if (is_null()) data_->kind = ConfigKind::map;
  if (!is_map()) fail_expected(*data_, "a map", " (keys with their values: {KEY: VALUE})");
  return ConfigMap(*this);
}

ConfigNode::Named ConfigNode::as_named() const {
  if (is_map() && data_->children.size() == 1) {
    Data* only = data_->children.front().get();
    return {only->key, ConfigNode(document_, only)};
  }
  if (is_map()) fail_second_name(*data_);
  const std::string expected = "a name or one 'name: {options}'";
  if (is_map()) fail_expected(*data_, expected, fmt::format(" of {} keys", data_->children.size()));
  if (!is_scalar()) fail_expected(*data_, expected);
  const std::string name = as_text();  // noted as text, which the names of a table narrow
  if (!data_->options) {
    auto options = std::make_unique<Data>();
    options->kind = ConfigKind::map;
    options->key = name;
    options->has_key = true;
    options->mark = options->key_mark = data_->mark;
    options->parent = data_;
    data_->options = std::move(options);
  }
  return {name, ConfigNode(document_, data_->options.get())};
}

void ConfigNode::fail(std::string_view message) const { fail_at(data_->mark, message); }

void ConfigNode::fail_at_key(std::string_view message) const { fail_at(data_->entry_mark(), message); }

void ConfigNode::fail_unknown(std::string_view what, std::string_view name, std::span<const std::string> valid) const {
  std::string advice;
  if (document_->advises()) {
    if (const auto near = nearest(name, valid))
      advice = fmt::format("; did you mean '{}'?", *near);
    else if (!valid.empty())
      advice = fmt::format("; valid: {}", join(valid, ", ", " and "));
  }
  fail_at_key(fmt::format("unknown {} '{}'{}", what, shown(name), advice));
}

}  // namespace bantam

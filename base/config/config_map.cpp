// A map read key by key: what is asked for is remembered, what is missing is recorded, what is left over is an error.
#include <algorithm>
#include <cctype>
#include <iterator>

#include <fmt/format.h>

#include "bantam/base/config/config_attempts.h"
#include "bantam/base/config/config_recording.h"
#include "bantam/base/config/config_tree.h"
#include "bantam/base/text.h"
#include "bantam/base/usual_names.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

std::unique_ptr<Data> scalar_node(std::string text, bool is_text) {
  auto node = std::make_unique<Data>();
  node->kind = ConfigKind::scalar;
  node->quoted = is_text && (!is_safe_plain(text) || looks_like_number(text) || looks_like_boolean(text));
  node->scalar = std::move(text);
  return node;
}

std::unique_ptr<Data> list_node(const std::vector<std::string>& items, bool are_texts) {
  auto node = std::make_unique<Data>();
  node->kind = ConfigKind::list;
  for (const std::string& item : items) add_child(*node, scalar_node(item, are_texts));
  return node;
}

template <class Range>
std::vector<std::string> to_strings(const Range& values) {
  std::vector<std::string> texts;
  for (const auto value : values) texts.push_back(fmt::format("{}", value));
  return texts;
}

std::string address_in(const Data& map, const std::string& key) {
  const std::string path = address_of(map);
  return path.empty() ? key : path + "." + key;
}

/// "; did you mean train.optimizer.adam.learning_rate?" of "lr"; empty where it is no synonym, or of a key that nobody
/// has asked for.
std::string advice_on_synonym(const ConfigDocument::Impl& document, const Data& here, const std::string& word) {
  std::string plain = word;
  for (char& c : plain) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const auto synonym = std::ranges::find(document.synonyms, plain, &ConfigSynonym::word);
  if (synonym == document.synonyms.end()) return "";
  const std::string key(synonym->key), leaf = key.substr(key.rfind('.') + 1);
  const auto asked = document.asked.find(leaf);
  if (asked == document.asked.end()) return "";
  for (const Data* map : asked->second) {
    const std::string place = address_in(*map, leaf);
    if (place != key && !place.ends_with("." + key)) continue;
    const std::string example = synonym->example.empty() ? "" : fmt::format(", e.g. {}={}", place, synonym->example);
    if (map == &here) return fmt::format("; did you mean '{}'{}?", leaf, example);
    return fmt::format("; did you mean {}{}?", place, example);
  }
  return "";
}

}  // namespace

void ConfigMap::ask(std::string_view key) {
  if (std::ranges::find(asked_, key) != asked_.end()) return;
  asked_.emplace_back(key);
  constexpr std::size_t kMostPlaces = 3;  // that advice names
  auto place = self_.document_->asked.find(key);
  if (place == self_.document_->asked.end()) place = self_.document_->asked.try_emplace(std::string(key)).first;
  if (place->second.size() < kMostPlaces) place->second.push_back(self_.data_);
}

bool ConfigMap::has(ConfigKey key) {
  bool found = find_child(*self_.data_, key.name) != nullptr;
  if (self_.is_described() && !key.meaning.empty()) {
    ConfigRecording& recording = *self_.document_->recording;
    const MapFacts& map = note_map(*self_.data_->facts);
    found = found || recording.visit(map) % 2 == 1;
    recording.conditions[&map] = {.key = std::string(key.name), .missing = !found};
  }
  if (!found) ask(key.name);
  return found;
}

std::optional<ConfigNode> ConfigMap::find(ConfigKey key) {
  ask(key.name);
  Data* child = self_.is_described() ? described_child(*self_.document_, *self_.data_, key, KeyPresence::optional)
                                     : find_child(*self_.data_, key.name);
  if (!child) return std::nullopt;
  return ConfigNode(self_.document_, child);
}

ConfigNode ConfigMap::node(ConfigKey key) {
  if (self_.is_described()) {
    ask(key.name);
    return ConfigNode(self_.document_, described_child(*self_.document_, *self_.data_, key, KeyPresence::required));
  }
  auto found = find(key);
  if (!found) fail_missing(key.name);
  return *found;
}

ConfigNode ConfigMap::node_or(ConfigKey key, std::unique_ptr<Data> otherwise) {
  if (self_.is_described()) {
    ask(key.name);
    return ConfigNode(self_.document_, described_child(*self_.document_, *self_.data_, key, KeyPresence::with_default,
                                                       std::move(otherwise)));
  }
  if (const auto found = find(key)) return *found;
  return add_default(key.name, std::move(otherwise));
}

ConfigNode ConfigMap::node(ConfigKey key, std::string_view otherwise) {
  return node_or(key, scalar_node(std::string(otherwise), false));
}

ConfigNode ConfigMap::node(ConfigKey key, const std::vector<std::string>& otherwise) {
  return node_or(key, list_node(otherwise, false));
}

/// A key that is there, was not asked for and looks like the missing one, or like another that was looked for and is
/// not there, is a slip of the pen: say that instead.
void ConfigMap::fail_missing(std::string_view key) const {
  const std::string path = self_.path(), where = path.empty() ? "" : " in " + path;
  if (!self_.document_->advises()) self_.fail_at_key(fmt::format("missing key '{}'{}", key, where));
  std::vector<std::string> absent;
  std::ranges::copy_if(asked_, std::back_inserter(absent),
                       [&](const std::string& asked) { return !find_child(*self_.data_, asked); });
  for (const std::vector<std::string>& wanted : {std::vector<std::string>{std::string(key)}, absent}) {
    for (const auto& child : self_.data_->children) {
      if (std::ranges::find(asked_, child->key) != asked_.end()) continue;
      if (const auto near = nearest(child->key, wanted))
        fail_at(child->key_mark,
                fmt::format("unknown key '{}'{}; did you mean '{}'?", shown(child->key), where, *near));
    }
  }
  std::string others;  // that belong to other programs, and would be the next error
  for (const auto& child : self_.data_->children)
    if (const auto ours = our_name(child->key);
        ours && std::ranges::find(asked_, child->key) == asked_.end() && !find_child(*self_.data_, *ours))
      others += fmt::format("; and '{}' is called '{}' here", shown(child->key), *ours);
  self_.fail_at_key(fmt::format("missing key '{}'{}{}", key, where, others));
}

ConfigNode ConfigMap::add_default(std::string_view key, std::unique_ptr<Data> value) {
  value->key = key;
  value->key_mark = self_.data_->entry_mark();
  value->mark = value->key_mark;
  for (const auto& item : value->children) item->mark = value->mark;
  value->has_key = value->is_default = true;
  return ConfigNode(self_.document_, &add_child(*self_.data_, std::move(value)));
}

/// A key with a default. In a description the type is noted first, of a value without an example: a default need not be
/// in the range.
template <class Value, class MakeDefault, class Read>
Value ConfigMap::read_or(const ConfigKey& key, const Value& otherwise, const MakeDefault& make, const Read& read) {
  if (self_.is_described()) {
    ask(key.name);
    Data* child = described_child(*self_.document_, *self_.data_, key, KeyPresence::with_default, make());
    Data typed;
    typed.facts = child->facts;
    (void)read(ConfigNode(self_.document_, &typed));
    return is_described_default(*self_.document_, *child, key) ? otherwise : read(ConfigNode(self_.document_, child));
  }
  if (const auto found = find(key)) {
    ConfigAttempts attempt(self_);
    std::optional<Value> value;
    return attempt([&] { value = read(*found); }) ? *value : otherwise;
  }
  add_default(key.name, make());
  return otherwise;
}

std::int64_t ConfigMap::integer(ConfigKey key, IntegerRange range) { return node(key).as_integer(range); }

std::int64_t ConfigMap::integer(ConfigKey key, IntegerRange range, std::int64_t otherwise) {
  return read_or(
      key, otherwise, [&] { return scalar_node(fmt::format("{}", otherwise), false); },
      [&](const ConfigNode& node) { return node.as_integer(range); });
}

std::optional<std::int64_t> ConfigMap::integer_or_auto(ConfigKey key, IntegerRange range) {
  return read_or(
      key, std::optional<std::int64_t>(), [] { return scalar_node("auto", true); },
      [&](const ConfigNode& node) { return node.as_integer_or_auto(range); });
}

double ConfigMap::number(ConfigKey key, NumberRange range) { return node(key).as_number(range); }

double ConfigMap::number(ConfigKey key, NumberRange range, double otherwise) {
  return read_or(
      key, otherwise, [&] { return scalar_node(fmt::format("{}", otherwise), false); },
      [&](const ConfigNode& node) { return node.as_number(range); });
}

bool ConfigMap::boolean(ConfigKey key) { return node(key).as_boolean(); }

bool ConfigMap::boolean(ConfigKey key, bool otherwise) {
  return read_or(
      key, otherwise, [&] { return scalar_node(otherwise ? "true" : "false", false); },
      [&](const ConfigNode& node) { return node.as_boolean(); });
}

std::string ConfigMap::text(ConfigKey key) { return node(key).as_text(); }

std::string ConfigMap::text(ConfigKey key, std::string_view otherwise) {
  return read_or(
      key, std::string(otherwise), [&] { return scalar_node(std::string(otherwise), true); },
      [&](const ConfigNode& node) { return node.as_text(); });
}

std::string ConfigMap::choice(ConfigKey key, std::initializer_list<std::string_view> allowed) {
  return node(key).as_choice(allowed);
}

std::string ConfigMap::choice(ConfigKey key, std::initializer_list<std::string_view> allowed,
                              std::string_view otherwise) {
  return read_or(
      key, std::string(otherwise), [&] { return scalar_node(std::string(otherwise), true); },
      [&](const ConfigNode& node) { return node.as_choice(allowed); });
}

std::uint64_t ConfigMap::byte_size(ConfigKey key) { return node(key).as_byte_size(); }

std::uint64_t ConfigMap::byte_size(ConfigKey key, std::uint64_t otherwise) {
  return read_or(
      key, otherwise, [&] { return scalar_node(fmt::format("{}", otherwise), false); },
      [&](const ConfigNode& node) { return node.as_byte_size(); });
}

Duration ConfigMap::duration(ConfigKey key, DurationRange range) { return node(key).as_duration(range); }

Duration ConfigMap::duration(ConfigKey key, DurationRange range, Duration otherwise) {
  const bool plain = otherwise.unit == Duration::Unit::updates;
  return read_or(
      key, otherwise,
      [&] { return scalar_node(plain ? fmt::format("{}", otherwise.count) : to_string(otherwise), !plain); },
      [&](const ConfigNode& node) { return node.as_duration(range); });
}

std::vector<std::int64_t> ConfigMap::integers(ConfigKey key, IntegerRange range) {
  return node(key).as_integers(range);
}

std::vector<std::int64_t> ConfigMap::integers(ConfigKey key, IntegerRange range, std::vector<std::int64_t> otherwise) {
  return read_or(
      key, otherwise, [&] { return list_node(to_strings(otherwise), false); },
      [&](const ConfigNode& node) { return node.as_integers(range); });
}

std::array<std::int64_t, 2> ConfigMap::pair(ConfigKey key, IntegerRange range) { return node(key).as_pair(range); }

std::array<std::int64_t, 2> ConfigMap::pair(ConfigKey key, IntegerRange range, std::array<std::int64_t, 2> otherwise) {
  return read_or(
      key, otherwise, [&] { return list_node(to_strings(otherwise), false); },
      [&](const ConfigNode& node) { return node.as_pair(range); });
}

std::vector<std::string> ConfigMap::texts(ConfigKey key) { return node(key).as_texts(); }

std::vector<std::string> ConfigMap::texts(ConfigKey key, std::vector<std::string> otherwise) {
  return read_or(
      key, otherwise, [&] { return list_node(otherwise, true); },
      [&](const ConfigNode& node) { return node.as_texts(); });
}

ConfigMap ConfigMap::map(ConfigKey key) { return node(key).as_map(); }

ConfigMap ConfigMap::map_or_empty(ConfigKey key) {
  auto empty = std::make_unique<Data>();
  empty->kind = ConfigKind::map;
  return node_or(key, std::move(empty)).as_map();
}

std::vector<ConfigNode> ConfigMap::list(ConfigKey key) { return node(key).items(); }

std::vector<ConfigNode> ConfigMap::list(ConfigKey key, const std::vector<std::string>& otherwise) {
  return node_or(key, list_node(otherwise, true)).items();
}

std::string ConfigMap::advice_on(const std::string& key) const {
  const ConfigDocument::Impl& document = *self_.document_;
  if (!document.advises()) return "";
  std::string advice = advice_on_synonym(document, *self_.data_, key);
  if (!advice.empty()) return advice;
  if (const auto near = nearest(key, asked_)) return fmt::format("; did you mean '{}'?", *near);
  std::vector<std::string> elsewhere;
  for (const auto& [asked, maps] : document.asked) elsewhere.push_back(asked);
  if (const auto near = nearest(key, elsewhere)) {
    std::vector<std::string> places;
    for (const Data* map : document.asked.find(*near)->second) places.push_back(address_in(*map, *near));
    return fmt::format("; did you mean {}?", join(places, ", ", " or "));
  }
  if (asked_.empty()) return "; no keys are allowed here";
  return fmt::format("; valid keys: {}", join(asked_, ", ", " and "));
}

void ConfigMap::finish() const {
  if (self_.is_described()) note_map(*self_.data_->facts).closed = true;
  const std::string path = self_.path();
  ConfigAttempts attempt(self_);
  for (const auto& child : self_.data_->children) {
    if (std::ranges::find(asked_, child->key) != asked_.end()) continue;
    attempt([&] {
      fail_at(child->key_mark, fmt::format("unknown key '{}'{}{}", shown(child->key), path.empty() ? "" : " in " + path,
                                           advice_on(child->key)));
    });
  }
}

}  // namespace bantam

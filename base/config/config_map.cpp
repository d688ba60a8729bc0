// A map read key by key: what is asked for is remembered, what is missing is recorded, what is left over is an error.
#include <algorithm>
#include <cctype>
#include <iterator>

#include <fmt/format.h>

#include "bantam/base/config/config_tree.h"
#include "bantam/base/text.h"

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

bool ConfigMap::has(std::string_view key) {
  const bool found = find_child(*self_.data_, key) != nullptr;
  if (!found) ask(key);
  return found;
}

std::optional<ConfigNode> ConfigMap::find(std::string_view key) {
  ask(key);
  Data* child = find_child(*self_.data_, key);
  if (!child) return std::nullopt;
  return ConfigNode(self_.document_, child);
}

ConfigNode ConfigMap::node(std::string_view key) {
  auto found = find(key);
  if (!found) fail_missing(key);
  return *found;
}

/// A key that is there, was not asked for and looks like the missing one, or like another that was looked for and is
/// not there, is a slip of the pen: say that instead.
void ConfigMap::fail_missing(std::string_view key) const {
  const std::string path = self_.path(), where = path.empty() ? "" : " in " + path;
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
  self_.fail_at_key(fmt::format("missing key '{}'{}", key, where));
}

ConfigNode ConfigMap::add_default(std::string_view key, std::unique_ptr<Data> value) {
  value->key = key;
  value->key_mark = self_.data_->has_key ? self_.data_->key_mark : self_.data_->mark;
  value->mark = value->key_mark;
  for (const auto& item : value->children) item->mark = value->mark;
  value->has_key = value->is_default = true;
  return ConfigNode(self_.document_, &add_child(*self_.data_, std::move(value)));
}

std::int64_t ConfigMap::integer(std::string_view key, IntegerRange range) { return node(key).as_integer(range); }

std::int64_t ConfigMap::integer(std::string_view key, IntegerRange range, std::int64_t otherwise) {
  if (const auto found = find(key)) return found->as_integer(range);
  add_default(key, scalar_node(fmt::format("{}", otherwise), false));
  return otherwise;
}

std::optional<std::int64_t> ConfigMap::integer_or_auto(std::string_view key, IntegerRange range) {
  const auto found = find(key);
  if (!found) add_default(key, scalar_node("auto", true));
  if (!found || found->is_text("auto")) return std::nullopt;
  return found->as_integer_or_auto(range);
}

double ConfigMap::number(std::string_view key, NumberRange range) { return node(key).as_number(range); }

double ConfigMap::number(std::string_view key, NumberRange range, double otherwise) {
  if (const auto found = find(key)) return found->as_number(range);
  add_default(key, scalar_node(fmt::format("{}", otherwise), false));
  return otherwise;
}

bool ConfigMap::boolean(std::string_view key) { return node(key).as_boolean(); }

bool ConfigMap::boolean(std::string_view key, bool otherwise) {
  if (const auto found = find(key)) return found->as_boolean();
  add_default(key, scalar_node(otherwise ? "true" : "false", false));
  return otherwise;
}

std::string ConfigMap::text(std::string_view key) { return node(key).as_text(); }

std::string ConfigMap::text(std::string_view key, std::string_view otherwise) {
  if (const auto found = find(key)) return found->as_text();
  add_default(key, scalar_node(std::string(otherwise), true));
  return std::string(otherwise);
}

std::string ConfigMap::choice(std::string_view key, std::initializer_list<std::string_view> allowed) {
  return node(key).as_choice(allowed);
}

std::string ConfigMap::choice(std::string_view key, std::initializer_list<std::string_view> allowed,
                              std::string_view otherwise) {
  if (const auto found = find(key)) return found->as_choice(allowed);
  add_default(key, scalar_node(std::string(otherwise), true));
  return std::string(otherwise);
}

std::uint64_t ConfigMap::byte_size(std::string_view key) { return node(key).as_byte_size(); }

std::uint64_t ConfigMap::byte_size(std::string_view key, std::uint64_t otherwise) {
  if (const auto found = find(key)) return found->as_byte_size();
  add_default(key, scalar_node(fmt::format("{}", otherwise), false));
  return otherwise;
}

Duration ConfigMap::duration(std::string_view key, DurationRange range) { return node(key).as_duration(range); }

Duration ConfigMap::duration(std::string_view key, DurationRange range, Duration otherwise) {
  if (const auto found = find(key)) return found->as_duration(range);
  const bool plain = otherwise.unit == Duration::Unit::updates;
  add_default(key, scalar_node(plain ? fmt::format("{}", otherwise.count) : to_string(otherwise), !plain));
  return otherwise;
}

std::vector<std::int64_t> ConfigMap::integers(std::string_view key, IntegerRange range) {
  return node(key).as_integers(range);
}

std::vector<std::int64_t> ConfigMap::integers(std::string_view key, IntegerRange range,
                                              std::vector<std::int64_t> otherwise) {
  if (const auto found = find(key)) return found->as_integers(range);
  add_default(key, list_node(to_strings(otherwise), false));
  return otherwise;
}

std::array<std::int64_t, 2> ConfigMap::pair(std::string_view key, IntegerRange range) {
  return node(key).as_pair(range);
}

std::array<std::int64_t, 2> ConfigMap::pair(std::string_view key, IntegerRange range,
                                            std::array<std::int64_t, 2> otherwise) {
  if (const auto found = find(key)) return found->as_pair(range);
  add_default(key, list_node(to_strings(otherwise), false));
  return otherwise;
}

std::vector<std::string> ConfigMap::texts(std::string_view key) { return node(key).as_texts(); }

std::vector<std::string> ConfigMap::texts(std::string_view key, std::vector<std::string> otherwise) {
  if (const auto found = find(key)) return found->as_texts();
  add_default(key, list_node(otherwise, true));
  return otherwise;
}

ConfigMap ConfigMap::map(std::string_view key) { return node(key).as_map(); }

ConfigMap ConfigMap::map_or_empty(std::string_view key) {
  if (const auto found = find(key)) return found->as_map();
  auto empty = std::make_unique<Data>();
  empty->kind = ConfigKind::map;
  return add_default(key, std::move(empty)).as_map();
}

std::vector<ConfigNode> ConfigMap::list(std::string_view key) { return node(key).items(); }

std::string ConfigMap::advice_on(const std::string& key) const {
  const ConfigDocument::Impl& document = *self_.document_;
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
  for (const auto& child : self_.data_->children) {
    if (std::ranges::find(asked_, child->key) != asked_.end()) continue;
    const std::string path = self_.path();
    fail_at(child->key_mark, fmt::format("unknown key '{}'{}{}", shown(child->key), path.empty() ? "" : " in " + path,
                                         advice_on(child->key)));
  }
}

}  // namespace bantam

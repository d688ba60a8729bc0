// Recording: facts of keys, and the values that a description reads in place of a file's.
#include "bantam/base/config/config_recording.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

std::vector<std::string> split_examples(std::string_view text) {
  constexpr std::string_view kBetween = " | ";
  std::vector<std::string> examples;
  while (!text.empty()) {
    const std::size_t end = text.find(kBetween);
    examples.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + kBetween.size());
  }
  return examples;
}

/// Returns the condition under which the map's keys are asked for, if any; nothing for the key that it is about.
std::optional<KeyCondition> condition_of(const ConfigRecording& recording, const MapFacts& map, std::string_view key) {
  const auto found = recording.conditions.find(&map);
  if (found == recording.conditions.end() || found->second.key == key) return std::nullopt;
  return found->second;
}

KeyFacts* find_key(MapFacts& map, std::string_view name, const std::optional<KeyCondition>& when) {
  for (const auto& key : map.keys)
    if (key->name == name && key->when == when) return key.get();
  return nullptr;
}

/// The key's facts under the present condition. A plain name finds the key that was asked for with a meaning before.
KeyFacts& facts_of(const ConfigRecording& recording, MapFacts& map, const ConfigKey& key, KeyPresence presence,
                   const Data* otherwise) {
  const std::optional<KeyCondition> when = condition_of(recording, map, key.name);
  KeyFacts* known = find_key(map, key.name, when);
  if (!known && key.meaning.empty())
    for (const auto& other : map.keys)
      if (other->name == key.name) known = other.get();
  const auto condition = recording.conditions.find(&map);
  const bool given_anyway = condition != recording.conditions.end() && condition->second.key == key.name;
  const bool required = presence == KeyPresence::required && !given_anyway;
  if (!known) {
    map.keys.push_back(std::make_unique<KeyFacts>());
    known = map.keys.back().get();
    known->name = key.name;
    known->when = when;
    known->required = required;
  } else if (!key.meaning.empty()) {
    known->required = known->required && required;
  }
  if (known->meaning.empty()) known->meaning = key.meaning;
  if (known->examples.empty()) known->examples = split_examples(key.example);
  if (!key.otherwise.empty()) known->otherwise_meaning = key.otherwise;
  if (otherwise) known->otherwise = flow_yaml(*otherwise);
  return *known;
}

std::unique_ptr<Data> stand_in() { return std::make_unique<Data>(); }

/// Puts the value under the map's key, in the place of what an earlier reader of this round found there.
Data* place_child(Data& map, std::string_view key, std::unique_ptr<Data> value) {
  if (Data* child = find_child(map, key)) {
    const ConfigMark mark = child->mark;
    replace_value(*child, std::move(value));
    if (!child->mark.source) child->mark = mark;
    return child;
  }
  value->key = key;
  value->key_mark = map.has_key ? map.key_mark : map.mark;
  if (!value->mark.source) value->mark = value->key_mark;
  for (const auto& item : value->children)
    if (!item->mark.source) item->mark = value->mark;
  value->has_key = value->is_default = true;
  return &add_child(map, std::move(value));
}

}  // namespace

void ConfigRecording::fault(const std::string& where, const std::string& message) {
  std::string text = fmt::format("{}: {}", where, message);
  if (std::ranges::find(schema.faults, text) == schema.faults.end()) schema.faults.push_back(std::move(text));
}

std::size_t ConfigRecording::visit(const MapFacts& map) const {
  const auto found = visits.find(&map);
  return found == visits.end() ? 0 : found->second - 1;
}

void note_word(ValueFacts& facts, std::string_view word) {
  if (std::ranges::find(facts.words, word) == facts.words.end()) facts.words.emplace_back(word);
}

ListFacts& note_list(ValueFacts& facts) {
  if (!facts.list) facts.list = std::make_shared<ListFacts>();
  return *facts.list;
}

MapFacts& note_map(ValueFacts& facts) {
  if (!facts.map) facts.map = std::make_shared<MapFacts>();
  return *facts.map;
}

std::unique_ptr<Data> parse_example(ConfigRecording& recording, const std::string& text) {
  recording.sources.push_back(
      std::make_shared<ConfigSource>(ConfigSource{.name = "example", .lines = split_lines(text)}));
  return parse_yaml(*recording.sources.back());
}

Data* described_child(ConfigDocument::Impl& document, Data& map, const ConfigKey& key, KeyPresence presence,
                      std::unique_ptr<Data> otherwise) {
  ConfigRecording& recording = *document.recording;
  MapFacts& facts = note_map(*map.facts);
  KeyFacts& known = facts_of(recording, facts, key, presence, otherwise.get());
  const std::size_t visit = recording.visit(facts);
  recording.most_examples = std::max(recording.most_examples, known.examples.size());
  Data* child = find_child(map, key.name);
  if (!child || (child->is_default && !key.meaning.empty())) {
    if (presence == KeyPresence::optional && visit == 0) return nullptr;
    const std::vector<std::string>& examples = known.examples;
    const std::size_t turn = visit == 0 ? 0 : visit - 1;
    const bool exemplary = !examples.empty() && (visit > 0 || !otherwise);
    std::unique_ptr<Data> value = exemplary   ? parse_example(recording, examples[turn % examples.size()])
                                  : otherwise ? std::move(otherwise)
                                              : stand_in();
    child = place_child(map, key.name, std::move(value));
  }
  child->facts = &known.value;
  return child;
}

bool is_described_default(const ConfigDocument::Impl& document, const Data& child, const ConfigKey& key) {
  const bool is_first = document.recording->visit(*child.parent->facts->map) == 0;
  return child.is_default && (is_first || key.example.empty());
}

namespace {

bool is_same(const KeyFacts& a, const KeyFacts& b) {
  return a.name == b.name && a.meaning == b.meaning && a.required == b.required && a.otherwise == b.otherwise &&
         a.otherwise_meaning == b.otherwise_meaning;
}

/// All values of a key are no condition, where the key has a value in any case.
void simplify(std::optional<KeyCondition>& when, const MapFacts& map) {
  if (!when || when->values.empty()) return;
  const KeyFacts* key = map.find(when->key);
  if (!key || when->values.size() < key->value.words.size()) return;
  when->values.clear();
  if (key->required || key->otherwise) when.reset();
}

/// Adds `more` to `when`; false where that cannot be said as one condition.
bool widen(std::optional<KeyCondition>& when, const std::optional<KeyCondition>& more) {
  if (when == more) return true;
  if (!when || !more) {
    when.reset();
    return true;
  }
  if (when->key != more->key) return false;
  if (when->missing != more->missing) {
    const KeyCondition& given = when->missing ? *more : *when;
    if (!given.values.empty()) return false;
    when.reset();
    return true;
  }
  if (when->values.empty() || more->values.empty())
    when->values.clear();
  else
    when->values.insert(when->values.end(), more->values.begin(), more->values.end());
  return true;
}

/// Merges one pair of keys; false where there is none to merge.
bool merge_a_pair(MapFacts& map) {
  for (std::size_t i = 0; i < map.keys.size(); ++i)
    for (std::size_t j = i + 1; j < map.keys.size(); ++j) {
      KeyFacts& key = *map.keys[i];
      if (!is_same(key, *map.keys[j]) || !widen(key.when, map.keys[j]->when)) continue;
      simplify(key.when, map);
      map.keys.erase(map.keys.begin() + static_cast<std::ptrdiff_t>(j));
      return true;
    }
  return false;
}

void merge_in(ValueFacts& facts) {
  if (facts.list) merge_in(facts.list->items);
  if (!facts.map) return;
  if (facts.map->any) merge_in(*facts.map->any);
  for (const auto& key : facts.map->keys) simplify(key->when, *facts.map);
  while (merge_a_pair(*facts.map)) {
  }
  for (const auto& key : facts.map->keys) merge_in(key->value);
}

}  // namespace

void merge_conditions(ConfigSchema& schema) {
  merge_in(schema.root);
  for (const auto& table : schema.tables)
    for (const auto& entry : table->entries) merge_in(entry->options);
}

}  // namespace bantam

// The rounds of a description, and the readers' side of it: entries of tables, choices, sections' meanings.
#include "bantam/base/config/config_schema.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "bantam/base/config/config_recording.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

constexpr std::size_t kLeastRounds = 4, kMostRounds = 32;

TableFacts& table_of(ConfigSchema& schema, std::string_view what) {
  for (const auto& table : schema.tables)
    if (table->what == what) return *table;
  schema.tables.push_back(std::make_unique<TableFacts>());
  schema.tables.back()->what = what;
  return *schema.tables.back();
}

TableFacts::Entry& entry_of(TableFacts& table, const std::string& name) {
  for (const auto& entry : table.entries)
    if (entry->name == name) return *entry;
  table.entries.push_back(std::make_unique<TableFacts::Entry>());
  table.entries.back()->name = name;
  return *table.entries.back();
}

}  // namespace

ConfigDocument ConfigDescription::document(const std::shared_ptr<ConfigRecording>& recording) {
  auto impl = std::make_shared<ConfigDocument::Impl>();
  impl->name = "example.yaml";
  impl->sources.push_back(std::make_shared<ConfigSource>(ConfigSource{.name = impl->name, .lines = {}}));
  impl->recording = recording;
  impl->root = std::make_unique<Data>();
  impl->root->kind = ConfigKind::map;
  impl->root->mark.source = impl->sources.front().get();
  impl->root->facts = &recording->schema.root;
  return ConfigDocument(std::move(impl));
}

ConfigSchema describe_config(const std::function<void(const ConfigDocument& document)>& read) {
  const auto recording = std::make_shared<ConfigRecording>();
  std::vector<ConfigDocument> documents;
  // Twice as many as examples: some maps are read in every other round.
  const auto rounds = [&] { return std::clamp(2 * (recording->most_examples + 1), kLeastRounds, kMostRounds); };
  for (std::size_t& round = recording->round; round < rounds(); ++round) {
    recording->conditions.clear();
    recording->described.clear();
    documents.push_back(ConfigDescription::document(recording));
    try {
      read(documents.back());
    } catch (const std::exception& error) {
      // With nothing but required keys, sections that need one of two keys are refused.
      if (round > 0) recording->fault("configuration", error.what());
    }
  }
  merge_conditions(recording->schema);
  return std::move(recording->schema);
}

const KeyFacts* MapFacts::find(std::string_view name) const {
  const auto found = std::ranges::find_if(keys, [&](const auto& key) { return key->name == name; });
  return found == keys.end() ? nullptr : found->get();
}

const TableFacts::Entry* TableFacts::find(std::string_view name) const {
  const auto found = std::ranges::find_if(entries, [&](const auto& entry) { return entry->name == name; });
  return found == entries.end() ? nullptr : found->get();
}

const TableFacts* ConfigSchema::table(std::string_view what) const {
  const auto found = std::ranges::find_if(tables, [&](const auto& table) { return table->what == what; });
  return found == tables.end() ? nullptr : found->get();
}

bool ConfigNode::is_described() const { return data_->facts != nullptr; }

void ConfigNode::describe(std::string_view meaning, std::string_view example) const {
  if (!data_->facts) return;
  ConfigRecording& recording = *document_->recording;
  const auto condition = recording.conditions.find(data_->facts->map.get());
  if (condition != recording.conditions.end() && !condition->second.values.empty()) {
    for (const auto& key : data_->facts->map->keys)
      if (key->name == condition->second.key) key->choices[condition->second.values.front()] = meaning;
    return;
  }
  data_->facts->meaning = meaning;
  data_->facts->example = example;
}

namespace {

/// An entry's example as a reader finds it in a file: "conv2d: {filters: 8, kernel: 3}".
Data* entry_example(ConfigRecording& recording, const std::string& text) {
  recording.made.push_back(parse_example(recording, text));
  return recording.made.back().get();
}

Data* entry_options(ConfigRecording& recording, Data& parent, TableFacts::Entry& entry) {
  recording.made.push_back(std::make_unique<Data>());
  Data* options = recording.made.back().get();
  options->parent = &parent;
  options->key = entry.name;
  options->has_key = true;
  options->mark = options->key_mark = parent.mark;
  options->facts = &entry.options;
  return options;
}

}  // namespace

void ConfigNode::describe_entries(
    std::string_view table, std::span<const std::string> names,
    const std::function<void(const std::string& name, const ConfigNode& options)>& read) const {
  if (!data_->facts) return;
  ConfigRecording& recording = *document_->recording;
  std::vector<std::string>& tables = (is_list() ? note_list(*data_->facts).items : *data_->facts).tables;
  if (std::ranges::find(tables, table) == tables.end()) tables.emplace_back(table);
  TableFacts& facts = table_of(recording.schema, table);
  if (!recording.described.emplace(table).second) return;
  for (const std::string& name : names) {
    TableFacts::Entry& entry = entry_of(facts, name);
    try {
      read(name, ConfigNode(document_, entry_options(recording, *data_, entry)));
      if (entry.options.example.empty()) continue;
      const Named named = ConfigNode(document_, entry_example(recording, entry.options.example)).as_named();
      read(named.name, named.options);
    } catch (const std::exception& error) {
      const bool is_first = entry.options.map && recording.visit(*entry.options.map) == 0;
      if (!is_first) recording.fault(std::string(table) + " " + name, error.what());
    }
  }
}

void ConfigMap::read_choice(std::string_view key, const std::string& chosen, std::span<const std::string> names,
                            const std::function<void(const std::string& name)>& read) {
  if (!self_.is_described()) return read(chosen);
  ConfigRecording& recording = *self_.document_->recording;
  MapFacts& map = note_map(*self_.data_->facts);
  for (const auto& known : map.keys)
    if (known->name == key) {
      known->value.only_words = true;
      for (const std::string& name : names) note_word(known->value, name);
    }
  const auto outer = recording.conditions.find(&map);
  const std::optional<KeyCondition> before =
      outer == recording.conditions.end() ? std::nullopt : std::optional(outer->second);
  for (const std::string& name : names) {
    recording.conditions[&map] = {.key = std::string(key), .values = {name}};
    try {
      read(name);
    } catch (const std::exception& error) {
      if (recording.visit(map) > 0) recording.fault(std::string(key) + " " + name, error.what());
    }
  }
  recording.conditions[&map] = {.key = std::string(key), .values = {chosen}};
  read(chosen);
  recording.conditions.erase(&map);
  if (before) recording.conditions[&map] = *before;
}

}  // namespace bantam

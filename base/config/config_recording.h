// How a description is recorded while readers run, and how they reach a document (internal to base/config).
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "bantam/base/config/config_schema.h"
#include "bantam/base/config/config_tree.h"

namespace bantam {

struct ConfigRecording {
  ConfigSchema schema;
  std::size_t round = 0;
  std::size_t most_examples = 1;                             // of any key so far
  std::map<const MapFacts*, KeyCondition> conditions;        // under which a map's keys are asked for at present
  std::map<const MapFacts*, std::size_t> visits;             // how often each map was read
  std::set<std::string> described;                           // tables of this round
  std::vector<std::unique_ptr<ConfigNode::Data>> made;       // options of entries, which readers may point to
  std::vector<std::shared_ptr<const ConfigSource>> sources;  // that their marks point to

  void fault(const std::string& where, const std::string& message);
  /// Returns the number, from 0, of the map's reading under way: it chooses the examples that its keys have.
  std::size_t visit(const MapFacts& map) const;
};

/// Opens the internals of documents to descriptions and complete checks.
struct ConfigDescription {
  /// One without a text.
  static ConfigDocument document(const std::shared_ptr<ConfigRecording>& recording);
  static ConfigDocument::Impl& of(const ConfigNode& node) { return *node.document_; }
};

/// Notes, in a description, what a value is read as. True where it has no example, so that there is no value to read.
template <class Note>
bool is_noted(const ConfigNode::Data& data, const Note& note) {
  if (!data.facts) return false;
  note(*data.facts);
  return data.kind == ConfigKind::null;
}

void note_word(ValueFacts& facts, std::string_view word);
ListFacts& note_list(ValueFacts& facts);
MapFacts& note_map(ValueFacts& facts);

enum class KeyPresence : std::uint8_t { required, with_default, optional };

/// The key's child in this round, whose facts are those of the key; null where the key is missing in it. `otherwise`:
/// the default.
ConfigNode::Data* described_child(ConfigDocument::Impl& document, ConfigNode::Data& map, const ConfigKey& key,
                                  KeyPresence presence, std::unique_ptr<ConfigNode::Data> otherwise = nullptr);
/// True where that child is the default, not an example.
bool is_described_default(const ConfigDocument::Impl& document, const ConfigNode::Data& child, const ConfigKey& key);

/// Parses a value in YAML's flow style; the recording keeps its source.
std::unique_ptr<ConfigNode::Data> parse_example(ConfigRecording& recording, const std::string& text);

/// Merges what was asked for under several conditions with the same result.
void merge_conditions(ConfigSchema& schema);

}  // namespace bantam

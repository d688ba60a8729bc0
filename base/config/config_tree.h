// The tree inside ConfigDocument (internal to base/config): nodes with their positions, and error messages that quote
// the source line.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bantam/base/config/config.h"

namespace bantam {

struct ConfigRecording;

/// The errors that a complete check collects (config_attempts.h).
struct ConfigErrors {
  static constexpr std::size_t kMost = 50;
  std::vector<std::string> messages;  ///< each once, up to kMost
  std::size_t more = 0;               ///< errors after those
  void note(const std::string& message);
  std::size_t count() const { return messages.size() + more; }
  /// Further errors are counted alone: their advice is read by nobody.
  bool is_full() const { return messages.size() == kMost; }

 private:
  std::unordered_set<std::size_t> noted_;  // hashes of messages
};
struct ValueFacts;

/// A text that nodes point into: a file, or one override of the command line.
struct ConfigSource {
  std::string name;
  bool command_line = false;
  std::vector<std::string> lines;
};

struct ConfigUse;

/// A place in a source: line and column (in bytes) from 0, and the bytes it covers (at least 1).
struct ConfigMark {
  const ConfigSource* source = nullptr;
  int line = 0;
  int column = 0;
  int length = 1;
  const ConfigUse* use = nullptr;  ///< of a copy (config_template.h): messages name it
};

/// The reason why a part of a document is copied: its user ("block 'conv_norm'") and the place of that, maybe in a copy
/// itself.
struct ConfigUse {
  std::string what;
  ConfigMark at;
};

struct ConfigNode::Data {
  ConfigKind kind = ConfigKind::null;
  std::string scalar;   // the text of a scalar, unquoted
  bool quoted = false;  // 'x', "x" or a block scalar: always text, never a number
  ConfigMark mark;
  std::string key;  // of an entry of a map
  ConfigMark key_mark;
  bool has_key = false;
  bool is_default = false;  // recorded by a reader: the text has no such key
  Data* parent = nullptr;
  std::size_t place = 0;                               // in the parent's list
  std::vector<std::unique_ptr<Data>> children;         // of lists and maps
  std::unordered_map<std::string_view, Data*> by_key;  // of maps: their children, whose keys the views point into
  std::unique_ptr<Data> options;  // of a plain name: the map of options it stands for, filled with defaults
  ValueFacts* facts = nullptr;    // in a description: where to note what the value is read as (config_schema.h)

  /// Where errors about the whole entry point: its key, or its value where the command line has replaced that of a key
  /// of the file.
  const ConfigMark& entry_mark() const;
};

/// Owns the tree and all sources its marks point into.
struct ConfigDocument::Impl {
  std::string name;
  std::vector<std::shared_ptr<const ConfigSource>> sources;  // shared by copies
  std::unique_ptr<ConfigNode::Data> root;
  std::vector<ConfigSynonym> synonyms;
  // Relative paths (config_path.h) are looked for in `search_folders` after the current folder and the document's;
  // `found_in` lists the folders that had one. All are absolute.
  std::vector<std::filesystem::path> search_folders, found_in;
  std::vector<std::unique_ptr<ConfigNode::Data>> copies;  // of parts of the tree (config_template.h)
  std::size_t copied_values = 0;                          // in them
  std::vector<std::unique_ptr<const ConfigUse>> uses;     // that the marks of copies point to
  // Every key that was asked for, with the first maps that it was asked of: where a key at a wrong place belongs.
  std::map<std::string, std::vector<const ConfigNode::Data*>, std::less<>> asked;
  std::shared_ptr<ConfigRecording> recording;  // null but in a description
  std::shared_ptr<ConfigErrors> errors;        // null but in a complete check
  bool advises() const { return errors == nullptr || !errors->is_full(); }
};

/// Throws ConfigError: the position, the message, the source line and a caret under the mark.
[[noreturn]] void fail_at(const ConfigMark& mark, std::string_view message);
/// "configs/x.yaml:12:7" or "command line".
std::string position_of(const ConfigMark& mark);
/// The text cut into lines, without their ends.
std::vector<std::string> split_lines(std::string_view text);

/// The dotted path of a node; empty at the top.
std::string path_of(const ConfigNode::Data& node);
/// The same as overrides are written: entries of lists go by their name where only one has it.
std::string address_of(const ConfigNode::Data& node);
/// The name by which a list's entry can be found: `batch` of `batch: {size: 16}` or of plain `batch`.
std::string entry_name(const ConfigNode::Data& entry);
/// The entry of a map with this key, or null.
ConfigNode::Data* find_child(const ConfigNode::Data& map, std::string_view key);
/// Appends a child (with a key, in maps) and returns it.
ConfigNode::Data& add_child(ConfigNode::Data& parent, std::unique_ptr<ConfigNode::Data> child);
/// The tree below `node`, without its parent; marks point into the same sources.
std::unique_ptr<ConfigNode::Data> copy_of(const ConfigNode::Data& node);
/// Puts `value` in the place of `node`'s value; key, place and parent stay.
void replace_value(ConfigNode::Data& node, std::unique_ptr<ConfigNode::Data> value);
/// Makes the plain name `relu` (or nothing) the map `{relu: }` or `{}`.
void name_to_map(ConfigNode::Data& node);

/// Parses YAML into a tree. `first_line_begins` bytes of the source's first line come before the YAML (an override's
/// key).
std::unique_ptr<ConfigNode::Data> parse_yaml(const ConfigSource& source, int first_line_begins = 0);
/// Applies "dotted.path=value"; the text is kept as a source of the document.
void apply_override(ConfigDocument::Impl& document, const std::string& text);
/// The value in YAML's flow style, on one line: "[1, 2]", "{size: 4}", "auto".
std::string flow_yaml(const ConfigNode::Data& node);
/// The whole tree as YAML.
std::string emit_yaml(const ConfigNode::Data& root);

/// Plain text as YAML has it: a number (also one out of range), true or false, other spellings of those.
bool looks_like_number(std::string_view text);
bool looks_like_boolean(std::string_view text);
/// 010: a number in decimal to YAML 1.2, in octal to YAML 1.1 and in Python and C. Such numbers are refused.
bool has_leading_zero(std::string_view text);
/// True when `text`, written without quotes, would be read as the same text anywhere in a YAML file.
bool is_safe_plain(std::string_view text);
/// "'many'", "12", "a list", … for "expected …, got …".
std::string describe(const ConfigNode::Data& node);

}  // namespace bantam

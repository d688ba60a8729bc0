// Describes what a configuration may say by running its readers: every key with its type, range, default, meaning and
// example; and the same as JSON Schema and as a page of Markdown.
//
// There is no table of keys beside the readers. A description runs the reader over examples instead of a file, several
// rounds of it: when a map is first read only its required keys are there, the i-th time after that each of its keys
// has its i-th example (ConfigKey). Whatever a reader asks of a value (`as_integer`, `is_text`, `as_map` …) is noted as
// one thing that the value may be, and the example has to pass the reader's own checks. (Internal: programs call
// run::config_schema and run::config_reference.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "bantam/base/config/config.h"

namespace bantam {

struct ListFacts;
struct MapFacts;

/// Names that a configuration defines for its lists.
struct OtherNames {
  std::vector<std::string> known;  ///< which they cannot be: the names that are there without them
  std::string defined_by;          ///< the key under which they stand, beside the outermost list
};

/// The kinds of values that are allowed in one place: any of those that are set here.
struct ValueFacts {
  std::string meaning, example;  ///< describe a section or an entry of a table: ConfigNode::describe
  std::vector<std::string> words;
  std::optional<IntegerRange> integer;
  std::optional<NumberRange> number;
  std::optional<DurationRange> duration;
  std::optional<std::uint64_t> byte_size;  ///< the least, in bytes
  bool boolean = false;
  bool text = false;        ///< any text; words and names of tables are among it where `only_words` is false
  bool only_words = false;  ///< text is one of the words
  std::shared_ptr<ListFacts> list;
  std::shared_ptr<MapFacts> map;
  std::vector<std::string> tables;  ///< a name with its options, of one of these tables
  /// Or another name with options, that the configuration defines itself.
  std::optional<OtherNames> other_names;

  bool is_known() const {
    return !words.empty() || integer || number || duration || byte_size || boolean || text || list || map ||
           !tables.empty();
  }
};

struct ListFacts {
  ValueFacts items;
  std::size_t least = 0, most = std::numeric_limits<std::size_t>::max();
};

/// When a key belongs to its map: where another key is missing, is given (no values), or has one of the values.
struct KeyCondition {
  std::string key;
  bool missing = false;
  std::vector<std::string> values;
  bool operator==(const KeyCondition&) const = default;
};

struct KeyFacts {
  std::string name, meaning;
  std::vector<std::string> examples;  ///< in YAML's flow style
  bool required = false;
  std::optional<std::string> otherwise;  ///< the default, in YAML's flow style
  std::string otherwise_meaning;         ///< what counts where the key is missing and no value says it
  std::optional<KeyCondition> when;
  /// The purpose of each value of a key whose values have keys of their own beside it (ConfigMap::read_choice).
  std::map<std::string, std::string> choices;
  ValueFacts value;
};

struct MapFacts {
  /// In the order in which they are read. A name may be there several times, under several conditions.
  std::vector<std::unique_ptr<KeyFacts>> keys;
  bool closed = false;              ///< other keys are refused
  std::shared_ptr<ValueFacts> any;  ///< keys are free, and their values are this

  const KeyFacts* find(std::string_view name) const;  ///< the first of this name; null where there is none
};

/// The names of a table ("layer") and their options.
struct TableFacts {
  struct Entry {
    std::string name;
    ValueFacts options;
  };
  std::string what;
  std::vector<std::unique_ptr<Entry>> entries;
  bool expressions = false;  ///< every value of the options may be an expression, $(…)

  const Entry* find(std::string_view name) const;
};

struct ConfigSchema {
  ValueFacts root;
  std::vector<std::unique_ptr<TableFacts>> tables;
  /// Objections of readers to the examples: a program's own entry without examples may be described in part.
  std::vector<std::string> faults;

  const TableFacts* table(std::string_view what) const;
};

/// Describes all keys that `read` reads from the top of a configuration.
ConfigSchema describe_config(const std::function<void(const ConfigDocument& document)>& read);

/// JSON Schema, draft 2020-12.
nlohmann::ordered_json json_schema(const ConfigSchema& schema, std::string_view title);

/// Sections of a Markdown page: the top's keys first, then a section for each map and each table.
std::string markdown_reference(const ConfigSchema& schema);

/// "an integer from 1 to 4" in few words for tables: "1 to 4", "≥ 1", "[0, 1)"; empty where nothing is excluded.
std::string short_range(const ValueFacts& value);

}  // namespace bantam

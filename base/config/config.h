// Checked YAML: typed values (durations of training, "500updates" or "1h", among them) with ranges, errors that show
// file, line, column and the nearest valid key, and dotted overrides.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

/// How long something lasts, or how often it happens: in updates, in epochs or in seconds of the clock.
struct Duration {
  enum class Unit : std::uint8_t { updates, epochs, seconds };
  Unit unit = Unit::updates;
  std::int64_t count = 0;

  static constexpr Duration updates(std::int64_t count) { return {Unit::updates, count}; }
  static constexpr Duration epochs(std::int64_t count) { return {Unit::epochs, count}; }
  static constexpr Duration seconds(std::int64_t count) { return {Unit::seconds, count}; }
  bool operator==(const Duration&) const = default;
};

/// "500", "500updates", "500 updates" or "1update"; "2epochs", "1epoch"; "30s", "10min", "1h". Whole numbers from 0 on,
/// in seconds up to 1e12. Throws ConfigError naming the text and what is expected.
Duration parse_duration(std::string_view text);

/// The shortest spelling that parse_duration reads as the same: "500updates", "1epoch", "90s", "2h".
std::string to_string(Duration duration);

/// Lists the spellings that parse_duration reads: "500 or 500updates, 2epochs, 30s, 10min or 1h".
std::string duration_spellings(bool updates = true, bool epochs = true, bool seconds = true);

struct BANTAM_INTERNAL ConfigDescription;
class ConfigMap;
class ConfigNode;
class BANTAM_INTERNAL ConfigTemplate;

/// Allowed integers, both ends included: `{.min = 1}`.
struct IntegerRange {
  std::int64_t min = std::numeric_limits<std::int64_t>::min();
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};

/// Allowed numbers. An end is included unless it is marked open: `{.min = 0, .max = 1, .max_open = true}` is [0, 1).
struct NumberRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;
  bool max_open = false;
};

/// Allowed durations: at least `min` of their unit, in the units that are not switched off.
struct DurationRange {
  std::int64_t min = 0;
  bool updates = true, epochs = true, seconds = true;
};

/// The name of a key in other programs: {"lr", "learning_rate"}, {"gpu", "device", "cuda:0"}. Both views outlive the
/// document.
struct ConfigSynonym {
  std::string_view word;     ///< in small letters, with '_'
  std::string_view key;      ///< the end of the key's path: "learning_rate", "batch.size"
  std::string_view example;  ///< a value to show with it; empty: none
};

/// A key where it is read: its name, and what a reader's users are told of it (`bantam schema`, docs/CONFIG.md). A
/// plain name is enough to read; a description then lists the key without its meaning. All views outlive the call.
///
///     map.integer({"size", "Height and width of the window, in pixels.", "3"}, {.min = 1}, 2)
struct ConfigKey {
  ConfigKey(const char* key) : name(key) {}         // NOLINT(google-explicit-constructor)
  ConfigKey(const std::string& key) : name(key) {}  // NOLINT(google-explicit-constructor)
  ConfigKey(std::string_view key, std::string_view what = {}, std::string_view examples = {},
            std::string_view default_meaning = {})  // NOLINT(google-explicit-constructor)
      : name(key), meaning(what), example(examples), otherwise(default_meaning) {}

  std::string_view name;
  std::string_view meaning;  ///< one or two sentences: what it does, its unit, what 0 or auto means
  /// A value in YAML's flow style, or several: "same | 1 | [1, 2]". A description reads each of them as if a file had
  /// it, so that they are valid, and together show every kind of value that the reader accepts.
  std::string_view example;
  std::string_view otherwise;  ///< what counts where the key is missing, where no fixed value says it: "all samples"
};

/// A YAML text with its overrides applied, and a record of all that was read from it. Copies share one document.
/// Reading records defaults in the document, so a document belongs to one thread at a time.
///
/// Every error is a ConfigError of this form (an override's begins with `command line: error: ` and shows the
/// override):
///
///     configs/x.yaml:12:7: error: unknown key 'learning_rat' in train.optimizer.adam; did you mean 'learning_rate'?
///        learning_rat: 0.1
///        ^~~~~~~~~~~~
///
/// The text is one YAML document of at most 4,000,000 bytes, whose top is a map. Anchors, aliases, merge keys, tags and
/// duplicate keys are refused.
class ConfigDocument {
 public:
  /// Reads a file or a pipe (`read_file`). Throws ConfigError when it cannot be read or parsed, or an override does not
  /// fit.
  ///
  /// An override is "dotted.path=value", the value in YAML's flow style ("3", "[1, 2]", "{size: 4}"). Each step of the
  /// path is a key of a map, the index of a list's entry, or the name of a list's only entry of that name, so that
  /// `data.pipeline.batch.size=64` reaches `pipeline: [{batch: {size: 16}}]`. Missing maps are made. Later overrides
  /// win.
  static ConfigDocument load(const std::filesystem::path& path, std::span<const std::string> overrides = {});
  /// The text that `load` parses, for callers that parse it several times: a pipe can be read only once. Throws
  /// ConfigError.
  static std::string read_text(const std::filesystem::path& path);
  /// The same from text; `name` stands for the file's name in messages.
  static ConfigDocument parse(std::string_view text, std::string name, std::span<const std::string> overrides = {});

  /// The file's name, as given.
  const std::string& name() const;
  ConfigNode root() const;
  /// The top map, ready to read: `root().as_map()`.
  ConfigMap map() const;
  /// Words that people write for keys: advice on unknown keys then names the key. See ConfigSynonym.
  void set_synonyms(std::span<const ConfigSynonym> synonyms);
  /// A complete YAML text that loads again to the same run: the file's keys in their order with overrides applied, then
  /// the defaults in the order in which they were read.
  std::string resolved_yaml() const;
  /// Every value by its path, in the order of resolved_yaml(): {"train.optimizer.adam.learning_rate", "0.001"}; an
  /// empty map or list is "{}" or "[]". Two documents that mean the same have the same values, however they are
  /// spelled.
  std::vector<std::pair<std::string, std::string>> values() const;
  /// A copy in which `path` (as in overrides) has another value, in YAML's flow style: for a setting that the
  /// configuration does not name and the program chooses. Its resolved_yaml() is that of the same text read with the
  /// override "path=value"; this document stays as it is. Throws ConfigError as an override does.
  ConfigDocument with_value(std::string_view path, std::string_view value) const;

  struct Impl;  ///< hidden: the tree of nodes and its sources

 private:
  friend struct ConfigDescription;
  explicit ConfigDocument(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

enum class ConfigKind : std::uint8_t { null, scalar, list, map };

/// One value of a document: a cheap handle that keeps the document alive.
class ConfigNode {
 public:
  struct Data;   ///< hidden
  struct Named;  ///< see `as_named`

  ConfigKind kind() const;
  bool is_null() const { return kind() == ConfigKind::null; }
  bool is_scalar() const { return kind() == ConfigKind::scalar; }
  bool is_list() const { return kind() == ConfigKind::list; }
  bool is_map() const { return kind() == ConfigKind::map; }
  /// True for the plain or quoted scalar `text`, e.g. `auto`.
  bool is_text(std::string_view text) const;

  /// "train.optimizer.adam.learning_rate"; a list's entries are numbered: "model.layers.2.dense". Empty at the top.
  std::string path() const;
  /// "configs/x.yaml:12:7" (line and column from 1), or "command line".
  std::string position() const;

  /// The value in its type; throws ConfigError with the expected and the actual value. An integer may be written 16.0;
  /// booleans are true and false only; nan and infinities are refused; a number is not text (but "16" in quotes is).
  std::int64_t as_integer(IntegerRange range = {}) const;
  std::optional<std::int64_t> as_integer_or_auto(IntegerRange range = {}) const;  ///< nullopt for `auto`
  double as_number(NumberRange range = {}) const;
  bool as_boolean() const;
  std::string as_text() const;
  std::string as_choice(std::span<const std::string_view> allowed) const;
  std::string as_choice(std::initializer_list<std::string_view> allowed) const;
  /// "4GiB", "512MiB", 4096. At least `min` bytes: 1 where a 0 would silently mean "no limit".
  std::uint64_t as_byte_size(std::uint64_t min = 0) const;
  /// 500, "500updates", "2epochs", "10min"; see parse_duration.
  Duration as_duration(DurationRange range = {}) const;
  std::vector<std::int64_t> as_integers(IntegerRange range = {}) const;
  std::vector<std::string> as_texts() const;
  /// One integer for both or a list of two: `3` is {3, 3}.
  std::array<std::int64_t, 2> as_pair(IntegerRange range = {}) const;

  /// A list's entries; throws ConfigError unless it is a list.
  std::vector<ConfigNode> items() const;
  /// A map's keys and values in their order, for maps whose keys are free (`limits: {"cuda:0": 4GiB}`); throws unless
  /// it is a map.
  std::vector<std::pair<std::string, ConfigNode>> entries() const;
  /// The checked reader of a map; nothing (`shuffle:`) counts as an empty map. Throws ConfigError unless it is a map.
  ConfigMap as_map() const;
  /// A name with options, as lists of layers and stages are written: `batch: {size: 16}`, `cache: ram`, `relu: {}`, or
  /// plain `relu` (its options are then an empty map). Throws ConfigError unless it is a map of exactly one key or
  /// text.
  Named as_named() const;

  /// True while a description of the keys is made (`bantam schema`): the values are examples.
  bool is_described() const;
  /// In a description: what a section or an entry of a table is for, with an example of a whole one in YAML. Else
  /// nothing happens.
  void describe(std::string_view meaning, std::string_view example = {}) const;
  /// In a description: this value (each item, of a list) is the name of one of `names` with its options, which `read`
  /// reads; `table` is what the names are called in common. Else nothing happens.
  void describe_entries(std::string_view table, std::span<const std::string> names,
                        const std::function<void(const std::string& name, const ConfigNode& options)>& read) const;

  /// Throws ConfigError with `message` at this value.
  [[noreturn]] void fail(std::string_view message) const;
  /// The same at this value's key, where it has one: for keys and names that are wrong, not their values.
  [[noreturn]] void fail_at_key(std::string_view message) const;
  /// Fails at the key with "unknown <what> 'name'" and the nearest of `valid` ("did you mean …"), or all of them when
  /// none is near.
  [[noreturn]] void fail_unknown(std::string_view what, std::string_view name,
                                 std::span<const std::string> valid) const;

 private:
  friend class ConfigDocument;
  friend class ConfigMap;
  friend struct ConfigDescription;
  friend class ConfigTemplate;
  ConfigNode(std::shared_ptr<ConfigDocument::Impl> document, Data* data)
      : document_(std::move(document)), data_(data) {}

  std::shared_ptr<ConfigDocument::Impl> document_;
  Data* data_;
};

/// An entry of a list that is a name, or a name with options.
struct ConfigNode::Named {
  std::string name;
  ConfigNode options;  ///< `fail_at_key` and `fail_unknown` on it point at the name
};

/// Reads one map key by key and remembers which keys were asked for; `finish()` then rejects all others. The overloads
/// with a default are for keys that may be missing: the default is recorded for `resolved_yaml()`. Those without throw
/// ConfigError at the map when the key is missing. See ConfigNode's `as_…` for the types.
///
///     ConfigMap options = node.as_map();
///     const auto size = options.integer("size", {.min = 1});
///     const bool drop_last = options.boolean("drop_last", false);
///     options.finish();
class ConfigMap {
 public:
  std::int64_t integer(ConfigKey key, IntegerRange range);
  std::int64_t integer(ConfigKey key, IntegerRange range, std::int64_t otherwise);
  /// An integer, or `auto` (nothing is returned), which is also the default.
  std::optional<std::int64_t> integer_or_auto(ConfigKey key, IntegerRange range);
  double number(ConfigKey key, NumberRange range);
  double number(ConfigKey key, NumberRange range, double otherwise);
  bool boolean(ConfigKey key);
  bool boolean(ConfigKey key, bool otherwise);
  std::string text(ConfigKey key);
  std::string text(ConfigKey key, std::string_view otherwise);
  std::string choice(ConfigKey key, std::initializer_list<std::string_view> allowed);
  std::string choice(ConfigKey key, std::initializer_list<std::string_view> allowed, std::string_view otherwise);
  std::uint64_t byte_size(ConfigKey key);
  std::uint64_t byte_size(ConfigKey key, std::uint64_t otherwise);
  Duration duration(ConfigKey key, DurationRange range);
  Duration duration(ConfigKey key, DurationRange range, Duration otherwise);
  std::vector<std::int64_t> integers(ConfigKey key, IntegerRange range);
  std::vector<std::int64_t> integers(ConfigKey key, IntegerRange range, std::vector<std::int64_t> otherwise);
  std::array<std::int64_t, 2> pair(ConfigKey key, IntegerRange range);
  std::array<std::int64_t, 2> pair(ConfigKey key, IntegerRange range, std::array<std::int64_t, 2> otherwise);
  std::vector<std::string> texts(ConfigKey key);
  std::vector<std::string> texts(ConfigKey key, std::vector<std::string> otherwise);

  /// A value of any kind: required; or `otherwise`, a plain value or a list of them, recorded where the key is missing;
  /// or nothing when the key is missing (no default is recorded then).
  ConfigNode node(ConfigKey key);
  ConfigNode node(ConfigKey key, std::string_view otherwise);
  ConfigNode node(ConfigKey key, const std::vector<std::string>& otherwise);
  std::optional<ConfigNode> find(ConfigKey key);
  /// A sub-map: required, or an empty one when missing, whose defaults are recorded.
  ConfigMap map(ConfigKey key);
  ConfigMap map_or_empty(ConfigKey key);
  /// A list's entries: required; or those of `otherwise`, which are names, recorded where the key is missing.
  std::vector<ConfigNode> list(ConfigKey key);
  std::vector<ConfigNode> list(ConfigKey key, const std::vector<std::string>& otherwise);

  /// True when the map has the key. A key that is missing is then known to the advice on unknown keys; one that is
  /// there still has to be read. In a description, a key with a meaning is there and missing in turn, and keys asked
  /// for later belong to one of the two.
  bool has(ConfigKey key);
  /// Reads keys that belong to one value of `key`: `read` is called with `chosen`. In a description it is called with
  /// each of `names`, and last with `chosen`.
  void read_choice(std::string_view key, const std::string& chosen, std::span<const std::string> names,
                   const std::function<void(const std::string& name)>& read);
  /// See ConfigNode::describe.
  void describe(std::string_view meaning, std::string_view example = {}) const { self_.describe(meaning, example); }
  /// The map itself, e.g. for `fail`.
  const ConfigNode& self() const { return self_; }
  /// Rejects the first key that was not asked for, naming the nearest one that was, of this map or else of any other
  /// that has been read. Call it once all keys are read.
  void finish() const;

 private:
  friend class ConfigNode;
  explicit ConfigMap(ConfigNode self) : self_(std::move(self)) {}
  void ask(std::string_view key);
  std::string advice_on(const std::string& key) const;
  [[noreturn]] void fail_missing(std::string_view key) const;
  /// The value of the key, or `otherwise`, recorded as its default; in a description noted as such.
  ConfigNode node_or(ConfigKey key, std::unique_ptr<ConfigNode::Data> otherwise);
  ConfigNode add_default(std::string_view key, std::unique_ptr<ConfigNode::Data> value);
  template <class Value, class MakeDefault, class Read>
  Value read_or(const ConfigKey& key, const Value& otherwise, const MakeDefault& make, const Read& read);

  ConfigNode self_;
  std::vector<std::string> asked_;
};

}  // namespace bantam
BANTAM_API_END

// Parts of a configuration with expressions, `filters: $(4 * channels)`, copied with the values that these have in one
// use. Internal to base/config and models/yaml.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bantam/base/config/config.h"

namespace bantam {

struct ConfigUse;

/// Names with their values; those of `outer`, which outlives it, where they are not set here.
class ConfigScope {
 public:
  explicit ConfigScope(const ConfigScope* outer = nullptr) : outer_(outer) {}

  void set(const std::string& name, std::int64_t value) { values_.insert_or_assign(name, value); }
  /// A value without expressions.
  void set(const std::string& name, ConfigNode value) { values_.insert_or_assign(name, std::move(value)); }
  /// The name is known here but has no value: `why` is the message where an expression needs it.
  void set_missing(const std::string& name, std::string why) { values_.insert_or_assign(name, std::move(why)); }

 private:
  friend class ConfigTemplate;
  using Value = std::variant<std::int64_t, ConfigNode, std::string>;
  const Value* find(std::string_view name) const;

  const ConfigScope* outer_;
  std::map<std::string, Value, std::less<>> values_;
};

/// Expressions are scalars $(…) (expression.h): each is a whole value, never a part of a text or a key.
class ConfigTemplate {
 public:
  /// Whether there is one at or below `node`.
  static bool has_expressions(const ConfigNode& node);

  /// Checks the syntax and the names of all expressions at or below `node`. `used` is called with each name that is one
  /// of `known`. Throws ConfigError at the place within the expression.
  static void check(const ConfigNode& node, std::span<const std::string> known,
                    const std::function<void(const std::string& name)>& used);

  /// A use of `what` ("block 'stem'") at a node's key, for `copy`. Lives as long as the document.
  static const ConfigUse* use(const ConfigNode& at, std::string what);

  /// A copy of `node` and all below it with the values of its expressions, which stand at the expressions' places; a
  /// name alone may stand for a list or map. Messages on the copy name the use, if there is one. Of a list's entry
  /// whose option `when` is false the other options are not copied, but for `name`: they need not have values. Copies
  /// live as long as the document, and a document has at most kMostValues values in them, long texts counted as
  /// several. Throws ConfigError at the expression.
  static ConfigNode copy(const ConfigNode& node, const ConfigScope& scope, const ConfigUse* use = nullptr);

  /// In a description: the list's entries may also have names that the configuration defines itself, under the key
  /// `defined_by` beside the outermost list, which are none of `known`; and values of the tables' options may be
  /// expressions. Else nothing happens.
  static void describe(const ConfigNode& list, std::span<const std::string> tables, std::span<const std::string> known,
                       std::string_view defined_by);

  static constexpr std::size_t kMostValues = std::size_t{1} << 19;

 private:
  using Data = ConfigNode::Data;
  ConfigTemplate(ConfigDocument::Impl& document, const ConfigScope& scope, const ConfigUse* use)
      : document_(document), scope_(scope), use_(use) {}

  std::unique_ptr<Data> copy_of(const Data& node);
  std::unique_ptr<Data> copy_of_entry(const Data& entry);
  std::unique_ptr<Data> copy_of_options(const Data& options, std::unique_ptr<Data> when);
  std::unique_ptr<Data> value_of(const Data& node);
  std::unique_ptr<Data> bare_copy(const Data& node);
  void set_scalar(Data& copy, std::string text, bool quoted);
  void count(const Data& copy, std::size_t values);

  ConfigDocument::Impl& document_;
  const ConfigScope& scope_;
  const ConfigUse* use_;
};

}  // namespace bantam

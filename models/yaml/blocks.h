// Internal: the named blocks of a model's `blocks:`, their parameters, and the values that a use has for these.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/base/config/config_template.h"
#include "bantam/base/shape.h"

namespace bantam::models {

/// Words that every layer and block of a list may have, so that no parameter may be called so.
inline constexpr std::string_view kEntryWords[] = {"name", "inputs", "repeat", "when"};

/// Whether `text` may name a layer or a block: not empty, and bounded, because nested and repeated blocks join names.
bool is_entry_name(std::string_view text);
inline constexpr std::string_view kEntryNameLetters = "at most 100 letters, digits, '_', '-' and '.'";

/// Names with their defaults, in the order of the file; null: a use has to say the value.
using BlockParameters = std::vector<std::pair<std::string, ConfigNode>>;

struct BlockDefinition {
  std::string name;
  BlockParameters parameters;
  ConfigNode layers;
};

/// The `parameters` and `blocks` that a model defines beside its list of layers.
class BlockTable {
 public:
  BlockTable() = default;
  /// `reserved`: names of layers, which no block may have. Throws ConfigError: also for an expression anywhere in
  /// `layers` or a block that does not parse or says an unknown name, and for a parameter that none says.
  BlockTable(ConfigMap& model, const ConfigNode& layers, const std::vector<std::string>& reserved);

  const BlockDefinition* find(const std::string& name) const;
  std::vector<std::string> names() const;
  /// The values of the names that the model's own layers say, for an input of this shape: its parameters, and
  /// `channels`, `height` and `width`.
  ConfigScope model_scope(const Shape& input) const;

 private:
  BlockParameters parameters_;
  std::vector<BlockDefinition> blocks_;
};

/// The values of the names within a use of a block: its parameters, from the options of the use or else their defaults,
/// and the extents of its input. Throws ConfigError at a parameter that has no value.
ConfigScope scope_of_use(const BlockDefinition& block, ConfigMap& options, const Shape& input, const ConfigScope& model,
                         const ConfigUse* use);

}  // namespace bantam::models

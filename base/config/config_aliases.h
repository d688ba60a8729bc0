// Names by which other programs call a value ("cross_entropy"), replaced by this one's before a configuration is read.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "bantam/base/config/config.h"

namespace bantam {

/// Another name of a value, or of the one key of a map with options.
struct ConfigAlias {
  std::string_view path;  ///< where the value stands: "train.loss"; "train.metrics.*" means all entries of a list
  std::string_view word;  ///< in small letters, without '_', '-' and spaces
  std::string_view name;  ///< what it is called here
};

/// The word by which aliases are found: "16-mixed" is "16mixed", "BCE_Loss" is "bceloss".
std::string alias_word(std::string_view text);

/// Replaces aliases in the document's tree, so that messages, readers and resolved_yaml() have the canonical names;
/// `is_known` says which names are left as they are, for a program may have added one of the same spelling.
void replace_aliases(const ConfigDocument& document, std::span<const ConfigAlias> aliases,
                     const std::function<bool(const ConfigAlias& alias, std::string_view text)>& is_known);

}  // namespace bantam

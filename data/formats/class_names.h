// Internal: names of classes, as a format's key has them, or in place of those.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/config/config.h"

namespace bantam {

/// Describes what is wrong with names of classes in the order of their numbers: there are none, or more than `most`
/// (0: any number), one is empty, or two classes have the same. Empty: nothing is wrong.
std::string fault_of_class_names(std::span<const std::string> names, std::size_t most = 0);

/// "0", "1", … : classes that have no names but their numbers.
std::vector<std::string> numbered_classes(std::int64_t classes);

/// Sorts names as numbers where all are numbers ("2" before "10"), else as bytes.
void sort_class_names(std::vector<std::string>& names);

/// The names in a list. Throws ConfigError at its place where something is wrong with them.
std::vector<std::string> read_class_names(const ConfigNode& node, std::size_t most = 0);

}  // namespace bantam

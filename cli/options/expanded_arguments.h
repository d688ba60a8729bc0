// Paths in the program's arguments, where no shell has expanded them: --out=~/weights, "$HOME/data" of a container's
// command.
#pragma once

#include <string>
#include <vector>

namespace bantam::cli {

/// The arguments, program's name included; those that are paths beginning with `~`, `~user`, `$NAME` or `${NAME}`, or
/// flags with such a value after `=`, are expanded (base/config/config_path.h), unless a file has exactly that name or
/// there is no such user or variable. KEY=VALUE stays: whoever reads the configuration expands its paths.
std::vector<std::string> expanded_arguments(int argc, char** argv);

}  // namespace bantam::cli

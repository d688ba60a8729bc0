// What the program says of its own command line: subcommands and flags that it does not have, with the nearest one, and
// the subcommands `help` and `version`.
#pragma once

#include <span>
#include <string>

#include "bantam/cli/config/options.h"

namespace CLI {
class ParseError;
}

namespace bantam::cli {

/// Throws ConfigError where the words, the program's name left out, begin with none of the subcommands of `app`: with
/// the nearest one, or, of no word at all, with all of them. Goes down into groups such as `bench`.
void check_subcommand(const CLI::App& app, std::span<const std::string> words);

/// Throws what the parser has found as ConfigError in the program's own words: an unknown flag with the nearest one.
[[noreturn]] void fail_usage(const CLI::App& app, const CLI::ParseError& error);

/// Adds `help [VERB …]` and `version`, which prints `version`. Call it once all other subcommands are there.
void add_help(CLI::App& app, Action& action, const std::string& version);

}  // namespace bantam::cli

// Errors of the command line: unknown subcommands and flags, with the nearest one; and the subcommands `help` and
// `version`.
#pragma once

#include <span>
#include <string>

#include "bantam/cli/options/options.h"

namespace CLI {
class ParseError;
}

namespace bantam::cli {

/// Throws ConfigError where the words after the program's name begin with no subcommand of `app`, naming the nearest
/// one, or without a word all of them. Descends into groups such as `bench`.
void check_subcommand(const CLI::App& app, std::span<const std::string> words);

/// Throws the parser's error as a ConfigError in the program's own words: an unknown flag with the nearest one.
[[noreturn]] void fail_usage(const CLI::App& app, const CLI::ParseError& error);

/// Adds `help [VERB …]` and `version`, which prints `version`. Call it once all other subcommands are there.
void add_help(CLI::App& app, Action& action, const std::string& version);

}  // namespace bantam::cli

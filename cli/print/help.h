// Help that fits a screen: `--help` has at most 24 lines and ends with an example; `bantam help VERB` has everything.
#pragma once

#include <memory>
#include <string>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace bantam::cli {

/// Lines of a screen.
constexpr int kHelpLines = 24;

/// The formatter of `--help`: all that `full_help` says where that fits, else a line an argument as far as they fit,
/// the names of the others, and the footer's example, in lines of at most `columns`. Subcommands that are added to an
/// app inherit its formatter.
std::shared_ptr<CLI::FormatterBase> brief_formatter(int columns);

/// Describes a subcommand in full: its purpose, and every argument with all that is said of it.
std::string full_help(const CLI::App& command, const std::string& name);

/// The footer from its last line on that begins with "Example:"; empty where there is none.
std::string example_of(const CLI::App& command);

}  // namespace bantam::cli

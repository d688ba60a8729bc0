// Nearest subcommands and flags, and help by words.
#include "bantam/cli/print/usage.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/help.h"
#include "bantam/cli/print/output.h"

namespace bantam::cli {
namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// "bantam bench step".
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

/// As it is typed after the program's name: "bench step".
std::string typed_name(const CLI::App& group, const std::string& word) {
  const std::string name = full_name(group);
  const std::size_t space = name.find(' ');
  return space == std::string::npos ? word : name.substr(space + 1) + " " + word;
}

[[noreturn]] void fail_no_subcommand(const CLI::App& app) {
  std::string text = fmt::format("A subcommand is required. {} has:", full_name(app));
  for (const CLI::App* command : subcommands(app)) {
    std::string about = command->get_description();
    std::ranges::replace(about, '\n', ' ');
    text += fmt::format("\n  {:<10} {}", command->get_name(), about);
  }
  throw ConfigError(text + fmt::format("\n`{} --help` tells more", full_name(app)));
}

[[noreturn]] void fail_unknown_subcommand(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : subcommands(app)) names.push_back(command->get_name());
  const auto near = nearest(word, names);
  const std::string advice =
      near ? fmt::format("did you mean '{}'?", typed_name(app, *near)) : "there are " + join(names, ", ", " and ");
  throw ConfigError(fmt::format("unknown subcommand '{}'; {}", typed_name(app, shown(word)), advice));
}

const CLI::App* find_subcommand(const CLI::App& app, const std::string& word) {
  const std::vector<const CLI::App*> commands = subcommands(app);
  const auto found = std::ranges::find(commands, word, &CLI::App::get_name);
  return found == commands.end() ? nullptr : *found;
}

/// The subcommand that the words have led to so far.
const CLI::App& chosen(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : chosen(*parsed.front());
}

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

[[noreturn]] void fail_unknown_argument(const CLI::App& command, const std::string& argument) {
  const std::string of = full_name(command);
  if (!argument.starts_with('-'))
    throw ConfigError(fmt::format("unexpected argument '{}'; `{} --help` lists its arguments", shown(argument), of));
  const std::string flag = argument.substr(0, argument.find('='));
  std::string plain = "--" + flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  std::ranges::replace(plain, '_', '-');
  const auto near = nearest(plain, flags_of(command));
  const bool takes_keys = command.get_option_no_throw("OVERRIDES") != nullptr;
  throw ConfigError(fmt::format(
      "unknown flag '{}' of `{}`; {}", shown(flag), of,
      near ? fmt::format("did you mean '{}'?", *near)
           : fmt::format("`{} --help` lists its flags{}", of,
                         takes_keys ? ", and keys of the configuration are given as KEY=VALUE, without dashes" : "")));
}

void print_help(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const CLI::App* found = find_subcommand(*command, word);
    if (found == nullptr && subcommands(*command).empty())
      throw ConfigError(fmt::format("help: `{}` has no subcommands", full_name(*command)));
    if (found == nullptr) fail_unknown_subcommand(*command, word);
    command = found;
  }
  print_out("{}", full_help(*command, full_name(*command)));
}

}  // namespace

void check_subcommand(const CLI::App& app, std::span<const std::string> words) {
  if (subcommands(app).empty()) return;
  if (words.empty()) fail_no_subcommand(app);
  if (words.front().starts_with('-')) return;
  const CLI::App* found = find_subcommand(app, words.front());
  if (found == nullptr) fail_unknown_subcommand(app, words.front());
  check_subcommand(*found, words.subspan(1));
}

void fail_usage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  // A flag that is not known is why something else is missing: its value was taken for another argument.
  const std::vector<std::string> rest = app.remaining(true);
  const auto flag = std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with('-'); });
  if (flag != rest.end()) fail_unknown_argument(command, *flag);
  if (!rest.empty()) fail_unknown_argument(command, rest.front());
  if (!subcommands(command).empty()) fail_no_subcommand(command);
  std::string reason = error.what();
  if (const std::size_t missing = reason.find(": 1 required "); missing != std::string::npos)
    reason = reason.substr(0, missing) + " needs a value";
  while (reason.ends_with('\n') || reason.ends_with('.')) reason.pop_back();
  throw ConfigError(fmt::format("{}\n`{} --help` tells more", reason, full_name(command)));
}

void add_help(CLI::App& app, Action& action, const std::string& version) {
  CLI::App* help = app.add_subcommand("help", "All that a subcommand does, and its arguments");
  help->footer("`bantam VERB --help` says as much as fits a screen.\nExample: bantam help bench step");
  const auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("VERB", *words, "A subcommand, e.g. train or bench step");
  help->callback([&app, &action, words] {
    action = [&app, words] {
      print_help(app, *words);
      return 0;
    };
  });
  CLI::App* said = app.add_subcommand("version", "The program's version");
  said->footer("Example: bantam version");
  said->callback([&action, version] {
    action = [version] {
      print_out("{}\n", version);
      return 0;
    };
  });
}

}  // namespace bantam::cli

// `bantam completion SHELL`: a script that completes verbs, flags, and the values of flags that have a few.
#include "bantam/cli/completion/completion.h"

#include <array>
#include <cctype>
#include <cstdio>
#include <memory>
#include <string_view>

#include <CLI/CLI.hpp>

#include "bantam/base/error.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Prints a script that completes the program's verbs, flags and values of flags in\n"
    "bash, zsh or fish. `cmake --install` (`make install`) installs all three where the shells\n"
    "look for them; for this user alone:\n"
    "  bash  bantam completion bash > ~/.local/share/bash-completion/completions/bantam\n"
    "  zsh   bantam completion zsh > ~/.zsh/_bantam    (a folder of $fpath)\n"
    "  fish  bantam completion fish > ~/.config/fish/completions/bantam.fish\n"
    "Example: source <(bantam completion bash)";

/// Words that a flag of that name may take, in any verb.
struct FlagValues {
  std::string_view flag;
  std::vector<std::string_view> words;
};

const std::array<FlagValues, 7>& all_values() {
  static const std::array<FlagValues, 7> all = {{
      {"device", {"auto", "cpu", "cuda:0"}},
      {"precision", {"auto", "float32", "mixed_float16", "mixed_bfloat16", "float16"}},
      {"progress", {"auto", "bar", "plain", "json", "none"}},
      {"mode", {"eager", "planned", "captured"}},
      {"recompute", {"none", "inner", "cheap", "all", "auto"}},
      {"split", {"training", "validation", "test", "all"}},
      {"input", {"nchw", "nhwc"}},
  }};
  return all;
}

/// Those of them that this verb's flag accepts: the ones that its description names ("cuda:0" by "cuda:N").
std::vector<std::string> values_of(const CLI::Option& option, const std::string& flag) {
  std::vector<std::string> values;
  const std::string about = " " + option.get_description();
  const auto is_letter = [&](std::size_t at) {
    return at < about.size() && (std::isalnum(static_cast<unsigned char>(about[at])) != 0 || about[at] == '_');
  };
  for (const FlagValues& known : all_values()) {
    if (known.flag != flag) continue;
    for (const std::string_view word : known.words) {
      const std::string_view stem = word.substr(0, word.find(':'));
      for (std::size_t at = about.find(stem); at != std::string::npos; at = about.find(stem, at + 1)) {
        if (is_letter(at - 1) || is_letter(at + stem.size())) continue;
        values.emplace_back(word);
        break;
      }
    }
  }
  return values;
}

void add_flags(const CLI::Option& option, VerbWords& verb) {
  const bool has_value = option.get_items_expected_max() > 0;
  for (const std::string& name : option.get_lnames())
    verb.flags.push_back({"--" + name, option.get_description(), has_value, values_of(option, name)});
  for (const std::string& name : option.get_snames())
    verb.flags.push_back({"-" + name, option.get_description(), has_value});
}

void add_words(const CLI::App& app, const std::string& path, std::vector<VerbWords>& all) {
  VerbWords verb{.path = path, .verbs = {}, .flags = {}};
  const std::vector<const CLI::App*> inner = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* command : inner) verb.verbs.push_back({command->get_name(), command->get_description()});
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional()) add_flags(*option, verb);
  all.push_back(std::move(verb));
  for (const CLI::App* command : inner)
    add_words(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), all);
}

int print_completion(const CLI::App& app, const std::string& shell) {
  const std::vector<VerbWords> words = words_of(app);
  write_file_text(shell == "bash"  ? bash_completion(words)
                  : shell == "zsh" ? zsh_completion(words)
                                   : fish_completion(words));
  return 0;
}

}  // namespace

std::vector<VerbWords> words_of(const CLI::App& app) {
  std::vector<VerbWords> all;
  add_words(app, "", all);
  return all;
}

void add_completion(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("completion", "Completion of verbs, flags and values in a shell");
  command->footer(kAbout);
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, &action, shell] { action = [&app, shell] { return print_completion(app, *shell); }; });
}

}  // namespace bantam::cli

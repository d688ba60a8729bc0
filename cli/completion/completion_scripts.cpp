// The scripts: which verb the words so far have led to, then values of the flag before, its flags, its verbs, or files.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/text.h"
#include "bantam/cli/completion/completion.h"

namespace bantam::cli {
namespace {

/// In single quotes, for all three shells; `quote` is how a quote is written in them.
std::string quoted(const std::string& text, const char* quote) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? quote : c == '\n' ? std::string(" ") : std::string(1, c);
  return out + "'";
}

constexpr const char* kQuote = "'\\''";

std::string words(const std::vector<VerbWords::Word>& list) {
  std::vector<std::string> names;
  for (const VerbWords::Word& word : list) names.push_back(word.word);
  return join(names, " ", " ");
}

std::string groups(const std::vector<VerbWords>& verbs, const char* format) {
  std::string text;
  for (const VerbWords& verb : verbs)
    for (const VerbWords::Word& inner : verb.verbs)
      text += fmt::format(fmt::runtime(format), verb.path.empty() ? inner.word : verb.path + " " + inner.word);
  return text;
}

/// A line for each flag with values, by its verb and itself: {0} is both, {1} the values.
std::string value_cases(const std::vector<VerbWords>& verbs, const char* format) {
  std::string text;
  for (const VerbWords& verb : verbs)
    for (const VerbWords::Word& flag : verb.flags)
      if (!flag.values.empty())
        text += fmt::format(fmt::runtime(format), verb.path + " " + flag.word, join(flag.values, " ", " "));
  return text;
}

/// "--a:what it does" a line, for zsh's _describe.
std::string described(const std::vector<VerbWords::Word>& list) {
  std::string text;
  for (const VerbWords::Word& word : list) {
    std::string about = word.about;
    std::ranges::replace(about, ':', ' ');
    text += "\n        " + quoted(word.word + ":" + about, kQuote);
  }
  return text;
}

}  // namespace

std::string bash_completion(const std::vector<VerbWords>& verbs) {
  std::string text =
      "# bash completion of bantam, written by `bantam completion bash`.\n"
      "_bantam() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path= word flags= verbs= values=\n"
      "  if [[ $current == = ]]; then current=; fi\n"  // of --flag=value bash makes three words
      "  if [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case \"${path:+$path }$word\" in\n";
  text += groups(verbs, "      '{0}') path='{0}' ;;\n");
  text += "    esac\n  done\n  case \"$path\" in\n";
  for (const VerbWords& verb : verbs)
    text += fmt::format("    '{}') flags={} verbs={} ;;\n", verb.path, quoted(words(verb.flags), kQuote),
                        quoted(words(verb.verbs), kQuote));
  text += "  esac\n  case \"$path $before\" in\n" + value_cases(verbs, "    '{0}') values='{1}' ;;\n");
  return text +
         "  esac\n"
         "  COMPREPLY=()\n"
         "  if [[ -n $values ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$values\" -- \"$current\"))\n"
         "  elif [[ $current == -* ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$flags\" -- \"$current\"))\n"
         "  elif [[ -n $verbs ]]; then\n"
         "    COMPREPLY=($(compgen -W \"$verbs\" -- \"$current\"))\n"
         "  fi\n"
         "}\n"
         "complete -o bashdefault -o default -F _bantam bantam\n";
}

std::string zsh_completion(const std::vector<VerbWords>& verbs) {
  std::string text =
      "#compdef bantam\n"
      "# zsh completion of bantam, written by `bantam completion zsh`.\n"
      "_bantam() {\n"
      "  local route= word\n"
      "  local -a flags verbs values\n"
      "  for word in ${words[2,CURRENT-1]}; do\n"
      "    case \"${route:+$route }$word\" in\n";
  text += groups(verbs, "      ('{0}') route='{0}' ;;\n");
  text += "    esac\n  done\n  case \"$route\" in\n";
  for (const VerbWords& verb : verbs)
    text += fmt::format("    ('{}')\n      flags=({})\n      verbs=({})\n      ;;\n", verb.path, described(verb.flags),
                        described(verb.verbs));
  text += "  esac\n  case \"$route ${words[CURRENT-1]}\" in\n" + value_cases(verbs, "    ('{0}') values=({1}) ;;\n");
  return text +
         "  esac\n"
         "  if (( $#values )); then\n"
         "    compadd -a values\n"
         "  elif [[ $PREFIX == -* ]]; then\n"
         "    _describe -o flag flags\n"
         "  elif (( $#verbs )); then\n"
         "    _describe verb verbs\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _bantam \"$@\"; else compdef _bantam bantam; fi\n";
}

std::string fish_completion(const std::vector<VerbWords>& verbs) {
  std::string text =
      "# fish completion of bantam, written by `bantam completion fish`.\n"
      "function __bantam_route\n"
      "  set -l route ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch (string trim -- \"$route $word\")\n";
  text += groups(verbs, "      case '{0}'\n        set route '{0}'\n");
  text +=
      "    end\n  end\n  echo $route\nend\n"
      "function __bantam_at\n  set -l route (__bantam_route)\n  test \"$route\" = \"$argv\"\nend\n";
  for (const VerbWords& verb : verbs) {
    const std::string at = fmt::format("complete -c bantam -n {}", quoted("__bantam_at " + verb.path, "\\'"));
    for (const VerbWords::Word& inner : verb.verbs)
      text += fmt::format("{} -f -a {} -d {}\n", at, inner.word, quoted(inner.about, "\\'"));
    for (const VerbWords::Word& flag : verb.flags) {
      const bool is_long = flag.word.starts_with("--");
      const std::string value = !flag.values.empty() ? " -x -a '" + join(flag.values, " ", " ") + "'"
                                : flag.has_value     ? " -r"
                                                     : "";
      text += fmt::format("{} -{} {}{} -d {}\n", at, is_long ? "l" : "s", flag.word.substr(is_long ? 2 : 1), value,
                          quoted(flag.about, "\\'"));
    }
  }
  return text;
}

}  // namespace bantam::cli

// Completion of verbs, flags and flags' values in shells, as scripts written from the program's own.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace bantam::cli {

/// A verb, or a group of verbs such as `bench`, and what may follow it.
struct VerbWords {
  struct Word {
    std::string word, about;
    bool has_value = false;                ///< the word is a flag that has a value
    std::vector<std::string> values = {};  ///< of a flag whose value is one of a few words
  };
  std::string path;  ///< "bench step"; empty: the program itself
  std::vector<Word> verbs, flags;
};

/// The program and every verb of it, each group before its own.
std::vector<VerbWords> words_of(const CLI::App& app);

/// Scripts to be sourced by, or installed for, the shell.
std::string bash_completion(const std::vector<VerbWords>& verbs);
std::string zsh_completion(const std::vector<VerbWords>& verbs);
std::string fish_completion(const std::vector<VerbWords>& verbs);

}  // namespace bantam::cli

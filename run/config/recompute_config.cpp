// `recompute`: its words and names, as a configuration and a flag have them.
#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/model/lower.h"
#include "bantam/run/config/sections.h"

namespace bantam::run {
namespace {

/// A list's meaning: `inner`, `cheap` and `whole` in it are no names. Throws ConfigError for words that would do
/// nothing.
RecomputeOptions named_recompute(std::vector<std::string> names) {
  RecomputeOptions options;
  const bool inner = std::erase(names, "inner") > 0, cheap = std::erase(names, "cheap") > 0;
  if (inner && cheap)
    throw ConfigError("recompute: inner and cheap exclude each other: cheap is all of inner and more");
  if (inner) options.derive = Derive::inner;
  if (cheap) options.derive = Derive::cheap;
  options.whole = std::erase(names, "whole") > 0;
  if (options.whole && options.derive == Derive::none)
    throw ConfigError("recompute: whole does nothing alone: it stands beside inner or cheap");
  if (!names.empty()) options.kind = RecomputeOptions::Kind::named;
  options.names = std::move(names);
  return options;
}

/// Reads the entries of a list; an error stands at its entry.
std::vector<std::string> read_recompute_list(const ConfigNode& node, const Graph& graph) {
  const std::vector<ConfigNode> items = node.items();
  const std::vector<std::string> names = node.as_texts();
  if (names.empty()) node.fail("recompute: an empty list; say none, inner, cheap, all or name layers and blocks");
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      items[i].fail(fmt::format("recompute: '{}' is named twice", names[i]));
    if (names[i] == "inner" || names[i] == "cheap" || names[i] == "whole") continue;
    try {
      (void)lower(graph, {.kind = RecomputeOptions::Kind::named, .names = {names[i]}});
    } catch (const ConfigError& error) {
      items[i].fail(error.what());
    }
  }
  return names;
}

}  // namespace

RecomputeOptions read_recompute(ConfigMap& root, const Graph& graph) {
  const ConfigNode node = root.node(
      {"recompute",
       "What backward computes again instead of keeping it from forward: less memory for more time, with the same "
       "bits. none: nothing; inner: normalised, activated and dropped-out tensors; cheap: sums, too; all: every block, "
       "about a second forward; a list: the layers, blocks and segments (first..last) named, with inner or cheap, and "
       "whole, as words of it. auto, or where the key is missing: what a budget or limit asks for. See RECOMPUTE.md.",
       "all | auto | [cheap, flatten]"},
      "none");
  if (!node.is_list()) {
    if (node.is_text("auto")) return {};
    if (node.is_text("none") || node.is_text("inner") || node.is_text("cheap") || node.is_text("all"))
      return parse_recompute(node.as_choice({"none", "inner", "cheap", "all", "auto"}));
    node.fail("recompute: expected none, inner, cheap, all, auto or a list of layers' and blocks' names");
  }
  std::vector<std::string> names = read_recompute_list(node, graph);
  try {
    const RecomputeOptions options = named_recompute(std::move(names));
    (void)lower(graph, options);  // of names that are right each by itself
    return options;
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
}

RecomputeOptions parse_recompute(const std::string& text) {
  if (text == "none") return {};
  if (text == "all") return {.kind = RecomputeOptions::Kind::all, .derive = Derive::cheap};
  std::vector<std::string> names;
  std::istringstream parts(text);
  for (std::string name; std::getline(parts, name, '+');) names.push_back(name);
  return named_recompute(std::move(names));
}

std::vector<std::string> recompute_words(const RecomputeOptions& recompute) {
  std::vector<std::string> words;
  if (recompute.derive == Derive::inner) words.emplace_back("inner");
  if (recompute.derive == Derive::cheap) words.emplace_back("cheap");
  if (recompute.whole) words.emplace_back("whole");
  return words;
}

std::string to_string(const RecomputeOptions& recompute) {
  if (recompute.kind == RecomputeOptions::Kind::all) return "all";
  std::vector<std::string> parts = recompute_words(recompute);
  if (recompute.kind == RecomputeOptions::Kind::named)
    parts.insert(parts.end(), recompute.names.begin(), recompute.names.end());
  return parts.empty() ? "none" : join(parts, "+", "+");
}

}  // namespace bantam::run

// A walk to each alias's path, and new names in the tree.
#include "bantam/base/config/config_aliases.h"

#include <cctype>
#include <string>

#include "bantam/base/config/config_recording.h"
#include "bantam/base/config/config_tree.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

/// Calls `visit` with every node at the dotted path below `node`.
void at_path(Data& node, std::string_view path, const std::function<void(Data&)>& visit) {
  if (path.empty()) return visit(node);
  const std::size_t dot = path.find('.');
  const std::string_view step = path.substr(0, dot), rest = dot == path.npos ? "" : path.substr(dot + 1);
  if (step == "*") {
    if (node.kind == ConfigKind::list)
      for (const auto& child : node.children) at_path(*child, rest, visit);
  } else if (node.kind == ConfigKind::map) {
    if (Data* child = find_child(node, step)) at_path(*child, rest, visit);
  }
}

void rename_key(Data& map, Data& child, std::string_view name) {
  map.by_key.erase(child.key);
  child.key = name;
  map.by_key.emplace(child.key, &child);
}

}  // namespace

std::string alias_word(std::string_view text) {
  std::string word;
  for (const char c : text)
    if (c != '_' && c != '-' && c != ' ') word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

void replace_aliases(const ConfigDocument& document, std::span<const ConfigAlias> aliases,
                     const std::function<bool(const ConfigAlias& alias, std::string_view text)>& is_known) {
  Data& root = *ConfigDescription::of(document.root()).root;
  for (const ConfigAlias& alias : aliases)
    at_path(root, alias.path, [&](Data& node) {
      if (node.kind == ConfigKind::scalar) {
        if (alias_word(node.scalar) != alias.word || is_known(alias, node.scalar)) return;
        node.scalar = alias.name;
        node.quoted = false;
      } else if (node.kind == ConfigKind::map && node.children.size() == 1) {
        Data& child = *node.children.front();
        if (alias_word(child.key) == alias.word && !is_known(alias, child.key)) rename_key(node, child, alias.name);
      }
    });
}

}  // namespace bantam

// Overrides: "dotted.path=value" found in, or added to, the tree.
#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/config/config_tree.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

/// One step of the path and where it stands in the override.
struct Step {
  std::string name;
  ConfigMark mark;
};

std::vector<Step> split_path(const ConfigSource& source, std::string_view path) {
  std::vector<Step> steps;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const ConfigMark mark{
        .source = &source, .column = static_cast<int>(begin), .length = std::max(1, static_cast<int>(end - begin))};
    if (end == begin) fail_at(mark, "a step of the path is empty; write key=value or outer.inner=value");
    steps.push_back({std::string(path.substr(begin, end - begin)), mark});
    if (end == path.size()) return steps;
    begin = end + 1;
  }
}

[[noreturn]] void fail_no_entry(const Data& list, const Step& step) {
  std::vector<std::string> names;
  for (const auto& child : list.children)
    if (std::string name = entry_name(*child); !name.empty()) names.push_back(std::move(name));
  std::string advice = names.empty() ? "it is addressed by index" : "it has " + join(names, ", ", " and ");
  if (const auto near = nearest(step.name, names)) advice = fmt::format("did you mean '{}'?", *near);
  fail_at(step.mark, fmt::format("no entry '{}' in the list {}; {}", shown(step.name), path_of(list), advice));
}

Data& step_into_list(Data& list, const Step& step) {
  std::size_t index = 0;
  const char* const end = step.name.data() + step.name.size();
  if (const auto [stop, error] = std::from_chars(step.name.data(), end, index); error == std::errc() && stop == end) {
    if (index < list.children.size()) return *list.children[index];
    fail_at(step.mark, fmt::format("the list {} has {} entries, so there is no entry {}", path_of(list),
                                   list.children.size(), step.name));
  }
  Data* found = nullptr;
  for (const auto& child : list.children) {
    if (entry_name(*child) != step.name) continue;
    if (found)
      fail_at(step.mark, fmt::format("the list {} has more than one entry '{}': address it by its index, e.g. {}.{}.{}",
                                     path_of(list), step.name, path_of(list),
                                     path_of(*found).substr(path_of(list).size() + 1), step.name));
    found = child.get();
  }
  if (!found) fail_no_entry(list, step);
  if (found->kind == ConfigKind::scalar) name_to_map(*found);
  return *found->children.front();
}

/// A default that an override sets becomes a key of the text: it moves before the map's other defaults.
void make_given(Data& map, Data& child) {
  if (!std::exchange(child.is_default, false)) return;
  auto& children = map.children;
  const auto first = std::ranges::find_if(children, [&](const auto& c) { return c->is_default || c.get() == &child; });
  const auto place = std::ranges::find_if(children, [&](const auto& c) { return c.get() == &child; });
  std::rotate(first, place, place + 1);
}

/// The value at one step under `node`; made when a map has no such key.
Data& step_into(Data& node, const Step& step) {
  if (node.kind == ConfigKind::list) return step_into_list(node, step);
  if (node.kind == ConfigKind::null || (node.kind == ConfigKind::scalar && node.scalar == step.name)) name_to_map(node);
  if (node.kind != ConfigKind::map)
    fail_at(step.mark, fmt::format("{} is {}, so it has no key '{}'", path_of(node), describe(node), shown(step.name)));
  if (Data* child = find_child(node, step.name)) {
    make_given(node, *child);
    return *child;
  }
  auto child = std::make_unique<Data>();
  child->key = step.name;
  child->has_key = true;
  child->mark = child->key_mark = step.mark;
  return add_child(node, std::move(child));
}

}  // namespace

void apply_override(ConfigDocument::Impl& document, const std::string& text) {
  document.sources.push_back(std::make_shared<ConfigSource>(
      ConfigSource{.name = "command line", .command_line = true, .lines = split_lines(text)}));
  const ConfigSource& source = *document.sources.back();
  const std::size_t equals = text.find('=');
  const ConfigMark all{.source = &source, .length = static_cast<int>(display_width(text))};
  if (equals == std::string::npos || equals == 0)
    fail_at(all, fmt::format("expected key=value, got '{}'", shown(text)));
  const std::vector<Step> steps = split_path(source, std::string_view(text).substr(0, equals));
  auto value = parse_yaml(source, static_cast<int>(equals) + 1);
  Data* node = document.root.get();
  for (const Step& step : steps) node = &step_into(*node, step);
  if (value->kind == ConfigKind::null) value->mark = steps.back().mark;
  replace_value(*node, std::move(value));
}

}  // namespace bantam

// Tree handling and the form of error messages.
#include "bantam/base/config/config_tree.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

constexpr std::size_t kMargin = 3;          // spaces before the quoted line
constexpr std::size_t kShownColumns = 110;  // longer lines are shown as a window around the mark

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// The line with its caret, indentation taken off: "   rate: 0.1\n   ^~~~".
std::string quote_line(std::string_view line, std::size_t column, std::size_t length) {
  std::size_t begin = std::min(line.find_first_not_of(" \t"), column);
  std::string before;
  if (column + length - begin > kShownColumns) {
    begin = column > begin + 40 ? column - 40 : begin;
    while (begin < column && continues_character(line[begin])) ++begin;
    before = "…";
  }
  std::size_t end = std::min(line.size(), begin + kShownColumns);
  while (end < line.size() && continues_character(line[end])) ++end;
  length = std::max<std::size_t>(1, std::min(length, end > column ? end - column : 1));
  std::string shown = before + std::string(line.substr(begin, end - begin)) + (end < line.size() ? "…" : "");
  const std::size_t caret = display_width(before) + display_width(line.substr(begin, column - begin));
  const std::size_t width = std::max<std::size_t>(1, display_width(line.substr(column, length)));
  // Each control character is printed in the one column that the caret counts for it.
  std::ranges::replace_if(
      shown, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  const std::string margin(kMargin, ' ');
  return margin + shown + "\n" + margin + std::string(caret, ' ') + "^" + std::string(width - 1, '~');
}

/// Line and column inside the source: parsers may point past the end.
ConfigMark clamped(ConfigMark mark) {
  const int lines = static_cast<int>(mark.source->lines.size());
  mark.line = std::clamp(mark.line, 0, std::max(0, lines - 1));
  const int size = lines > 0 ? static_cast<int>(mark.source->lines[static_cast<std::size_t>(mark.line)].size()) : 0;
  mark.column = std::clamp(mark.column, 0, size);
  return mark;
}

/// " (in block 'conv', used at net.yaml:12:9 in block 'stage', used at net.yaml:40:7)"; empty outside copies. Of many
/// uses the innermost ones.
std::string used_at(const ConfigMark& mark) {
  constexpr int kMostUses = 6;
  std::string text;
  int uses = 0;
  for (const ConfigUse* use = mark.use; use != nullptr && uses <= kMostUses; use = use->at.use)
    text += ++uses > kMostUses
                ? " …"
                : fmt::format("{}in {}, used at {}", text.empty() ? "" : " ", shown(use->what), position_of(use->at));
  return text.empty() ? text : fmt::format(" ({})", text);
}

std::string_view line_of(const ConfigMark& mark) {
  if (mark.source->lines.empty()) return {};
  return mark.source->lines[static_cast<std::size_t>(mark.line)];
}

}  // namespace

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.emplace_back(line);
  }
  return lines;
}

std::string position_of(const ConfigMark& mark) {
  if (mark.source->command_line) return "command line";
  const ConfigMark inside = clamped(mark);
  // Columns count characters, as editors do; bytes where a line of megabytes may have an error in each word.
  constexpr std::size_t kMostCounted = std::size_t{1} << 16;
  const auto bytes = static_cast<std::size_t>(inside.column);
  const std::size_t column = bytes > kMostCounted ? bytes : display_width(line_of(inside).substr(0, bytes));
  return fmt::format("{}:{}:{}", mark.source->name, inside.line + 1, column + 1);
}

void fail_at(const ConfigMark& mark, std::string_view message) {
  const ConfigMark inside = clamped(mark);
  const std::string_view line = line_of(inside);
  // Paths, names of devices and the like in a message come from the configuration too.
  std::string text = fmt::format("{}: error: {}", position_of(mark), shown_message(message)) + used_at(mark);
  if (line.find_first_not_of(" \t") != std::string::npos)
    text += "\n" + quote_line(line, static_cast<std::size_t>(inside.column), static_cast<std::size_t>(inside.length));
  throw ConfigError(text);
}

const ConfigMark& ConfigNode::Data::entry_mark() const {
  const auto typed = [](const ConfigMark& at) { return at.source != nullptr && at.source->command_line; };
  return has_key && (typed(key_mark) || !typed(mark)) ? key_mark : mark;
}

std::string path_of(const ConfigNode::Data& node) {
  if (!node.parent) return "";
  std::string step = node.key;
  if (!node.has_key) step = fmt::format("{}", node.place);
  const std::string before = path_of(*node.parent);
  return before.empty() ? step : before + "." + step;
}

std::string entry_name(const ConfigNode::Data& entry) {
  if (entry.kind == ConfigKind::map && entry.children.size() == 1) return entry.children.front()->key;
  return entry.kind == ConfigKind::scalar ? entry.scalar : "";
}

std::string address_of(const ConfigNode::Data& node) {
  if (!node.parent) return "";
  const ConfigNode::Data* outer = node.parent;
  const ConfigNode::Data* list = outer->parent;
  const bool names_entry =
      node.has_key && list != nullptr && list->kind == ConfigKind::list && entry_name(*outer) == node.key &&
      std::ranges::count_if(list->children, [&](const auto& entry) { return entry_name(*entry) == node.key; }) == 1;
  if (names_entry) outer = list;
  const std::string path = path_of(node), before = address_of(*outer);
  const std::string step = node.has_key ? node.key : path.substr(path.rfind('.') + 1);
  return before.empty() ? step : before + "." + step;
}

ConfigNode::Data* find_child(const ConfigNode::Data& map, std::string_view key) {
  const auto found = map.by_key.find(key);
  return found == map.by_key.end() ? nullptr : found->second;
}

ConfigNode::Data& add_child(ConfigNode::Data& parent, std::unique_ptr<ConfigNode::Data> child) {
  child->parent = &parent;
  child->place = parent.children.size();
  if (child->has_key) parent.by_key.emplace(child->key, child.get());
  parent.children.push_back(std::move(child));
  return *parent.children.back();
}

std::unique_ptr<ConfigNode::Data> copy_of(const ConfigNode::Data& node) {
  auto copy = std::make_unique<ConfigNode::Data>();
  copy->kind = node.kind;
  copy->scalar = node.scalar;
  copy->quoted = node.quoted;
  copy->mark = node.mark;
  copy->key = node.key;
  copy->key_mark = node.key_mark;
  copy->has_key = node.has_key;
  copy->is_default = node.is_default;
  for (const auto& child : node.children) add_child(*copy, copy_of(*child));
  if (node.options) {
    copy->options = copy_of(*node.options);
    copy->options->parent = copy.get();
  }
  return copy;
}

void replace_value(ConfigNode::Data& node, std::unique_ptr<ConfigNode::Data> value) {
  node.kind = value->kind;
  node.scalar = std::move(value->scalar);
  node.quoted = value->quoted;
  node.mark = value->mark;
  node.options = nullptr;
  node.children = std::move(value->children);
  node.by_key = std::move(value->by_key);
  for (auto& child : node.children) child->parent = &node;
}

void name_to_map(ConfigNode::Data& node) {
  if (node.kind == ConfigKind::scalar) {
    auto entry = node.options ? std::move(node.options) : std::make_unique<ConfigNode::Data>();
    entry->key = node.scalar;
    entry->has_key = true;
    entry->mark = entry->key_mark = node.mark;
    node.scalar.clear();
    add_child(node, std::move(entry));
  }
  node.kind = ConfigKind::map;
}

}  // namespace bantam

// The tree written back as YAML: maps and lists of plain values on one line where they fit, the rest in blocks.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/config/config_tree.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

constexpr std::size_t kLineWidth = 110;

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\t':
        result += "\\t";
        break;
      case '\r':
        result += "\\r";
        break;
      default:
        // A file with raw control characters would not load again.
        if (const auto code = static_cast<unsigned char>(c); code < 0x20 || code == 0x7F)
          result += fmt::format("\\x{:02x}", code);
        else
          result += c;
    }
  }
  return result + "\"";
}

std::string key_text(const Data& node) { return is_safe_plain(node.key) ? node.key : in_quotes(node.key); }

bool is_plain_value(const Data& node) {
  if (node.kind == ConfigKind::null) return true;
  if (node.kind == ConfigKind::scalar) return !node.options || node.options->children.empty();
  return node.children.empty();
}

std::string plain_value(const Data& node) {
  switch (node.kind) {
    case ConfigKind::null:
      return "null";
    case ConfigKind::list:
      return "[]";
    case ConfigKind::map:
      return "{}";
    case ConfigKind::scalar:
      break;
  }
  const bool plain =
      !node.quoted && (is_safe_plain(node.scalar) || looks_like_number(node.scalar) || looks_like_boolean(node.scalar));
  return plain ? node.scalar : in_quotes(node.scalar);
}

/// "[1, 2]" or "{size: 16}"; empty when the node holds more than plain values.
std::string one_line(const Data& node) {
  if (is_plain_value(node)) return plain_value(node);
  if (node.kind == ConfigKind::scalar) return "";
  std::string text;
  for (const auto& child : node.children) {
    if (!is_plain_value(*child)) return "";
    text += text.empty() ? "" : ", ";
    text += (child->has_key ? key_text(*child) + ": " : "") + plain_value(*child);
  }
  return node.kind == ConfigKind::list ? "[" + text + "]" : "{" + text + "}";
}

void emit_block(const Data& node, std::size_t indent, bool after_dash, std::string& out);

/// The value after "key:": on the same line if it fits, else as a block below.
void emit_value(const Data& node, std::size_t indent, std::size_t used, std::string& out) {
  const std::string line = one_line(node);
  if (!line.empty() && (is_plain_value(node) || used + line.size() <= kLineWidth)) {
    out += " " + line + "\n";
    return;
  }
  out += "\n";
  emit_block(node, indent + 2, false, out);
}

void emit_entry(const Data& node, const std::string& key, std::size_t indent, bool after_dash, std::string& out) {
  const std::string begin = (after_dash ? "" : std::string(indent, ' ')) + key + ":";
  out += begin;
  emit_value(node, indent, indent + key.size() + 2, out);
}

void emit_list_item(const Data& item, std::size_t indent, std::string& out) {
  out += std::string(indent, ' ') + "-";
  const std::string line = one_line(item);
  // A map of one key reads best as "- batch: …", even where braces would fit.
  const bool named = item.kind == ConfigKind::map && item.children.size() == 1;
  if (!named && !line.empty() && (is_plain_value(item) || indent + 2 + line.size() <= kLineWidth)) {
    out += " " + line + "\n";
  } else if (item.kind == ConfigKind::list) {
    out += "\n";
    emit_block(item, indent + 2, false, out);
  } else {
    out += " ";
    emit_block(item, indent + 2, true, out);
  }
}

void emit_block(const Data& node, std::size_t indent, bool after_dash, std::string& out) {
  if (node.kind == ConfigKind::scalar) {  // a plain name whose options have defaults
    emit_entry(*node.options, key_text(*node.options), indent, after_dash, out);
    return;
  }
  for (const auto& child : node.children) {
    if (node.kind == ConfigKind::list)
      emit_list_item(*child, indent, out);
    else
      emit_entry(*child, key_text(*child), indent, after_dash && child == node.children.front(), out);
  }
}

}  // namespace

std::string flow_yaml(const Data& node) {
  if (node.kind != ConfigKind::list && node.kind != ConfigKind::map) return plain_value(node);
  std::string text;
  for (const auto& child : node.children) {
    text += text.empty() ? "" : ", ";
    text += (child->has_key ? key_text(*child) + ": " : "") + flow_yaml(*child);
  }
  return node.kind == ConfigKind::list ? "[" + text + "]" : "{" + text + "}";
}

std::string emit_yaml(const Data& root) {
  if (root.children.empty()) return "{}\n";
  std::string out;
  emit_block(root, 0, false, out);
  return out;
}

}  // namespace bantam

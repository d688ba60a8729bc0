// Reads plain YAML text as numbers and booleans, and shows text in messages.
#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "bantam/base/config/config_tree.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

bool is_any_of(std::string_view text, std::initializer_list<std::string_view> words) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::find(words, lower) != words.end();
}

}  // namespace

bool looks_like_number(std::string_view text) {
  std::size_t at = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  const std::size_t whole = at;
  at = skip_digits(text, at);
  std::size_t digits = at - whole;
  if (at < text.size() && text[at] == '.') {
    const std::size_t fraction = at + 1;
    at = skip_digits(text, fraction);
    digits += at - fraction;
  }
  if (digits == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const std::size_t exponent = at;
    at = skip_digits(text, at);
    if (at == exponent) return false;
  }
  return at == text.size();
}

bool looks_like_boolean(std::string_view text) { return text == "true" || text == "false"; }

bool has_leading_zero(std::string_view text) {
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  return text.size() > 1 && text[0] == '0' && is_digit(text[1]);
}

bool is_safe_plain(std::string_view text) {
  if (text.empty() || text.back() == ' ') return false;
  const auto safe = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_./+- ").find(c) != std::string_view::npos;
  };
  if (!std::ranges::all_of(text, safe)) return false;
  if (is_any_of(text, {"null", "true", "false", "yes", "no", "on", "off", ".nan", ".inf", "-.inf", "+.inf"}))
    return false;
  const char first = text.front();
  return std::isalnum(static_cast<unsigned char>(first)) || first == '_' || first == '/' ||
         (first == '.' && text.size() > 1 && text.substr(0, 3) != "...");
}

std::string describe(const ConfigNode::Data& node) {
  switch (node.kind) {
    case ConfigKind::null:
      return "nothing";
    case ConfigKind::list:
      return "a list";
    case ConfigKind::map:
      return "a map";
    case ConfigKind::scalar:
      break;
  }
  const std::string text = shown(node.scalar);
  if (node.quoted) return fmt::format("the text \"{}\"", text);
  if (looks_like_number(node.scalar) || looks_like_boolean(node.scalar)) return text;
  return fmt::format("'{}'", text);
}

}  // namespace bantam

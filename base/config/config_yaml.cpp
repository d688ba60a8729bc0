// From YAML text to a tree, by yaml-cpp's event parser: positions, duplicate keys, and refusal of what would surprise.
#include <algorithm>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "bantam/base/config/config_tree.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

/// Receives the parser's events and builds the tree.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const ConfigSource& source, int first_line_begins)
      : source_(source), first_line_begins_(first_line_begins) {}

  std::unique_ptr<Data> take() { return std::move(root_); }

  /// The parser's own errors. It places an unclosed bracket at the end of the text: the bracket itself says more.
  [[noreturn]] void fail_syntax(const YAML::Exception& error) const {
    if (error.msg.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR)) refuse_alias(mark_of(error.mark));
    if (error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW || error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW) {
      for (auto level = stack_.rbegin(); level != stack_.rend(); ++level)
        if (is_bracket(level->data->mark)) fail_at(level->data->mark, "this bracket is never closed");
    }
    // The parser's word for what is nested more deeply than its stack allows.
    if (error.msg == YAML::ErrorMsg::BAD_FILE)
      fail_at(mark_of(error.mark), "lists and maps are nested too deeply: more than some hundred in one another");
    fail_at(mark_of(error.mark), fmt::format("YAML syntax: {}", error.msg));
  }

  ConfigMark mark_of(const YAML::Mark& mark) const {
    const int line = mark.is_null() ? 0 : mark.line;
    const int column = mark.is_null() ? 0 : mark.column;
    return {.source = &source_, .line = line, .column = column + (line == 0 ? first_line_begins_ : 0)};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (root_) fail_at(mark_of(mark), "a second YAML document begins here; one file holds one configuration");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (list_key_) refuse_list_key();
    if (expects_key()) fail_at(mark_of(mark), "a key must be text, got nothing");
    add(node(ConfigKind::null, mark));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { refuse_alias(mark_of(mark)); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    if (tag != "?" && tag != "!") refuse_tag(mark, tag);
    const bool quoted = tag == "!";
    if (list_key_) return list_key_->items.push_back(value);
    if (expects_key()) return take_key(mark, value, quoted);
    auto data = node(ConfigKind::scalar, mark);
    data->scalar = value;
    data->quoted = quoted;
    data->mark.length = written_length(data->mark, value, quoted);
    add(std::move(data));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    if (expects_key() && !list_key_ && anchor == 0 && style == YAML::EmitterStyle::Flow)
      list_key_ = ListKey{mark_of(mark), {}};
    else
      open(ConfigKind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override {
    if (list_key_)
      take_list_key();
    else
      stack_.pop_back();
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(ConfigKind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { stack_.pop_back(); }

 private:
  /// An open list or map, and in a map the key that waits for its value.
  struct Level {
    Data* data;
    bool has_key = false;
    std::string key;
    ConfigMark key_mark;
  };

  /// A key that is a list of numbers: `[128, 0, 0]: aeroplane`. Its text is that spelling.
  struct ListKey {
    ConfigMark mark;
    std::vector<std::string> items;
  };

  [[noreturn]] void refuse_list_key() const {
    fail_at(list_key_->mark, "a key must be text, not a list or a map (is a bracket left open?)");
  }

  void take_list_key() {
    const auto is_number = [](const std::string& item) {
      return !item.empty() && item.find_first_not_of("0123456789") == std::string::npos;
    };
    ConfigMark place = list_key_->mark;
    const std::string& line = source_.lines.at(static_cast<std::size_t>(place.line));
    const std::size_t end = line.find(']', static_cast<std::size_t>(place.column));
    if (list_key_->items.empty() || !std::ranges::all_of(list_key_->items, is_number) || end == std::string::npos)
      refuse_list_key();
    place.length = static_cast<int>(end) - place.column + 1;
    const std::string key = "[" + join(list_key_->items, ", ", ", ") + "]";
    list_key_.reset();
    take_key_at(place, key);
  }

  bool is_bracket(const ConfigMark& mark) const {
    if (static_cast<std::size_t>(mark.line) >= source_.lines.size()) return false;
    const std::string& line = source_.lines[static_cast<std::size_t>(mark.line)];
    const auto column = static_cast<std::size_t>(mark.column);
    return column < line.size() && (line[column] == '[' || line[column] == '{');
  }

  bool expects_key() const {
    return !stack_.empty() && stack_.back().data->kind == ConfigKind::map && !stack_.back().has_key;
  }

  std::unique_ptr<Data> node(ConfigKind kind, const YAML::Mark& mark) const {
    auto data = std::make_unique<Data>();
    data->kind = kind;
    data->mark = mark_of(mark);
    return data;
  }

  [[noreturn]] void refuse_alias(const ConfigMark& mark) const {
    fail_at(mark, "aliases (*name) are not supported: write the value out");
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) fail_at(mark_of(mark), "anchors (&name) are not supported: write the value where it is used");
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    fail_at(mark_of(mark), fmt::format("tags are not supported, got '{}'", shown(tag)));
  }

  void open(ConfigKind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    if (!tag.empty() && tag != "?" && tag != "!") refuse_tag(mark, tag);
    if (list_key_) refuse_list_key();
    if (expects_key()) fail_at(mark_of(mark), "a key must be text, not a list or a map (is a bracket left open?)");
    Data* added = add(node(kind, mark));
    stack_.push_back({.data = added, .key = {}, .key_mark = {}});
  }

  void take_key(const YAML::Mark& mark, const std::string& key, bool quoted) {
    ConfigMark place = mark_of(mark);
    place.length = written_length(place, key, quoted);
    if (key == "<<" && !quoted) fail_at(place, "merge keys (<<) are not supported: write the values out");
    take_key_at(place, key);
  }

  void take_key_at(const ConfigMark& place, const std::string& key) {
    Level& level = stack_.back();
    require_colon(place, key);
    if (const Data* first = find_child(*level.data, key)) {
      const std::string path = path_of(*level.data);
      const std::string where = source_.command_line ? "" : fmt::format(" (first at {})", position_of(first->key_mark));
      fail_at(place, fmt::format("duplicate key '{}'{}{}", shown(key), path.empty() ? "" : " in " + path, where));
    }
    level.has_key = true;
    level.key = key;
    level.key_mark = place;
  }

  Data* add(std::unique_ptr<Data> data) {
    constexpr std::size_t kMost = 600'000;  // of some 400 bytes each
    if (++values_ > kMost)
      fail_at(data->mark, fmt::format("a configuration has at most {} values", format_count(kMost)));
    if (stack_.empty()) {
      root_ = std::move(data);
      return root_.get();
    }
    Level& level = stack_.back();
    if (level.data->kind == ConfigKind::map) {
      data->key = level.key;
      data->key_mark = level.key_mark;
      data->has_key = true;
      level.has_key = false;
    }
    // The parser places an empty value at whatever comes next: point at its key or its list.
    if (data->kind == ConfigKind::null) data->mark = data->has_key ? data->key_mark : level.data->mark;
    return &add_child(*level.data, std::move(data));
  }

  /// The bytes of a scalar on its first line, quotes included.
  int written_length(const ConfigMark& mark, const std::string& value, bool quoted) const {
    if (static_cast<std::size_t>(mark.line) >= source_.lines.size()) return 1;
    const std::string& line = source_.lines[static_cast<std::size_t>(mark.line)];
    const auto begin = static_cast<std::size_t>(mark.column);
    if (begin >= line.size()) return 1;
    if (!quoted) return line.compare(begin, value.size(), value) == 0 ? static_cast<int>(value.size()) : 1;
    if (line[begin] != '"' && line[begin] != '\'') return 1;
    return static_cast<int>(closing_quote(mark, line[begin]) - begin);
  }

  /// Where the quotes end on their first line (its end for text of several lines). The parser takes the end of the file
  /// for a closing quote; here it is an error.
  std::size_t closing_quote(const ConfigMark& mark, char quote) const {
    auto column = static_cast<std::size_t>(mark.column) + 1;
    const std::string& first = source_.lines[static_cast<std::size_t>(mark.line)];
    for (auto line = static_cast<std::size_t>(mark.line); line < source_.lines.size(); ++line, column = 0) {
      const std::string& text = source_.lines[line];
      for (; column < text.size(); ++column) {
        const bool doubled = quote == '\'' && text.compare(column, 2, "''") == 0;
        if (doubled || (quote == '"' && text[column] == '\\'))
          ++column;
        else if (text[column] == quote)
          return line == static_cast<std::size_t>(mark.line) ? column + 1 : first.size();
      }
    }
    fail_at(mark, "this quote is never closed");
  }

  /// The parser reads a lone word among keys as a key without a value; it is more likely a slip.
  void require_colon(const ConfigMark& mark, const std::string& key) const {
    if (static_cast<std::size_t>(mark.line) >= source_.lines.size()) return;
    const std::string& line = source_.lines[static_cast<std::size_t>(mark.line)];
    const std::size_t next = line.find_first_not_of(" \t", static_cast<std::size_t>(mark.column + mark.length));
    if (next != std::string::npos && line[next] == ':') return;
    // In "[1, 2" without its end, the parser takes the last item for the key of a map without braces.
    const Data& map = *stack_.back().data;
    if (map.parent && !is_bracket(map.mark) && is_bracket(map.parent->mark))
      fail_at(map.parent->mark, "this bracket is never closed");
    const bool in_expression = line.substr(0, static_cast<std::size_t>(mark.column)).find("$(") != std::string::npos;
    fail_at(mark, fmt::format("expected ':' after the key '{}'{}", shown(key),
                              in_expression ? "; an expression with a comma is written in quotes: \"$(…)\""
                                            : advice_on_colon(key)));
  }

  /// "cpu:16MiB" is one word to YAML: a colon that ends a key is followed by a space.
  static std::string advice_on_colon(const std::string& key) {
    const std::size_t colon = key.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == key.size()) return "";
    return fmt::format("; write a space after the colon: '{}: {}'", shown(key.substr(0, colon), 40),
                       shown(key.substr(colon + 1), 40));
  }

  const ConfigSource& source_;
  int first_line_begins_;
  std::unique_ptr<Data> root_;
  std::vector<Level> stack_;
  std::optional<ListKey> list_key_;  ///< while its items are read
  std::size_t values_ = 0;           ///< so far
};

/// The parser would silently stop at, or keep, control characters; they are never meant.
void refuse_control_characters(const ConfigSource& source) {
  for (std::size_t line = 0; line < source.lines.size(); ++line) {
    const auto& text = source.lines[line];
    std::size_t bad = 0, bytes = 0;
    for (; bad < text.size(); ++bad)
      if (bytes = control_bytes(std::string_view(text).substr(bad)); bytes > 0 && text[bad] != '\t') break;
    if (bad == text.size()) continue;
    const ConfigMark mark{.source = &source, .line = static_cast<int>(line), .column = static_cast<int>(bad)};
    throw ConfigError(fmt::format("{}: error: control character 0x{:02x}; a configuration is plain text",
                                  position_of(mark), static_cast<unsigned char>(text[bad + bytes - 1])));
  }
}

/// The parser keeps what is within brackets until they end, some hundreds of bytes for each bracket and comma.
void refuse_many_brackets(const ConfigSource& source) {
  constexpr std::size_t kMost = 400'000;
  std::size_t count = 0;
  for (std::size_t line = 0; line < source.lines.size(); ++line) {
    const std::string& text = source.lines[line];
    for (std::size_t at = text.find_first_of("[]{},"); at != std::string::npos;
         at = text.find_first_of("[]{},", at + 1))
      if (++count > kMost)
        fail_at(
            {.source = &source, .line = static_cast<int>(line), .column = static_cast<int>(at)},
            fmt::format("more than {} brackets and commas: write a list of so many entries with one in a line, after "
                        "a dash",
                        format_count(kMost)));
  }
}

/// YAML indents by spaces; the parser's words on a tab there ("illegal map value") do not say so. Within brackets and
/// texts of several lines a tab is harmless: this is asked only where the parser has failed, of that
/// line and the one before it.
void explain_tabs(const ConfigSource& source, int failed_line) {
  const int last = std::min(failed_line, static_cast<int>(source.lines.size()) - 1);
  for (int line = last; line >= std::max(0, last - 1); --line) {
    const std::string& text = source.lines[static_cast<std::size_t>(line)];
    const std::size_t begin = text.find_first_not_of(" \t"), tab = text.find('\t');
    if (begin == std::string::npos || tab > begin) continue;
    fail_at({.source = &source, .line = line, .column = static_cast<int>(tab)},
            "a tab in the indentation: YAML indents by spaces");
  }
}

}  // namespace

std::unique_ptr<Data> parse_yaml(const ConfigSource& source, int first_line_begins) {
  refuse_control_characters(source);
  refuse_many_brackets(source);
  std::string text;
  for (const std::string& line : source.lines) text += line + "\n";
  std::istringstream stream(text.substr(std::min(text.size(), static_cast<std::size_t>(first_line_begins))));
  TreeBuilder builder(source, first_line_begins);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    explain_tabs(source, builder.mark_of(error.mark).line);
    builder.fail_syntax(error);
  }
  auto root = builder.take();
  if (root) return root;
  root = std::make_unique<Data>();
  root->mark = builder.mark_of(YAML::Mark());
  return root;
}

}  // namespace bantam

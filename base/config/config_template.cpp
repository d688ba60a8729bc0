// Finding expressions in a tree, and copying the tree with their values.
#include "bantam/base/config/config_template.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/config/config_recording.h"
#include "bantam/base/config/config_tree.h"
#include "bantam/base/config/expression.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

using Data = ConfigNode::Data;

/// The text within $(…); nothing for other values. Throws ConfigError for what looks like an expression and is none.
std::optional<std::string_view> expression_in(const Data& node) {
  if (node.kind != ConfigKind::scalar) return std::nullopt;
  const std::string_view text = node.scalar;
  if (text.starts_with("${")) fail_at(node.mark, "an expression is written $(…), in parentheses");
  const std::size_t begin = text.find("$(");
  if (begin == std::string_view::npos) return std::nullopt;
  if (begin > 0)
    fail_at(node.mark, fmt::format("an expression is a whole value, $(…), not a part of the text '{}'", shown(text)));
  if (!text.ends_with(')'))
    fail_at(node.mark,
            "this expression does not end with ')': between braces or brackets a comma ends a value, so "
            "write \"$(…)\" in quotes");
  return text.substr(2, text.size() - 3);
}

/// The part of an expression that begins at `offset`, or all of it where it was not written on one line as it is.
ConfigMark mark_within(const Data& node, std::size_t offset, std::size_t length) {
  ConfigMark mark = node.mark;
  const int quotes = node.quoted ? 1 : 0;
  if (mark.length != static_cast<int>(node.scalar.size()) + 2 * quotes) return mark;
  mark.column += quotes + 2 + static_cast<int>(offset);
  mark.length = std::max(1, static_cast<int>(length));
  return mark;
}

[[noreturn]] void fail_within(const Data& node, const ExpressionError& error, const ConfigUse* use) {
  ConfigMark mark = mark_within(node, error.offset, error.length);
  mark.use = use;
  fail_at(mark, error.what());
}

void check_names(const Data& node, const Expression& expression, std::span<const std::string> known,
                 const std::function<void(const std::string& name)>& used) {
  for (const Expression::Name& name : expression.names()) {
    if (std::ranges::find(known, name.name) != known.end()) {
      used(name.name);
      continue;
    }
    const auto near = nearest(name.name, known);
    fail_at(mark_within(node, name.offset, name.name.size()),
            fmt::format("unknown name '{}' in an expression; {}", shown(name.name),
                        near ? fmt::format("did you mean '{}'?", *near)
                             : fmt::format("known here: {}", join(known, ", ", " and "))));
  }
}

void check_below(const Data& node, std::span<const std::string> known,
                 const std::function<void(const std::string& name)>& used) {
  if (const auto text = expression_in(node)) {
    try {
      check_names(node, Expression(*text), known, used);
    } catch (const ExpressionError& error) {
      fail_within(node, error, nullptr);
    }
  }
  for (const auto& child : node.children) {
    if (child->has_key && child->key.starts_with("$("))
      fail_at(child->key_mark, "an expression is a value, not a key; a whole entry of a list may be one: - $(layer)");
    check_below(*child, known, used);
  }
}

bool has_expressions_below(const Data& node) {
  return expression_in(node).has_value() ||
         std::ranges::any_of(node.children, [](const auto& child) { return has_expressions_below(*child); });
}

/// A plain value of the document as expressions compute with it.
ExpressionValue value_in(const Data& node, const Expression::Name& name) {
  if (node.kind != ConfigKind::scalar)
    throw ExpressionError(
        fmt::format("'{}' is {}, which an expression can only pass on, as $({})", name.name, describe(node), name.name),
        name.offset, name.name.size());
  const std::string& text = node.scalar;
  if (node.quoted) return text;
  if (looks_like_boolean(text)) return text == "true";
  const char *begin = text.data() + (text.starts_with('+') ? 1 : 0), *end = text.data() + text.size();
  std::int64_t integer = 0;
  double number = 0;
  if (!looks_like_number(text) || has_leading_zero(text)) return text;
  if (const auto [stop, error] = std::from_chars(begin, end, integer); error == std::errc() && stop == end)
    return integer;
  if (const auto [stop, error] = std::from_chars(begin, end, number); error == std::errc() && stop == end)
    return number;
  throw ExpressionError(fmt::format("'{}' is {}, which is too large", name.name, shown(text)), name.offset,
                        name.name.size());
}

}  // namespace

const ConfigScope::Value* ConfigScope::find(std::string_view name) const {
  if (const auto found = values_.find(name); found != values_.end()) return &found->second;
  return outer_ ? outer_->find(name) : nullptr;
}

bool ConfigTemplate::has_expressions(const ConfigNode& node) { return has_expressions_below(*node.data_); }

void ConfigTemplate::check(const ConfigNode& node, std::span<const std::string> known,
                           const std::function<void(const std::string& name)>& used) {
  check_below(*node.data_, known, used);
}

const ConfigUse* ConfigTemplate::use(const ConfigNode& at, std::string what) {
  const Data& place = *at.data_;
  auto& uses = at.document_->uses;
  uses.push_back(std::make_unique<const ConfigUse>(
      ConfigUse{.what = std::move(what), .at = place.has_key ? place.key_mark : place.mark}));
  return uses.back().get();
}

void ConfigTemplate::describe(const ConfigNode& list, std::span<const std::string> tables,
                              std::span<const std::string> known, std::string_view defined_by) {
  if (!list.is_described()) return;
  note_list(*list.data_->facts).items.other_names =
      OtherNames{.known = {known.begin(), known.end()}, .defined_by = std::string(defined_by)};
  for (const auto& table : list.document_->recording->schema.tables)
    table->expressions = table->expressions || std::ranges::find(tables, table->what) != tables.end();
}

ConfigNode ConfigTemplate::copy(const ConfigNode& node, const ConfigScope& scope, const ConfigUse* use) {
  ConfigDocument::Impl& document = *node.document_;
  ConfigTemplate copying(document, scope, use);
  const Data* const parent = node.data_->parent;
  const bool is_entry = parent != nullptr && parent->kind == ConfigKind::list;
  auto copy = is_entry ? copying.copy_of_entry(*node.data_) : copying.copy_of(*node.data_);
  copy->parent = node.data_->parent;
  copy->place = node.data_->place;
  document.copies.push_back(std::move(copy));
  return ConfigNode(node.document_, document.copies.back().get());
}

/// Key and place, without the value.
std::unique_ptr<Data> ConfigTemplate::bare_copy(const Data& node) {
  auto copy = std::make_unique<Data>();
  copy->mark = node.mark;
  copy->key = node.key;
  copy->key_mark = node.key_mark;
  copy->has_key = node.has_key;
  if (use_) copy->mark.use = copy->key_mark.use = use_;
  count(*copy, 1);
  return copy;
}

void ConfigTemplate::set_scalar(Data& copy, std::string text, bool quoted) {
  constexpr std::size_t kBytesOfAValue = 64;  // a value without text needs more
  count(copy, text.size() / kBytesOfAValue);
  copy.scalar = std::move(text);
  copy.quoted = quoted;
}

void ConfigTemplate::count(const Data& copy, std::size_t values) {
  document_.copied_values += values;
  if (document_.copied_values > kMostValues)
    fail_at(copy.has_key ? copy.key_mark : copy.mark,
            fmt::format("blocks and expressions make too many layers: their options are more than {} values",
                        format_count(kMostValues)));
}

std::unique_ptr<Data> ConfigTemplate::copy_of(const Data& node) {
  if (expression_in(node)) return value_of(node);
  auto copy = bare_copy(node);
  copy->kind = node.kind;
  set_scalar(*copy, node.scalar, node.quoted);
  copy->is_default = node.is_default;
  for (const auto& child : node.children)
    add_child(*copy, node.kind == ConfigKind::list ? copy_of_entry(*child) : copy_of(*child));
  return copy;
}

/// Copies an entry of a list: `NAME: {options}`, whose condition `when` is evaluated first, or any other value.
std::unique_ptr<Data> ConfigTemplate::copy_of_entry(const Data& entry) {
  const bool is_named = entry.kind == ConfigKind::map && entry.children.size() == 1;
  const Data* condition = is_named ? find_child(*entry.children.front(), "when") : nullptr;
  if (!condition) return copy_of(entry);
  auto when = copy_of(*condition);
  auto copy = bare_copy(entry);
  copy->kind = entry.kind;
  add_child(*copy, copy_of_options(*entry.children.front(), std::move(when)));
  return copy;
}

std::unique_ptr<Data> ConfigTemplate::copy_of_options(const Data& options, std::unique_ptr<Data> when) {
  auto copy = bare_copy(options);
  copy->kind = options.kind;
  const bool is_left_out = when->kind == ConfigKind::scalar && !when->quoted && when->scalar == "false";
  for (const auto& option : options.children) {
    if (option->key == "when")
      add_child(*copy, std::move(when));
    else if (!is_left_out || (option->key == "name" && option->scalar.find("$(") == std::string::npos))
      add_child(*copy, copy_of(*option));
  }
  return copy;
}

/// The copy of a scalar that is an expression.
std::unique_ptr<Data> ConfigTemplate::value_of(const Data& node) {
  auto copy = bare_copy(node);
  const auto value_named = [&](const Expression::Name& name) -> const ConfigScope::Value& {
    const ConfigScope::Value* value = scope_.find(name.name);
    if (!value)
      throw ExpressionError(fmt::format("unknown name '{}' in an expression", shown(name.name)), name.offset,
                            name.name.size());
    if (const std::string* why = std::get_if<std::string>(value))
      throw ExpressionError(*why, name.offset, name.name.size());
    return *value;
  };
  const auto lookup = [&](const Expression::Name& name) -> ExpressionValue {
    const ConfigScope::Value& value = value_named(name);
    if (const std::int64_t* integer = std::get_if<std::int64_t>(&value)) return *integer;
    return value_in(*std::get<ConfigNode>(value).data_, name);
  };
  try {
    const Expression expression(*expression_in(node));
    if (expression.is_name())
      if (const ConfigNode* whole = std::get_if<ConfigNode>(&value_named(expression.names().front()))) {
        const ConfigMark place = copy->mark;
        replace_value(*copy, copy_of(*whole->data_));
        copy->mark = place;
        return copy;
      }
    const ExpressionValue value = expression.evaluate(lookup);
    copy->kind = ConfigKind::scalar;
    set_scalar(*copy, to_string(value), std::holds_alternative<std::string>(value));
    return copy;
  } catch (const ExpressionError& error) {
    fail_within(node, error, use_);
  }
}

}  // namespace bantam

// A schema as sections of a Markdown page: a table of keys for each map and for each entry of a table.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "bantam/base/config/config_schema.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

std::string code(std::string_view text) { return fmt::format("`{}`", text); }

std::string range_of(IntegerRange range) {
  constexpr IntegerRange kAll;
  if (range.min == kAll.min && range.max == kAll.max) return "";
  if (range.max == kAll.max) return fmt::format("≥ {}", format_count(range.min));
  if (range.min == kAll.min) return fmt::format("≤ {}", format_count(range.max));
  return fmt::format("{} to {}", format_count(range.min), format_count(range.max));
}

std::string range_of(NumberRange range) {
  const bool low = std::isfinite(range.min), high = std::isfinite(range.max);
  if (low && high)
    return fmt::format("{}{}, {}{}", range.min_open ? "(" : "[", range.min, range.max, range.max_open ? ")" : "]");
  if (low) return fmt::format("{} {}", range.min_open ? ">" : "≥", range.min);
  return high ? fmt::format("{} {}", range.max_open ? "<" : "≤", range.max) : std::string();
}

/// "layers", "losses".
std::string plural(const std::string& what) { return what + (what.ends_with('s') ? "es" : "s"); }

/// The anchor that a heading gets: small letters, '-' for spaces.
std::string anchor(const std::string& heading) {
  std::string text;
  for (const char c : heading) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-') text += static_cast<char>(std::tolower(c));
    if (c == ' ') text += '-';
  }
  return text;
}

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string type_of(const ValueFacts& value);

std::string list_type(const ListFacts& list) {
  std::string items = type_of(list.items);
  if (list.items.integer && list.items.number == std::nullopt) items = "integers";
  if (list.items.number) items = "numbers";
  if (list.items.text && list.items.tables.empty()) items = "texts";
  if (list.items.byte_size) items = "byte sizes";
  if (list.least == list.most) return fmt::format("list of {} {}", list.least, items);
  return "list of " + items;
}

std::string type_of(const ValueFacts& value) {
  std::vector<std::string> types;
  for (const std::string& table : value.tables) types.push_back(fmt::format("[{}](#{})", table, anchor(plural(table))));
  if (value.integer) types.emplace_back("integer");
  if (value.number) types.emplace_back("number");
  if (value.boolean) types.emplace_back("boolean");
  if (value.byte_size) types.emplace_back("byte size");
  if (value.duration) types.emplace_back("duration");
  if (value.list) types.push_back(list_type(*value.list));
  if (value.map)
    types.push_back(value.map->any && value.map->any->is_known() ? "map of " + type_of(*value.map->any) : "map");
  if (value.text && !value.only_words && value.tables.empty()) types.emplace_back("text");
  if (!value.words.empty() && value.tables.empty()) types.emplace_back("word");
  return join(types, ", ", " or ");
}

std::string words_of(const ValueFacts& value) {
  std::vector<std::string> words;
  for (const std::string& word : value.words) words.push_back(code(word));
  return join(words, ", ", ", ");
}

std::string default_of(const KeyFacts& key) {
  if (!key.otherwise_meaning.empty()) return key.otherwise_meaning;
  if (key.required) return "**required**";
  if (!key.otherwise) return "";
  for (const std::string& word : key.value.words)
    if (*key.otherwise == "\"" + word + "\"") return code(word);
  return key.value.map && *key.otherwise == "{}" ? "" : code(*key.otherwise);
}

/// "See LIMITS.md.": names of pages, which are in capitals, become links.
std::string linked(const std::string& text) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t end = text.find(".md"); end != std::string::npos; end = text.find(".md", end + 1)) {
    std::size_t begin = end;
    while (begin > done && std::isupper(static_cast<unsigned char>(text[begin - 1]))) --begin;
    if (begin == end) continue;
    const std::string page = text.substr(begin, end + 3 - begin);
    out += text.substr(done, begin - done) + fmt::format("[{}]({})", page, page);
    done = end + 3;
  }
  return out + text.substr(done);
}

/// A cell: no line ends, no bars.
std::string cell(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|') safe += '\\';
    safe += c;
  }
  return safe;
}

class Page {
 public:
  explicit Page(const ConfigSchema& schema) : schema_(schema) {}

  std::string write() {
    heading(2, "Top level");
    const MapFacts& top = *schema_.root.map;
    keys(top, "", false);
    for (const auto& key : top.keys)
      if (is_section(*key)) section(*key);
    return std::move(text_);
  }

 private:
  static bool is_section(const KeyFacts& key) { return key.value.map && !key.value.map->any; }

  void heading(int level, const std::string& title) {
    while (text_.ends_with("\n\n")) text_.pop_back();
    text_ += fmt::format("\n{} {}\n\n", std::string(static_cast<std::size_t>(level), '#'), title);
  }

  void example(const std::string& yaml) {
    if (!yaml.empty()) text_ += "\n```yaml\n" + yaml + "\n```\n";
  }

  void section(const KeyFacts& key) {
    heading(2, key.name);
    const ValueFacts& value = key.value;
    text_ += linked(value.meaning.empty() ? key.meaning : value.meaning) + "\n";
    example(value.example);
    text_ += "\n";
    keys(*value.map, "", true);
    tables_of(value);
  }

  /// Tables that the value names, each once, after the first section that names it.
  void tables_of(const ValueFacts& value) {
    for (const std::string& what : value.tables)
      if (const TableFacts* facts = schema_.table(what); facts && written_.insert(what).second) table(*facts);
    if (value.list) tables_of(value.list->items);
    if (value.map)
      for (const auto& key : value.map->keys) tables_of(key->value);
  }

  /// A list of the entries without options, or with those that all entries have; then a section for each other entry.
  void table(const TableFacts& table) {
    heading(2, capital(plural(table.what)));
    if (table.entries.empty()) text_ += "None is built in; a program registers its own.\n";
    MapFacts shared = shared_keys(table);
    const auto is_plain = [&](const auto& entry) {
      const auto& map = entry->options.map;
      return map && std::ranges::all_of(map->keys, [&](const auto& key) { return shared.find(key->name) != nullptr; });
    };
    if (std::ranges::none_of(table.entries, is_plain)) shared.keys.clear();
    if (!shared.keys.empty()) {
      text_ += fmt::format("Every {} has:\n\n", table.what);
      keys(shared, "", true);
    }
    if (std::ranges::any_of(table.entries, is_plain))
      text_ += fmt::format("{}| without {}options | meaning |\n|---|---|\n", shared.keys.empty() ? "" : "\n",
                           shared.keys.empty() ? "" : "other ");
    for (const auto& entry : table.entries)
      if (is_plain(entry)) text_ += fmt::format("| {} | {} |\n", code(entry->name), cell(entry->options.meaning));
    for (const auto& entry : table.entries)
      if (!is_plain(entry)) this->entry(*entry, shared);
    for (const auto& entry : table.entries) tables_of(entry->options);
  }

  /// Unconditional keys that all entries have, where there are several entries.
  static MapFacts shared_keys(const TableFacts& table) {
    MapFacts shared;
    if (table.entries.size() < 2 || !table.entries.front()->options.map) return shared;
    for (const auto& key : table.entries.front()->options.map->keys) {
      const auto has_key = [&](const auto& entry) {
        const KeyFacts* other = entry->options.map ? entry->options.map->find(key->name) : nullptr;
        return other && !other->when && other->meaning == key->meaning && other->otherwise == key->otherwise &&
               other->required == key->required && !other->value.map;
      };
      if (std::ranges::all_of(table.entries, has_key)) shared.keys.push_back(std::make_unique<KeyFacts>(*key));
    }
    return shared;
  }

  void entry(const TableFacts::Entry& entry, const MapFacts& shared) {
    heading(3, code(entry.name));
    const ValueFacts& options = entry.options;
    if (!options.meaning.empty()) text_ += linked(options.meaning) + "\n";
    example(options.example);
    if (!options.map) {
      text_ += fmt::format("\nValue: {}.\n", words_of(options).empty() ? type_of(options) : words_of(options));
      return;
    }
    MapFacts own;
    for (const auto& key : options.map->keys)
      if (!shared.find(key->name)) own.keys.push_back(std::make_unique<KeyFacts>(*key));
    text_ += "\n";
    keys(own, "", true);
  }

  /// The keys that are there in any case, then those of each condition.
  void keys(const MapFacts& map, const std::string& prefix, bool inner_maps) {
    std::vector<std::optional<KeyCondition>> conditions = {std::nullopt};
    for (const auto& key : map.keys)
      if (std::ranges::find(conditions, key->when) == conditions.end()) conditions.push_back(key->when);
    for (const auto& when : conditions) {
      if (std::ranges::none_of(map.keys, [&](const auto& key) { return key->when == when; })) continue;
      if (when) text_ += "\n" + condition(*when) + choice_meaning(map, *when) + "\n\n";
      text_ += "| key | type | default | range | meaning |\n|---|---|---|---|---|\n";
      for (const auto& key : map.keys)
        if (key->when == when) row(*key, prefix, inner_maps);
    }
  }

  static std::string condition(const KeyCondition& when) {
    if (when.missing) return fmt::format("Without {}:", code(when.key));
    if (when.values.empty()) return fmt::format("With {}:", code(when.key));
    std::vector<std::string> values;
    for (const std::string& value : when.values) values.push_back(code(when.key + ": " + value));
    return fmt::format("With {}:", join(values, ", ", " or "));
  }

  /// Returns the purpose of the one value in the condition, with a blank before it; empty where it has several or none.
  static std::string choice_meaning(const MapFacts& map, const KeyCondition& when) {
    const KeyFacts* key = map.find(when.key);
    if (!key || when.values.size() != 1) return "";
    const auto found = key->choices.find(when.values.front());
    return found == key->choices.end() ? "" : " " + found->second;
  }

  void row(const KeyFacts& key, const std::string& prefix, bool inner_maps) {
    const bool links = !inner_maps && is_section(key);
    const std::string name = links ? fmt::format("[{}](#{})", code(key.name), key.name) : code(prefix + key.name);
    text_ += fmt::format("| {} | {} | {} | {} | {} |\n", name, cell(type_of(key.value)), cell(default_of(key)),
                         cell(short_range(key.value)), cell(linked(key.meaning)));
    if (!inner_maps) return;
    if (is_section(key))
      for (const auto& inner : key.value.map->keys) row(*inner, prefix + key.name + ".", true);
    // The keys of a list's maps: `rename[].from`. Entries of a table have sections of their own.
    if (const auto& list = key.value.list;
        list && list->items.map && !list->items.map->any && list->items.tables.empty())
      for (const auto& inner : list->items.map->keys) row(*inner, prefix + key.name + "[].", true);
  }

  const ConfigSchema& schema_;
  std::string text_;
  std::set<std::string> written_;
};

}  // namespace

std::string short_range(const ValueFacts& value) {
  std::vector<std::string> ranges;
  if (value.tables.empty() && !value.words.empty()) ranges.push_back(words_of(value));
  if (value.integer) ranges.push_back(range_of(*value.integer));
  if (value.number) ranges.push_back(range_of(*value.number));
  if (value.byte_size && *value.byte_size > 0) ranges.push_back(fmt::format("≥ {} bytes", *value.byte_size));
  if (value.duration)
    ranges.push_back(
        fmt::format("≥ {}: {}", value.duration->min,
                    duration_spellings(value.duration->updates, value.duration->epochs, value.duration->seconds)));
  if (value.list && ranges.empty()) ranges.push_back(short_range(value.list->items));
  if (value.map && value.map->any && ranges.empty()) ranges.push_back(short_range(*value.map->any));
  std::erase(ranges, "");
  return join(ranges, "; ", "; ");
}

std::string markdown_reference(const ConfigSchema& schema) { return Page(schema).write(); }

}  // namespace bantam

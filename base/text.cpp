// Distances between words, numbers for people, aligned tables.
#include "bantam/base/text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/usual_names.h"

namespace bantam {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string padded(std::string_view text, std::size_t width, Align align) {
  const std::size_t used = display_width(text);
  const std::string space(width > used ? width - used : 0, ' ');
  return align == Align::left ? std::string(text) + space : space + std::string(text);
}

/// Bytes 10xxxxxx continue a character.
bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// The code point and the bytes of the character that a text begins with. A byte that begins none is -1, alone.
struct Character {
  std::int32_t code = -1;
  std::size_t bytes = 1;
};

/// Only the shortest spelling of a code point counts, and none of surrogates or beyond U+10FFFF.
Character first_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  std::int32_t code = first & (0xFF >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if (!continues_character(text[i])) return {};
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  constexpr std::int32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || (code >= 0xD800 && code < 0xE000) || code > 0x10FFFF) return {};
  return {code, bytes};
}

/// Whether a terminal or a page obeys the character, or shows nothing for it.
bool is_unseen(std::int32_t code) {
  const auto within = [code](std::int32_t first, std::int32_t last) { return code >= first && code <= last; };
  return code < 0x20 || within(0x7F, 0x9F) || code == 0x061C || code == 0x180E || code == 0x200B ||
         within(0x200E, 0x200F) || within(0x2028, 0x202E) || within(0x2060, 0x206F) || code == 0xFEFF ||
         within(0xFFF9, 0xFFFB);
}

bool is_joiner(std::int32_t code) { return code == 0x200C || code == 0x200D; }

/// Between characters beyond ASCII a joiner is spelling; elsewhere nothing but unseen. `text` begins with it.
bool joins(std::int32_t before, std::string_view text) {
  constexpr std::size_t kBytes = 3;
  const auto is_joined = [](std::int32_t code) { return code > 0x7F && !is_unseen(code) && !is_joiner(code); };
  return is_joined(before) && text.size() > kBytes && is_joined(first_character(text.substr(kBytes)).code);
}

/// `escape(character, its first byte)` of each unseen character but those of `kept`; the rest as it is.
template <class Escape>
std::string with_escapes(std::string_view text, std::string_view kept, const Escape& escape) {
  std::string result;
  result.reserve(text.size());
  for (std::int32_t before = -1; !text.empty();) {
    const auto special = std::ranges::find_if(text, [](char c) { return c < 0x20 || c > 0x7E; });
    const auto plain = static_cast<std::size_t>(special - text.begin());
    if (plain > 0) {
      result += text.substr(0, plain);
      before = text[plain - 1];
      text.remove_prefix(plain);
      continue;
    }
    const Character at = first_character(text);
    const bool is_kept = at.bytes == 1 && kept.find(text[0]) != std::string_view::npos;
    if (is_kept || (is_joiner(at.code) ? joins(before, text) : !is_unseen(at.code)))
      result += text.substr(0, at.bytes);
    else
      result += escape(at, static_cast<unsigned char>(text[0]));
    before = at.code;
    text.remove_prefix(at.bytes);
  }
  return result;
}

/// Unseen characters as escapes, but those of `kept`.
std::string escaped(std::string_view text, std::string_view kept) {
  return with_escapes(text, kept, [](Character at, unsigned char byte) -> std::string {
    if (at.code == '\n') return "\\n";
    if (at.code == '\r') return "\\r";
    if (at.code == '\t') return "\\t";
    return at.bytes == 1 ? fmt::format("\\x{:02x}", byte) : fmt::format("\\u{:04x}", at.code);
  });
}

/// Its first two thirds and the end, `most` bytes in all, cut between characters. Looks at no more than it keeps.
std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most || (text.size() <= 4 * most && display_width(text) <= most)) return std::string(text);
  std::size_t head = most * 2 / 3, tail = text.size() - (most - head - 1);
  while (head > 0 && continues_character(text[head])) --head;
  while (tail < text.size() && continues_character(text[tail])) ++tail;
  return fmt::format("{}…{}", text.substr(0, head), text.substr(tail));
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the distance table: two back (for swaps), the last and the current one.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (const auto ours = our_name(word); ours && std::ranges::find(candidates, *ours) != candidates.end())
    return std::string(*ours);
  constexpr std::size_t kLongest = 200;  // longer words are no slips of the pen, and cost the square of their length
  if (word.size() > kLongest) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    // No distance is less than that of the lengths: a word of megabytes is not compared letter by letter.
    const auto [shorter, longer] =
        std::minmax({word.size(), candidate.size()});  // a list: minmax of values refers to them
    if (longer - shorter > std::max<std::size_t>(1, longer / 3)) continue;
    const std::size_t distance = edit_distance(lower(word), lower(candidate));
    const std::size_t allowed = std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
    if (distance > allowed || distance >= std::min(word.size(), candidate.size())) continue;
    if (best && distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

/// After a * that matched too little, the match is tried again from the next character.
bool matches_glob(std::string_view text, std::string_view pattern) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::size_t t = 0, p = 0, star = kNone, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++t, ++p;
    } else if (star != kNone) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == kNone;
}

std::string join(std::span<const std::string> items, std::string_view separator, std::string_view last_separator) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += i + 1 == items.size() ? last_separator : separator;
    text += items[i];
  }
  return text;
}

std::size_t control_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x20 || first == 0x7F) return 1;
  // C1's are two bytes of UTF-8, C2 80 to C2 9F.
  const bool is_c1 = first == 0xC2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xA0;
  return is_c1 && continues_character(text[1]) ? 2 : 0;
}

std::string printable(std::string_view text) { return escaped(text, "\n\t"); }

std::string printable_line(std::string_view text) { return escaped(text, ""); }

std::string printable_json(std::string_view json) {
  return with_escapes(json, "\n", [](Character at, unsigned char byte) {
    return fmt::format("\\u{:04x}", at.code >= 0 ? at.code : std::int32_t{byte});
  });
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character at = first_character(text);
    if (at.code < 0) return false;
    text.remove_prefix(at.bytes);
  }
  return true;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    // A digit says something where it has bits of a byte that is there: digit k of bytes k - 1 and k.
    for (std::size_t k = 0; k < 4; ++k)
      text += k < 2 || i + k - 1 < bytes.size() ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

/// Cut before, so that no more is looked at than may be kept, and after: escapes are longer than what they stand for.
std::string shown(std::string_view text, std::size_t most) {
  return shortened(printable_line(shortened(text, most)), most);
}

std::string shown_message(std::string_view message, std::size_t most) {
  std::string result;
  for (std::size_t begin = 0; begin <= message.size();) {
    const std::size_t end = std::min(message.find('\n', begin), message.size());
    result += (begin > 0 ? "\n" : "") + printable(shortened(message.substr(begin, end - begin), most));
    begin = end + 1;
  }
  return result;
}

bool begins_name(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool continues_name(char c) { return begins_name(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string format_count(std::int64_t count) {
  std::string text = fmt::format("{}", count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t end = text.size(); end > first + 3;) {
    end -= 3;
    text.insert(end, 1, ',');
  }
  return text;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e15) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1000);
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole / 3600 % 24);
}

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !continues_character(c); }));
}

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.title = printable_line(column.title);
}

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() > columns_.size())
    throw Error(fmt::format("a table of {} columns got a row of {} cells", columns_.size(), cells.size()));
  for (std::string& cell : cells) cell = printable_line(cell);
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

void Table::add_rule() { rows_.emplace_back(); }

std::string Table::to_string() const {
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = display_width(columns_[i].title);
    for (const auto& row : rows_)
      if (!row.empty()) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
    titles.push_back(columns_[i].title);
  }
  std::string text;
  const auto print = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) line += "  ";
      line += cells.empty() ? std::string(widths[i], '-') : padded(cells[i], widths[i], columns_[i].align);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  print(titles);
  print({});
  for (const auto& row : rows_) print(row);
  return text;
}

std::string utc_text(std::int64_t seconds) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

}  // namespace bantam

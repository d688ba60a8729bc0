// Text helpers shared by the floors: nearest names for error messages, numbers and durations for people, aligned
// tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// Fewest insertions, deletions, replacements and swaps of neighbours that make `b` of `a` (Damerau's distance, where
/// no part is edited twice). Bytes are compared as they are.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, letter case ignored, if it is near enough to be a likely slip: at most a third of
/// the longer word's letters apart (at least one). Of equally near ones the first. Before all others the one that Keras
/// or PyTorch call so: "batch_norm" of "BatchNorm2d".
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

/// Whether all of `text` is like `pattern`, in which * stands for any text (also none) and ? for one character.
bool matches_glob(std::string_view text, std::string_view pattern);

/// "a, b or c" with separator ", " and last separator " or ".
std::string join(std::span<const std::string> items, std::string_view separator, std::string_view last_separator);

/// The text with control characters (C0 but newlines and tabs, DEL, C1) written as escapes, \x1b: names and values may
/// hold them, and a terminal would obey them.
std::string printable(std::string_view text);

/// The bytes of the control character that the text begins with; 0 where it begins with another character.
std::size_t control_bytes(std::string_view text);

/// One name or value as a message repeats it: on one line, control characters as escapes, and, where it is longer than
/// `most` characters, its beginning and its end with "…" between.
std::string shown(std::string_view text, std::size_t most = 80);

/// A whole message as it is shown: `printable`, and none of its lines longer than `most` characters.
std::string shown_message(std::string_view message, std::size_t most = 1000);

/// Whether `c` can begin a name of an expression or of an environment variable: an ASCII letter or `_`.
bool begins_name(char c);
/// Whether `c` can follow in such a name: what can begin it, or a digit.
bool continues_name(char c);

/// 695493 → "695,493".
std::string format_count(std::int64_t count);

/// Seconds for people: "350ms", "8.3s", "42s", "1m 23s", "2h 05m", "3d 04h". Negative and non-finite values are "?".
std::string format_duration(double seconds);

/// Columns that a terminal needs for UTF-8 text, one for each character.
std::size_t display_width(std::string_view text);

enum class Align : std::uint8_t { left, right };

/// Rows of cells, printed with aligned columns, two spaces between them and a rule under the header.
class Table {
 public:
  struct Column {
    std::string title;
    Align align = Align::right;
  };
  explicit Table(std::vector<Column> columns);

  /// Adds a row; missing cells are empty. Throws Error for more cells than columns.
  void add_row(std::vector<std::string> cells);
  /// Adds a rule between rows, e.g. above totals.
  void add_rule();
  /// The table, each line ended by a newline and free of trailing spaces.
  std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

/// "2026-11-22T20:30:00Z": seconds since 1970, UTC, as files and JSON have them.
std::string utc_text(std::int64_t seconds);

}  // namespace bantam

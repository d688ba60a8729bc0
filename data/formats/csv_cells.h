// Internal: the cells of a CSV text, row by row. Source: RFC 4180.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// How a text separates its cells and writes its numbers.
struct CsvDialect {
  char delimiter = ',';      ///< ' ': cells are separated by any number of blanks and tabs
  char decimal = '.';        ///< between the whole part and the fraction of numbers: '.' or ','
  std::string comment;       ///< what lines begin with that are no rows; empty: there are none
  std::size_t columns = 0;   ///< with `spares_rows`: of most rows
  bool spares_rows = false;  ///< lines that begin with `comment`, but have as many cells as rows have, are rows
  std::size_t begin = 0;     ///< bytes before the first row: a line such as "sep=;"
};

/// The parts of a dialect that a configuration names; the absent ones are found in the text.
struct CsvDialectKeys {
  std::optional<char> delimiter = {}, decimal = {};
  std::optional<std::string> comment = {};
  std::string separator = {};  ///< of several class names in one cell: no delimiter is looked for that is within it
};

/// Finds a dialect in the text's first 64 KiB: the delimiter (comma, semicolon, tab, bar, or blanks) that cuts its
/// lines into equal numbers of cells; lines of comments, which begin with #; and a decimal comma.
CsvDialect find_csv_dialect(std::string_view text, const CsvDialectKeys& keys);

/// Rows end with LF or CRLF; cells may be quoted, a quote in them is doubled; blanks around the quotes, a byte order
/// mark and empty lines are passed over. A quote within an unquoted cell is a character like others.
class CsvCells {
 public:
  /// `text` outlives the object; `name` is the file's, for messages.
  CsvCells(std::string_view text, CsvDialect dialect, std::string name);
  CsvCells(std::string_view text, char delimiter, std::string name);
  /// The next row's cells, which last until the next call; false at the end. Throws DataError for a quote that is not
  /// closed, and for text after one that is.
  bool next(std::vector<std::string_view>& cells);
  /// The line in which the row begins, from 1.
  std::int64_t line() const { return line_; }

 private:
  std::string_view quoted(std::size_t column);
  std::string_view unquoted();
  bool is_at_quote();
  bool is_at_comment() const;
  void pass_line();
  void pass_mark_of_header();
  void pass_blanks();
  bool is_delimiter(char c) const { return c == dialect_.delimiter || (dialect_.delimiter == ' ' && c == '\t'); }
  bool at_end_of_row() const { return at_ == text_.size() || text_[at_] == '\n' || ends_with_return(); }
  bool ends_with_return() const { return text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n'); }
  void pass_end_of_row();
  [[noreturn]] void fail(std::size_t column, std::string_view reason) const;

  std::string_view text_;
  CsvDialect dialect_;
  std::string name_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0, next_line_ = 1;
  std::deque<std::string> unescaped_;  // cells of the row that had doubled quotes
};

/// The cell without blanks around it.
std::string_view trimmed_cell(std::string_view cell);

/// The number in a cell: as C++ reads it; with grouped thousands (1,234.5; 1 234,5), a currency's sign, or per cent (45
/// % is 0.45); True and False as 1 and 0. Nothing where it is no number.
std::optional<double> csv_number(std::string_view cell, char decimal = '.');

/// Whether the cell stands for a number that is missing: it is empty, NA, nan, null, None, ?, -, or one of their likes.
bool is_missing_cell(std::string_view cell);

}  // namespace bantam

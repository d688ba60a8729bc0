// Internal: the cells of a CSV text, row by row. Source: RFC 4180.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

/// Rows end with LF or CRLF; cells may be quoted, a quote in them is doubled; a byte order mark is passed over, as are
/// empty lines. A quote within an unquoted cell is a character like others.
class CsvCells {
 public:
  /// `text` outlives the object; `name` is the file's, for messages.
  CsvCells(std::string_view text, char delimiter, std::string name);
  /// The next row's cells, which last until the next call; false at the end. Throws DataError for a quote that is not
  /// closed, and for text after one that is.
  bool next(std::vector<std::string_view>& cells);
  /// The line in which the row begins, from 1.
  std::int64_t line() const { return line_; }

 private:
  std::string_view quoted(std::size_t column);
  std::string_view unquoted();
  bool at_end_of_row() const { return at_ == text_.size() || text_[at_] == '\n' || ends_with_return(); }
  bool ends_with_return() const { return text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n'); }
  void pass_end_of_row();
  [[noreturn]] void fail(std::size_t column, std::string_view reason) const;

  std::string_view text_;
  char delimiter_;
  std::string name_;
  std::size_t at_ = 0;
  std::int64_t line_ = 0, next_line_ = 1;
  std::deque<std::string> unescaped_;  // cells of the row that had doubled quotes
};

}  // namespace bantam

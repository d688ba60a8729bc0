// One pass over the text; only cells with doubled quotes are copied.
#include "bantam/data/formats/csv_cells.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::string_view kBlanks = " \t";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Cells of a line, by a delimiter that is not within quotes.
std::size_t cells_in(std::string_view line, char delimiter) {
  if (delimiter == ' ') {
    std::size_t cells = 0;
    for (std::size_t at = line.find_first_not_of(kBlanks); at != std::string_view::npos; ++cells) {
      at = line.find_first_of(kBlanks, at);
      if (at != std::string_view::npos) at = line.find_first_not_of(kBlanks, at);
    }
    return cells;
  }
  std::size_t cells = 1;
  bool in_quotes = false;
  for (const char c : line) {
    if (c == '"') in_quotes = !in_quotes;
    if (c == delimiter && !in_quotes) ++cells;
  }
  return cells;
}

/// The lines of the text's beginning that are whole, without those that are empty. A line's end within quotes is none.
std::vector<std::string_view> first_lines(std::string_view text) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 16, kMostLines = 200;
  std::vector<std::string_view> lines;
  const std::string_view sample = text.substr(0, kMostBytes);
  std::size_t begin = 0;
  bool in_quotes = false;
  for (std::size_t at = 0; at < sample.size() && lines.size() < kMostLines; ++at) {
    if (sample[at] == '"') in_quotes = !in_quotes;
    const bool ends = sample[at] == '\n' && !in_quotes;
    const bool is_last = at + 1 == sample.size() && sample.size() == text.size();
    if (!ends && !is_last) continue;
    std::string_view line = sample.substr(begin, at - begin + (ends ? 0 : 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(line);
    begin = at + 1;
  }
  return lines.empty() && !sample.empty() ? std::vector{sample} : lines;
}

/// The number of cells that most lines have, and the share of lines that have it.
struct Regularity {
  std::size_t cells = 1;
  double share = 0;
};

Regularity regularity(const std::vector<std::string_view>& lines, char delimiter) {
  std::map<std::size_t, std::size_t> counts;
  for (const std::string_view line : lines) ++counts[cells_in(line, delimiter)];
  Regularity most;
  for (const auto& [cells, count] : counts)
    if (const double share = static_cast<double>(count) / static_cast<double>(lines.size()); share > most.share)
      most = {cells, share};
  return most;
}

/// How cells write fractions and thousands.
struct NumberForms {
  std::size_t points = 0, commas = 0;       ///< cells whose point, or comma, can only be a decimal one
  std::size_t grouped = 0, with_comma = 0;  ///< cells such as 1,234, which may be either; cells that hold a comma
};

void count_form(std::string_view cell, NumberForms& forms) {
  cell = trimmed_cell(cell);
  if (cell.starts_with('-') || cell.starts_with('+')) cell.remove_prefix(1);
  if (cell.find(',') != std::string_view::npos) ++forms.with_comma;
  if (cell.empty() || !std::ranges::all_of(cell, [](char c) { return is_digit(c) || c == '.' || c == ','; })) return;
  const std::size_t comma = cell.rfind(','), point = cell.rfind('.');
  constexpr auto kNone = std::string_view::npos;
  if (comma == kNone && point == kNone) return;
  if (comma != kNone && point != kNone) {
    ++(comma > point ? forms.commas : forms.points);
    return;
  }
  const std::size_t at = comma != kNone ? comma : point;
  const bool is_group = cell.size() - at == 4 && at >= 1 && cell[0] != '0' && cell.find(cell[at]) <= 3;
  if (!is_group && cell.find(cell[at]) == at)
    ++(comma != kNone ? forms.commas : forms.points);
  else if (comma != kNone)
    ++forms.grouped;
}

NumberForms number_forms(const std::vector<std::string_view>& lines, const CsvDialect& dialect) {
  NumberForms forms;
  for (const std::string_view line : lines) {
    try {
      CsvCells cells(line, dialect, "");
      for (std::vector<std::string_view> row; cells.next(row);)
        for (const std::string_view cell : row) count_form(cell, forms);
    } catch (const DataError&) {  // whoever reads the file reports it
    }
  }
  return forms;
}

/// Lines whose cells by another delimiter than the comma are numbers with a decimal comma.
bool has_decimal_commas(const std::vector<std::string_view>& lines, char delimiter) {
  const NumberForms forms = number_forms(lines, {.delimiter = delimiter, .comment = {}});
  return forms.commas > 0 && forms.commas + forms.grouped == forms.with_comma;
}

char find_delimiter(const std::vector<std::string_view>& lines, const std::string& separator) {
  constexpr std::array<char, 4> kDelimiters = {',', ';', '\t', '|'};
  constexpr double kRegular = 0.5;
  char best = ',';
  Regularity most;
  for (const char delimiter : kDelimiters) {
    if (separator.find(delimiter) != std::string::npos) continue;
    const Regularity found = regularity(lines, delimiter);
    if (found.cells < 2 || found.share < kRegular) continue;
    if (delimiter != ',' && found.share >= most.share && has_decimal_commas(lines, delimiter)) return delimiter;
    if (most.cells < 2 || found.share > most.share || (found.share == most.share && found.cells > most.cells)) {
      best = delimiter;
      most = found;
    }
  }
  if (most.cells > 1 || lines.size() < 2 || separator.find(' ') != std::string::npos) return best;
  const Regularity blanks = regularity(lines, ' ');
  return blanks.cells > 1 && blanks.share == 1 ? ' ' : best;
}

char find_decimal(const std::vector<std::string_view>& lines, const CsvDialect& dialect) {
  const NumberForms forms = number_forms(lines, dialect);
  if (forms.commas > forms.points) return ',';
  return forms.commas == 0 && forms.points == 0 && forms.grouped > 0 && dialect.delimiter == ';' ? ',' : '.';
}

/// Without the digits' groups, and with a decimal point; empty where it is no number so written.
std::string_view plain_number(std::string_view cell, char decimal, std::array<char, 64>& buffer) {
  const std::string_view group_marks = decimal == ',' ? ".'" : ",'";
  std::size_t size = 0;
  std::size_t since_group = 0;  // digits since the last mark between groups
  bool is_whole_part = true, is_grouped = false;
  for (std::size_t at = 0; at < cell.size(); ++at) {
    const char c = cell[at];
    const bool is_narrow_blank = cell.substr(at).starts_with("\xe2\x80\xaf");
    const bool is_blank = c == ' ' || cell.substr(at).starts_with("\xc2\xa0") || is_narrow_blank;
    if (is_whole_part && size > 0 && (is_blank || group_marks.find(c) != std::string_view::npos)) {
      if (since_group == 0 || since_group > 3 || (is_grouped && since_group != 3)) return {};
      is_grouped = true;
      since_group = 0;
      at += is_narrow_blank ? 2 : c == '\xc2' ? 1 : 0;
      continue;
    }
    if (is_whole_part && (c == decimal || c == 'e' || c == 'E')) {
      if (is_grouped && since_group != 3) return {};
      is_whole_part = false;
    }
    if (size == buffer.size()) return {};
    since_group += is_digit(c) ? 1 : 0;
    buffer[size++] = c == decimal ? '.' : c;
  }
  if (is_whole_part && is_grouped && since_group != 3) return {};
  return {buffer.data(), size};
}

std::optional<double> number_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Takes a sign of a currency from the cell's beginning or end.
std::string_view without_currency(std::string_view cell) {
  constexpr std::array<std::string_view, 4> kSigns = {"$", "\xe2\x82\xac", "\xc2\xa3", "\xc2\xa5"};
  for (const std::string_view sign : kSigns) {
    if (cell.starts_with(sign)) return trimmed_cell(cell.substr(sign.size()));
    if (cell.ends_with(sign)) return trimmed_cell(cell.substr(0, cell.size() - sign.size()));
  }
  return cell;
}

}  // namespace

std::string_view trimmed_cell(std::string_view cell) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = cell.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return cell.substr(first, cell.find_last_not_of(kBlank) + 1 - first);
}

std::optional<double> csv_number(std::string_view cell, char decimal) {
  cell = trimmed_cell(cell);
  if (cell.starts_with('+')) cell.remove_prefix(1);
  if (decimal == '.')
    if (const auto plain = number_of(cell)) return plain;
  if (cell.empty()) return std::nullopt;
  if (cell == "True" || cell == "true" || cell == "TRUE") return 1.0;
  if (cell == "False" || cell == "false" || cell == "FALSE") return 0.0;
  const bool is_negative = cell.starts_with('-');
  if (is_negative) cell.remove_prefix(1);
  cell = without_currency(cell);
  const bool is_share = cell.ends_with('%');
  if (is_share) cell = trimmed_cell(cell.substr(0, cell.size() - 1));
  if (cell.empty() || !(is_digit(cell[0]) || cell[0] == decimal)) return std::nullopt;
  std::array<char, 64> buffer = {};
  const std::optional<double> value = number_of(plain_number(cell, decimal, buffer));
  if (!value) return std::nullopt;
  const double size = is_share ? *value / 100 : *value;
  return is_negative ? -size : size;
}

bool is_missing_cell(std::string_view cell) {
  constexpr std::array<std::string_view, 22> kMissing = {"",     "NA",   "N/A",  "n/a",  "<NA>", "nan", "NaN",  "NAN",
                                                         "-nan", "NaT",  "-NaN", "?",    "-",    "--",  "null", "NULL",
                                                         "Null", "None", "none", "#N/A", "\\N",  "."};
  cell = trimmed_cell(cell);
  return cell.size() <= 4 && std::ranges::find(kMissing, cell) != kMissing.end();
}

CsvDialect find_csv_dialect(std::string_view text, const CsvDialectKeys& keys) {
  CsvDialect dialect;
  constexpr std::string_view kSeparatorLine = "sep=";
  if (text.starts_with(kSeparatorLine) && text.size() > 5 && (text[5] == '\n' || text[5] == '\r')) {
    dialect.delimiter = text[4];
    dialect.begin = text.find('\n') == std::string_view::npos ? text.size() : text.find('\n') + 1;
  }
  const std::vector<std::string_view> all = first_lines(text.substr(dialect.begin));
  const std::string comment = keys.comment.value_or("#");
  std::vector<std::string_view> lines;
  for (const std::string_view line : all)
    if (comment.empty() || !line.starts_with(comment)) lines.push_back(line);
  if (lines.empty()) lines = all;
  if (lines.empty()) return dialect;
  if (keys.delimiter)
    dialect.delimiter = *keys.delimiter;
  else if (dialect.begin == 0)
    dialect.delimiter = find_delimiter(lines, keys.separator);
  dialect.columns = regularity(lines, dialect.delimiter).cells;
  dialect.comment = comment;
  dialect.spares_rows = !keys.comment;
  dialect.decimal = keys.decimal ? *keys.decimal : find_decimal(lines, dialect);
  return dialect;
}

CsvCells::CsvCells(std::string_view text, CsvDialect dialect, std::string name)
    : text_(text), dialect_(std::move(dialect)), name_(std::move(name)) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
  next_line_ += std::ranges::count(text_.substr(0, dialect_.begin), '\n');
  text_.remove_prefix(std::min(dialect_.begin, text_.size()));
}

CsvCells::CsvCells(std::string_view text, char delimiter, std::string name)
    : CsvCells(text, CsvDialect{.delimiter = delimiter, .comment = {}}, std::move(name)) {}

void CsvCells::fail(std::size_t column, std::string_view reason) const {
  throw DataError(fmt::format("{}:{}: column {}: {}", name_, line_, column, reason));
}

void CsvCells::pass_end_of_row() {
  if (at_ < text_.size() && text_[at_] == '\r') ++at_;
  if (at_ < text_.size()) ++at_;
  ++next_line_;
}

void CsvCells::pass_line() {
  at_ = std::min(text_.find('\n', at_), text_.size());
  pass_end_of_row();
}

void CsvCells::pass_blanks() {
  while (at_ < text_.size() && kBlanks.find(text_[at_]) != std::string_view::npos) ++at_;
}

bool CsvCells::is_at_comment() const {
  if (dialect_.comment.empty() || !text_.substr(at_).starts_with(dialect_.comment)) return false;
  if (!dialect_.spares_rows) return true;
  std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return cells_in(line.substr(dialect_.comment.size()), dialect_.delimiter) != dialect_.columns;
}

/// NumPy writes a header as a comment.
void CsvCells::pass_mark_of_header() {
  const std::string_view text = text_.substr(at_);
  const std::size_t mark = dialect_.comment.size();
  if (line_ > 0 || mark == 0 || !text.starts_with(dialect_.comment) || !text.substr(mark).starts_with(' ')) return;
  at_ += mark;
  pass_blanks();
}

/// A quote that a cell begins with, after blanks perhaps, which are passed over.
bool CsvCells::is_at_quote() {
  std::size_t at = at_;
  while (at < text_.size() && text_[at] == ' ') ++at;
  if (at == text_.size() || text_[at] != '"') return false;
  at_ = at;
  return true;
}

std::string_view CsvCells::unquoted() {
  const std::size_t begin = at_;
  while (!at_end_of_row() && !is_delimiter(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::string_view CsvCells::quoted(std::size_t column) {
  const std::size_t begin = ++at_;
  bool doubled = false;
  for (;; ++at_) {
    at_ = text_.find('"', at_);
    if (at_ == std::string_view::npos) fail(column, "its quote is never closed");
    if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
    doubled = true;
    ++at_;
  }
  const std::string_view cell = text_.substr(begin, at_++ - begin);
  next_line_ += std::ranges::count(cell, '\n');
  while (at_ < text_.size() && text_[at_] == ' ' && dialect_.delimiter != ' ') ++at_;
  if (!at_end_of_row() && !is_delimiter(text_[at_])) fail(column, "there is text after its closing quote");
  if (!doubled) return cell;
  std::string& plain = unescaped_.emplace_back();
  for (std::size_t i = 0; i < cell.size(); ++i) {
    plain.push_back(cell[i]);
    if (cell[i] == '"') ++i;
  }
  return plain;
}

bool CsvCells::next(std::vector<std::string_view>& cells) {
  cells.clear();
  unescaped_.clear();
  const bool is_blank = dialect_.delimiter == ' ';
  for (;;) {
    if (is_blank) pass_blanks();
    if (at_ == text_.size()) return false;
    if (at_end_of_row())
      pass_end_of_row();
    else if (is_at_comment())
      pass_line();
    else
      break;
  }
  pass_mark_of_header();
  line_ = next_line_;
  for (;;) {
    cells.push_back(is_at_quote() ? quoted(cells.size()) : unquoted());
    if (is_blank) pass_blanks();
    if (at_end_of_row()) break;
    if (!is_blank) ++at_;  // the delimiter
  }
  pass_end_of_row();
  return true;
}

}  // namespace bantam

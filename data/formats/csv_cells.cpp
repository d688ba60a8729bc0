// One pass over the text; only cells with doubled quotes are copied.
#include "bantam/data/formats/csv_cells.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {

CsvCells::CsvCells(std::string_view text, char delimiter, std::string name)
    : text_(text), delimiter_(delimiter), name_(std::move(name)) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
}

void CsvCells::fail(std::size_t column, std::string_view reason) const {
  throw DataError(fmt::format("{}:{}: column {}: {}", name_, line_, column, reason));
}

void CsvCells::pass_end_of_row() {
  if (at_ < text_.size() && text_[at_] == '\r') ++at_;
  if (at_ < text_.size()) ++at_;
  ++next_line_;
}

std::string_view CsvCells::unquoted() {
  const std::size_t begin = at_;
  while (!at_end_of_row() && text_[at_] != delimiter_) ++at_;
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
  if (!at_end_of_row() && text_[at_] != delimiter_) fail(column, "there is text after its closing quote");
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
  while (at_ < text_.size() && at_end_of_row()) pass_end_of_row();
  if (at_ == text_.size()) return false;
  line_ = next_line_;
  for (;;) {
    cells.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted(cells.size()) : unquoted());
    if (at_end_of_row()) break;
    ++at_;  // the delimiter
  }
  pass_end_of_row();
  return true;
}

}  // namespace bantam

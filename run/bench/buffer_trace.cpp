// The CSV, line by line.
#include "bantam/run/bench/buffer_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::run {
namespace {

constexpr std::array<std::string_view, 4> kColumns = {"id", "lower", "upper", "size"};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find(',', begin), line.size());
    cells.push_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return cells;
}

/// Reads one file line by line; errors name the line.
class TraceReader {
 public:
  explicit TraceReader(const std::string& file) : file_(file) {}

  BufferTrace read() {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // spreadsheets write it before UTF-8
    const std::string text = read_file(file_);
    BufferTrace trace;
    for (std::size_t begin = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      const std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
      ++line_;
      if (line.empty()) continue;
      if (width_ == 0)
        read_header(split(line));
      else
        read_row(split(line), trace);
    }
    if (width_ == 0) fail("the file is empty; expected a header id,lower,upper,size");
    return trace;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw DataError(fmt::format("{}:{}: error: {}", file_, std::max(line_, 1), message));
  }

  void read_header(const std::vector<std::string_view>& cells) {
    width_ = cells.size();
    for (std::size_t i = 0; i < kColumns.size(); ++i) {
      const auto found = std::ranges::find(cells, kColumns[i]);
      if (found == cells.end()) fail(fmt::format("no column '{}'; expected a header id,lower,upper,size", kColumns[i]));
      if (std::ranges::count(cells, kColumns[i]) > 1) fail(fmt::format("two columns are called '{}'", kColumns[i]));
      column_[i] = static_cast<std::size_t>(found - cells.begin());
    }
  }

  template <class T>
  T number(std::string_view text, std::string_view column) const {
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail(fmt::format("{}: expected a whole number, got '{}'", column, text));
    return value;
  }

  void read_row(const std::vector<std::string_view>& cells, BufferTrace& trace) {
    if (cells.size() != width_) fail(fmt::format("expected {} values, got {}", width_, cells.size()));
    const PlannerBuffer buffer{.id = static_cast<std::int64_t>(trace.buffers.size()),
                               .lower = number<std::int64_t>(cells[column_[1]], "lower"),
                               .upper = number<std::int64_t>(cells[column_[2]], "upper"),
                               .size = number<std::uint64_t>(cells[column_[3]], "size")};
    if (buffer.lower >= buffer.upper)
      fail(fmt::format("lower must be below upper, got {} and {}", buffer.lower, buffer.upper));
    if (buffer.size >= std::uint64_t{1} << 62) fail(fmt::format("size: {} is too large", buffer.size));
    const auto [first, fresh] = line_of_id_.emplace(cells[column_[0]], line_);
    if (!fresh) fail(fmt::format("id: '{}' is taken by line {}", first->first, first->second));
    trace.buffers.push_back(buffer);
    trace.ids.emplace_back(cells[column_[0]]);
  }

  std::string file_;
  int line_ = 0;
  std::size_t width_ = 0;
  std::array<std::size_t, kColumns.size()> column_{};
  std::unordered_map<std::string, int> line_of_id_;
};

}  // namespace

BufferTrace read_buffer_trace(const std::string& file) { return TraceReader(file).read(); }

}  // namespace bantam::run

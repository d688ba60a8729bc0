// `bantam plan --trace`: the planner by itself.
#include "bantam/cli/plan/plan_trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/cli/print/json_text.h"
#include "bantam/packing/planner.h"

namespace bantam::cli {
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

void write_offsets(const std::string& file, const BufferTrace& trace, const ArenaPlan& plan) {
  std::string text = "id,lower,upper,size,offset\n";
  for (std::size_t i = 0; i < trace.buffers.size(); ++i) {
    const PlannerBuffer& b = trace.buffers[i];
    text += fmt::format("{},{},{},{},{}\n", trace.ids[i], b.lower, b.upper, b.size, plan.offsets[i]);
  }
  write_file_atomically(file, text);
}

void print_json(const BufferTrace& trace, const TraceOptions& options, const ArenaPlan& plan) {
  nlohmann::ordered_json json = {{"trace", options.file},           {"buffers", trace.buffers.size()},
                                 {"arena_bytes", plan.arena_bytes}, {"max_live_bytes", plan.max_live_bytes},
                                 {"ratio", plan.ratio()},           {"seconds", plan.seconds},
                                 {"iterations", plan.iterations},   {"stopped", to_string(plan.stop)}};
  if (options.capacity > 0) {
    json["capacity_bytes"] = options.capacity;
    json["fits"] = plan.arena_bytes <= options.capacity;
  }
  json["ids"] = trace.ids;
  json["offsets"] = plan.offsets;
  fmt::print("{}\n", json_text(json));
}

}  // namespace

BufferTrace read_buffer_trace(const std::string& file) { return TraceReader(file).read(); }

int plan_trace(const TraceOptions& options) {
  const BufferTrace trace = read_buffer_trace(options.file);
  const ArenaPlan plan = solve_arena(trace.buffers, {.capacity = options.capacity, .seconds = options.seconds});
  if (!options.offsets_file.empty()) write_offsets(options.offsets_file, trace, plan);
  const bool fits = options.capacity == 0 || plan.arena_bytes <= options.capacity;
  if (options.json) {
    print_json(trace, options, plan);
  } else {
    fmt::print("{}: {} buffer{}\n", options.file, trace.buffers.size(), trace.buffers.size() == 1 ? "" : "s");
    fmt::print("arena_bytes     {}\nmax_live_bytes  {}\nratio           {:.4f}\n", plan.arena_bytes,
               plan.max_live_bytes, plan.ratio());
    fmt::print("seconds         {:.3f} (stopped: {}, {} placements tried)\n", plan.seconds, to_string(plan.stop),
               plan.iterations);
    if (options.capacity > 0) fmt::print("capacity        {}: {}\n", options.capacity, fits ? "fits" : "does not fit");
  }
  return fits ? 0 : 4;
}

}  // namespace bantam::cli

// Finds columns in the first row, then reads the cells of each row by what their column is for.
#include "bantam/data/formats/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/csv_cells.h"
#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace {

using Cells = std::vector<std::string_view>;

std::string_view trimmed(std::string_view cell) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = cell.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return cell.substr(first, cell.find_last_not_of(kBlank) + 1 - first);
}

std::optional<double> number_in(std::string_view cell) {
  cell = trimmed(cell);
  if (cell.starts_with('+')) cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || end != cell.data() + cell.size()) return std::nullopt;
  return value;
}

/// Places of the columns in a row.
struct Places {
  std::optional<std::size_t> image, weight;
  std::vector<std::size_t> features, labels, targets;
};

/// Reads one file; used once.
class TableReader {
 public:
  TableReader(const std::filesystem::path& path, const CsvColumns& columns)
      : columns_(columns),
        text_(read_file(path)),
        cells_(text_, columns.delimiter, path.string()),
        name_(path.string()) {
    table_.path = path;
  }

  CsvTable read() {
    Cells row;
    if (!cells_.next(row)) throw DataError(fmt::format("{}: has no rows", name_));
    begin(row);
    bool more = header_.empty() || cells_.next(row);
    for (; more; more = cells_.next(row)) add(row);
    if (table_.lines.empty()) throw DataError(fmt::format("{}: has no rows after the header", name_));
    return std::move(table_);
  }

 private:
  void begin(const Cells& first);
  bool has_header(const Cells& first) const;
  void read_header(const Cells& first);
  std::size_t place_of(const CsvColumn& column) const;
  std::vector<std::size_t> places_of(const std::vector<CsvColumn>& columns) const;
  void find_features();
  void add(const Cells& row);
  void add_labels(const Cells& row);
  std::int32_t label_id(std::string_view name, std::size_t column);
  float number(const Cells& row, std::size_t column) const;
  std::string column_text(std::size_t column) const {
    return header_.empty() ? fmt::format("column {}", column) : fmt::format("column '{}'", shown(header_[column]));
  }
  [[noreturn]] void fail(std::size_t column, std::string_view reason) const {
    throw DataError(fmt::format("{}:{}: {}: {}", name_, cells_.line(), column_text(column), reason));
  }

  const CsvColumns& columns_;
  std::string text_;
  CsvCells cells_;
  std::string name_;
  std::vector<std::string> header_;
  std::size_t width_ = 0;
  Places places_;
  std::unordered_map<std::string, std::int32_t> label_ids_;
  CsvTable table_;
};

bool TableReader::has_header(const Cells& first) const {
  if (columns_.header != CsvHeader::automatic) return columns_.header == CsvHeader::present;
  const auto named = [](const CsvColumn& column) { return !column.name.empty(); };
  for (const auto& columns : {columns_.features, columns_.labels, columns_.targets})
    if (std::ranges::any_of(columns, named)) return true;
  for (const auto& column : {columns_.image, columns_.weight})
    if (column && named(*column)) return true;
  return std::ranges::none_of(first, [](std::string_view cell) { return number_in(cell) || has_image_suffix(cell); });
}

void TableReader::read_header(const Cells& first) {
  std::set<std::string_view> seen;
  for (const std::string_view cell : first) {
    header_.emplace_back(trimmed(cell));
    if (!seen.insert(trimmed(cell)).second)
      throw DataError(fmt::format("{}:{}: two columns are called '{}'", name_, cells_.line(), shown(trimmed(cell))));
  }
}

std::size_t TableReader::place_of(const CsvColumn& column) const {
  if (column.name.empty()) {
    if (column.number < static_cast<std::int64_t>(width_)) return static_cast<std::size_t>(column.number);
    throw DataError(fmt::format("{}:{}: has no column {}; the last of its {} columns is {}", name_, cells_.line(),
                                column.number, width_, width_ - 1));
  }
  if (header_.empty())
    throw DataError(
        fmt::format("{}: has no header, so that no column is called '{}'; name columns by their numbers, "
                    "from 0",
                    name_, column.name));
  const auto found = std::ranges::find(header_, column.name);
  if (found != header_.end()) return static_cast<std::size_t>(found - header_.begin());
  const auto near = nearest(column.name, header_);
  throw DataError(fmt::format("{}:{}: has no column '{}'; {}", name_, cells_.line(), column.name,
                              near ? fmt::format("did you mean '{}'?", shown(*near))
                                   : fmt::format("its columns are {}", shown(join(header_, ", ", " and "), 400))));
}

std::vector<std::size_t> TableReader::places_of(const std::vector<CsvColumn>& columns) const {
  std::vector<std::size_t> places;
  for (const CsvColumn& column : columns) places.push_back(place_of(column));
  return places;
}

/// All columns of no other use, where none is named.
void TableReader::find_features() {
  table_.features = columns_.features;
  if (columns_.features.empty() && !columns_.image) {
    std::set<std::size_t> used(places_.labels.begin(), places_.labels.end());
    used.insert(places_.targets.begin(), places_.targets.end());
    if (places_.weight) used.insert(*places_.weight);
    for (std::size_t c = 0; c < width_; ++c)
      if (!used.contains(c))
        table_.features.push_back({header_.empty() ? "" : header_[c], static_cast<std::int64_t>(c)});
    if (table_.features.empty())
      throw DataError(fmt::format("{}: has no columns of features beside its labels or targets", name_));
  }
  places_.features = places_of(table_.features);
}

void TableReader::begin(const Cells& first) {
  width_ = first.size();
  if (has_header(first)) read_header(first);
  if (columns_.image) places_.image = place_of(*columns_.image);
  if (columns_.weight) places_.weight = place_of(*columns_.weight);
  places_.labels = places_of(columns_.labels);
  places_.targets = places_of(columns_.targets);
  find_features();
  if (columns_.labels.size() > 1)
    for (const std::size_t column : places_.labels)
      table_.label_columns.push_back(header_.empty() ? fmt::format("{}", column) : header_[column]);
}

float TableReader::number(const Cells& row, std::size_t column) const {
  const std::optional<double> value = number_in(row[column]);
  if (!value) fail(column, fmt::format("expected a number, got '{}'", shown(row[column])));
  const auto rounded = static_cast<float>(*value);
  if (!std::isfinite(rounded)) fail(column, fmt::format("expected a finite float32, got '{}'", shown(row[column])));
  return rounded;
}

std::int32_t TableReader::label_id(std::string_view name, std::size_t column) {
  name = trimmed(name);
  if (name.empty()) fail(column, "expected a class name, got an empty cell");
  const auto [entry, added] = label_ids_.emplace(name, static_cast<std::int32_t>(label_ids_.size()));
  if (added) {
    table_.label_names.emplace_back(name);
    table_.label_lines.push_back(cells_.line());
  }
  return entry->second;
}

void TableReader::add_labels(const Cells& row) {
  if (places_.labels.size() > 1) {
    for (const std::size_t column : places_.labels) {
      const float present = number(row, column);
      if (present != 0.0f && present != 1.0f)
        fail(column, fmt::format("expected 0 or 1, got '{}'", shown(row[column])));
      table_.presence.push_back(present);
    }
    return;
  }
  const std::size_t column = places_.labels[0];
  if (columns_.separator.empty()) return table_.labels.push_back(label_id(row[column], column));
  std::vector<std::int32_t>& set = table_.sets.emplace_back();
  for (std::string_view rest = trimmed(row[column]); !rest.empty();) {
    const std::size_t end = rest.find(columns_.separator);
    set.push_back(label_id(rest.substr(0, end), column));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + columns_.separator.size());
    if (rest.empty()) fail(column, fmt::format("a class name is missing after the last '{}'", columns_.separator));
  }
}

void TableReader::add(const Cells& row) {
  if (row.size() != width_)
    throw DataError(fmt::format("{}:{}: has {} columns, expected {} as in the first row", name_, cells_.line(),
                                row.size(), width_));
  table_.lines.push_back(cells_.line());
  if (places_.image) {
    const std::string_view image = trimmed(row[*places_.image]);
    if (image.empty()) fail(*places_.image, "expected an image's path, got an empty cell");
    if (image.find('\0') != std::string_view::npos) fail(*places_.image, "a path cannot hold a zero byte");
    table_.images.emplace_back(image);
  }
  for (const std::size_t column : places_.features) table_.values.push_back(number(row, column));
  if (!places_.labels.empty()) add_labels(row);
  for (const std::size_t column : places_.targets) table_.targets.push_back(number(row, column));
  if (!places_.weight) return;
  const float weight = number(row, *places_.weight);
  if (weight < 0) fail(*places_.weight, fmt::format("a weight is not negative, got '{}'", shown(row[*places_.weight])));
  table_.weights.push_back(weight);
}

}  // namespace

std::int64_t CsvTable::bytes() const {
  std::size_t bytes =
      lines.capacity() * sizeof(std::int64_t) + labels.capacity() * sizeof(std::int32_t) +
      (values.capacity() + presence.capacity() + targets.capacity() + weights.capacity()) * sizeof(float);
  for (const std::string& image : images) bytes += sizeof(std::string) + image.capacity();
  for (const auto& set : sets) bytes += sizeof(std::vector<std::int32_t>) + set.capacity() * sizeof(std::int32_t);
  return static_cast<std::int64_t>(bytes);
}

CsvTable read_csv_table(const std::filesystem::path& path, const CsvColumns& columns) {
  return TableReader(path, columns).read();
}

}  // namespace bantam

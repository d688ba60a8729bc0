// Finds columns in the first row, then reads the cells of each row by what their column is for.
#include "bantam/data/formats/csv_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/image_files.h"

namespace bantam {
namespace {

using Cells = std::vector<std::string_view>;

std::string plural(std::int64_t count, std::string_view one) {
  return fmt::format("{} {}{}", format_count(count), one, count == 1 ? "" : "s");
}

/// The rows of a file, each with as many cells as the first one, after the header, if there is one.
class CsvRows {
 public:
  CsvRows(const std::filesystem::path& path, const CsvColumns& columns)
      : text_(read_table_text(path, columns.encoding)),
        dialect_(find_csv_dialect(text_.text, columns.dialect)),
        name_(path.string()),
        cells_(text_.text, dialect_, name_) {
    Cells row;
    if (!cells_.next(row)) throw DataError(fmt::format("{}: has no rows", name_));
    width_ = row.size();
    first_line_ = cells_.line();
    if (has_header(row, columns)) read_header(row);
    begin_ = cells_;
    if (!has_header_) rewind();
  }

  /// False at the end. Throws DataError for a row of another length.
  bool next(Cells& row) {
    while (cells_.next(row))
      if (fits(row)) return true;
    return false;
  }
  void rewind() { cells_ = has_header_ ? begin_ : CsvCells(text_.text, dialect_, name_); }
  /// Rows of another length are passed over, not refused.
  void pass_over_others() { passes_over_others_ = true; }

  bool has_header() const { return has_header_; }
  const std::vector<std::string>& header() const { return header_; }
  /// Names that two columns of the file have; the second is called a.1 here.
  const std::unordered_set<std::string>& repeated() const { return repeated_; }
  std::size_t width() const { return width_; }
  std::int64_t line() const { return cells_.line(); }
  std::int64_t first_line() const { return first_line_; }
  const CsvDialect& dialect() const { return dialect_; }
  const std::string& name() const { return name_; }
  const std::vector<std::string>& notes() const { return text_.notes; }

 private:
  static bool has_header(const Cells& first, const CsvColumns& columns);
  void read_header(const Cells& first);
  bool fits(Cells& row) const;

  TableText text_;
  CsvDialect dialect_;
  std::string name_;
  CsvCells cells_, begin_ = CsvCells("", ',', "");
  std::vector<std::string> header_;
  std::unordered_set<std::string> repeated_;
  std::size_t width_ = 0;
  std::int64_t first_line_ = 0;
  bool has_header_ = false, passes_over_others_ = false;
};

bool CsvRows::has_header(const Cells& first, const CsvColumns& columns) {
  if (columns.header != CsvHeader::automatic) return columns.header == CsvHeader::present;
  const auto named = [](const CsvColumn& column) { return !column.name.empty(); };
  for (const auto* several : {&columns.features, &columns.labels, &columns.targets})
    if (std::ranges::any_of(*several, named)) return true;
  for (const auto* column : {&columns.image, &columns.weight, &columns.group})
    if (*column && named(**column)) return true;
  return std::ranges::none_of(first, [](std::string_view cell) { return csv_number(cell) || has_image_suffix(cell); });
}

void CsvRows::read_header(const Cells& first) {
  has_header_ = true;
  std::unordered_map<std::string, int> seen;
  for (const std::string_view cell : first) {
    std::string name(trimmed_cell(cell));
    const int times = seen[name]++;
    if (times > 0 && !name.empty()) {
      repeated_.insert(name);
      name += fmt::format(".{}", times);
    }
    header_.push_back(std::move(name));
  }
  // R writes names of rows, and no name for their column.
  CsvCells ahead = cells_;
  Cells row;
  if (!ahead.next(row) || row.size() != width_ + 1 || trimmed_cell(row.back()).empty()) return;
  header_.insert(header_.begin(), "");
  ++width_;
}

/// Cuts off an empty cell after a delimiter at the row's end, and adds the one that the header alone has.
bool CsvRows::fits(Cells& row) const {
  if (row.size() == width_) return true;
  if (row.size() == width_ + 1 && trimmed_cell(row.back()).empty()) {
    row.pop_back();
    return true;
  }
  if (row.size() + 1 == width_ && has_header_ && header_.back().empty()) {
    row.emplace_back();
    return true;
  }
  if (passes_over_others_) return false;
  throw DataError(
      fmt::format("{}:{}: has {}, expected {} as in the first row (cells end at {}; data.delimiter names "
                  "another character)",
                  name_, cells_.line(), plural(std::ssize(row), "column"), width_,
                  dialect_.delimiter == '\t'  ? std::string("tabs")
                  : dialect_.delimiter == ' ' ? std::string("blanks")
                                              : fmt::format("'{}'", dialect_.delimiter)));
}

/// Cells of one column, counted.
class ColumnCounter {
 public:
  void add(std::string_view cell, char decimal) {
    cell = trimmed_cell(cell);
    if (is_missing_cell(cell)) return ++facts.missing, void();
    if (has_image_suffix(cell)) ++facts.images;
    const std::optional<double> value = csv_number(cell, decimal);
    if (!value || !std::isfinite(*value)) {
      ++facts.text;
      return note_value(std::hash<std::string_view>()(cell));
    }
    facts.least = facts.numbers == 0 ? *value : std::min(facts.least, *value);
    facts.most = facts.numbers == 0 ? *value : std::max(facts.most, *value);
    ++facts.numbers;
    if (*value != std::floor(*value)) return;
    ++facts.whole;
    note_value(std::hash<double>()(*value));
  }

  CsvColumnFacts facts;

 private:
  /// Values are remembered as long as all differ, or as their number is of interest.
  void note_value(std::size_t value) {
    if (!facts.all_different && facts.distinct >= CsvColumnFacts::kMostDistinct) return;
    if (!seen_.insert(value).second) facts.all_different = false;
    facts.distinct = std::min(std::ssize(seen_), CsvColumnFacts::kMostDistinct);
    if (!facts.all_different && facts.distinct >= CsvColumnFacts::kMostDistinct) seen_ = {};
  }

  std::unordered_set<std::size_t> seen_;
};

std::vector<CsvColumnFacts> count_columns(CsvRows& rows, std::int64_t most_rows, std::int64_t& counted) {
  std::vector<ColumnCounter> counters(rows.width());
  Cells row;
  for (counted = 0; counted < most_rows && rows.next(row); ++counted)
    for (std::size_t c = 0; c < row.size(); ++c) counters[c].add(row[c], rows.dialect().decimal);
  rows.rewind();
  std::vector<CsvColumnFacts> facts;
  for (std::size_t c = 0; c < counters.size(); ++c) {
    if (rows.has_header()) counters[c].facts.name = rows.header()[c];
    counters[c].facts.is_unnamed = rows.has_header() && rows.header()[c].empty();
    facts.push_back(std::move(counters[c].facts));
  }
  return facts;
}

/// The words of a column's name, in small letters: "PassengerId" has passenger and id.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  bool was_small = false, is_new = true;
  for (const char c : name) {
    const auto code = static_cast<unsigned char>(c);
    if (std::isalnum(code) == 0) {
      is_new = true;
      continue;
    }
    if (is_new || (was_small && std::isupper(code) != 0)) words.emplace_back();
    is_new = false;
    was_small = std::islower(code) != 0;
    words.back().push_back(static_cast<char>(std::tolower(code)));
  }
  return words;
}

bool has_word(std::string_view name, std::span<const std::string_view> words) {
  return std::ranges::any_of(words_of(name),
                             [&](const std::string& word) { return std::ranges::find(words, word) != words.end(); });
}

/// Places of the columns in a row.
struct Places {
  std::optional<std::size_t> image, weight, group;
  std::vector<std::size_t> features, labels, targets;
};

/// Missing cells by column, and the first one.
struct MissingCells {
  std::unordered_map<std::size_t, std::int64_t> counts;
  std::int64_t rows = 0, first_line = 0;
  std::size_t first_column = 0;
  std::string first_cell;
};

/// Reads one file; used once.
class TableReader {
 public:
  TableReader(const std::filesystem::path& path, const CsvColumns& columns) : columns_(columns), rows_(path, columns) {
    table_.path = path;
    for (std::size_t c = 0; c < rows_.header().size(); ++c) places_by_name_.emplace(rows_.header()[c], c);
  }

  CsvTable read() {
    begin();
    Cells row;
    while (rows_.next(row)) {
      ++read_;
      if (is_kept(row)) add(row);
    }
    if (read_ == 0) throw DataError(fmt::format("{}: has no rows after the header", rows_.name()));
    if (columns_.missing == CsvMissing::error && missing_.rows > 0) fail_missing();
    if (table_.lines.empty())
      throw DataError(fmt::format("{}: `missing: {}` leaves no row: {}", rows_.name(),
                                  columns_.missing == CsvMissing::drop ? "drop" : "mean", missing_text()));
    add_notes();
    return std::move(table_);
  }

 private:
  void begin();
  std::size_t place_of(const CsvColumn& column) const;
  std::vector<std::size_t> places_of(const std::vector<CsvColumn>& columns) const;
  void find_features();
  std::vector<CsvColumn> all_features();
  bool is_kept(const Cells& row);
  void note_missing(const Cells& row, std::size_t column, bool& counted);
  void add(const Cells& row);
  void add_labels(const Cells& row);
  std::int32_t label_id(std::string_view name, std::size_t column);
  double number(const Cells& row, std::size_t column) const;
  float target(const Cells& row, std::size_t column) const { return static_cast<float>(number(row, column)); }
  float presence(const Cells& row, std::size_t column) const;
  void add_notes();
  std::string missing_text() const;
  [[noreturn]] void fail_missing() const;
  bool has_name(std::size_t column) const { return rows_.has_header() && !rows_.header()[column].empty(); }
  std::string name_of(std::size_t column) const {
    return has_name(column) ? fmt::format("'{}'", shown(rows_.header()[column])) : fmt::format("{}", column);
  }
  std::string column_text(std::size_t column) const { return "column " + name_of(column); }
  std::string names_of(const std::vector<std::size_t>& columns) const {
    std::vector<std::string> names;
    for (const std::size_t column : columns) names.push_back(has_name(column) ? name_of(column) : column_text(column));
    return shown(join(names, ", ", " and "), 300);
  }
  [[noreturn]] void fail(std::size_t column, std::string_view reason) const {
    throw DataError(fmt::format("{}:{}: {}: {}", rows_.name(), rows_.line(), column_text(column), reason));
  }

  const CsvColumns& columns_;
  CsvRows rows_;
  std::unordered_map<std::string_view, std::size_t> places_by_name_;
  Places places_;
  std::unordered_map<std::string, std::int32_t> label_ids_, group_ids_;
  MissingCells missing_;
  std::int64_t read_ = 0;
  CsvTable table_;
};

std::size_t TableReader::place_of(const CsvColumn& column) const {
  if (column.name.empty()) {
    if (column.number < static_cast<std::int64_t>(rows_.width())) return static_cast<std::size_t>(column.number);
    throw DataError(fmt::format("{}:{}: has no column {}; the last of its {} columns is {}", rows_.name(),
                                rows_.first_line(), column.number, rows_.width(), rows_.width() - 1));
  }
  if (!rows_.has_header())
    throw DataError(
        fmt::format("{}: has no header, so that no column is called '{}'; name columns by their numbers, "
                    "from 0",
                    rows_.name(), column.name));
  if (rows_.repeated().contains(column.name))
    throw DataError(fmt::format("{}:{}: two columns are called '{}': name the one that is meant by its number, from 0",
                                rows_.name(), rows_.first_line(), shown(column.name)));
  if (const auto found = places_by_name_.find(column.name); found != places_by_name_.end()) return found->second;
  const auto near = nearest(column.name, rows_.header());
  throw DataError(
      fmt::format("{}:{}: has no column '{}'; {}", rows_.name(), rows_.first_line(), column.name,
                  near ? fmt::format("did you mean '{}'?", shown(*near))
                       : fmt::format("its columns are {}", shown(join(rows_.header(), ", ", " and "), 400))));
}

std::vector<std::size_t> TableReader::places_of(const std::vector<CsvColumn>& columns) const {
  std::vector<std::size_t> places;
  for (const CsvColumn& column : columns) places.push_back(place_of(column));
  return places;
}

/// All columns of no other use that hold numbers, but for those that number the rows; a note tells which are left out.
std::vector<CsvColumn> TableReader::all_features() {
  std::unordered_set<std::size_t> used(places_.labels.begin(), places_.labels.end());
  used.insert(places_.targets.begin(), places_.targets.end());
  for (const auto& place : {places_.weight, places_.group})
    if (place) used.insert(*place);
  std::int64_t counted = 0;
  const std::vector<CsvColumnFacts> facts = count_columns(rows_, INT64_MAX, counted);
  std::vector<std::size_t> kept, indices, text, empty;
  for (std::size_t c = 0; c < facts.size(); ++c) {
    if (used.contains(c)) continue;
    if (facts[c].is_empty() && counted > 0)
      empty.push_back(c);
    else if (!facts[c].is_numeric() && counted > 0)
      text.push_back(c);
    else
      (facts[c].is_index() ? indices : kept).push_back(c);
  }
  if (kept.empty()) kept.swap(indices);
  if (kept.empty())
    throw DataError(fmt::format("{}: has no columns of features beside its labels or targets{}", rows_.name(),
                                text.empty() ? "" : fmt::format(": {} hold text", names_of(text))));
  std::vector<std::string> left_out;
  const auto tell = [&](const std::vector<std::size_t>& columns, std::string_view one, std::string_view several) {
    if (!columns.empty())
      left_out.push_back(fmt::format("{} ({})", names_of(columns), columns.size() == 1 ? one : several));
  };
  tell(indices, "it numbers or names the rows", "they number or name the rows");
  tell(text, "it is text", "they are text");
  tell(empty, "it is empty", "they are empty");
  if (!left_out.empty())
    table_.notes.push_back(fmt::format("{}: `features: all` leaves out {}; `features: [a, b]` names those to be read",
                                       rows_.name(), join(left_out, ", ", " and ")));
  std::vector<CsvColumn> features;
  for (const std::size_t c : kept)
    features.push_back({rows_.has_header() ? rows_.header()[c] : "", static_cast<std::int64_t>(c)});
  return features;
}

void TableReader::find_features() {
  const bool is_all = columns_.features.empty() && !columns_.image;
  table_.features = is_all ? all_features() : columns_.features;
  if (!is_all) {
    places_.features = places_of(table_.features);
    return;
  }
  for (const CsvColumn& feature : table_.features) places_.features.push_back(static_cast<std::size_t>(feature.number));
}

void TableReader::begin() {
  table_.notes = rows_.notes();
  if (columns_.image) places_.image = place_of(*columns_.image);
  if (columns_.weight) places_.weight = place_of(*columns_.weight);
  if (columns_.group) places_.group = place_of(*columns_.group);
  places_.labels = places_of(columns_.labels);
  places_.targets = places_of(columns_.targets);
  find_features();
  if (columns_.labels.size() < 2) return;
  for (const std::size_t column : places_.labels)
    table_.label_columns.push_back(rows_.has_header() ? rows_.header()[column] : fmt::format("{}", column));
  if (!columns_.one_hot) return;
  table_.label_names = std::exchange(table_.label_columns, {});
  table_.label_lines.assign(table_.label_names.size(), rows_.first_line());
}

/// NaN where the cell is missing.
double TableReader::number(const Cells& row, std::size_t column) const {
  if (is_missing_cell(row[column])) return std::numeric_limits<double>::quiet_NaN();
  const std::optional<double> value = csv_number(row[column], rows_.dialect().decimal);
  if (!value) fail(column, fmt::format("expected a number, got '{}'", shown(row[column])));
  if (!std::isfinite(static_cast<float>(*value)))
    fail(column, fmt::format("expected a finite float32, got '{}'", shown(row[column])));
  return *value;
}

float TableReader::presence(const Cells& row, std::size_t column) const {
  const float present = target(row, column);
  if (present != 0.0f && present != 1.0f) fail(column, fmt::format("expected 0 or 1, got '{}'", shown(row[column])));
  return present;
}

std::int32_t TableReader::label_id(std::string_view name, std::size_t column) {
  name = trimmed_cell(name);
  if (name.empty()) fail(column, "expected a class name, got an empty cell");
  const auto [entry, added] = label_ids_.emplace(name, static_cast<std::int32_t>(label_ids_.size()));
  if (added) {
    table_.label_names.emplace_back(name);
    table_.label_lines.push_back(rows_.line());
  }
  return entry->second;
}

void TableReader::add_labels(const Cells& row) {
  if (columns_.one_hot) {
    std::int32_t label = -1;
    for (std::size_t i = 0; i < places_.labels.size(); ++i) {
      if (presence(row, places_.labels[i]) == 0.0f) continue;
      if (label >= 0)
        fail(places_.labels[i],
             fmt::format("a second 1 in the columns of label.one_hot, after that of '{}'; where samples may be of "
                         "several classes, use `label: [a, b]` with `loss: binary_cross_entropy`",
                         shown(table_.label_names[static_cast<std::size_t>(label)])));
      label = static_cast<std::int32_t>(i);
    }
    if (label < 0) fail(places_.labels[0], "no column of label.one_hot holds 1");
    return table_.labels.push_back(label);
  }
  if (places_.labels.size() > 1) {
    for (const std::size_t column : places_.labels) table_.presence.push_back(presence(row, column));
    return;
  }
  const std::size_t column = places_.labels[0];
  if (columns_.separator.empty()) return table_.labels.push_back(label_id(row[column], column));
  std::vector<std::int32_t>& set = table_.sets.emplace_back();
  for (std::string_view rest = trimmed_cell(row[column]); !rest.empty();) {
    const std::size_t end = rest.find(columns_.separator);
    set.push_back(label_id(rest.substr(0, end), column));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + columns_.separator.size());
    if (rest.empty()) fail(column, fmt::format("a class name is missing after the last '{}'", columns_.separator));
  }
}

/// A row counts once, whatever it misses.
void TableReader::note_missing(const Cells& row, std::size_t column, bool& counted) {
  if (missing_.rows == 0) {
    missing_.first_line = rows_.line();
    missing_.first_column = column;
    missing_.first_cell = row[column];
  }
  ++missing_.counts[column];
  if (!std::exchange(counted, true)) ++missing_.rows;
}

/// Whether the row has all that it needs. What it misses is counted.
bool TableReader::is_kept(const Cells& row) {
  bool counted = false;
  const auto is_empty = [&](std::size_t column) { return trimmed_cell(row[column]).empty(); };
  const auto need = [&](std::size_t column, bool is_missing) {
    if (is_missing) note_missing(row, column, counted);
  };
  if (places_.image) need(*places_.image, is_empty(*places_.image));
  if (places_.group) need(*places_.group, is_empty(*places_.group));
  if (places_.weight) need(*places_.weight, is_missing_cell(row[*places_.weight]));
  if (places_.labels.size() > 1)
    for (const std::size_t column : places_.labels) need(column, is_missing_cell(row[column]));
  else if (!places_.labels.empty() && columns_.separator.empty())
    need(places_.labels[0], is_empty(places_.labels[0]));
  for (const std::size_t column : places_.targets) need(column, is_missing_cell(row[column]));
  if (columns_.missing != CsvMissing::mean)
    for (const std::size_t column : places_.features) need(column, is_missing_cell(row[column]));
  return !counted;
}

void TableReader::add(const Cells& row) {
  table_.lines.push_back(rows_.line());
  if (places_.image) {
    const std::string_view image = trimmed_cell(row[*places_.image]);
    if (image.find('\0') != std::string_view::npos) fail(*places_.image, "a path cannot hold a zero byte");
    table_.images.emplace_back(image);
  }
  for (const std::size_t column : places_.features) table_.values.push_back(number(row, column));
  if (!places_.labels.empty()) add_labels(row);
  for (const std::size_t column : places_.targets) table_.targets.push_back(target(row, column));
  if (places_.group) {
    const std::string group(trimmed_cell(row[*places_.group]));
    table_.groups.push_back(group_ids_.emplace(group, static_cast<std::int32_t>(group_ids_.size())).first->second);
  }
  if (!places_.weight) return;
  const float weight = target(row, *places_.weight);
  if (weight < 0) fail(*places_.weight, fmt::format("a weight is not negative, got '{}'", shown(row[*places_.weight])));
  table_.weights.push_back(weight);
}

/// "5 of 891 rows miss a value: 3 in 'Age', 2 in 'Fare'".
std::string TableReader::missing_text() const {
  std::vector<std::pair<std::size_t, std::int64_t>> counts(missing_.counts.begin(), missing_.counts.end());
  std::ranges::sort(counts);
  std::vector<std::string> columns;
  for (const auto& [column, count] : counts)
    columns.push_back(fmt::format("{} in {}", format_count(count), column_text(column)));
  return fmt::format("{} of {} {} a value: {}", format_count(missing_.rows), plural(read_, "row"),
                     missing_.rows == 1 ? "misses" : "miss", shown(join(columns, ", ", " and "), 300));
}

void TableReader::fail_missing() const {
  const std::size_t column = missing_.first_column;
  const auto is_in = [&](const std::vector<std::size_t>& places) {
    return std::ranges::find(places, column) != places.end();
  };
  const bool is_class = columns_.labels.size() == 1 && is_in(places_.labels);
  const std::string_view expected = places_.image == column   ? "an image's path"
                                    : places_.group == column ? "the name of a group"
                                    : is_class                ? "a class name"
                                                              : "a number";
  const std::string_view cell = trimmed_cell(missing_.first_cell);
  throw DataError(fmt::format(
      "{}:{}: {}: expected {}, got {}; {}. `data.missing: drop` leaves such rows out{}", rows_.name(),
      missing_.first_line, column_text(column), expected,
      cell.empty() ? std::string("an empty cell") : fmt::format("'{}'", cell), missing_text(),
      is_in(places_.features) ? ", `data.missing: mean` puts the training samples' mean in their place" : ""));
}

/// Notes which rows were left out, and which features have missing numbers that a mean replaces.
void TableReader::add_notes() {
  if (missing_.rows > 0) table_.notes.push_back(fmt::format("{}: {}: left out", rows_.name(), missing_text()));
  const std::size_t features = places_.features.size();
  std::vector<std::int64_t> filled(features, 0);
  for (std::size_t i = 0; i < table_.values.size(); ++i)
    if (std::isnan(table_.values[i])) ++filled[i % features];
  std::vector<std::string> means;
  for (std::size_t c = 0; c < features; ++c)
    if (filled[c] > 0)
      means.push_back(fmt::format("{} in {}", format_count(filled[c]), column_text(places_.features[c])));
  if (!means.empty())
    table_.notes.push_back(fmt::format("{}: missing numbers are replaced by the training samples' mean: {}",
                                       rows_.name(), shown(join(means, ", ", " and "), 300)));
}

}  // namespace

bool CsvColumnFacts::is_index() const {
  constexpr std::array<std::string_view, 9> kNumbering = {"id",  "ids",     "uuid",   "guid",    "index",
                                                          "idx", "unnamed", "rownum", "rownames"};
  constexpr std::array<std::string_view, 9> kTimes = {"time",  "timestamp", "date", "datetime", "year",
                                                      "month", "day",       "hour", "second"};
  constexpr std::int64_t kFewRows = 5, kManyRows = 20;
  const std::int64_t values = whole + text;
  // pandas' index has no name; that of joined tables has each number several times.
  if ((is_unnamed || has_word(name, std::array<std::string_view, 1>{"unnamed"})) && whole > 0 && text == 0 &&
      whole == numbers)
    return true;
  if (!all_different || values < 2 || values < numbers + text) return false;
  if (is_unnamed || has_word(name, kNumbering)) return true;
  if (text > 0 || missing > 0 || has_word(name, kTimes)) return false;
  const double range = most - least + 1, rows = static_cast<double>(values);
  if (values >= kFewRows && range == rows && (least == 0 || least == 1)) return true;
  return values >= kManyRows && range <= 1.25 * rows;
}

std::int64_t CsvTable::bytes() const {
  std::size_t bytes = lines.capacity() * sizeof(std::int64_t) +
                      (labels.capacity() + groups.capacity()) * sizeof(std::int32_t) +
                      values.capacity() * sizeof(double) +
                      (presence.capacity() + targets.capacity() + weights.capacity()) * sizeof(float);
  for (const std::string& image : images) bytes += sizeof(std::string) + image.capacity();
  for (const auto& set : sets) bytes += sizeof(std::vector<std::int32_t>) + set.capacity() * sizeof(std::int32_t);
  return static_cast<std::int64_t>(bytes);
}

CsvTable read_csv_table(const std::filesystem::path& path, const CsvColumns& columns) {
  return TableReader(path, columns).read();
}

CsvFacts inspect_csv(const std::filesystem::path& path, const CsvColumns& columns, std::int64_t most_rows) {
  CsvRows rows(path, columns);
  rows.pass_over_others();
  CsvFacts facts{.dialect = rows.dialect(), .has_header = rows.has_header(), .columns = {}, .notes = rows.notes()};
  facts.columns = count_columns(rows, most_rows, facts.rows);
  return facts;
}

std::vector<std::string> csv_header(const std::filesystem::path& path, const CsvColumns& columns) {
  try {
    return CsvRows(path, columns).header();
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace bantam

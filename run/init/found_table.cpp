// Columns by what their first rows hold, and by their names.
#include "bantam/run/init/found_table.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/data/files/table_text.h"
#include "bantam/data/formats/csv_cells.h"
#include "bantam/data/formats/csv_images.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/run/init/found_files.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;

/// Digits, also as pandas writes whole numbers of a column that had a gap: "3.0".
bool is_whole(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.ends_with(".0")) text.remove_suffix(2);
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Facts of a column, from its first rows.
struct Column {
  std::string name;
  std::size_t number = 0;
  bool numbers = true, whole = true, images = true, zeros_and_ones = true;
  bool truths = true;     ///< True and False, which are numbers, too
  bool is_index = false;  ///< whole numbers below an empty name, where other columns have names
  bool counts = true;     ///< from 0 or 1, up by one from row to row
  double last = 0;
  std::int64_t missing = 0;       ///< cells
  std::set<std::string> values;   ///< different ones
  std::vector<std::string> rows;  ///< the first few

  void add(std::string_view cell, char decimal);
  bool is_usable() const { return numbers && missing == 0; }
};

void Column::add(std::string_view cell, char decimal) {
  constexpr std::size_t kKept = 100;
  if (is_missing_cell(cell)) {
    ++missing;
    return;
  }
  numbers = numbers && csv_number(cell, decimal);
  whole = whole && is_whole(cell);
  images = images && has_image_suffix(cell);
  truths = truths && (lower_case(cell) == "true" || lower_case(cell) == "false");
  zeros_and_ones = zeros_and_ones && (cell == "0" || cell == "1" || cell == "0.0" || cell == "1.0");
  const double number = whole ? csv_number(cell, decimal).value_or(0) : 0;  // 0 of more digits than float64 has
  counts = counts && whole && (rows.empty() ? number == 0 || number == 1 : number == last + 1);
  last = number;
  values.emplace(cell);
  if (rows.size() < kKept) rows.emplace_back(cell);
}

/// A CSV's columns, of its first rows.
struct Table {
  fs::path file;
  std::vector<Column> columns;
  bool header = true;
  char delimiter = ',';
  std::int64_t rows = 0;

  /// As a configuration names it.
  std::string key_of(const Column& column) const {
    return header && !column.name.empty() ? yaml_text(column.name) : fmt::format("{}", column.number);
  }
  const Column* named(std::string_view name) const {
    for (const Column& column : columns)
      if (lower_case(column.name) == name) return &column;
    return nullptr;
  }
};

bool is_number(std::string_view cell) { return csv_number(cell).has_value(); }

/// A first row of names: none of its cells is a number or an image's file, but where they are 0, 1, 2, … as pandas
/// names columns that have no names.
bool is_header(const std::vector<std::string_view>& row) {
  bool counts = true;
  for (std::size_t c = 0; c < row.size(); ++c)
    counts = counts && (trimmed_cell(row[c]) == fmt::format("{}", c) || !is_number(trimmed_cell(row[c])));
  return std::ranges::none_of(row, [&](std::string_view cell) {
    return (is_number(trimmed_cell(cell)) && !counts) || has_image_suffix(trimmed_cell(cell));
  });
}

Table read_table(const fs::path& file) {
  constexpr std::int64_t kMostRows = 5000;
  const TableText text = read_table_text(file);
  const CsvDialect dialect = find_csv_dialect(text.text, {});
  Table table{.file = file, .columns = {}, .delimiter = dialect.delimiter};
  CsvCells cells(text.text, dialect, file.string());
  std::vector<std::string_view> row;
  if (!cells.next(row)) throw DataError(fmt::format("{}: is empty", file.string()));
  table.header = is_header(row);
  for (std::size_t c = 0; c < row.size(); ++c)
    table.columns.push_back({.name = table.header ? std::string(trimmed_cell(row[c])) : "", .number = c});
  bool more = table.header ? cells.next(row) : true;
  for (; more && table.rows < kMostRows; more = cells.next(row), ++table.rows)
    for (std::size_t c = 0; c < std::min(row.size(), table.columns.size()); ++c)
      table.columns[c].add(trimmed_cell(row[c]), dialect.decimal);
  if (table.rows == 0) throw DataError(fmt::format("{}: has no rows after the header", file.string()));
  for (Column& column : table.columns) {
    const bool empty = column.rows.empty();
    column.numbers = column.numbers && !empty;
    column.images = column.images && !empty;
    column.truths = column.truths && !empty;
    column.zeros_and_ones = column.zeros_and_ones && !empty;
    column.counts = column.counts && column.whole && column.rows.size() > 1 && column.missing == 0;
    column.is_index = table.header && column.name.empty() && column.whole && table.columns.size() > 1;
  }
  return table;
}

/// Numbers or names of the rows themselves: nothing to learn from.
bool is_id(const Column& column, std::int64_t rows) {
  const bool all_different = std::ssize(column.values) == rows;
  const std::string name = lower_case(column.name);
  // pandas' index, which has no name, may be that of shuffled or selected rows.
  if (column.is_index || name.starts_with("unnamed:")) return true;
  const bool is_called = name == "id" || name == "idx" || name == "index" || name == "uid" || name == "uuid" ||
                         name == "rowid" || name == "no" || name.ends_with("_id");
  return all_different && rows > 2 && (is_called || column.counts);
}

/// Where images lie that a column names.
struct ImageColumn {
  const Column* column = nullptr;
  fs::path root = {};       ///< empty: the table's folder
  std::string suffix = {};  ///< that names lack
};

/// Folders that a table's paths may be relative to: its own, those in it, and those beside it.
std::vector<fs::path> possible_roots(const fs::path& folder) {
  std::vector<fs::path> roots = {folder};
  for (const std::string& name : list_folder(folder).folders) {
    roots.push_back(folder / name);
    for (const std::string& inner : list_folder(folder / name).folders) roots.push_back(folder / name / inner);
  }
  std::error_code error;
  const fs::path above = fs::path(folder) / "..";
  if (fs::is_directory(above, error)) roots.push_back(above);
  return roots;
}

/// Cells of a column, evenly spread.
std::vector<std::string> some_of(const Column& column) {
  constexpr std::size_t kMost = 100;
  const std::size_t step = std::max<std::size_t>(1, column.values.size() / kMost);
  std::vector<std::string> some;
  std::size_t i = 0;
  for (const std::string& value : column.values)
    if (i++ % step == 0) some.push_back(value);
  return some;
}

/// The folder, and the suffix, with which nearly all cells are files; of several the folder that is called as the table
/// is. Where several folders have a part of them each, no folder is named: the reader finds them as this does.
std::optional<ImageColumn> files_of(const Column& column, const std::vector<fs::path>& roots,
                                    std::span<const std::string_view> suffixes, const std::string& table) {
  constexpr std::size_t kProbes = 8;
  const std::vector<std::string> names = some_of(column);
  const std::size_t step = std::max<std::size_t>(1, names.size() / kProbes);
  const auto suffices = [&](std::ptrdiff_t count) { return count > 0 && count * 10 >= std::ssize(names) * 9; };
  std::error_code error;
  std::vector<bool> anywhere(names.size());
  std::optional<ImageColumn> best;
  int best_kinship = 0;
  for (const fs::path& root : roots)
    for (const std::string_view suffix : suffixes) {
      std::ptrdiff_t count = 0;
      const auto is_there = [&](const std::string& name) {
        return fs::is_regular_file(root / (name + std::string(suffix)), error);
      };
      bool any = false;  // of a few: most folders have other things
      for (std::size_t i = 0; i < names.size() && !any; i += step) any = is_there(names[i]);
      for (std::size_t i = 0; any && i < names.size(); ++i) {
        if (!is_there(names[i])) continue;
        ++count;
        anywhere[i] = true;
      }
      if (!suffices(count)) continue;
      const int kinship = folder_kinship((&root == &roots.front() ? fs::path() : root).filename().string(), table);
      if (best && kinship <= best_kinship) continue;
      best_kinship = kinship;
      best = ImageColumn{&column, &root == &roots.front() ? fs::path() : root, std::string(suffix)};
    }
  if (!best && suffices(std::ranges::count(anywhere, true))) best = ImageColumn{&column};
  return best;
}

/// Nearly all of the first cells, where the reader itself looks for them: under folders of another machine, with
/// backslashes, in folders below the table's.
bool are_found_by_reader(const Column& column, const fs::path& file) {
  std::vector<std::string> names = column.rows;
  (void)find_csv_images({.table = file, .root = {}, .suffix = {}}, names);
  std::error_code error;
  const auto is_file = [&](const std::string& name) { return fs::is_regular_file(file.parent_path() / name, error); };
  return std::ranges::count_if(names, is_file) * 10 >= std::ssize(names) * 9;
}

/// Row numbers under other names (an epoch, pandas' index) are as often files' names by chance.
bool is_called_as_image(const std::string& name) {
  const std::string lower = lower_case(name);
  return std::ranges::any_of(std::array<std::string_view, 5>{"id", "im", "file", "name", "pic"},
                             [&](std::string_view word) { return lower.find(word) != std::string::npos; });
}

/// A column of paths, or of ids that are files' names without their suffix.
ImageColumn image_column(const Table& table) {
  constexpr auto kNone = std::to_array<std::string_view>({""});
  constexpr auto kSuffixes = std::to_array<std::string_view>(
      {".jpg", ".png", ".jpeg", ".JPG", ".PNG", ".JPEG", ".webp", ".tif", ".tiff", ".bmp"});
  const fs::path folder = table.file.has_parent_path() ? table.file.parent_path() : fs::path(".");
  const std::vector<fs::path> roots = possible_roots(folder);
  std::vector<const Column*> columns;
  for (const Column& column : table.columns) columns.push_back(&column);
  for (const bool ids : {false, true}) {
    // An image's own id rather than that of its patient, which may be a file's name as well.
    if (ids)
      std::ranges::stable_sort(columns, std::ranges::greater(), [](const Column* c) { return c->values.size(); });
    const auto suffixes = ids ? std::span<const std::string_view>(kSuffixes) : std::span<const std::string_view>(kNone);
    for (const Column* column : columns) {
      if (ids ? column->images || std::ssize(column->values) * 2 < table.rows : !column->images) continue;
      if (ids && column->counts && !is_called_as_image(column->name)) continue;
      if (auto found = files_of(*column, roots, suffixes, table.file.stem().string())) return *found;
    }
    for (const Column* column : columns) {
      if (ids ? column->images || column->numbers || std::ssize(column->values) * 2 < table.rows : !column->images)
        continue;
      if (are_found_by_reader(*column, table.file)) return {column};
    }
  }
  return {};
}

const Column* image_names(const Table& table) {
  const auto found = std::ranges::find_if(table.columns, &Column::images);
  return found == table.columns.end() ? nullptr : &*found;
}

/// Few names, few whole numbers, or any two values, such as True and False.
bool is_label(const Column& column, std::int64_t rows) {
  constexpr std::size_t kMostNumbers = 20;
  const std::int64_t known = rows - column.missing;
  if (column.missing > known || std::ssize(column.values) * 2 > known) return false;
  return !column.numbers || column.truths || column.values.size() == 2 ||
         (column.whole && column.values.size() <= kMostNumbers);
}

/// Whether a column of that name says which rows belong together, as photographs of a patient do.
bool names_groups(const std::string& name) {
  constexpr auto kGroups =
      std::to_array<std::string_view>({"patient_id", "patient", "patientid", "subject_id", "subject", "lesion_id",
                                       "person_id", "participant_id", "participant", "group", "group_id"});
  return std::ranges::find(kGroups, name) != kGroups.end();
}

constexpr auto kUsualLabels =
    std::to_array<std::string_view>({"label",       "class",       "target",       "category",
                                     "species",     "kind",        "labels",       "variety",
                                     "y",           "class_id",    "class_name",   "classname",
                                     "label_id",    "survived",    "outcome",      "diagnosis",
                                     "emotion",     "sentiment",   "quality",      "digit",
                                     "exited",      "churn",       "breed",        "income",
                                     "attrition",   "stroke",      "is_fraud",     "fraud",
                                     "loan_status", "transported", "heartdisease", "potability",
                                     "response",    "cls",         "price",        "medv",
                                     "salary",      "saleprice",   "charges",      "median_house_value",
                                     "tags",        "dx",          "choice",       "finding labels",
                                     "finding",     "disease",     "attributes",   "categories",
                                     "level",       "genre",       "type",         "score",
                                     "rating",      "age"});

/// Names of columns that are as often inputs as labels: they are predicted only as the last column.
constexpr auto kAmbiguousLabels =
    std::to_array<std::string_view>({"level", "genre", "type", "score", "rating", "age", "response"});

/// The columns that a table predicts, and in which form.
struct Predicted {
  std::vector<const Column*> columns;
  enum class Kind : std::uint8_t { label, presences, one_hot, separated, values } kind = Kind::label;
  std::string separator;
};

/// A text between several names in a cell, where few names make many cells. A blank counts in columns that are called
/// as several names are: elsewhere it is within a name ("golden retriever").
std::string separator_of(const Column& column, std::int64_t rows) {
  const std::string name = lower_case(column.name);
  const bool is_plural = name == "tags" || name == "labels" || name == "attributes" || name == "categories" ||
                         name == "genres" || name == "classes";
  for (const char separator : {'|', ';', ',', ' '}) {
    if (separator == ' ' && !is_plural) continue;
    std::set<std::string> words;
    std::int64_t several = 0;
    for (const std::string& cell : column.rows) {
      const auto count = std::ranges::count(cell, separator);
      several += count > 0 ? 1 : 0;
      for (std::size_t begin = 0; begin <= cell.size();) {
        const std::size_t end = std::min(cell.find(separator, begin), cell.size());
        words.insert(cell.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    const bool few = words.size() <= column.values.size() && words.size() * 2 <= column.rows.size();
    if (several * 10 > std::ssize(column.rows) * 2 && few && !words.contains("") && rows > 8)
      return std::string(1, separator);
  }
  return "";
}

/// Columns of 0 and 1 beside images, two or more: the presence of a class each. One each row: one class.
std::optional<Predicted> presence_columns(const Table& table, const Column* image) {
  Predicted found;
  for (const Column& column : table.columns)
    if (&column != image && column.zeros_and_ones && column.missing == 0 && !is_id(column, table.rows))
      found.columns.push_back(&column);
  if (found.columns.size() < 2) return std::nullopt;
  found.kind = Predicted::Kind::one_hot;
  for (std::size_t row = 0; row < found.columns[0]->rows.size(); ++row) {
    const auto ones =
        std::ranges::count_if(found.columns, [&](const Column* column) { return column->rows[row].starts_with('1'); });
    if (ones != 1) found.kind = Predicted::Kind::presences;
  }
  return found;
}

/// "target_1", "y2", "label_x": one of several columns to predict.
bool is_one_of_targets(const std::string& name) {
  for (const std::string_view begin : {"target", "y_", "output"})
    if (name.starts_with(begin) && name.size() > begin.size()) return true;
  return name.size() > 1 && name[0] == 'y' && is_whole(name.substr(1));
}

Predicted one(const Column* column, std::int64_t rows) {
  Predicted found{.columns = {column}};
  if (!is_label(*column, rows)) found.kind = Predicted::Kind::values;
  return found;
}

/// Throws where nothing in the table can be predicted.
Predicted predicted(const Table& table, const Column* image) {
  const auto is_taken = [&](const Column& column) {
    return &column == image || column.images || is_id(column, table.rows);
  };
  const auto is_possible = [&](const Column& column) {
    return !is_taken(column) && (column.is_usable() || (column.missing == 0 && !names_groups(lower_case(column.name)) &&
                                                        is_label(column, table.rows)));
  };
  for (const std::string_view name : kUsualLabels) {
    const Column* column = table.named(name);
    if (column == nullptr || is_taken(*column)) continue;
    if (std::ranges::find(kAmbiguousLabels, name) != kAmbiguousLabels.end() && column != &table.columns.back())
      continue;
    // Columns x and y beside images are the two numbers of a point to predict, so that y is no label.
    if (name == "y" && table.named("x") != nullptr && image != nullptr) continue;
    if (std::string separator = column->numbers || column->missing > 0 ? "" : separator_of(*column, table.rows);
        !separator.empty())
      return {.columns = {column}, .kind = Predicted::Kind::separated, .separator = std::move(separator)};
    if (is_label(*column, table.rows) || column->is_usable() || (column->numbers && column->missing * 2 < table.rows))
      return one(column, table.rows);
  }
  std::vector<const Column*> targets, numbers;
  for (const Column& column : table.columns) {
    if (is_taken(column) || !column.is_usable()) continue;
    numbers.push_back(&column);
    if (is_one_of_targets(lower_case(column.name))) targets.push_back(&column);
  }
  if (targets.size() > 1) return {.columns = targets, .kind = Predicted::Kind::values};
  if (image != nullptr) {
    if (auto presences = presence_columns(table, image)) return *presences;
    for (const Column& column : table.columns)
      if (!is_taken(column) && column.missing == 0 && !names_groups(lower_case(column.name)) &&
          is_label(column, table.rows))
        return one(&column, table.rows);
    if (!numbers.empty()) return {.columns = numbers, .kind = Predicted::Kind::values};
  }
  for (auto column = table.columns.rbegin(); column != table.columns.rend(); ++column)
    if (is_possible(*column)) return one(&*column, table.rows);
  throw DataError(
      fmt::format("{}: no column looks like a class or a number to predict: expected a header with a column such as "
                  "label, class or target",
                  table.file.string()));
}

std::string list_of(const Table& table, const std::vector<const Column*>& columns) {
  std::vector<std::string> names;
  for (const Column* column : columns) names.push_back(table.key_of(*column));
  return columns.size() == 1 ? names[0] : fmt::format("[{}]", fmt::join(names, ", "));
}

void add_predicted(const Table& table, const Predicted& predicted, bool rich, FoundData& found) {
  const std::string columns = list_of(table, predicted.columns);
  switch (predicted.kind) {
    case Predicted::Kind::values:
      found.keys.push_back("target: " + columns);
      break;
    case Predicted::Kind::separated:
      found.keys.push_back("label: " + columns);
      found.keys.push_back(fmt::format("separator: '{}'", predicted.separator));
      break;
    case Predicted::Kind::one_hot:
      found.keys.push_back(rich ? fmt::format("label: {{one_hot: {}}}", columns) : "label: " + columns);
      break;
    case Predicted::Kind::presences:
    case Predicted::Kind::label:
      found.keys.push_back("label: " + columns);
      break;
  }
}

bool has_gaps(const Table& table, const Predicted& predicted) {
  return std::ranges::any_of(table.columns, [&](const Column& column) {
    return column.missing > 0 && column.numbers &&
           std::ranges::find(predicted.columns, &column) == predicted.columns.end();
  });
}

/// `rich`: gaps are filled. Numbers of no other use, and the notes of what is left out.
void add_features(const Table& table, const Predicted& predicted, const Column* group, bool rich, FoundData& found) {
  std::vector<std::string> features, ids, texts, gaps;
  for (const Column& column : table.columns) {
    if (&column == group || std::ranges::find(predicted.columns, &column) != predicted.columns.end()) continue;
    if (is_id(column, table.rows))
      ids.push_back(column.name.empty() ? fmt::format("the column {}, which has no name", column.number)
                                        : table.key_of(column));
    else if (column.is_usable() || (rich && column.numbers))
      features.push_back(table.key_of(column));
    else
      (column.numbers ? gaps : texts).push_back(table.key_of(column));
  }
  const auto note = [&](const std::vector<std::string>& names, std::string_view why) {
    if (!names.empty())
      found.notes.push_back(fmt::format("left out: {} ({})", shown(join(names, ", ", ", "), 200), why));
  };
  note(ids, "rows' numbers");
  note(texts, "text, or cells that are no numbers");
  note(gaps, "cells are empty");
  if (features.empty())
    throw DataError(fmt::format("{}: no column of numbers to learn from beside {}{}", table.file.string(),
                                list_of(table, predicted.columns),
                                found.notes.empty() ? "" : "; " + join(found.notes, "; ", "; ")));
  constexpr std::size_t kMostListed = 40;
  const bool all = ids.empty() && texts.empty() && gaps.empty() && features.size() > kMostListed;
  found.keys.push_back(all ? "features: all" : fmt::format("features: [{}]", fmt::join(features, ", ")));
  found.keys.emplace_back("standardize: true");
  if (rich && has_gaps(table, predicted))
    found.keys.emplace_back("missing: mean         # stands for empty cells; drop leaves their rows out");
}

/// Boxes around objects, by their corners, as one text, or as the VGG Image Annotator's regions: a detection table.
void refuse_boxes(const Table& table) {
  const auto refuse = [&](std::string_view columns) {
    throw DataError(
        fmt::format("{}: has boxes around objects ({}): detection is not supported; Bantam learns classes, "
                    "labels, numbers or masks of whole images",
                    table.file.string(), columns));
  };
  for (const auto& [left, right] : {std::pair("xmin", "xmax"), std::pair("x_min", "x_max"), std::pair("x1", "x2")})
    if (table.named(left) != nullptr && table.named(right) != nullptr && image_names(table) != nullptr)
      refuse(fmt::format("{}, {}, …", left, right));
  for (const std::string_view name : {"region_shape_attributes", "bbox", "bounding_box"})
    if (const Column* column = table.named(name); column != nullptr && !column->numbers) refuse(name);
  // Make Sense's: label, x, y, width, height, image, its width, its height.
  const auto is_whole_number = [&](std::size_t c) { return table.columns[c].numbers && table.columns[c].whole; };
  constexpr std::array<std::size_t, 6> kCorners = {1, 2, 3, 4, 6, 7};
  if (!table.header && table.columns.size() == 8 && table.columns[5].images &&
      std::ranges::all_of(kCorners, is_whole_number))
    refuse("columns 1 to 4, as Make Sense has them");
  for (const Column& column : table.columns)
    if (!column.rows.empty() && column.rows.front().find("rectanglelabels") != std::string::npos) refuse(column.name);
}

/// Which files are the set's parts.
struct TableFiles {
  fs::path base = {};  ///< the folder of all of them; empty: that of `train`
  fs::path train, validation, test;
};

/// Files that a competition wants answers in: their labels are made up.
bool is_submission(const fs::path& file) {
  return lower_case(file.filename().string()).find("submission") != std::string::npos;
}

bool has_word(const std::string& stem, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return stem.find(word) != std::string::npos; });
}

TableFiles choose_files(const std::vector<fs::path>& files) {
  TableFiles chosen;
  fs::path other;
  for (const fs::path& file : files) {
    const std::string stem = lower_case(file.stem().string());
    if (has_word(stem, {"class_dict", "classes"}) && files.size() > 1) continue;
    fs::path& place = has_word(stem, {"val", "dev"})     ? chosen.validation
                      : has_word(stem, {"train"})        ? chosen.train
                      : has_word(stem, {"test", "eval"}) ? chosen.test
                                                         : other;
    if (place.empty()) place = file;
  }
  if (chosen.train.empty()) return {.train = other.empty() ? files.front() : other, .validation = {}, .test = {}};
  return chosen;
}

/// Tables by their names; text files where one alone is named.
std::vector<fs::path> table_files(const fs::path& at) {
  constexpr auto kTables = std::to_array<std::string_view>({".csv", ".tsv", ".tab", ".data"});
  constexpr auto kTexts = std::to_array<std::string_view>({".csv", ".tsv", ".tab", ".data", ".txt", ".dat"});
  constexpr auto kPackings = std::to_array<std::string_view>({"", ".gz", ".xz", ".bz2", ".zst", ".zip"});
  std::vector<std::string> suffixes;
  for (const std::string_view table : is_folder(at) ? std::span<const std::string_view>(kTables) : kTexts)
    for (const std::string_view packing : kPackings) suffixes.push_back(fmt::format("{}{}", table, packing));
  return with_suffix(at, std::vector<std::string_view>(suffixes.begin(), suffixes.end()));
}

/// Throws where features and labels are two files, as X_train.csv and y_train.csv: rows are read from one.
void refuse_labels_apart(const std::vector<fs::path>& files) {
  std::vector<std::string> commands;
  std::string first;
  for (const fs::path& features : files) {
    const std::string name = lower_case(features.filename().string());
    if (!name.starts_with("x_") && !name.starts_with("x.")) continue;
    for (const fs::path& labels : files) {
      if (lower_case(labels.filename().string()) != "y" + name.substr(1)) continue;
      commands.push_back(fmt::format("paste -d, {} {} > {}", features.filename().string(), labels.filename().string(),
                                     name[1] == '_' ? name.substr(2) : "table.csv"));
      if (first.empty()) first = labels.string();
    }
  }
  if (commands.empty()) return;
  throw DataError(
      fmt::format("{}: labels and the numbers that belong to them are two files; rows are read from one, which the "
                  "shell joins of both: `{}`; remove the others, and begin again",
                  first, join(commands, "; ", "; ")));
}

/// Whether a file has the columns that are read of the training file.
bool is_like(const fs::path& file, const Table& training, const Predicted& predicted, const Column* image) {
  try {
    const Table table = read_table(file);
    const auto has = [&](const Column* column) {
      return training.header ? table.named(lower_case(column->name)) != nullptr
                             : table.columns.size() == training.columns.size();
    };
    return std::ranges::all_of(predicted.columns, has) && (image == nullptr || has(image));
  } catch (const DataError&) {
    return false;
  }
}

/// Keys that name the files; those without what is predicted are left out, with a note.
void add_files(const TableFiles& files, const Table& training, const Predicted& predicted, const Column* image,
               FoundData& found) {
  const fs::path own = training.file.has_parent_path() ? training.file.parent_path() : fs::path(".");
  const fs::path base = files.base.empty() ? own : files.base;
  const auto name_of = [&](const fs::path& file) {
    return files.base.empty() ? file.filename().string() : file.lexically_relative(base).generic_string();
  };
  std::vector<std::string> parts;
  for (const auto& [key, file] : {std::pair("validation", files.validation), std::pair("test", files.test)}) {
    if (file.empty()) continue;
    if (is_like(file, training, predicted, image))
      parts.push_back(fmt::format("{}: {}", key, yaml_text(name_of(file))));
    else
      found.notes.push_back(fmt::format("{} is left out: it has no column {}", printable(name_of(file)),
                                        list_of(training, predicted.columns)));
  }
  if (parts.empty()) {
    found.keys.push_back(path_key(training.file));
    return;
  }
  found.keys.push_back(path_key(base));
  found.keys.push_back("train: " + yaml_text(name_of(training.file)));
  found.keys.insert(found.keys.end(), parts.begin(), parts.end());
}

/// The column whose rows belong together; null: there is none.
const Column* group_column(const Table& table, const Predicted& predicted, const Column* image) {
  constexpr std::size_t kFewest = 10;
  for (const Column& column : table.columns)
    if (names_groups(lower_case(column.name)) && &column != image && column.missing == 0 &&
        column.values.size() >= kFewest && std::ssize(column.values) < table.rows &&
        std::ranges::find(predicted.columns, &column) == predicted.columns.end())
      return &column;
  return nullptr;
}

/// Whether nearly all images lie in folders that are called as their labels.
bool says_folders(const Column& image, const Column& label) {
  const std::size_t rows = std::min(image.rows.size(), label.rows.size());
  std::size_t same = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    std::string path = image.rows[row];
    std::ranges::replace(path, '\\', '/');
    same += fs::path(path).parent_path().filename() == label.rows[row] ? 1 : 0;
  }
  return same * 10 >= rows * 9;
}

struct ReadTable {
  const TableFiles& files;
  const Table& table;
  const ImageColumn& images;
  const Predicted& wanted;
};

/// `rich`: with one-hot columns as classes, and means in place of empty cells.
FoundData found_table(const ReadTable& read, bool rich) {
  const Table& table = read.table;
  const Column* image = read.images.column;
  FoundData found{.format = "csv", .keys = {}};
  add_files(read.files, table, read.wanted, image, found);
  found.repeats_folders = image == nullptr || says_folders(*image, *read.wanted.columns[0]);
  if (image != nullptr) {
    found.keys.push_back("image: " + table.key_of(*image));
    if (!read.images.root.empty()) found.keys.push_back("root: " + yaml_text(read.images.root.string()));
    if (!read.images.suffix.empty()) found.keys.push_back("suffix: " + yaml_text(read.images.suffix));
  }
  add_predicted(table, read.wanted, rich, found);
  if (table.delimiter != ',' && table.delimiter != ' ' &&
      !(table.delimiter == '\t' && table.file.extension() == ".tsv"))
    found.keys.push_back(table.delimiter == '\t' ? "delimiter: tab" : fmt::format("delimiter: '{}'", table.delimiter));
  if (!table.header) found.keys.emplace_back("header: false");
  const bool splits = read.files.validation.empty() && read.files.test.empty();
  const Column* group = group_column(table, read.wanted, image);
  if (group != nullptr && splits)
    found.keys.push_back(
        fmt::format("group: {}         # its rows stay on one side of the split", table.key_of(*group)));
  if (image == nullptr) add_features(table, read.wanted, group, rich, found);
  const bool fills = rich && image == nullptr && has_gaps(table, read.wanted);
  const auto lacks = [](const Column* column) { return column->missing > 0; };
  if (!fills && std::ranges::any_of(read.wanted.columns, lacks)) {
    found.keys.emplace_back("missing: drop         # rows that have no label, as others that lack a number");
    found.notes.push_back(fmt::format("rows without {} are left out", list_of(table, read.wanted.columns)));
  }
  return found;
}

/// The table's configuration, or why there is none.
FoundData read_chosen_table(const TableFiles& chosen) {
  const Table table = read_table(chosen.train);
  refuse_boxes(table);
  const ImageColumn images = image_column(table);
  if (images.column == nullptr)
    if (const Column* names = image_names(table))
      throw DataError(fmt::format(
          "{}: column '{}' names images such as {}, which are neither beside the file nor in a folder beside it; "
          "data.root names their folder",
          table.file.string(), printable(names->name), shown(names->rows.front())));
  const Predicted wanted = predicted(table, images.column);
  const auto keys = [&](bool rich) { return found_table({chosen, table, images, wanted}, rich); };
  const bool has_more =
      wanted.kind == Predicted::Kind::one_hot || (images.column == nullptr && has_gaps(table, wanted));
  if (!has_more) return keys(false);
  FoundData found = keys(true);
  try {
    found.otherwise = std::make_shared<const FoundData>(keys(false));
  } catch (const DataError&) {  // there is nothing else
  }
  return found;
}

}  // namespace

std::optional<FoundData> find_table(const fs::path& at) {
  std::vector<fs::path> files = table_files(at);
  if (is_folder(at)) std::erase_if(files, is_submission);
  if (files.empty()) return std::nullopt;
  refuse_labels_apart(files);
  return read_chosen_table(choose_files(files));
}

std::optional<FoundData> find_part_tables(const fs::path& at) {
  if (!is_folder(at)) return std::nullopt;
  for (const std::string& train : find_folders(at, kTrainFolders)) {
    const std::vector<fs::path> files = table_files(at / train);
    if (files.empty()) continue;
    TableFiles chosen{.base = at, .train = files.front()};
    const auto other = [&](std::span<const std::string_view> parts, fs::path& file) {
      for (const std::string& part : find_folders(at, parts))
        if (file.empty() && is_file(at / part / files.front().filename())) file = at / part / files.front().filename();
    };
    other(kValidationFolders, chosen.validation);
    other(kTestFolders, chosen.test);
    return read_chosen_table(chosen);
  }
  return std::nullopt;
}

}  // namespace bantam::run

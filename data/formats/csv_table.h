// Internal: a CSV file as typed columns, and what its columns look like before anything is chosen of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bantam/data/files/table_text.h"
#include "bantam/data/formats/csv_cells.h"

namespace bantam {

/// A column by its name in the header, or, where that is empty, by its number from 0.
struct CsvColumn {
  std::string name;
  std::int64_t number = 0;
  bool operator==(const CsvColumn&) const = default;
};

enum class CsvHeader : std::uint8_t {
  automatic,  ///< there is one where a column is named, or where no cell of the first row is a number or an image file
  present,
  absent
};

/// The treatment of rows with a missing number (`is_missing_cell`) among their features.
enum class CsvMissing : std::uint8_t {
  error,
  drop,  ///< the row is left out, as rows are without a label, a target or an image
  mean   ///< the value is NaN in the table: readers put a mean there; rows without a label or target are left out
};

/// The purpose of each column, and how its text is read.
struct CsvColumns {
  std::optional<CsvColumn> image;
  std::vector<CsvColumn> features;  ///< numbers; without an image none means all columns that look like measurements
  std::vector<CsvColumn> labels;    ///< one: a class name; several: 0 or 1 each
  bool one_hot = false;             ///< one of several columns of labels is 1 in each row: the sample's class
  std::string separator;            ///< of the class names in the one column of labels; empty: a cell has one name
  std::vector<CsvColumn> targets;   ///< numbers
  std::optional<CsvColumn> weight;
  std::optional<CsvColumn> group;  ///< samples of one value stay together where samples are held out
  CsvHeader header = CsvHeader::automatic;
  CsvDialectKeys dialect;
  TextEncoding encoding = TextEncoding::automatic;
  CsvMissing missing = CsvMissing::error;
};

/// The rows of a file, column by column of what CsvColumns names.
struct CsvTable {
  std::filesystem::path path;
  std::vector<CsvColumn> features;              ///< those that were read, e.g. all
  std::vector<std::string> label_columns;       ///< names of several columns of labels, of which any number may be 1
  std::vector<std::int64_t> lines;              ///< of each row in the file, from 1
  std::vector<std::string> images;              ///< as the file has them
  std::vector<double> values;                   ///< (rows, features); NaN: missing. Within the range of float32
  std::vector<std::string> label_names;         ///< different class names in the order in which they come; of one-hot
                                                ///< columns all of theirs, in the columns' order
  std::vector<std::int64_t> label_lines;        ///< the line in which each comes first
  std::vector<std::vector<std::int32_t>> sets;  ///< with a separator: of each row, places in `label_names`
  std::vector<std::int32_t> labels;             ///< without: of each row, its place in `label_names`
  std::vector<float> presence;                  ///< (rows, columns of labels), where there are several
  std::vector<float> targets;                   ///< (rows, columns of targets)
  std::vector<float> weights;
  std::vector<std::int32_t> groups;  ///< of each row, where a column of groups is named
  std::vector<std::string> notes;    ///< sentences for the user: what was guessed, what was left out

  std::int64_t rows() const { return static_cast<std::int64_t>(lines.size()); }
  std::int64_t bytes() const;
};

/// Reads a file. Throws DataError that names file, line and column, for a column that is not there, a row of another
/// length than the first, what is no finite number where one is expected, a missing cell where `missing` says so, and a
/// file without rows.
CsvTable read_csv_table(const std::filesystem::path& path, const CsvColumns& columns);

/// One column of a file, as its cells look.
struct CsvColumnFacts {
  std::string name;            ///< empty where the file has no header, or none for this column
  std::int64_t missing = 0;    ///< cells
  std::int64_t numbers = 0;    ///< cells among the others that are numbers
  std::int64_t whole = 0;      ///< numbers among those that are whole
  std::int64_t images = 0;     ///< cells that end as image files do
  std::int64_t text = 0;       ///< other cells
  std::int64_t distinct = 0;   ///< different cells of text and whole numbers, at most `kMostDistinct`
  bool is_unnamed = false;     ///< among columns that have names
  bool all_different = true;   ///< no two of those cells are equal
  double least = 0, most = 0;  ///< the least and the greatest number

  static constexpr std::int64_t kMostDistinct = 1000;
  bool is_empty() const { return numbers + text == 0; }
  /// Whether cells are numbers: at least half of those that are not missing.
  bool is_numeric() const { return !is_empty() && numbers >= text; }
  /// Whether cells number the rows rather than measure them: different whole numbers without gaps to speak of, or
  /// different values in a column that is called so: id, index; or any whole numbers below "Unnamed: 0" or no name.
  bool is_index() const;
};

/// The facts that are found in a file, for a first configuration.
struct CsvFacts {
  CsvDialect dialect;
  bool has_header = false;
  std::int64_t rows = 0;  ///< those that were looked at
  std::vector<CsvColumnFacts> columns;
  std::vector<std::string> notes;
};

/// Looks at the first `most_rows` rows; of `columns` only the header, the dialect and the encoding count, and names
/// that say that there is a header. Rows of another length than the first are passed over. Throws DataError.
CsvFacts inspect_csv(const std::filesystem::path& path, const CsvColumns& columns = {},
                     std::int64_t most_rows = INT64_MAX);

/// Names of the columns in a file's header; empty where it has none, or cannot be read.
std::vector<std::string> csv_header(const std::filesystem::path& path, const CsvColumns& columns);

}  // namespace bantam

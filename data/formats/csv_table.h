// Internal: a CSV file as typed columns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

/// What columns are for.
struct CsvColumns {
  std::optional<CsvColumn> image;
  std::vector<CsvColumn> features;  ///< numbers; without an image none means all columns of no other use
  std::vector<CsvColumn> labels;    ///< one: a class name; several: 0 or 1 each
  std::string separator;            ///< of the class names in the one column of labels; empty: a cell has one name
  std::vector<CsvColumn> targets;   ///< numbers
  std::optional<CsvColumn> weight;
  CsvHeader header = CsvHeader::automatic;
  char delimiter = ',';
};

/// The rows of a file, column by column of what CsvColumns names.
struct CsvTable {
  std::filesystem::path path;
  std::vector<CsvColumn> features;              ///< those that were read, e.g. all
  std::vector<std::string> label_columns;       ///< names of several columns of labels
  std::vector<std::int64_t> lines;              ///< of each row in the file, from 1
  std::vector<std::string> images;              ///< as the file has them
  std::vector<float> values;                    ///< (rows, features)
  std::vector<std::string> label_names;         ///< different class names in the order in which they come
  std::vector<std::int64_t> label_lines;        ///< the line in which each comes first
  std::vector<std::vector<std::int32_t>> sets;  ///< with a separator: of each row, places in `label_names`
  std::vector<std::int32_t> labels;             ///< without: of each row, its place in `label_names`
  std::vector<float> presence;                  ///< (rows, columns of labels), where there are several
  std::vector<float> targets;                   ///< (rows, columns of targets)
  std::vector<float> weights;

  std::int64_t rows() const { return static_cast<std::int64_t>(lines.size()); }
  std::int64_t bytes() const;
};

/// Reads a file. Throws DataError that names file, line and column, for a column that is not there, a row of another
/// length than the first, an empty cell, what is no finite number where one is expected, and a file without rows.
CsvTable read_csv_table(const std::filesystem::path& path, const CsvColumns& columns);

}  // namespace bantam

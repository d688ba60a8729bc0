// PredictedTable: what predictions are asked for, where it stands in a table or in arrays: rows of numbers (CSV, .npy,
// .npz), or images that a CSV file names.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bantam/data/formats/sample_reader.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/trained/image_list.h"

namespace bantam::run {

struct PredictedTable {
  std::vector<std::string> columns;             ///< of the table, by name or, where it has no header, number
  std::vector<std::vector<std::string>> cells;  ///< of each sample, as the file has them; of arrays its row's number
  std::vector<std::string> names;               ///< of each sample: "new.csv:2", "new.npy, row 0"
  std::vector<ListedImage> images;              ///< that the rows name; empty: samples are numbers
  std::shared_ptr<const SampleReader> samples;  ///< those numbers; null: they are images
  std::vector<std::string> notes = {};          ///< where images were found that are not there as the table says
};

/// The columns of a table's row that become the input of a model of rows, and how their numbers are scaled and filled.
struct RowInput {
  std::vector<std::string> features;    ///< columns by name, or number where the table has no header
  std::vector<double> mean, deviation;  ///< of training; empty: values stay as they are
  std::vector<double> fill;             ///< in place of missing cells; empty: they are errors
};
/// Empty where the model reads no rows of a CSV file, or where the configuration names no columns and the training
/// samples cannot be read.
RowInput row_input(const RunConfig& config);

/// Whether a path names such a file, by its suffix: .csv, .tsv, .npy or .npz, also compressed.
bool is_table_file(const std::filesystem::path& path);

/// Reads `file` as the configuration's samples were read. Of a CSV file: features by their names in its header, in any
/// order, beside any other columns (a label among them), or by their places where it has no header; standardized by the
/// training samples' numbers. A row with a missing cell, or one that is no number, is an error when it is read, and no
/// other row's. Of an .npz archive: the array that the configuration or its name says, labels aside. Throws DataError
/// where the file does not have what the model reads, ConfigError where the configuration does not say how it is read.
PredictedTable read_predicted_table(const RunConfig& config, const std::filesystem::path& file);

}  // namespace bantam::run

// PredictionWriter: predictions as lines of text, of a CSV file or of JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/cli/options/run_names.h"
#include "bantam/run/predict/prediction.h"

namespace bantam::cli {

enum class PredictionFormat : std::uint8_t { text, csv, json };

struct PredictionStyle {
  PredictionFormat format = PredictionFormat::text;
  Task task = Task::classes;
  std::vector<std::string> names;  ///< of the output's values
  std::int64_t top = 5;            ///< Task::classes: the most probable ones, at most all
  double threshold = 0.5;          ///< multi_label: a class is there from this probability on
  /// Columns of the table that the samples stand in: they are written before the answer's, in place of the file.
  std::vector<std::string> columns = {};
};

/// One line an image.
///
///     text          cat.jpg: tabby 0.8127, tiger cat 0.1290
///     csv           file,class,probability,class_2,probability_2,…
///     json          {"file": "cat.jpg", "class": "tabby", "index": 281, "probability": 0.8127, "top": […]}
///
/// For a table, CSV has a line for each of its rows, those that cannot be read with empty answers; JSON has their cells
/// under "input".
class PredictionWriter {
 public:
  explicit PredictionWriter(PredictionStyle style);

  /// The first line of a CSV file, with its end; else empty.
  std::string header() const;
  /// With its end. Of a broken file: a JSON object with `error`; else empty.
  /// `cells`: of the table's row, where there is one.
  std::string line(const Prediction& prediction, const std::vector<std::string>& cells = {}) const;

 private:
  std::vector<std::string> answer_columns() const;
  std::string text_line(const Prediction& prediction) const;
  std::string csv_line(const Prediction& prediction, const std::vector<std::string>& of_row) const;
  std::string json_line(const Prediction& prediction, const std::vector<std::string>& of_row) const;
  std::vector<std::size_t> best(const Prediction& prediction) const;
  std::vector<std::size_t> present(const Prediction& prediction) const;

  PredictionStyle style_;
};

/// A cell of a CSV file: `printable`, in quotes where it needs them (RFC 4180). What begins with = or + stays as it is,
/// as tables of other programs have it: a name is joined by its letters, and numbers may have a sign.
std::string csv_cell(std::string_view text);

}  // namespace bantam::cli

// PredictionWriter: predictions as lines of text, of a CSV file or of JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/cli/config/run_names.h"
#include "bantam/run/use/prediction.h"

namespace bantam::cli {

enum class PredictionFormat : std::uint8_t { text, csv, json };

struct PredictionStyle {
  PredictionFormat format = PredictionFormat::text;
  Task task = Task::classes;
  std::vector<std::string> names;  ///< of the output's values
  std::int64_t top = 5;            ///< Task::classes: the most probable ones, at most all
  double threshold = 0.5;          ///< multi_label: a class is there from this probability on
};

/// One line an image.
///
///     text          cat.jpg: tabby 0.8127, tiger cat 0.1290
///     csv           file,class,probability,class_2,probability_2,…
///     json          {"file": "cat.jpg", "class": "tabby", "index": 281, "probability": 0.8127, "top": […]}
class PredictionWriter {
 public:
  explicit PredictionWriter(PredictionStyle style);

  /// The first line of a CSV file, with its end; else empty.
  std::string header() const;
  /// With its end. Of a broken file: a JSON object with `error`; else empty.
  std::string line(const Prediction& prediction) const;

 private:
  std::string text_line(const Prediction& prediction) const;
  std::string csv_line(const Prediction& prediction) const;
  std::string json_line(const Prediction& prediction) const;
  std::vector<std::size_t> best(const Prediction& prediction) const;
  std::vector<std::size_t> present(const Prediction& prediction) const;

  PredictionStyle style_;
};

/// A cell of a CSV file, in quotes where it needs them (RFC 4180).
std::string csv_cell(std::string_view text);

}  // namespace bantam::cli

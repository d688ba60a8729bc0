// ClassReport: what an evaluation says of each class.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/run/evaluate/evaluation.h"

namespace bantam::run {

/// Samples, or, of a class a position, positions. Shares are NaN where nothing is there to divide by, as scikit-learn's
/// with zero_division=nan.
struct ClassScore {
  std::string name;      ///< the class's name, else its number
  double count = 0;      ///< that are of the class
  double predicted = 0;  ///< that are predicted as it
  double correct = 0;    ///< both
  double precision = 0;  ///< correct / predicted
  double recall = 0;     ///< correct / count
  double f1 = 0;         ///< 2·correct / (count + predicted)
  double iou = 0;        ///< correct / (count + predicted - correct)
  double auc = 0;        ///< area under the ROC curve, where ClassReport::auc is
};

/// Samples of class `label` that were predicted as class `predicted`, another one.
struct Confusion {
  std::int64_t label = 0, predicted = 0;
  double count = 0;
  double share = 0;  ///< the part of the label's samples that this count is
};

struct ClassReport {
  std::vector<ClassScore> classes;  ///< by number
  MetricTable matrix;               ///< labels down, predictions across; empty: several classes a sample, or too many
  double precision = 0, recall = 0, f1 = 0, iou = 0;  ///< means over classes that occur, as the metrics of these names
  std::optional<double> auc = std::nullopt;           ///< the metric's value, where a sample has several labels

  /// The `most` largest of the matrix that are not on its diagonal, the largest first.
  std::vector<Confusion> confusions(std::size_t most) const;
};

/// Makes the report from a confusion matrix: labels down, predictions across.
ClassReport class_report(const MetricTable& matrix, const std::vector<std::string>& names);

/// `names` may be empty, or fewer than the classes. Nothing where the evaluation has no classes.
std::optional<ClassReport> class_report(const Evaluation& evaluation, const std::vector<std::string>& names);

}  // namespace bantam::run

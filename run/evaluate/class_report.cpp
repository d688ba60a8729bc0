// From a confusion matrix, or from counts of each class, to shares.
#include "bantam/run/evaluate/class_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace bantam::run {
namespace {

double ratio(double part, double whole) { return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN(); }

const MetricValue* find(const Evaluation& evaluation, std::string_view name) {
  const auto found = std::ranges::find(evaluation.more, name, &MetricValue::name);
  return found == evaluation.more.end() ? nullptr : &*found;
}

/// Rows are labels, columns predictions.
std::vector<ClassScore> counts_of(const MetricTable& matrix) {
  const auto classes = static_cast<std::size_t>(matrix.columns);
  std::vector<ClassScore> scores(classes);
  for (std::size_t label = 0; label < classes; ++label)
    for (std::size_t predicted = 0; predicted < classes; ++predicted) {
      const double count = matrix.values[label * classes + predicted];
      scores[label].count += count;
      scores[predicted].predicted += count;
      if (label == predicted) scores[label].correct = count;
    }
  return scores;
}

/// True positives, false positives, false negatives, each a class (f1).
std::vector<ClassScore> counts_of(const std::vector<double>& sums) {
  const std::size_t classes = sums.size() / 3;
  std::vector<ClassScore> scores(classes);
  for (std::size_t c = 0; c < classes; ++c) {
    scores[c].correct = sums[c];
    scores[c].predicted = sums[c] + sums[classes + c];
    scores[c].count = sums[c] + sums[2 * classes + c];
  }
  return scores;
}

/// Over classes that occur as a label or as a prediction, where a share of nothing counts 0.
double mean_of(const std::vector<ClassScore>& scores, double ClassScore::*share) {
  double sum = 0, occurring = 0;
  for (const ClassScore& score : scores) {
    if (score.count + score.predicted == 0) continue;
    sum += std::isnan(score.*share) ? 0 : score.*share;
    ++occurring;
  }
  return occurring > 0 ? sum / occurring : 0;
}

/// Computes the shares (precision, recall, F1, IoU) and their means from the counts of each class.
void add_shares(ClassReport& report, const std::vector<std::string>& names) {
  for (std::size_t c = 0; c < report.classes.size(); ++c) {
    ClassScore& score = report.classes[c];
    score.name = c < names.size() ? names[c] : fmt::format("{}", c);
    score.precision = ratio(score.correct, score.predicted);
    score.recall = ratio(score.correct, score.count);
    score.f1 = ratio(2 * score.correct, score.count + score.predicted);
    score.iou = ratio(score.correct, score.count + score.predicted - score.correct);
  }
  report.precision = mean_of(report.classes, &ClassScore::precision);
  report.recall = mean_of(report.classes, &ClassScore::recall);
  report.f1 = mean_of(report.classes, &ClassScore::f1);
  report.iou = mean_of(report.classes, &ClassScore::iou);
}

}  // namespace

std::vector<Confusion> ClassReport::confusions(std::size_t most) const {
  std::vector<Confusion> all;
  for (std::int64_t label = 0; label < matrix.columns; ++label)
    for (std::int64_t predicted = 0; predicted < matrix.columns; ++predicted) {
      const double count = matrix.values[static_cast<std::size_t>(label * matrix.columns + predicted)];
      if (label == predicted || count == 0) continue;
      all.push_back({label, predicted, count, ratio(count, classes[static_cast<std::size_t>(label)].count)});
    }
  const auto larger = [](const Confusion& a, const Confusion& b) { return a.count > b.count; };
  std::ranges::stable_sort(all, larger);
  all.resize(std::min(all.size(), most));
  return all;
}

ClassReport class_report(const MetricTable& matrix, const std::vector<std::string>& names) {
  ClassReport report;
  report.matrix = matrix;
  report.classes = counts_of(matrix);
  add_shares(report, names);
  return report;
}

std::optional<ClassReport> class_report(const Evaluation& evaluation, const std::vector<std::string>& names) {
  if (const MetricValue* matrix = find(evaluation, "confusion_matrix")) return class_report(matrix->table(), names);
  const MetricValue* counts = find(evaluation, "f1");
  if (counts == nullptr) return std::nullopt;
  ClassReport report;
  report.classes = counts_of(counts->sums);
  add_shares(report, names);
  if (const MetricValue* areas = find(evaluation, "auc")) {
    report.auc = areas->value();
    const std::vector<double> of_classes = areas->table().values;
    for (std::size_t c = 0; c < report.classes.size(); ++c) report.classes[c].auc = of_classes.at(c);
  }
  return report;
}

}  // namespace bantam::run

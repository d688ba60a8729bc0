// Values, the classes' table, what is confused, and the matrix.
#include "bantam/cli/evaluate/evaluation_report.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/fitted_text.h"
#include "bantam/run/evaluate/class_report.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostConfused = 10;

/// The name under which a metric that is counted in any case is reported.
std::string name_of(const MetricValue& metric) {
  return metric.name() == "top_k" ? "top_5" : std::string(metric.name());
}

/// Metrics that have a value, each name once: the configuration's come first.
std::vector<std::pair<std::string, const MetricValue*>> metrics_of(const Evaluation& evaluation) {
  std::vector<std::pair<std::string, const MetricValue*>> metrics;
  std::set<std::string> known = {"confusion_matrix"};
  for (const MetricValue& metric : evaluation.metrics.values)
    if (known.insert(std::string(metric.name())).second) metrics.emplace_back(metric.name(), &metric);
  for (const MetricValue& metric : evaluation.more)
    if (known.insert(name_of(metric)).second) metrics.emplace_back(name_of(metric), &metric);
  return metrics;
}

std::string share_text(double share) { return std::isnan(share) ? "-" : fmt::format("{:.4f}", share); }

std::string count_text(double count) { return format_count(static_cast<std::int64_t>(count)); }

bool is_of_places(const Evaluation& evaluation) {
  return evaluation.task == Task::segmentation || evaluation.task == Task::masks;
}

/// All classes, or, of many, those with the lowest F1.
std::string classes_text(const ClassReport& report, bool places, std::size_t most_of_name) {
  constexpr std::size_t kAll = 40, kWorst = 20;
  std::vector<ClassScore> shown_classes = report.classes;
  std::erase_if(shown_classes, [](const ClassScore& score) { return score.count + score.predicted == 0; });
  const bool worst = shown_classes.size() > kAll;
  if (worst) {
    std::ranges::stable_sort(shown_classes, {}, &ClassScore::f1);
    shown_classes.resize(kWorst);
  }
  std::vector<Table::Column> columns = {
      {"class", Align::left}, {places ? "pixels" : "samples"}, {"precision"}, {"recall"}, {"F1"}};
  if (places) columns.push_back({"IoU"});
  if (report.auc) columns.push_back({"AUC"});
  Table table(columns);
  const auto add = [&](std::vector<std::string> cells, double iou, double auc) {
    if (places) cells.push_back(share_text(iou));
    if (report.auc) cells.push_back(share_text(auc));
    table.add_row(std::move(cells));
  };
  for (const ClassScore& score : shown_classes)
    add({shown(score.name, most_of_name), count_text(score.count), share_text(score.precision),
         share_text(score.recall), share_text(score.f1)},
        score.iou, score.auc);
  table.add_rule();
  add({"mean", "", share_text(report.precision), share_text(report.recall), share_text(report.f1)}, report.iou,
      report.auc.value_or(0));
  const std::string title =
      worst ? fmt::format("the {} classes of the lowest F1, of {}\n", kWorst, report.classes.size()) : "";
  return title + table.to_string();
}

constexpr std::size_t kLeastName = 8;

std::string confused_text(const ClassReport& report, std::size_t most_of_name) {
  const std::vector<Confusion> confused = report.confusions(kMostConfused);
  if (confused.empty()) return "";
  Table table({{"confused", Align::left}, {"count"}, {"of the class"}});
  for (const Confusion& one : confused)
    table.add_row(
        {fmt::format("{} as {}", shown(report.classes[static_cast<std::size_t>(one.label)].name, most_of_name),
                     shown(report.classes[static_cast<std::size_t>(one.predicted)].name, most_of_name)),
         count_text(one.count), fmt::format("{:.1f}%", 100 * one.share)});
  return "\n" + table.to_string();
}

constexpr std::size_t kLongestColumn = 12, kShortestColumn = 5, kShortestLabel = 8;

/// The predictions `first` to `end` of every label.
std::string matrix_table(const ClassReport& report, std::int64_t first, std::int64_t end, std::size_t most_of_name) {
  const auto name_of = [&](std::int64_t i) { return report.classes[static_cast<std::size_t>(i)].name; };
  std::vector<Table::Column> columns = {{most_of_name < kLongestColumn ? "label" : "label \\ predicted", Align::left}};
  for (std::int64_t i = first; i < end; ++i) columns.push_back({shown(name_of(i), most_of_name)});
  Table table(columns);
  for (std::int64_t row = 0; row < report.matrix.columns; ++row) {
    std::vector<std::string> cells = {shown(name_of(row), most_of_name < kLongestColumn ? kShortestLabel : 30)};
    for (std::int64_t column = first; column < end; ++column)
      cells.push_back(count_text(report.matrix.values[static_cast<std::size_t>(row * report.matrix.columns + column)]));
    table.add_row(cells);
  }
  return table.to_string();
}

/// Names are shortened until a line fits; where it does not even so, predictions go on in further tables below.
std::string matrix_text(const ClassReport& report, std::size_t columns) {
  constexpr std::int64_t kMost = 12;
  const std::int64_t classes = report.matrix.columns;
  if (classes == 0) return "";
  if (classes > kMost) return fmt::format("\nthe confusion matrix of {} classes is in --json\n", classes);
  for (std::size_t most = kLongestColumn; most >= kShortestColumn; --most)
    if (const std::string table = matrix_table(report, 0, classes, most); longest_line(table) <= columns)
      return "\n" + table;
  std::string text;
  for (std::int64_t first = 0, end = 0; first < classes; first = end) {
    end = classes;
    while (end > first + 1 && longest_line(matrix_table(report, first, end, kShortestLabel)) > columns) --end;
    text += "\n" + matrix_table(report, first, end, kShortestLabel);
  }
  return text;
}

std::string head_text(const Evaluation& evaluation, const TrainedModel& model) {
  const Metrics& metrics = evaluation.metrics;
  std::string text = fmt::format("{}: {}\n{}: {} in batches of {}, on {}, {}\n\n", shown(model.config.model.name, 40),
                                 printable_line(model.weights_file.string()), to_string(evaluation.set),
                                 counted(metrics.samples, "sample"), evaluation.batch_size,
                                 to_string(model.config.device), to_string(model.config.precision));
  Table table({{"metric", Align::left}, {"value"}});
  const auto add = [&table](std::string name, double value) {
    table.add_row({std::move(name), fmt::format("{:.4f}", value)});
  };
  add("loss", metrics.loss);
  if (const std::string_view name = run::accuracy_name(model.config); !name.empty())
    add(std::string(name), metrics.accuracy);
  for (const auto& [name, metric] : metrics_of(evaluation)) add(name, metric->value());
  return text + table.to_string();
}

Json json_of(const ClassScore& score, bool places, bool with_auc) {
  const auto share = [](double value) { return std::isnan(value) ? Json(nullptr) : Json(value); };
  Json json = {{"name", score.name},
               {"count", static_cast<std::int64_t>(score.count)},
               {"predicted", static_cast<std::int64_t>(score.predicted)},
               {"correct", static_cast<std::int64_t>(score.correct)},
               {"precision", share(score.precision)},
               {"recall", share(score.recall)},
               {"f1", share(score.f1)}};
  if (places) json["iou"] = share(score.iou);
  if (with_auc) json["auc"] = share(score.auc);
  return json;
}

void add_classes(Json& json, const ClassReport& report, bool places) {
  json["macro"] = {{"precision", report.precision}, {"recall", report.recall}, {"f1", report.f1}};
  if (places) json["macro"]["iou"] = report.iou;
  json["classes"] = Json::array();
  for (const ClassScore& score : report.classes)
    json["classes"].push_back(json_of(score, places, report.auc.has_value()));
  if (report.matrix.columns == 0) return;
  json["most_confused"] = Json::array();
  for (const Confusion& one : report.confusions(kMostConfused))
    json["most_confused"].push_back({{"label", report.classes[static_cast<std::size_t>(one.label)].name},
                                     {"predicted", report.classes[static_cast<std::size_t>(one.predicted)].name},
                                     {"count", static_cast<std::int64_t>(one.count)},
                                     {"share", one.share}});
  json["confusion_matrix"] = Json::array();
  for (std::size_t i = 0; i < report.matrix.values.size(); ++i) {
    if (i % static_cast<std::size_t>(report.matrix.columns) == 0) json["confusion_matrix"].push_back(Json::array());
    json["confusion_matrix"].back().push_back(static_cast<std::int64_t>(report.matrix.values[i]));
  }
}

}  // namespace

std::string text_of(const Evaluation& evaluation, const TrainedModel& model, std::size_t columns) {
  std::string text = head_text(evaluation, model);
  if (const auto report = class_report(evaluation, model.class_names))
    text += "\n" +
            fitted_text(columns, kLeastName,
                        [&](std::size_t most_of_name) {
                          return classes_text(*report, is_of_places(evaluation), most_of_name) +
                                 confused_text(*report, most_of_name);
                        }) +
            matrix_text(*report, columns);
  const double rate = static_cast<double>(evaluation.metrics.samples) / std::max(evaluation.seconds, 1e-9);
  const bool as_planned = evaluation.peak_bytes == evaluation.planned_peak_bytes;
  text += fmt::format(
      "\n{} in use at the peak ({}), {} samples/s, {}\n", format_byte_size(evaluation.peak_bytes),
      as_planned ? "as planned" : fmt::format("planned: {}", format_byte_size(evaluation.planned_peak_bytes)),
      format_count(std::llround(rate)), format_duration(evaluation.seconds));
  if (evaluation.broken_samples > 0)
    text += fmt::format("{} broken samples were replaced (data.on_error: skip), the first: {}\n",
                        format_count(evaluation.broken_samples), shown(evaluation.broken_reasons.front(), 200));
  return text;
}

Json json_of(const Evaluation& evaluation, const TrainedModel& model) {
  Json json = {{"weights", model.weights_file.string()},
               {"averaged", model.averaged},
               {"model", model.config.model.name},
               {"device", to_string(model.config.device)},
               {"precision", to_string(model.config.precision)},
               {"task", to_string(evaluation.task)},
               {"split", to_string(evaluation.set)},
               {"samples", evaluation.metrics.samples},
               {"batch_size", evaluation.batch_size}};
  if (model.updates) json["updates"] = *model.updates;
  json["loss"] = evaluation.metrics.loss;
  if (const std::string_view name = run::accuracy_name(model.config); !name.empty())
    json[std::string(name)] = evaluation.metrics.accuracy;
  for (const auto& [name, metric] : metrics_of(evaluation)) json[name] = metric->value();
  for (const MetricValue& metric : evaluation.metrics.values)
    if (const MetricTable table = metric.table(); !table.values.empty() && !table.is_matrix())
      json[fmt::format("{}_of_classes", metric.name())] = table.values;
  if (const auto report = class_report(evaluation, model.class_names))
    add_classes(json, *report, is_of_places(evaluation));
  json["seconds"] = evaluation.seconds;
  json["planned_peak_bytes"] = evaluation.planned_peak_bytes;
  json["peak_bytes"] = evaluation.peak_bytes;
  if (evaluation.broken_samples > 0)
    json["broken_samples"] = {{"count", evaluation.broken_samples}, {"first", evaluation.broken_reasons}};
  return json;
}

}  // namespace bantam::cli

// Each task in each format.
#include "bantam/cli/predict/prediction_writer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

/// As its shortest text reads: 0.1, where the float's own double is 0.10000000149.
Json number(float value) { return std::isfinite(value) ? Json(std::stod(fmt::format("{}", value))) : Json(nullptr); }

bool has_values(Task task) { return task == Task::classes || task == Task::multi_label || task == Task::values; }

}  // namespace

std::string csv_cell(std::string_view text) {
  const std::string safe = printable(text);
  if (safe.find_first_of(",\"\n") == std::string::npos) return safe;
  std::string quoted = "\"";
  for (const char c : safe) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

PredictionWriter::PredictionWriter(PredictionStyle style) : style_(std::move(style)) {
  style_.top = std::clamp<std::int64_t>(style_.top, 1, std::max<std::int64_t>(std::ssize(style_.names), 1));
}

/// The most probable classes, of equals the first; a NaN is less than all numbers.
std::vector<std::size_t> PredictionWriter::best(const Prediction& prediction) const {
  std::vector<std::size_t> order(prediction.values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto count = std::min(order.size(), static_cast<std::size_t>(style_.top));
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count),
                            [&](std::size_t a, std::size_t b) {
                              const float x = prediction.values[a], y = prediction.values[b];
                              if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
                              return x > y || (!(x < y) && a < b);
                            });
  order.resize(count);
  return order;
}

/// Classes from the threshold on, in their order.
std::vector<std::size_t> PredictionWriter::present(const Prediction& prediction) const {
  std::vector<std::size_t> found;
  for (std::size_t c = 0; c < prediction.values.size(); ++c)
    if (prediction.values[c] >= style_.threshold) found.push_back(c);
  return found;
}

/// Names of the answer's cells.
std::vector<std::string> PredictionWriter::answer_columns() const {
  std::vector<std::string> columns;
  if (style_.task == Task::classes) {
    columns = {"class", "probability"};
    for (std::int64_t k = 2; k <= style_.top; ++k)
      columns.insert(columns.end(), {fmt::format("class_{}", k), fmt::format("probability_{}", k)});
  } else {
    if (style_.task == Task::multi_label) columns.emplace_back("classes");
    const bool one = style_.task == Task::values && style_.names.size() == 1;
    for (const std::string& name : style_.names)
      columns.push_back(one ? "value" : style_.task == Task::values ? "value_" + name : name);
  }
  // A column of the table keeps its name.
  for (std::string& column : columns)
    if (std::ranges::find(style_.columns, column) != style_.columns.end()) column = "predicted_" + column;
  return columns;
}

std::string PredictionWriter::header() const {
  if (style_.format != PredictionFormat::csv) return "";
  std::vector<std::string> cells;
  for (const std::string& column : style_.columns) cells.push_back(csv_cell(column));
  if (cells.empty()) cells.emplace_back("file");
  for (const std::string& column : answer_columns()) cells.push_back(csv_cell(column));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

std::string PredictionWriter::line(const Prediction& prediction, const std::vector<std::string>& of_row) const {
  if (style_.format == PredictionFormat::json) return json_line(prediction, of_row);
  const bool is_row = style_.format == PredictionFormat::csv && !style_.columns.empty();
  if (!prediction.error.empty() && !is_row) return "";
  return style_.format == PredictionFormat::csv ? csv_line(prediction, of_row) : text_line(prediction);
}

std::string PredictionWriter::text_line(const Prediction& prediction) const {
  std::vector<std::string> parts;
  const auto name = [&](std::size_t c) { return shown(style_.names[c], 40); };
  const auto probability = [&](std::size_t c) { return fmt::format("{} {:.4f}", name(c), prediction.values[c]); };
  if (style_.task == Task::classes)
    for (const std::size_t c : best(prediction)) parts.push_back(probability(c));
  if (style_.task == Task::multi_label) {
    for (const std::size_t c : present(prediction)) parts.push_back(probability(c));
    if (parts.empty()) parts.push_back(fmt::format("none (the most probable: {})", probability(best(prediction)[0])));
  }
  if (style_.task == Task::values)
    for (const float value : prediction.values) parts.push_back(fmt::format("{:.6g}", value));
  for (std::size_t c = 0; c < prediction.counts.size(); ++c)
    if (prediction.counts[c] > 0) parts.push_back(fmt::format("{} {}", name(c), format_count(prediction.counts[c])));
  if (!has_values(style_.task) && parts.empty()) parts.push_back("no");
  if (!has_values(style_.task)) parts.push_back("pixels");
  std::string text = join(parts, ", ", has_values(style_.task) ? ", " : " ");
  return fmt::format("{}: {}\n", printable_line(prediction.file), printable(text));
}

std::string PredictionWriter::csv_line(const Prediction& prediction, const std::vector<std::string>& of_row) const {
  std::vector<std::string> cells;
  for (const std::string& cell : of_row) cells.push_back(csv_cell(cell));
  if (style_.columns.empty()) cells.push_back(csv_cell(prediction.file));
  if (!prediction.error.empty()) {
    cells.resize(cells.size() + answer_columns().size());
    return fmt::format("{}\n", fmt::join(cells, ","));
  }
  if (style_.task == Task::classes) {
    for (const std::size_t c : best(prediction))
      cells.insert(cells.end(), {csv_cell(style_.names[c]), fmt::format("{}", prediction.values[c])});
  } else {
    if (style_.task == Task::multi_label) {
      std::vector<std::string> classes;
      for (const std::size_t c : present(prediction)) classes.push_back(style_.names[c]);
      cells.push_back(csv_cell(join(classes, "|", "|")));
    }
    for (const float value : prediction.values) cells.push_back(fmt::format("{}", value));
    for (const std::int64_t count : prediction.counts) cells.push_back(fmt::format("{}", count));
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

std::string PredictionWriter::json_line(const Prediction& prediction, const std::vector<std::string>& of_row) const {
  Json json = {{"file", prediction.file}};
  for (std::size_t c = 0; c < std::min(of_row.size(), style_.columns.size()); ++c)
    json["input"][style_.columns[c]] = of_row[c];
  if (!prediction.error.empty()) {
    json["error"] = prediction.error;
    return json_text(json) + "\n";
  }
  const auto entry = [&](std::size_t c) {
    return Json{{"class", style_.names[c]}, {"index", c}, {"probability", number(prediction.values[c])}};
  };
  if (style_.task == Task::classes) {
    const std::vector<std::size_t> order = best(prediction);
    json.update(entry(order[0]));
    json["top"] = Json::array();
    for (const std::size_t c : order) json["top"].push_back(entry(c));
  } else if (style_.task == Task::multi_label) {
    json["classes"] = Json::array();
    for (const std::size_t c : present(prediction)) json["classes"].push_back(style_.names[c]);
    json["probabilities"] = Json::object();
    for (std::size_t c = 0; c < prediction.values.size(); ++c)
      json["probabilities"][style_.names[c]] = number(prediction.values[c]);
  } else if (style_.task == Task::values) {
    json["values"] = Json::array();
    for (const float value : prediction.values) json["values"].push_back(number(value));
  } else {
    json["pixels"] = Json::object();
    for (std::size_t c = 0; c < prediction.counts.size(); ++c) json["pixels"][style_.names[c]] = prediction.counts[c];
  }
  return json_text(json) + "\n";
}

}  // namespace bantam::cli

// Points to columns, columns to rows.
#include "bantam/cli/print/text_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace bantam::cli {
namespace {

constexpr std::size_t kLabel = 9;  // characters of y's values

int column_of(const TextPlot& plot, double x) {
  const auto at = [&plot](double value) { return plot.log_x ? std::log(value) : value; };
  const double range = at(plot.x.back()) - at(plot.x.front());
  const double share = range > 0 ? (at(x) - at(plot.x.front())) / range : 0;
  return std::clamp(static_cast<int>(std::lround(share * (plot.columns - 1))), 0, plot.columns - 1);
}

/// The mean of each column's points; NaN: it has none.
std::vector<double> column_means(const TextPlot& plot) {
  const auto columns = static_cast<std::size_t>(plot.columns);
  std::vector<double> sums(columns), counts(columns);
  for (std::size_t i = 0; i < plot.x.size(); ++i) {
    const auto column = static_cast<std::size_t>(column_of(plot, plot.x[i]));
    sums[column] += plot.y[i];
    counts[column] += 1;
  }
  for (std::size_t i = 0; i < columns; ++i) sums[i] = counts[i] > 0 ? sums[i] / counts[i] : NAN;
  return sums;
}

std::string x_axis(const TextPlot& plot) {
  const auto columns = static_cast<std::size_t>(plot.columns);
  std::string marks(columns, ' ');
  for (const double mark : plot.marks) marks[static_cast<std::size_t>(column_of(plot, mark))] = '^';
  const std::string from = fmt::format("{:.3g}", plot.x.front()), to = fmt::format("{:.3g}", plot.x.back());
  const std::string indent(kLabel + 2, ' ');
  std::string text = fmt::format("{}{}\n", std::string(kLabel + 1, ' '), "+" + std::string(columns, '-'));
  if (!plot.marks.empty()) text += indent + marks.substr(0, marks.find_last_not_of(' ') + 1) + "\n";
  const std::size_t gap = columns > from.size() + to.size() ? columns - from.size() - to.size() : 1;
  return text + indent + from + std::string(gap, ' ') + to + "\n";
}

}  // namespace

std::string draw(const TextPlot& plot) {
  if (plot.x.empty()) return {};
  const std::vector<double> means = column_means(plot);
  const auto [least, most] = std::ranges::minmax(plot.y);
  const double range = most > least ? most - least : 1;
  std::vector<std::string> rows(static_cast<std::size_t>(plot.rows), std::string(means.size(), ' '));
  for (std::size_t column = 0; column < means.size(); ++column) {
    if (std::isnan(means[column])) continue;
    const double share = (most - means[column]) / range;
    rows[static_cast<std::size_t>(std::lround(share * (plot.rows - 1)))][column] = '*';
  }
  std::string text;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const double value = most - range * static_cast<double>(row) / std::max(plot.rows - 1, 1);
    const bool labelled = row == 0 || row + 1 == rows.size() || row == rows.size() / 2;
    const std::string label = labelled ? fmt::format("{:.4g}", value) : "";
    text += fmt::format("{:>{}} |{}\n", label, kLabel, rows[row].substr(0, rows[row].find_last_not_of(' ') + 1));
  }
  return text + x_axis(plot);
}

}  // namespace bantam::cli

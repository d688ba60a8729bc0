// The page's drawing and table.
#include "bantam/cli/find_lr/range_page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bantam/cli/pages/page_text.h"

namespace bantam::cli {
namespace {

constexpr double kWidth = 800, kHeight = 360, kLeft = 60, kBottom = 40, kTop = 10, kRight = 10;

constexpr const char* kPage = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>find-lr: {name}</title>
<style>body{{font:15px system-ui,sans-serif;margin:2em auto;max-width:52em}}svg{{width:100%}}
text{{font-size:12px;fill:#555}}td,th{{padding:.1em 1em;text-align:right}}</style></head><body>
<h1>Learning-rate range test: {name}</h1>
<p>{summary}</p>
{drawing}
<p>Grey: the loss of each update. Blue: its exponential mean. Lines: the suggestion (steepest descent, green) and a tenth of
the rate at the minimum (orange).</p>
<details><summary>All points</summary><table><tr><th>learning rate</th><th>loss</th><th>smoothed</th></tr>
{rows}</table></details></body></html>
)";

/// Places of values in the drawing.
struct Scale {
  double first, last, least, most;
  double x(double rate) const {
    return kLeft + (kWidth - kLeft - kRight) * std::log(rate / first) / std::max(std::log(last / first), 1e-9);
  }
  double y(double loss) const {
    return kTop + (kHeight - kTop - kBottom) * (most - loss) / std::max(most - least, 1e-9);
  }
};

Scale scale_of(const run::RangeTest& test) {
  const double least = std::ranges::min_element(test.points, {}, &run::RangeTestPoint::loss)->loss;
  return {test.points.front().learning_rate, test.points.back().learning_rate, least, run::range_test_ceiling(test)};
}

std::string line_of(const run::RangeTest& test, const Scale& scale, double run::RangeTestPoint::*value,
                    const char* style) {
  std::string points;
  for (const run::RangeTestPoint& point : test.points)
    points += fmt::format("{:.1f},{:.1f} ", scale.x(point.learning_rate), scale.y(std::min(point.*value, scale.most)));
  return fmt::format("<polyline fill=\"none\" {} points=\"{}\"/>\n", style, points);
}

std::string mark(const Scale& scale, double rate, const char* colour) {
  if (rate < scale.first || rate > scale.last) return {};
  const double x = scale.x(rate);
  return fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"{3}\"/>\n", x, kTop,
                     kHeight - kBottom, colour);
}

/// Powers of ten, and the ends of the losses.
std::string axes(const Scale& scale) {
  std::string text;
  const auto power_of = [](double rate) { return static_cast<int>(std::ceil(std::log10(rate) - 1e-9)); };
  for (int power = power_of(scale.first); std::pow(10.0, power) <= scale.last * (1 + 1e-9); ++power)
    text += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">1e{}</text>\n",
                        scale.x(std::pow(10.0, power)), kHeight - kBottom + 18, power);
  for (const double loss : {scale.least, scale.most})
    text += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n", kLeft - 6, scale.y(loss) + 4,
                        loss);
  return text;
}

std::string drawing_of(const run::RangeTest& test) {
  if (test.points.empty()) return {};
  const Scale scale = scale_of(test);
  std::string text = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\">\n", kWidth, kHeight) + axes(scale);
  text += line_of(test, scale, &run::RangeTestPoint::loss, "stroke=\"#bbb\"");
  text += line_of(test, scale, &run::RangeTestPoint::smoothed, "stroke=\"#1565c0\" stroke-width=\"2\"");
  if (test.steepest) text += mark(scale, *test.steepest, "#2e7d32");
  if (test.tenth_of_minimum) text += mark(scale, *test.tenth_of_minimum, "#ef6c00");
  return text + "</svg>";
}

}  // namespace

std::string range_page(const std::string& name, const run::RangeTest& test) {
  std::string rows;
  for (const run::RangeTestPoint& point : test.points)
    rows += fmt::format("<tr><td>{:.3g}</td><td>{:.5g}</td><td>{:.5g}</td></tr>\n", point.learning_rate, point.loss,
                        point.smoothed);
  const std::string suggestion =
      test.steepest ? fmt::format("Suggestion: {:.2g} (steepest descent).", *test.steepest) : "The loss falls nowhere.";
  const std::string careful =
      test.tenth_of_minimum ? fmt::format(" A tenth of the rate at the minimum: {:.2g}.", *test.tenth_of_minimum) : "";
  return fmt::format(kPage, fmt::arg("name", escaped(name)), fmt::arg("summary", suggestion + careful),
                     fmt::arg("drawing", drawing_of(test)), fmt::arg("rows", rows));
}

}  // namespace bantam::cli

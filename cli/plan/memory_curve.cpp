// Best points as rows; all points in the picture and in JSON.
#include "bantam/cli/plan/memory_curve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/profile_flag.h"
#include "bantam/cli/pages/page_parts.h"
#include "bantam/cli/pages/page_text.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::cli {
namespace {

using CurvePoint = run::MemoryCurve::Point;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::array<std::uint64_t, 12> kCards = {2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 80, 96};  // GiB
constexpr std::array<const char*, 6> kColours = {"parameter",  "gradient",  "optimizer",
                                                 "activation", "workspace", "input"};

/// "none", "inner", "cheap, 5 segments".
std::string short_policy(const RecomputeOptions& recompute) {
  if (recompute.kind != RecomputeOptions::Kind::named || recompute.names.empty()) return to_string(recompute);
  RecomputeOptions rest = recompute;
  rest.names.clear();
  rest.kind = RecomputeOptions::Kind::none;
  const std::string derived = to_string(rest);
  return (derived == "none" ? "" : derived + ", ") + counted(recompute.names.size(), "segment");
}

/// Places of the best points, by falling bytes.
std::vector<std::size_t> best_places(const run::MemoryCurve& curve) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < curve.points.size(); ++i)
    if (curve.points[i].best) places.push_back(i);
  std::ranges::sort(places, std::ranges::greater(), [&](std::size_t i) { return curve.points[i].needed_bytes; });
  return places;
}

/// The share of images/s that `point` has less than the fastest, in per cent.
std::string lag(const run::MemoryCurve& curve, const CurvePoint& point) {
  const CurvePoint* most = curve.fastest();
  if (most == nullptr || most == &point) return "";
  return fmt::format("{:+.1f} %", 100 * (point.images_per_s / most->images_per_s - 1));
}

std::string measured_cell(const CurveText& text, std::size_t place) {
  const auto found = text.measured.find(place);
  return found == text.measured.end() ? "-" : fmt::format("{:.4g}", found->second);
}

std::vector<std::string> row_of(const CurveText& text, std::size_t place) {
  const CurvePoint& point = text.curve.points[place];
  std::vector<std::string> row = {format_byte_size(point.needed_bytes), fmt::format("{}", point.step.batch),
                                  short_policy(point.step.recompute), fmt::format("{:.4g}", 1e3 * point.step_seconds)};
  if (!text.measured.empty()) row.push_back(measured_cell(text, place));
  row.push_back(compact_rate(point.images_per_s));
  row.push_back(lag(text.curve, point));
  row.emplace_back(point.fits ? "yes" : "no");
  return row;
}

std::vector<std::string> titles(const CurveText& text) {
  std::vector<std::string> titles = {"needs", "batch", "recompute", "ms/step"};
  if (!text.measured.empty()) titles.emplace_back("measured");
  titles.insert(titles.end(), {"images/s", "", "fits"});
  return titles;
}

/// The best point within the memory of each usual card, between the least and the most that a best point needs.
std::string card_lines(const run::MemoryCurve& curve) {
  std::string lines;
  const CurvePoint* before = nullptr;
  for (const std::uint64_t card : kCards) {
    const CurvePoint* point = curve.best_within(card * kGiB);
    if (point == nullptr || point == before) continue;
    before = point;
    lines += fmt::format("{:>3} GiB: batch {}, recompute {}, {} images/s{}\n", card, point->step.batch,
                         short_policy(point->step.recompute), compact_rate(point->images_per_s),
                         lag(curve, *point).empty() ? "" : " (" + lag(curve, *point) + ")");
  }
  return lines;
}

/// The least of 1, 2, 5, 10, 20, 50, … that is not below `least`.
double round_step(double least) {
  const double ten = std::pow(10, std::floor(std::log10(least)));
  return ten * (least <= ten ? 1 : least <= 2 * ten ? 2 : least <= 5 * ten ? 5 : 10);
}

/// A picture's scales: bytes to the right, images/s up.
class Picture {
 public:
  explicit Picture(const CurveText& text) : text_(text) {
    for (const CurvePoint& point : text.curve.points) {
      most_bytes_ = std::max(most_bytes_, static_cast<double>(point.needed_bytes));
      most_images_ = std::max(most_images_, point.images_per_s);
    }
    for (const auto& [place, ms] : text.measured)
      most_images_ = std::max(most_images_, images(text.curve.points[place], ms));
  }

  std::string svg() const {
    std::string svg = fmt::format(
        "<svg id=\"curve\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Images a second by memory, a line a "
        "batch size; the table has the same figures\">",
        kWidth, kHeight);
    svg += axes() + lines() + crosses();
    if (const CurvePoint* knee = text_.curve.knee(); knee != nullptr)
      svg += fmt::format("<circle class=\"knee\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"8\"><title>{}</title></circle>",
                         x(*knee), y(knee->images_per_s), escaped(run::knee_text(text_.curve)));
    return svg + "</svg>";
  }

 private:
  static constexpr double kWidth = 1000, kHeight = 420, kLeft = 60, kBottom = 40, kTop = 12, kRight = 90;

  double x(double bytes) const { return kLeft + (kWidth - kLeft - kRight) * bytes / most_bytes_; }
  double x(const CurvePoint& point) const { return x(static_cast<double>(point.needed_bytes)); }
  double y(double images) const {
    return kHeight - kBottom - (kHeight - kBottom - kTop) * images / (1.05 * most_images_);
  }
  static double images(const CurvePoint& point, double ms) {
    return point.images_per_s * 1e3 * point.step_seconds / ms;
  }

  std::string axes() const {
    std::string svg;
    const double step = std::pow(2, std::ceil(std::log2(most_bytes_ / 8)));
    for (double bytes = 0; bytes <= most_bytes_; bytes += step)
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text x=\"{0:.1f}\" y=\"{3}\" "
          "text-anchor=\"middle\">{4}</text>",
          x(bytes), kTop, kHeight - kBottom, kHeight - kBottom + 18,
          bytes == 0 ? "0" : format_byte_size(static_cast<std::uint64_t>(bytes)));
    const double rate = round_step(most_images_ / 5);
    for (double images = 0; images <= most_images_; images += rate)
      svg += fmt::format(
          "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text x=\"{3}\" y=\"{4:.1f}\" "
          "text-anchor=\"end\">{5}</text>",
          kLeft, kWidth - kRight, y(images), kLeft - 6, y(images) + 4, compact_rate(images));
    const auto bound = static_cast<double>(text_.bound_bytes);
    if (bound > 0 && bound <= most_bytes_)
      svg += fmt::format("<line class=\"bound\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>", x(bound), kTop,
                         kHeight - kBottom);
    return svg;
  }

  std::string lines() const {
    std::string svg;
    const std::vector<CurvePoint>& points = text_.curve.points;
    std::size_t colour = 0;
    for (std::size_t first = 0; first < points.size(); ++colour) {
      std::size_t end = first;
      std::string places, dots;
      for (; end < points.size() && points[end].step.batch == points[first].step.batch; ++end) {
        const CurvePoint& point = points[end];
        places += fmt::format("{:.1f},{:.1f} ", x(point), y(point.images_per_s));
        dots +=
            fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"var(--{})\"><title>{}</title></circle>",
                        x(point), y(point.images_per_s), point.best ? 4.5 : 2.5, kColours[colour % kColours.size()],
                        escaped(fmt::format("batch {}, recompute {}: {}, {} images/s", point.step.batch,
                                            to_yaml(point.step.recompute), format_byte_size(point.needed_bytes),
                                            compact_rate(point.images_per_s))));
      }
      svg +=
          fmt::format("<polyline points=\"{}\" stroke=\"var(--{})\"/>{}<text x=\"{:.1f}\" y=\"{:.1f}\">batch {}</text>",
                      places, kColours[colour % kColours.size()], dots, x(points[first]) + 8,
                      y(points[first].images_per_s) + 4, points[first].step.batch);
      first = end;
    }
    return svg;
  }

  std::string crosses() const {
    std::string svg;
    for (const auto& [place, ms] : text_.measured) {
      const CurvePoint& point = text_.curve.points[place];
      svg += fmt::format(
          "<path d=\"M{0:.1f} {1:.1f}l10 10m-10 0l10 -10\" stroke=\"var(--ink)\" stroke-width=\"1.5\"><title>{2:.4g} "
          "ms measured</title></path>",
          x(point) - 5, y(images(point, ms)) - 5, ms);
    }
    return svg;
  }

  const CurveText& text_;
  double most_bytes_ = 1, most_images_ = 1e-9;
};

std::string html_table(const CurveText& text) {
  std::string html = "<table><thead><tr>";
  for (const std::string& title : titles(text)) html += "<th>" + escaped(title) + "</th>";
  html += "</tr></thead><tbody>";
  for (const std::size_t place : best_places(text.curve)) {
    html += "<tr>";
    for (const std::string& cell : row_of(text, place)) html += "<td>" + escaped(cell) + "</td>";
    html += "</tr>";
  }
  return html + "</tbody></table>";
}

}  // namespace

CLI::Option* add_curve_flags(CLI::App& command, CurveFlags& flags, const std::string& description) {
  CLI::Option* const curve = command.add_flag("--curve", flags.on, description);
  command.add_option("--out", flags.out, "With --curve: a page with a picture")->needs(curve);
  command.add_flag("--overwrite", flags.overwrite, "Replace the file of --out");
  return curve;
}

std::pair<RunConfig, run::MemoryCurve> curve_of(const RunConfig& config, const PlanTarget& target, const StepGrid& grid,
                                                double arena_seconds) {
  if (!grid.recomputes.empty()) throw ConfigError("--curve chooses what is recomputed: leave out --recompute");
  if (grid.precisions.size() > 1)
    throw ConfigError(fmt::format("--curve is of one precision, but --precision names {}", grid.precisions.size()));
  run::DecisionLog log;
  RunConfig decided = run::decide_step(config, target, grid.batches, log);
  run::MemoryCurve curve =
      run::memory_curve(decided, target, grid.batches.empty() ? run::curve_batches(decided) : grid.batches,
                        grid.precisions.empty() ? decided.precision : grid.precisions.front(), arena_seconds,
                        [](std::int64_t size) { print_error("planning batch {}\n", size); });
  return {std::move(decided), std::move(curve)};
}

void show_curve(const CurveText& text, bool json, const std::string& out) {
  if (!out.empty()) write_file_atomically(out, curve_page(text));
  if (!json)
    return print_out("{} on {}\n{}", printable_line(text.config.model.name), device_title(text.target),
                     curve_table(text));
  for (const auto& row : curve_json(text)) print_out("{}\n", json_text(row));
}

std::string curve_table(const CurveText& text) {
  std::vector<Table::Column> columns;
  for (const std::string& title : titles(text))
    columns.push_back({title, title == "recompute" ? Align::left : Align::right});
  Table table(std::move(columns));
  for (const std::size_t place : best_places(text.curve)) table.add_row(row_of(text, place));
  const std::string cards = card_lines(text.curve);
  return table.to_string() + (cards.empty() ? "" : "\nBest within\n" + cards) +
         "\nKnee: " + run::knee_text(text.curve) + ".\n";
}

nlohmann::ordered_json curve_json(const CurveText& text) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  const CurvePoint* knee = text.curve.knee();
  for (std::size_t i = 0; i < text.curve.points.size(); ++i) {
    const CurvePoint& point = text.curve.points[i];
    nlohmann::ordered_json row = describe(text.config, point.step);
    row["peak_bytes"] = point.peak_bytes;
    row["needed_bytes"] = point.needed_bytes;
    row["predicted_ms"] = 1e3 * point.step_seconds;
    row["predicted_images_per_s"] = point.images_per_s;
    row["predicted_extra_percent"] = 100 * point.step.predicted_extra.value_or(0);
    if (text.curve.estimate) row["estimate"] = true;
    if (const auto found = text.measured.find(i); found != text.measured.end()) row["ms_per_step"] = found->second;
    row["best"] = point.best;
    row["knee"] = &point == knee;
    row["fits"] = point.fits;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string curve_page(const CurveText& text) {
  return filled(
      page_part("curve_page.html"),
      {{"title", escaped(fmt::format("Memory for time: {} on {}", text.config.model.name, device_title(text.target)))},
       {"subtitle", escaped(text.curve.estimate ? "Predicted by estimated rates of the device."
                                                : "Predicted by the device's rates.")},
       {"headline", escaped(run::knee_text(text.curve) + ".")},
       {"hint", text.measured.empty() ? "" : "Crosses were measured."},
       {"style", page_part("curve_page.css")},
       {"theme", page_part("theme.js")},
       {"picture", Picture(text).svg()},
       {"table", html_table(text)}});
}

}  // namespace bantam::cli

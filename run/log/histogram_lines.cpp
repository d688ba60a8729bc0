// Short numbers where they say enough: a line has 65 edges.
#include "bantam/run/log/histogram_lines.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/json.h"

namespace bantam::run {
namespace {

/// As few digits as tell a float32 from its neighbours.
double shortened(double value) { return std::stod(fmt::format("{}", static_cast<float>(value))); }

/// Edges that are no longer ascending with fewer digits keep all of theirs.
nlohmann::ordered_json edges_of(const Histogram& histogram) {
  std::array<double, Histogram::kBins + 1> edges{};
  std::ranges::transform(histogram.edges, edges.begin(), shortened);
  const bool ascending = std::ranges::adjacent_find(edges, std::greater_equal<>()) == edges.end();
  return ascending ? edges : histogram.edges;
}

}  // namespace

std::string histogram_line(std::int64_t update, const TensorHistogram& of) {
  const Histogram& histogram = of.histogram;
  const nlohmann::ordered_json line = {{"update", update},
                                       {"tensor", of.tensor},
                                       {"kind", of.of_gradient ? "gradient" : "weight"},
                                       {"minimum", shortened(histogram.minimum)},
                                       {"maximum", shortened(histogram.maximum)},
                                       {"mean", histogram.mean},
                                       {"deviation", histogram.deviation},
                                       {"not_finite", histogram.not_finite},
                                       {"edges", edges_of(histogram)},
                                       {"counts", histogram.counts}};
  return line.dump() + '\n';
}

}  // namespace bantam::run

// Samples of schedules, and their bars.
#include "bantam/cli/explain/schedule_curve.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/counted.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"

namespace bantam::cli {
namespace {

constexpr std::int64_t kBars = 48;

struct Curve {
  const char* name;
  std::int64_t updates;
  std::vector<std::pair<std::int64_t, double>> points;  // at most kBars, the first and last update among them
};

std::vector<Curve> curves_of(const run::RunConfig& config, std::int64_t batch) {
  const std::int64_t an_epoch = run::updates_per_epoch(config, batch), updates = run::updates_of_run(config, batch);
  const UpdateSchedules schedules =
      schedules_of(config.train.optimizer, {.updates = updates, .updates_per_epoch = an_epoch});
  std::vector<Curve> curves;
  const auto add = [&](const char* name, const Schedule& schedule) {
    if (!schedule || updates <= 0) return;
    Curve curve{.name = name, .updates = updates, .points = {}};
    const std::int64_t bars = std::min(kBars, updates);
    for (std::int64_t i = 0; i < bars; ++i) {
      const std::int64_t update = bars > 1 ? i * (updates - 1) / (bars - 1) : 0;
      curve.points.emplace_back(update, schedule(update));
    }
    curves.push_back(std::move(curve));
  };
  add("learning_rate", schedules.learning_rate);
  add("weight_decay", schedules.weight_decay);
  add("momentum", schedules.momentum);
  return curves;
}

std::string bars_of(const Curve& curve, double least, double most) {
  constexpr const char* kHeights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string bars;
  for (const auto& [update, value] : curve.points) {
    const double share = most > least ? (value - least) / (most - least) : 1.0;
    bars += kHeights[std::clamp(static_cast<int>(share * 8), 0, 7)];
  }
  return bars;
}

std::string text_of(const run::RunConfig& config, const Curve& curve) {
  const auto value = [](const auto& point) { return point.second; };
  const auto [least, most] = std::ranges::minmax_element(curve.points, {}, value);
  return fmt::format("{:<14}{}\n{:14}first {:.4g}, most {:.4g} at update {}, last {:.4g}: {} of {}\n", curve.name,
                     bars_of(curve, std::min(0.0, least->second), most->second), "", curve.points.front().second,
                     most->second, format_count(most->first), curve.points.back().second,
                     counted(curve.updates, "update"), counted(config.train.epochs, "epoch"));
}

}  // namespace

std::string schedule_curves(const run::RunConfig& config, std::int64_t batch) {
  std::string text;
  for (const Curve& curve : curves_of(config, batch)) text += text_of(config, curve);
  return text;
}

nlohmann::ordered_json schedule_points(const run::RunConfig& config, std::int64_t batch) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Curve& curve : curves_of(config, batch))
    all.push_back({{"value", curve.name}, {"updates", curve.updates}, {"points", curve.points}});
  return all;
}

}  // namespace bantam::cli

// The table of schedules: curves over a run, each a pure function of the update, with a linear warm-up before them.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/optimizers/plateau.h"

namespace bantam {
namespace {

constexpr DurationRange kTimes{.seconds = false};
constexpr NumberRange kNotNegative{.min = 0, .max = 1e30};

double updates_in(Duration duration, const ScheduleFacts& facts) {
  const std::int64_t unit = duration.unit == Duration::Unit::epochs ? facts.updates_per_epoch : 1;
  return static_cast<double>(duration.count) * static_cast<double>(unit);
}

/// The linear way up to the curve, at the beginning.
struct WarmUp {
  Duration length;
  double from = 0;
};

WarmUp read_warm_up(ConfigMap& options) {
  WarmUp warm_up;
  warm_up.length = options.duration(
      {"warmup", "Updates or epochs in which the value first rises in a straight line to the curve.", "5epochs"},
      kTimes, Duration::updates(0));
  warm_up.from =
      options.number({"warmup_from", "The value of the first update, where there is a warm-up."}, kNotNegative, 0.0);
  return warm_up;
}

/// `curve` is a function of the update; it is asked for updates from the warm-up's end on.
template <class Curve>
auto after(const WarmUp& warm_up, const ScheduleFacts& facts, Curve curve) {
  return [curve, from = warm_up.from, end = updates_in(warm_up.length, facts)](std::int64_t update) {
    const auto n = static_cast<double>(update);
    if (n >= end) return static_cast<float>(curve(n));
    return static_cast<float>(from + (curve(end) - from) * (n / end));
  };
}

ScheduleMaker read_constant(ConfigMap& options) {
  options.describe("The peak throughout, after the warm-up.", "constant: {warmup: 500}");
  return [warm_up = read_warm_up(options)](const ScheduleFacts& facts) {
    return after(warm_up, facts, [peak = facts.learning_rate](double) { return peak; });
  };
}

/// From the peak, after the warm-up, to the final value at the end.
struct Fall {
  WarmUp warm_up;
  double final = 0;
  std::optional<Duration> over;

  /// Where it ends, in updates.
  double end(const ScheduleFacts& facts) const {
    return over ? updates_in(*over, facts) : static_cast<double>(facts.updates);
  }
};

std::optional<Duration> read_over(ConfigMap& options) {
  const auto over = options.find({"over", "When the curve ends, counted from the run's beginning, warm-up included.",
                                  "30epochs", "the run's length"});
  return over ? std::optional(over->as_duration({.min = 1, .seconds = false})) : std::nullopt;
}

Fall read_fall(ConfigMap& options) {
  Fall fall{.warm_up = read_warm_up(options)};
  fall.final = options.number({"final", "The value at the end, and after it."}, kNotNegative, 0.0);
  fall.over = read_over(options);
  return fall;
}

/// `share` maps what is left of the way (1 to 0) to the share of peak - final that is left.
template <class Share>
ScheduleMaker falling(const Fall& fall, Share share) {
  return [fall, share](const ScheduleFacts& facts) {
    const double begin = updates_in(fall.warm_up.length, facts), end = fall.end(facts), peak = facts.learning_rate;
    return after(fall.warm_up, facts, [=, final = fall.final](double n) {
      const double done = n <= begin ? 0.0 : n >= end ? 1.0 : (n - begin) / (end - begin);
      return final + (peak - final) * share(1.0 - done);
    });
  };
}

ScheduleMaker read_linear(ConfigMap& options) {
  options.describe("A straight line from the peak to the final value.", "linear: {final: 1.0e-4, warmup: 1epoch}");
  return falling(read_fall(options), [](double left) { return left; });
}

ScheduleMaker read_cosine(ConfigMap& options) {
  options.describe("Half a cosine from the peak to the final value (Loshchilov and Hutter 2017, without restarts).",
                   "cosine: {final: 0, warmup: 5epochs, over: 30epochs}");
  return falling(read_fall(options), [](double left) { return 0.5 * (1.0 - std::cos(std::numbers::pi * left)); });
}

ScheduleMaker read_polynomial(ConfigMap& options) {
  options.describe("A power of the straight line from the peak to the final value.", "polynomial: {power: 2}");
  const double power = options.number({"power", "Exponent of what is left of the way.", "0.9"},
                                      {.min = 0, .max = 100, .min_open = true}, 1.0);
  return falling(read_fall(options), [power](double left) { return std::pow(left, power); });
}

constexpr NumberRange kFactor{.min = 0, .max = 1, .min_open = true};

double read_factor(ConfigMap& options, const char* meaning) {
  return options.number({"factor", meaning, "0.5"}, kFactor, 0.1);
}

ScheduleMaker read_step(ConfigMap& options) {
  options.describe("The peak, multiplied by a factor every so often.", "step: {every: 30epochs, factor: 0.1}");
  const WarmUp warm_up = read_warm_up(options);
  const Duration every = options.duration({"every", "How often, counted from the run's beginning.", "30epochs"},
                                          {.min = 1, .seconds = false});
  const double factor = read_factor(options, "What the value is multiplied by each time.");
  return [=](const ScheduleFacts& facts) {
    return after(warm_up, facts, [factor, every = updates_in(every, facts), peak = facts.learning_rate](double n) {
      return peak * std::pow(factor, std::floor(n / every));
    });
  };
}

/// Durations in rising order, or one alone. An order of updates and epochs is only known with the run.
std::vector<Duration> read_times(const ConfigNode& node) {
  std::vector<Duration> times;
  if (!node.is_list()) return {node.as_duration({.min = 1, .seconds = false})};
  for (const ConfigNode& item : node.items()) times.push_back(item.as_duration({.min = 1, .seconds = false}));
  return times;
}

ScheduleMaker read_multi_step(ConfigMap& options) {
  options.describe("The peak, multiplied by a factor at each of some times.",
                   "multi_step: {at: [30epochs, 60epochs, 80epochs], factor: 0.1}");
  const WarmUp warm_up = read_warm_up(options);
  const auto at = read_times(options.node(
      {"at", "One time or several, counted from the run's beginning.", "60epochs | [30epochs, 60epochs]"}));
  const double factor = read_factor(options, "What the value is multiplied by at each of them.");
  return [=](const ScheduleFacts& facts) {
    std::vector<double> times;
    for (const Duration& time : at) times.push_back(updates_in(time, facts));
    return after(warm_up, facts, [factor, times, peak = facts.learning_rate](double n) {
      return peak * std::pow(factor, std::ranges::count_if(times, [n](double time) { return n >= time; }));
    });
  };
}

ScheduleMaker read_exponential(ConfigMap& options) {
  options.describe("From the warm-up's end on the peak falls by a factor in every equal time, smoothly.",
                   "exponential: {factor: 0.94, every: 2epochs}");
  const WarmUp warm_up = read_warm_up(options);
  const double factor = read_factor(options, "What the value is multiplied by in that time.");
  const Duration every = options.duration({"every", "The time in which the value falls by the factor.", "2epochs"},
                                          {.min = 1, .seconds = false}, Duration::epochs(1));
  return [=](const ScheduleFacts& facts) {
    const double begin = updates_in(warm_up.length, facts);
    return after(warm_up, facts, [=, every = updates_in(every, facts), peak = facts.learning_rate](double n) {
      return peak * std::pow(factor, (n - begin) / every);
    });
  };
}

ScheduleMaker read_inverse_sqrt(ConfigMap& options) {
  options.describe(
      "The peak at the warm-up's end, then the peak times the root of warm-up over update (Vaswani et al. 2017). "
      "Without a warm-up, the root of 1 over the update.",
      "inverse_sqrt: {warmup: 4000}");
  return [warm_up = read_warm_up(options)](const ScheduleFacts& facts) {
    const double begin = std::max(updates_in(warm_up.length, facts), 1.0);
    return after(warm_up, facts, [begin, peak = facts.learning_rate](double n) {
      return peak * std::sqrt(begin / std::max(n, begin));
    });
  };
}

/// Smith and Topin 2018, in PyTorch's form: a phase up and a phase down, whose ends are updates.
struct OneCycle {
  double rise = 0.3;
  bool cosine = true;
  std::optional<double> start, final;
  std::optional<Duration> over;

  double between(double from, double to, double done) const {
    return cosine ? to + (from - to) * 0.5 * (1.0 + std::cos(std::numbers::pi * done)) : from + (to - from) * done;
  }
  Schedule make(const ScheduleFacts& facts) const {
    const double updates = over ? updates_in(*over, facts) : static_cast<double>(facts.updates);
    const double peak = facts.learning_rate, low = start.value_or(peak / 25), last = final.value_or(low / 1e4);
    const double top = rise * updates - 1, end = updates - 1;
    return [=, *this](std::int64_t update) {
      const double n = std::min(static_cast<double>(update), std::max(end, 0.0));
      if (n <= top) return static_cast<float>(between(low, peak, top > 0 ? n / top : 1.0));
      return static_cast<float>(between(peak, last, end > top ? (n - top) / (end - top) : 1.0));
    };
  }
};

ScheduleMaker read_one_cycle(ConfigMap& options) {
  options.describe(
      "Up to the peak and down again, far below the start (Smith and Topin 2018). For momentum set start and final "
      "above "
      "the peak: it is lowest where the learning rate is highest.",
      "one_cycle: {rise: 0.3, over: 30epochs}");
  OneCycle cycle;
  cycle.rise = options.number({"rise", "Share of the updates in which the value rises.", "0.4"},
                              {.min = 0, .max = 1, .max_open = true}, 0.3);
  const auto value = [&](ConfigKey key) -> std::optional<double> {
    const auto node = options.find(key);
    return node ? std::optional(node->as_number(kNotNegative)) : std::nullopt;
  };
  cycle.start = value({"start", "The value of the first update.", "0.01", "a 25th of the peak"});
  cycle.final = value({"final", "The value of the last update.", "1.0e-5", "a 10,000th of the start"});
  cycle.cosine =
      options.choice({"anneal", "The curve of both ways.", "linear"}, {"cosine", "linear"}, "cosine") == "cosine";
  cycle.over = read_over(options);
  return [cycle](const ScheduleFacts& facts) { return cycle.make(facts); };
}

struct Point {
  Duration at;
  double share = 0;  // of the peak
};

std::vector<Point> read_points(const ConfigNode& node) {
  std::vector<Point> points;
  for (const auto& [time, value] : node.entries()) {
    try {
      points.push_back({parse_duration(time), value.as_number(kNotNegative)});
    } catch (const ConfigError& error) {
      if (node.is_described()) throw;
      value.fail_at_key(error.what());
    }
    if (points.back().at.unit == Duration::Unit::seconds)
      value.fail_at_key("expected updates or epochs, not time of the clock");
  }
  if (points.empty() && !node.is_described()) node.fail("expected at least one point, as {0: 1, 10epochs: 0.1}");
  return points;
}

ScheduleMaker read_piecewise(ConfigMap& options) {
  options.describe("Through given points, in straight lines or in steps.",
                   "piecewise: {points: {0: 0, 5epochs: 1, 24epochs: 0}}");
  const std::vector<Point> points = read_points(options.node(
      {"points",
       "Times, in rising order, and the value at each as a multiple of the peak. The first value counts before "
       "its time, the last one after it.",
       "{0: 1, 10epochs: 0.1}"}));
  const bool lines = options.choice({"between",
                                     "linear: straight lines between points; constant: each value counts "
                                     "until the next point.",
                                     "constant"},
                                    {"linear", "constant"}, "linear") == "linear";
  return [=](const ScheduleFacts& facts) -> Schedule {
    std::vector<std::pair<double, double>> curve;
    for (const Point& point : points) curve.emplace_back(updates_in(point.at, facts), point.share);
    if (std::ranges::adjacent_find(curve, [](auto& a, auto& b) { return a.first >= b.first; }) != curve.end())
      throw ConfigError("schedule piecewise: the times of its points must rise");
    return [=, peak = static_cast<double>(facts.learning_rate)](std::int64_t update) {
      const auto n = static_cast<double>(update);
      const auto next = std::ranges::find_if(curve, [n](const auto& point) { return point.first > n; });
      if (next == curve.begin()) return static_cast<float>(peak * next->second);
      const auto& [begin, from] = *std::prev(next);
      if (next == curve.end() || !lines) return static_cast<float>(peak * from);
      return static_cast<float>(peak * (from + (next->second - from) * (n - begin) / (next->first - begin)));
    };
  };
}

ScheduleMaker read_on_plateau(ConfigMap& options) {
  options.describe(
      "The peak, multiplied by a factor where evaluations have not improved for a while, as PyTorch's "
      "ReduceLROnPlateau. Its state is in checkpoints.",
      "on_plateau: {metric: loss, factor: 0.5, patience: 3}");
  const WarmUp warm_up = read_warm_up(options);
  const PlateauOptions plateau = read_plateau(options);
  return [=](const ScheduleFacts& facts) -> Schedule {
    const auto state = std::make_shared<Plateau>(plateau, facts.learning_rate);
    return Schedule(after(warm_up, facts, [state](double) { return state->value(); }), state);
  };
}

}  // namespace

UpdateValues UpdateSchedules::at(std::int64_t update, UpdateValues values) const {
  if (learning_rate) values.learning_rate = learning_rate(update);
  if (weight_decay) values.weight_decay = weight_decay(update);
  if (momentum) values.momentum = momentum(update);
  return values;
}

std::vector<std::shared_ptr<EvaluatedSchedule>> UpdateSchedules::evaluated() const {
  std::vector<std::shared_ptr<EvaluatedSchedule>> all;
  for (const Schedule* schedule : {&learning_rate, &weight_decay, &momentum})
    if (schedule->evaluated() != nullptr) all.push_back(schedule->evaluated());
  return all;
}

UpdateSchedules schedules_of(const OptimizerOptions& options, const ScheduleFacts& facts) {
  const UpdateValues own = options.rule->values();
  const auto make = [&](const ScheduleMaker& maker, float value) {
    ScheduleFacts of_value = facts;
    of_value.learning_rate = value;
    return maker ? maker(of_value) : Schedule();
  };
  const OptimizerSchedules& makers = options.schedules;
  return {make(makers.learning_rate, own.learning_rate), make(makers.weight_decay, own.weight_decay),
          make(makers.momentum, own.momentum)};
}

Registry<Reader<ScheduleMaker>>& schedules() {
  static Registry<Reader<ScheduleMaker>> table("schedule", {{"constant", read_constant},
                                                            {"linear", read_linear},
                                                            {"cosine", read_cosine},
                                                            {"polynomial", read_polynomial},
                                                            {"step", read_step},
                                                            {"multi_step", read_multi_step},
                                                            {"exponential", read_exponential},
                                                            {"inverse_sqrt", read_inverse_sqrt},
                                                            {"one_cycle", read_one_cycle},
                                                            {"piecewise", read_piecewise},
                                                            {"on_plateau", read_on_plateau}});
  return table;
}

ScheduleMaker read_schedule(ConfigMap& section) {
  const auto node =
      section.find({"schedule",
                    "The learning rate of each update; its peak is the optimizer's learning_rate. The "
                    "same as a schedule in the optimizer's block.",
                    "constant | {cosine: {warmup: 5epochs}}", "the optimizer's learning rate throughout"});
  return node ? read_registered(schedules(), *node) : ScheduleMaker();
}

ScheduledNumber read_scheduled_number(ConfigMap& options, const ConfigKey& key, NumberRange range, double otherwise) {
  const ConfigNode node = options.node(key, fmt::format("{}", otherwise));
  if (node.is_described() && node.is_map()) {
    (void)node.entries();  // its keys are those of a schedule, which `train.schedule` describes
    return {static_cast<float>(otherwise), [](const ScheduleFacts&) { return Schedule(); }};
  }
  if (!node.is_map()) return {static_cast<float>(node.as_number(range))};
  ConfigMap map = node.as_map();
  const std::string name = map.text("schedule");
  (void)find_reader(schedules(), map.node("schedule"), name);
  const double peak = map.number("peak", range, otherwise);
  ScheduleMaker schedule = read_beside(schedules(), map, "schedule", name);
  map.finish();
  return {static_cast<float>(peak), std::move(schedule)};
}

}  // namespace bantam

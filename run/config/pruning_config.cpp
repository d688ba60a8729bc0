// Reads `train.ema` and `train.prune`.
#include "bantam/run/config/pruning_config.h"

#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace bantam::run {
namespace {

constexpr NumberRange kShare{.min = 0, .max = 1, .max_open = true};
constexpr std::array<std::string_view, 2> kPatterns = {"magnitude", "2:4"};

std::int64_t updates(ConfigMap& options, ConfigKey key, std::int64_t least, std::int64_t otherwise) {
  return options.duration(key, {.min = least, .epochs = false, .seconds = false}, Duration::updates(otherwise)).count;
}

/// Keys of a sparsity that is not the pattern's own.
void read_sparsity(ConfigMap& options, PruneOptions& prune) {
  const std::string schedule = options.choice(
      {"schedule",
       "polynomial: from initial to final, at first fast, final + (initial - final)(1 - (t - begin)/(end - begin))^3; "
       "constant: final from begin on.",
       "constant"},
      {"polynomial", "constant"}, "polynomial");
  prune.schedule = schedule == "constant" ? PruneSchedule::constant : PruneSchedule::polynomial;
  prune.initial = options.number(
      {"initial", "Share of zeros of each tensor after update begin; a constant schedule does not read it.", "0.5"},
      kShare, 0.2);
  prune.final_sparsity =
      options.number({"final", "Share of zeros of each tensor after update end.", "0.9"}, kShare, 0.8);
}

PruneOptions read_prune_options(ConfigMap options) {
  PruneOptions prune;
  const std::string pattern = options.choice(
      {"pattern",
       "magnitude: the smallest weights of each tensor are zero; 2:4: of each four weights along the input channels "
       "the "
       "two smallest, which sparse tensor cores can skip (of tensors whose input channels are a multiple of 4).",
       "2:4"},
      {"magnitude", "2:4"}, "magnitude");
  prune.pattern = pattern == "2:4" ? PrunePattern::two_of_four : PrunePattern::magnitude;
  prune.schedule = PruneSchedule::constant;
  const std::array<std::string, 2> names = {std::string(kPatterns[0]), std::string(kPatterns[1])};
  options.read_choice("pattern", pattern, names, [&](const std::string& name) {
    if (name == "magnitude") read_sparsity(options, prune);
  });
  prune.begin = updates(options, {"begin", "Masks change first after this many updates.", "1000"}, 0, 0);
  prune.frequency = updates(options, {"frequency", "Updates from one change of the masks to the next.", "50"}, 1, 100);
  prune.end = std::numeric_limits<std::int64_t>::max();
  if (const auto end = options.find({"end",
                                     "Masks change last after this many updates: after them weights stay masked as "
                                     "they are. A polynomial schedule needs it.",
                                     "2000", "to the run's end"}))
    prune.end = end->as_duration({.min = 1, .epochs = false, .seconds = false}).count;
  else if (prune.schedule == PruneSchedule::polynomial && !options.self().is_described())
    options.self().fail("prune: a polynomial schedule needs end, e.g. end: 2000");
  const ConfigNode match = options.node({"match",
                                         "Names of the parameters that are pruned, one or several, as `bantam inspect` "
                                         "shows them; * stands for any text.",
                                         "\"*pointwise_weight\" | [\"stem/*\", \"head/weight\"]"},
                                        "*weight*");
  prune.match = match.is_list() ? match.as_texts() : std::vector<std::string>{match.as_text()};
  options.finish();
  const std::int64_t least = prune.schedule == PruneSchedule::polynomial ? prune.begin + 1 : prune.begin;
  if (prune.end < least) options.self().fail("prune: end must come after begin");
  return prune;
}

EmaOptions read_ema_options(ConfigMap options) {
  EmaOptions ema;
  ema.decay = options.number({"decay",
                              "Share of the average that stays at each averaging: about the last 1/(1 - decay) of them "
                              "count.",
                              "0.9999"},
                             kShare, ema.decay);
  ema.warmup = options.boolean({"warmup",
                                "Whether the average follows faster at first, as timm's ModelEmaV3: averaging k keeps "
                                "min(decay, 1 - k^(-2/3)).",
                                "true"},
                               ema.warmup);
  ema.every = updates(options, {"every", "Updates an averaging.", "4"}, 1, ema.every);
  ema.evaluate = options.boolean(
      {"evaluate", "Whether evaluations, and weights-best.safetensors with them, are of the averages.", "false"},
      ema.evaluate);
  options.finish();
  return ema;
}

}  // namespace

std::optional<EmaOptions> read_ema(ConfigMap& train) {
  const auto node = train.find({"ema",
                                "An exponential moving average of weights and running statistics, moved after each "
                                "update that is done and saved as weights-ema.safetensors. off: none.",
                                "{decay: 0.999, warmup: true} | off", "off"});
  if (!node || node->is_text("off")) return std::nullopt;
  return read_ema_options(node->as_map());
}

std::optional<PruneOptions> read_prune(ConfigMap& train) {
  const auto node = train.find({"prune",
                                "Magnitude pruning: the smallest weights become zero and stay so, more of them as the "
                                "run goes on. off: none.",
                                "{initial: 0.2, final: 0.8, end: 2000} | {pattern: \"2:4\"} | off", "off"});
  if (!node || node->is_text("off")) return std::nullopt;
  return read_prune_options(node->as_map());
}

}  // namespace bantam::run

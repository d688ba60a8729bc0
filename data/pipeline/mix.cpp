// Reads mixing stages, and draws shares from Beta distributions and windows by CutMix's rule, as torchvision does.
#include "bantam/data/pipeline/mix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/losses/loss.h"

namespace bantam {
namespace {

MixStage read_stage(ConfigMap& map, double alpha) {
  MixStage stage;
  stage.alpha = map.number({"alpha",
                            "Shares are drawn from Beta(alpha, alpha): near 0 one of two samples has nearly all, 1 "
                            "makes all shares as likely, above 1 both have about half.",
                            "0.4"},
                           {.min = 0, .max = 1000, .min_open = true}, alpha);
  if (const auto share = map.find(
          {"p", "Share of the samples that are mixed so.", "0.3", "1, or 0.5 where mixup and cutmix are both there"}))
    stage.share = share->as_number({.min = 0, .max = 1});
  map.finish();
  return stage;
}

void check_shares(const ConfigNode& node, const MixOptions& options) {
  const double all = options.mixup_share() + options.cutmix_share();
  if (all > 1.0)
    node.fail(
        fmt::format("a sample passes mixup or cutmix, not both: their shares are {} together, at most 1 (p)", all));
}

/// In (0, 1).
double uniform(PhiloxSequence& random) { return (static_cast<double>(random.next()) + 0.5) / 4294967296.0; }

double normal(PhiloxSequence& random) {
  const double radius = std::sqrt(-2.0 * std::log(uniform(random)));
  return radius * std::cos(2.0 * std::numbers::pi * uniform(random));
}

/// The logarithm of a variate of Gamma(alpha, 1), of which small alphas' own are too small for a double. Source:
/// Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; their section 6 for alpha < 1.
double log_gamma_variate(double alpha, PhiloxSequence& random) {
  if (alpha < 1.0) {
    const double larger = log_gamma_variate(alpha + 1.0, random);
    return larger + std::log(uniform(random)) / alpha;
  }
  const double d = alpha - 1.0 / 3.0, c = 1.0 / std::sqrt(9.0 * d);
  while (true) {
    const double x = normal(random), root = 1.0 + c * x;
    if (root <= 0.0) continue;
    const double v = root * root * root;
    if (std::log(uniform(random)) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

/// Draws a share from the distribution Beta(alpha, alpha).
double share_of(double alpha, PhiloxSequence& random) {
  const double first = log_gamma_variate(alpha, random);
  return 1.0 / (1.0 + std::exp(log_gamma_variate(alpha, random) - first));
}

const SampleField* find(const std::vector<SampleField>& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &SampleField::name);
  return found == fields.end() ? nullptr : &*found;
}

std::string_view first_stage(const MixOptions& options) {
  return options.mixup ? "mixup" : options.cutmix ? "cutmix" : "one_hot";
}

/// Targets that mixing cannot follow.
void check_others(const MixOptions& options, const DatasetFacts& facts) {
  for (const SampleField& field : facts.targets) {
    const bool known = (field.name == kLabels && field.shape.rank() == 0 && field.dtype == DType::int32) ||
                       (field.name == kTargets && field.dtype == DType::float32);
    if (options.mixes() && !known)
      throw ConfigError(fmt::format(
          "{} mixes class numbers ('labels', one a sample) and float32 'targets', but the data have '{}' {} "
          "of {}",
          first_stage(options), field.name, to_string(field.shape), to_string(field.dtype)));
  }
}

}  // namespace

void read_one_hot(const ConfigNode& node, MixOptions& options) {
  ConfigMap map = node.as_map();
  map.describe(
      "Class numbers become float32 `targets`, 1 at the class: for losses with targets: values. mixup and cutmix do so "
      "by themselves.",
      "one_hot: {smoothing: 0.1}");
  options.one_hot = true;
  options.smoothing = map.number({"smoothing", "Share of each target that is spread evenly over all classes.", "0.1"},
                                 {.min = 0, .max = 1, .max_open = true}, 0.0);
  map.finish();
}

void read_mixup(const ConfigNode& node, MixOptions& options) {
  ConfigMap map = node.as_map();
  map.describe(
      "Images and targets of a batch are mixed in pairs, the first with the last (Zhang et al., 2018): x = s·x + (1 - "
      "s)·other. The loss reads `targets` (targets: values).",
      "mixup: {alpha: 0.2}");
  options.mixup = read_stage(map, 0.2);
  check_shares(node, options);
}

void read_cutmix(const ConfigNode& node, MixOptions& options) {
  ConfigMap map = node.as_map();
  map.describe(
      "A window of each image is replaced by that of its partner, targets by the window's area (Yun et al., 2019). The "
      "loss reads `targets` (targets: values).",
      "cutmix: {alpha: 1}");
  options.cutmix = read_stage(map, 1.0);
  check_shares(node, options);
}

MixOptions evaluation_mix(const MixOptions& options) {
  return {.one_hot = options.any(), .smoothing = options.smoothing, .mixup = {}, .cutmix = {}};
}

std::vector<SampleField> batch_targets(const MixOptions& options, const DatasetFacts& facts) {
  std::vector<SampleField> fields = facts.targets;
  if (!options.any()) return fields;
  check_others(options, facts);
  if (options.cutmix && facts.image_shape.rank() == 1)
    throw ConfigError("cutmix: a sample is a row of values, of which no window is cut; mixup suits it");
  if (const SampleField* stored = find(fields, kTargets)) {
    if (stored->dtype != DType::float32 || (options.smoothing > 0.0))
      throw ConfigError(
          fmt::format("one_hot makes 'targets' of class numbers, but the data have 'targets' of {} already",
                      to_string(stored->dtype)));
    return fields;
  }
  const SampleField* labels = find(fields, kLabels);
  if (labels == nullptr || labels->shape.rank() != 0 || labels->dtype != DType::int32)
    throw ConfigError(fmt::format("{} needs class numbers: 'labels', one int32 a sample", first_stage(options)));
  const auto classes = static_cast<std::int64_t>(facts.class_names.size());
  if (classes == 0)
    throw ConfigError(
        fmt::format("{} needs the number of classes, but the data have no class names", first_stage(options)));
  fields.push_back({std::string(kTargets), {classes}, DType::float32});
  return fields;
}

MixPlanner::MixPlanner(const MixOptions& options, ImageSize images, std::uint64_t seed)
    : options_(options), images_(images), seed_(seed) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int16_t>::max();
  if (options.cutmix && (images.height > kMost || images.width > kMost))
    throw ShapeError(fmt::format("cutmix: images have at most {} rows and columns", kMost));
}

void MixPlanner::plan(std::int64_t epoch, std::int64_t first_place, std::span<kernels::SampleMix> out) const {
  const std::uint64_t of_epoch = mix64(hash_name("mix") ^ mix64(static_cast<std::uint64_t>(epoch)));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t place = static_cast<std::uint64_t>(first_place) + i;
    PhiloxSequence random(philox_key(seed_, RandomPurpose::augmentation, mix64(of_epoch ^ place)));
    out[i] = draw(random);
  }
}

kernels::SampleMix MixPlanner::draw(PhiloxSequence& random) const {
  const double chosen = uniform(random);
  if (chosen < options_.mixup_share()) return {.share = static_cast<float>(share_of(options_.mixup->alpha, random))};
  if (chosen >= options_.mixup_share() + options_.cutmix_share()) return {};
  // A window whose sides are the image's times the root of the partner's share, cut at the edge.
  const double half = 0.5 * std::sqrt(1.0 - share_of(options_.cutmix->alpha, random));
  const auto ends = [&](std::int64_t extent) {
    const auto middle = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(extent)));
    const auto reach = static_cast<std::int64_t>(half * static_cast<double>(extent));
    return std::pair(static_cast<std::int16_t>(std::max<std::int64_t>(middle - reach, 0)),
                     static_cast<std::int16_t>(std::min(middle + reach, extent)));
  };
  const auto [left, right] = ends(images_.width);
  const auto [top, bottom] = ends(images_.height);
  const auto area = static_cast<double>((bottom - top) * (right - left));
  const double all = static_cast<double>(images_.height * images_.width);
  return {.share = static_cast<float>(1.0 - area / all), .top = top, .left = left, .bottom = bottom, .right = right};
}

}  // namespace bantam

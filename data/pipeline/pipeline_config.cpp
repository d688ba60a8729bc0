// Reads the pipeline's list of stages: one function a stage, a table of their order, and errors at the stage they are
// about.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "bantam/base/config/config_attempts.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/config/expression.h"
#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/pipeline/pipeline.h"

namespace bantam {
namespace {

constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;

/// Where reading stands: the options so far and the shape they must fit.
struct Reading {
  PipelineOptions options;
  DatasetFacts facts;
  bool normalized = false;
  StagesFor use = StagesFor::batches;

  /// Checks what was read so far against the samples, and reports at `node`. Images may still get one size `later`.
  void check(const ConfigNode& node, bool later) const {
    try {
      (void)batch_targets(options.mix, facts);
      if ((!later && use == StagesFor::batches) || stage_forms(options.augmentations, facts).has_one_size())
        (void)batch_shape(options, facts);
    } catch (const ShapeError& error) {
      node.fail(error.what());
    } catch (const ConfigError& error) {
      node.fail(error.what());
    }
  }
};

void read_cache(const ConfigNode& node, Reading& reading) {
  node.describe(
      "Where samples lie while the run reads them; the bits of batches do not depend on it. device: in the GPU's "
      "memory; ram: in host memory, read once; disk: in one file a set in the run's folder, written once, which "
      "`{disk: FOLDER}` puts elsewhere; off: nowhere, read at each use; auto: on a GPU device where the set is small, "
      "else ram; where host memory does not hold it, disk if that saves decoding, else off. What is kept are the "
      "samples after the stages without chance that come first (resize, center_crop), or the files where images have "
      "no one size by then. ram without this stage.",
      "cache: auto");
  PipelineOptions& options = reading.options;
  if (node.is_map()) {
    ConfigMap map = node.as_map();
    options.cache = CacheKind::disk;
    options.cache_folder = expanded_path(
        map.node({"disk", "Folder of the files, which is made where it is not there.", "/scratch/samples"}));
    map.finish();
    return;
  }
  const std::string where = node.as_choice({"auto", "ram", "device", "disk", "off"});
  options.cache = where == "device" ? CacheKind::device
                  : where == "auto" ? CacheKind::automatic
                  : where == "disk" ? CacheKind::disk
                  : where == "off"  ? CacheKind::off
                                    : CacheKind::ram;
}

void read_shuffle(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  map.describe("A new order of the training samples in each epoch, by the seed.", "shuffle");
  ShuffleOptions shuffle;
  // Read only where given: without a buffer there is no number that says "all", and without a seed the run's is used.
  if (const auto buffer = map.find({"buffer",
                                    "Each sample is drawn from a window of the next so many, as from a shuffle buffer: "
                                    "cheaper for files that are read in order, and less random.",
                                    "10000", "the whole epoch: every order is as likely"}))
    shuffle.buffer = buffer->as_integer({.min = 1});
  if (const auto seed = map.find({"seed", "Seed of the order alone.", "7", "the run's seed"}))
    shuffle.seed = static_cast<std::uint64_t>(seed->as_integer({.min = 0}));
  map.finish();
  reading.options.shuffle = shuffle;
}

/// Evaluates an expression of numbers: 0.00392… for "1/255". Returns nothing for other text.
std::optional<double> evaluated(const ConfigNode& node) {
  try {
    const Expression expression(node.as_text());
    const ExpressionValue value = expression.evaluate([](const Expression::Name& name) -> ExpressionValue {
      throw ExpressionError("there are no names here", name.offset, name.name.size());
    });
    if (const auto* number = std::get_if<double>(&value)) return *number;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  } catch (const Error&) {  // the caller says what was expected
  }
  return std::nullopt;
}

/// A number, or an expression of numbers.
double read_number(const ConfigNode& node, NumberRange range) {
  try {
    return node.as_number(range);
  } catch (const ConfigError&) {
    const std::optional<double> value = node.is_scalar() ? evaluated(node) : std::nullopt;
    const auto allowed = [&](double x) {
      return std::isfinite(x) && (range.min_open ? x > range.min : x >= range.min) &&
             (range.max_open ? x < range.max : x <= range.max);
    };
    if (!value || !allowed(*value)) throw;
    return *value;
  }
}

/// One number for all channels, or a list of one a channel.
std::vector<double> read_channels(ConfigMap& map, ConfigKey key, NumberRange range, double otherwise) {
  const ConfigNode node = map.node(key, fmt::format("{}", otherwise));
  if (!node.is_list()) return {read_number(node, range)};
  std::vector<double> values;
  for (const ConfigNode& item : node.items()) values.push_back(read_number(item, range));
  return values;
}

void read_normalize(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  NormalizeOptions& normalize = reading.options.normalize;
  map.describe("Stored values to numbers: y = (x · scale - mean) / std, channel by channel.",
               "normalize: {scale: 1/255, mean: [0.4914, 0.4822, 0.4465], std: [0.247, 0.2435, 0.2616]}");
  normalize.scale =
      read_number(map.node({"scale",
                            "Factor of the stored values: of bytes, 1/255 makes them [0, 1]. A number, or an "
                            "expression of numbers, as in mean and std.",
                            "1/255 | 0.00392156862745098"},
                           "1"),
                  {});
  normalize.mean = read_channels(
      map,
      {"mean", "Subtracted after the scale: one number, or one a channel.", "0.5 | 127/255 | [0.4914, 0.4822, 0.4465]"},
      {}, 0.0);
  normalize.std = read_channels(map,
                                {"std", "What the difference is divided by: one number, or one a channel.",
                                 "0.25 | 64/255 | [0.247, 0.2435, 0.2616]"},
                                {.min = 0, .min_open = true}, 1.0);
  map.finish();
  reading.normalized = true;
}

void read_batch(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  map.describe("Samples of a batch.", "batch: {size: auto, max: 512, multiple_of: 8}");
  constexpr IntegerRange kSize{.min = 1, .max = kMostBatch};
  PipelineOptions& options = reading.options;
  const std::optional<std::int64_t> size =
      map.node({"size",
                "Samples of a batch. auto: the largest that fits memory (limits, budget) and still gains images a "
                "second, solved before training.",
                "128 | auto"})
          .as_integer_or_auto(kSize);
  // A run's resolved configuration has the number beside the bounds that it was solved for.
  if (const auto most = map.find({"max", "Of size auto: the largest batch.", "512", "the data set's size"}))
    options.most_batch_size = most->as_integer(kSize);
  if (const auto multiple =
          map.find({"multiple_of", "Of size auto: the batch is a multiple of this. Multiples of 8 suit tensor cores.",
                    "32", "8, and below 8 any size"}))
    options.batch_multiple_of = multiple->as_integer(kSize);
  const std::int64_t most = options.most_batch_size, unit = std::max<std::int64_t>(1, options.batch_multiple_of);
  const std::string path = node.path();
  if (most > 0 && unit > most)
    map.node("multiple_of")
        .fail(fmt::format("{0}.multiple_of: no multiple of {1} is at most {2} ({0}.max)", path, unit, most));
  if (size && most > 0 && *size > most)
    map.node("max").fail(fmt::format("{0}.max: {1} is less than {0}.size, {2}", path, most, *size));
  if (size && *size % unit != 0)
    map.node("multiple_of")
        .fail(fmt::format("{0}.multiple_of: {0}.size, {2}, is no multiple of {1}", path, unit, *size));
  options.batch_size_is_auto = !size;
  options.batch_size = size.value_or(1);
  options.drop_last = map.boolean(
      {"drop_last", "Drop an epoch's last batch where it is short. Held-out samples are all evaluated in any case."},
      false);
  map.finish();
}

void read_prefetch(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  map.describe("Batches are made beside training. Without this stage each is made when it is needed.",
               "prefetch: {depth: auto, workers: auto}");
  reading.options.prefetch.depth = map.integer_or_auto({"depth",
                                                        "Batches made before they are needed. auto: found at run time "
                                                        "on a GPU; 2 on the CPU, and at least one more than "
                                                        "explicit workers.",
                                                        "4"},
                                                       {.min = 1, .max = 1024});
  reading.options.prefetch.workers = map.integer_or_auto(
      {"workers", "Threads that make batches. 0: made by the training loop itself; auto: found at run time.", "2"},
      {.min = 0, .max = 1024});
  map.finish();
}

constexpr int kHostRank = 1, kDeviceRank = 2, kFinishedRank = 3, kMixRank = 4;

/// Where a stage may stand: before those of a higher `last`, after those of a lower `first`.
struct Place {
  int first, last;
};

/// Stages that change no sample: which there are and in which order, where they lie, how many are a batch, and when it
/// is made are the same wherever the list says so.
constexpr Place kAnywhere{0, std::numeric_limits<int>::max()};

/// The stages that are no augmentations. Those of a lower rank come first; those of one rank in any order.
struct Stage {
  const char* name;
  Place place;
  void (*read)(const ConfigNode& node, Reading& reading);
};

/// A stage of mixing, by its reader.
template <void (*read_options)(const ConfigNode& node, MixOptions& options)>
void read_mix(const ConfigNode& node, Reading& reading) {
  read_options(node, reading.options.mix);
}

constexpr std::array<Stage, 8> kStages = {{{"cache", kAnywhere, read_cache},
                                           {"shuffle", kAnywhere, read_shuffle},
                                           {"normalize", {kDeviceRank, kDeviceRank}, read_normalize},
                                           {"one_hot", {kMixRank, kMixRank}, read_mix<read_one_hot>},
                                           {"mixup", {kMixRank, kMixRank}, read_mix<read_mixup>},
                                           {"cutmix", {kMixRank, kMixRank}, read_mix<read_cutmix>},
                                           {"batch", kAnywhere, read_batch},
                                           {"prefetch", kAnywhere, read_prefetch}}};

/// The size of images that the next stage gets; zeros: it is not known.
ImageSize size_before_next(const Reading& reading) {
  const Shape& images = reading.facts.image_shape;
  if (images.rank() != 3) return {};
  ImageSize size{images[0], images[1]};
  for (const auto& stage : reading.options.augmentations)
    if (stage->has_region_form()) size = stage->size_after(size);
  return size;
}

/// Adds the named augmentation.
Place read_augmentation(const ConfigNode::Named& named, Reading& reading) {
  const ConfigNode& node = named.options;
  ConfigMap map = node.as_map();
  const std::shared_ptr<const Augmentation> made =
      without_equal_size(augmentations().at(named.name)(map), size_before_next(reading));
  map.finish();
  // Padding is read as black pixels and then normalized. Where that is another value than zero, the order matters.
  const std::vector<double>& mean = reading.options.normalize.mean;
  const bool shifted = std::any_of(mean.begin(), mean.end(), [](double m) { return m != 0.0; });
  if (reading.normalized && shifted && made->pads_with_black())
    node.fail_at_key(
        fmt::format("'{}' with zero padding must come before 'normalize' (padding is black pixels)", named.name));
  reading.options.augmentations.push_back(made);
  if (changes_finished_values(*made)) return {kFinishedRank, kFinishedRank};
  const bool device_only = made->has_device_form() && !made->has_region_form() && !made->has_host_form();
  return {device_only ? kDeviceRank : kHostRank, made->has_device_form() ? kDeviceRank : kHostRank};
}

/// All stages, augmentations in the middle.
std::vector<std::string> stage_names() {
  std::vector<std::string> names;
  for (const Stage& stage : kStages) names.emplace_back(stage.name);
  const std::vector<std::string> more = augmentations().names();
  names.insert(names.begin() + kDeviceRank, more.begin(), more.end());
  return names;
}

/// Reads one stage of any kind.
Place read_stage(const ConfigNode::Named& named, Reading& reading) {
  for (const Stage& stage : kStages) {
    if (named.name == stage.name) {
      stage.read(named.options, reading);
      return stage.place;
    }
  }
  if (augmentations().find(named.name)) return read_augmentation(named, reading);
  named.options.fail_unknown("pipeline stage", named.name, stage_names());
}

void describe_stages(const ConfigNode& stages, const DatasetFacts& facts) {
  stages.describe_entries("pipeline stage", stage_names(), [&](const std::string& name, const ConfigNode& options) {
    Reading alone;
    alone.facts = facts;
    (void)read_stage({name, options}, alone);
  });
}

/// A stage that was read.
struct ReadStage {
  std::string name;
  Place place;
};

/// Each stage once, and none after one that it must come before.
void check_place(const ConfigNode& node, const ReadStage& stage, const std::vector<ReadStage>& before) {
  for (const ReadStage& other : before)
    if (other.place.first > stage.place.last)
      node.fail_at_key(fmt::format("'{}' must come before '{}'", stage.name, other.name));
}

void check_new(const ConfigNode::Named& named, const std::vector<ReadStage>& before) {
  for (const ReadStage& other : before)
    if (other.name == named.name) named.options.fail_at_key(fmt::format("'{}' is already in the pipeline", named.name));
}

/// All stages in order into `reading`; whether one of them says the batch.
bool read_stages(const ConfigNode& stages, Reading& reading) {
  std::vector<ReadStage> before;
  std::optional<ConfigNode> batch;
  ConfigAttempts attempt(stages);
  for (const ConfigNode& item : stages.items()) {
    attempt([&] {
      const ConfigNode::Named named = item.as_named();
      check_new(named, before);
      const ReadStage stage{named.name, read_stage(named, reading)};
      check_place(named.options, stage, before);
      if (named.name == "batch") batch = named.options;
      if (!attempt.failed()) reading.check(named.options, true);
      before.push_back(stage);
    });
  }
  if (batch && !attempt.failed()) attempt([&] { reading.check(*batch, false); });
  attempt.finish();
  return batch.has_value();
}

}  // namespace

PipelineOptions read_pipeline(const ConfigNode& stages, const DatasetFacts& facts, StagesFor use) {
  describe_stages(stages, facts);
  Reading reading;
  reading.facts = facts;
  reading.use = use;
  if (!read_stages(stages, reading) && use == StagesFor::batches)
    stages.fail("the pipeline has no 'batch' stage; add one, such as `- batch: {size: 32}`");
  return reading.options;
}

EvaluationStages read_evaluation_stages(const ConfigNode& stages, const DatasetFacts& facts) {
  describe_stages(stages, facts);
  Reading reading;
  reading.facts = facts;
  for (const ConfigNode& item : stages.items()) {
    const ConfigNode::Named named = item.as_named();
    if (named.name != "normalize" && !augmentations().find(named.name))
      named.options.fail_at_key(fmt::format(
          "'{}' is no stage of an evaluation: it has those that change samples, and normalize", named.name));
  }
  (void)read_stages(stages, reading);
  EvaluationStages read{.augmentations = reading.options.augmentations, .normalize = {}};
  if (reading.normalized) read.normalize = reading.options.normalize;
  return read;
}

}  // namespace bantam

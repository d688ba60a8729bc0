// Reads the pipeline's list of stages: one function a stage, a table of their order, and errors at the stage they are
// about.
#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/pipeline/pipeline.h"

namespace bantam {
namespace {

constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;

/// Where reading stands: the options so far and the shape they must fit.
struct Reading {
  PipelineOptions options;
  Shape image_shape;
  bool normalized = false;

  /// Checks what was read so far against the images, and reports at `node`.
  void check(const ConfigNode& node) const {
    try {
      (void)batch_shape(options, image_shape);
    } catch (const ShapeError& error) {
      node.fail(error.what());
    } catch (const ConfigError& error) {
      node.fail(error.what());
    }
  }
};

void read_cache(const ConfigNode& node, Reading& reading) {
  const std::string where = node.as_choice({"auto", "ram", "device", "off"});
  reading.options.cache = where == "device" ? CacheKind::device
                          : where == "auto" ? CacheKind::automatic
                          : where == "off"  ? CacheKind::off
                                            : CacheKind::ram;
}

void read_shuffle(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  ShuffleOptions shuffle;
  // Read only where given: without a buffer there is no number that says "all", and without a seed the run's is used.
  if (const auto buffer = map.find("buffer")) shuffle.buffer = buffer->as_integer({.min = 1});
  if (const auto seed = map.find("seed")) shuffle.seed = static_cast<std::uint64_t>(seed->as_integer({.min = 0}));
  map.finish();
  reading.options.shuffle = shuffle;
}

/// One number for all channels, or a list of one a channel.
std::vector<double> read_channels(ConfigMap& map, std::string_view key, NumberRange range, double otherwise) {
  if (!map.has(key)) return {map.number(key, range, otherwise)};
  const ConfigNode node = map.node(key);
  if (!node.is_list()) return {node.as_number(range)};
  std::vector<double> values;
  for (const ConfigNode& item : node.items()) values.push_back(item.as_number(range));
  return values;
}

void read_normalize(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  NormalizeOptions& normalize = reading.options.normalize;
  normalize.scale = map.number("scale", {}, 1.0);
  normalize.mean = read_channels(map, "mean", {}, 0.0);
  normalize.std = read_channels(map, "std", {.min = 0, .min_open = true}, 1.0);
  map.finish();
  reading.normalized = true;
}

void read_batch(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  constexpr IntegerRange kSize{.min = 1, .max = kMostBatch};
  PipelineOptions& options = reading.options;
  const std::optional<std::int64_t> size = map.node("size").as_integer_or_auto(kSize);
  // A run's resolved configuration has the number beside the bounds that it was solved for.
  if (const auto most = map.find("max")) options.most_batch_size = most->as_integer(kSize);
  if (const auto multiple = map.find("multiple_of")) options.batch_multiple_of = multiple->as_integer(kSize);
  const std::int64_t most = options.most_batch_size, unit = options.batch_multiple_of;
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
  options.drop_last = map.boolean("drop_last", false);
  map.finish();
}

void read_prefetch(const ConfigNode& node, Reading& reading) {
  ConfigMap map = node.as_map();
  reading.options.prefetch.depth = map.integer_or_auto("depth", {.min = 1, .max = 1024});
  reading.options.prefetch.workers = map.integer_or_auto("workers", {.min = 0, .max = 1024});
  map.finish();
}

constexpr int kShuffleRank = 1, kHostRank = 2, kDeviceRank = 3, kBatchRank = 4;

/// The stages that are no augmentations. Those of a lower rank come first; those of one rank in any order.
struct Stage {
  const char* name;
  int rank;
  void (*read)(const ConfigNode& node, Reading& reading);
};

constexpr std::array<Stage, 5> kStages = {{{"cache", 0, read_cache},
                                           {"shuffle", kShuffleRank, read_shuffle},
                                           {"normalize", kDeviceRank, read_normalize},
                                           {"batch", kBatchRank, read_batch},
                                           {"prefetch", 5, read_prefetch}}};

/// Adds the named augmentation; returns its rank.
int read_augmentation(const ConfigNode::Named& named, Reading& reading) {
  const ConfigNode& node = named.options;
  ConfigMap map = node.as_map();
  const std::shared_ptr<const Augmentation> made = augmentations().at(named.name)(map);
  map.finish();
  // Padding is read as black pixels and then normalized. Where that is another value than zero, the order matters.
  const std::vector<double>& mean = reading.options.normalize.mean;
  const bool shifted = std::any_of(mean.begin(), mean.end(), [](double m) { return m != 0.0; });
  if (reading.normalized && shifted && made->pads_with_black())
    node.fail_at_key(
        fmt::format("'{}' with zero padding must come before 'normalize' (padding is black pixels)", named.name));
  reading.options.augmentations.push_back(made);
  return made->has_device_form() ? kDeviceRank : kHostRank;
}

/// Reads one stage of any kind; returns its rank.
int read_stage(const ConfigNode::Named& named, Reading& reading) {
  std::vector<std::string> names;
  for (const Stage& stage : kStages) {
    if (named.name == stage.name) {
      stage.read(named.options, reading);
      return stage.rank;
    }
    names.emplace_back(stage.name);
  }
  const std::vector<std::string> more = augmentations().names();
  if (std::find(more.begin(), more.end(), named.name) != more.end()) return read_augmentation(named, reading);
  names.insert(names.begin() + kDeviceRank, more.begin(), more.end());
  named.options.fail_unknown("pipeline stage", named.name, names);
}

/// A stage that was read, and where it may stand.
struct ReadStage {
  std::string name;
  int rank;
};

/// Each stage once, and none after one of a higher rank.
void check_place(const ConfigNode& node, const ReadStage& stage, const std::vector<ReadStage>& before) {
  for (const ReadStage& other : before)
    if (other.rank > stage.rank) node.fail_at_key(fmt::format("'{}' must come before '{}'", stage.name, other.name));
}

void check_new(const ConfigNode::Named& named, const std::vector<ReadStage>& before) {
  for (const ReadStage& other : before)
    if (other.name == named.name) named.options.fail_at_key(fmt::format("'{}' is already in the pipeline", named.name));
}

}  // namespace

PipelineOptions read_pipeline(const ConfigNode& stages, const Shape& image_shape) {
  Reading reading;
  reading.image_shape = image_shape;
  std::vector<ReadStage> before;
  for (const ConfigNode& item : stages.items()) {
    const ConfigNode::Named named = item.as_named();
    check_new(named, before);
    const ReadStage stage{named.name, read_stage(named, reading)};
    check_place(named.options, stage, before);
    reading.check(named.options);
    before.push_back(stage);
  }
  const bool has_batch =
      std::any_of(before.begin(), before.end(), [](const ReadStage& s) { return s.rank == kBatchRank; });
  if (!has_batch) stages.fail("the pipeline has no 'batch' stage; add one, such as `- batch: {size: 32}`");
  return reading.options;
}

}  // namespace bantam

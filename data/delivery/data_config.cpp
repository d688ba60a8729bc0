// From the `data:` section to readers, and from them to batch sources.
#include "bantam/data/delivery/data_config.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/delivery/loader.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {
namespace {

/// A source refuses the same; here its place in the file is known.
void check_drop_last(const ConfigNode& stages, const PipelineOptions& pipeline, std::int64_t samples) {
  if (!pipeline.drop_last || samples >= pipeline.batch_size) return;
  for (const ConfigNode& item : stages.items()) {
    const ConfigNode::Named named = item.as_named();
    if (named.name == "batch")
      named.options.fail_at_key(
          fmt::format("a batch of {} with drop_last drops all {} images", pipeline.batch_size, samples));
  }
}

/// Windows and mirroring are of the images alone: a class a pixel would stay where it was.
void check_pixel_targets(const ConfigNode& stages, const PipelineOptions& pipeline, const DatasetFacts& facts) {
  const auto image = facts.image_shape.extents().first(2);
  for (const SampleField& target : facts.targets) {
    const auto extents = target.shape.extents();
    if (extents.size() < 2 || !std::ranges::equal(extents.first(2), image)) continue;
    for (const auto& augmentation : pipeline.augmentations)
      if (augmentation->has_device_form())
        stages.fail(fmt::format("{} moves pixels of the images, but those of '{}' {} would stay", augmentation->name(),
                                target.name, to_string(target.shape)));
  }
}

/// The readers that the section's format makes of its own keys.
SampleSplits read_format(ConfigMap& map) {
  const ConfigNode format = map.node({"format",
                                      "How the data set is stored. Each format has keys of its own beside this one; a "
                                      "program adds formats.",
                                      "generated"});
  const std::vector<std::string> known = sample_formats().names();
  const std::vector<std::string_view> names(known.begin(), known.end());
  return read_beside(sample_formats(), map, "format", format.as_choice(names));
}

std::shared_ptr<const SampleReader> train_reader(const DataOptions& options) {
  return options.limit > 0 ? first_samples(options.source.train, options.limit) : options.source.train;
}

}  // namespace

DataOptions read_data_config(const ConfigNode& data) {
  ConfigMap map = data.as_map();
  map.describe("The data set, and its way into batches. See DATA.md.",
               "data:\n  format: cifar10\n  path: data/cifar-10-batches-bin\n  pipeline:\n    - shuffle\n"
               "    - random_crop: {padding: 4}\n    - random_flip\n    - normalize: {scale: 0.00392156862745098}\n"
               "    - batch: {size: 128, drop_last: true}\n    - prefetch");
  DataOptions options;
  options.source = read_format(map);
  // Read only where given: without a limit there is no number that says "all".
  if (const auto limit =
          map.find({"limit", "Only the first so many training samples, for trials.", "1000", "all samples"}))
    options.limit = limit->as_integer({.min = 1});
  options.verify =
      map.boolean({"verify", "Check the published SHA-256 of the files first, where there are some."}, false);
  const ConfigNode stages = map.node(
      {"pipeline",
       "Stages that samples pass, each a name or a name with its options, each once: cache, shuffle, a program's own "
       "augmentations, then normalize, random_crop and random_flip in any order, batch (the only required one), "
       "prefetch. Held-out samples pass them without shuffle and chance.",
       "[cache: auto, shuffle, batch: {size: 32}, prefetch]"});
  const DatasetFacts facts = train_facts(options);
  options.pipeline = read_pipeline(stages, facts.image_shape);
  map.finish();
  check_drop_last(stages, options.pipeline, facts.size);
  check_pixel_targets(stages, options.pipeline, facts);
  return options;
}

DatasetFacts train_facts(const DataOptions& options) { return train_reader(options)->facts(); }
DatasetFacts test_facts(const DataOptions& options) { return options.source.validation->facts(); }

void settle_cache(DataOptions& options, const CacheRoom& room) {
  if (options.pipeline.cache != CacheKind::automatic) return;
  std::uint64_t bytes = 0;
  for (const DatasetFacts& facts : {train_facts(options), test_facts(options)})
    bytes += static_cast<std::uint64_t>(facts.size) * facts.sample_bytes();
  const bool gathers_on_device =
      train_facts(options).has_int32_target() && host_augmentation(options.pipeline) == nullptr;
  if (bytes > room.host_bytes)
    options.pipeline.cache = CacheKind::off;
  else
    options.pipeline.cache = gathers_on_device && bytes <= room.device_bytes ? CacheKind::device : CacheKind::ram;
}

OpenedData open_data(Runtime& runtime, DataOptions options, Device device, std::uint64_t seed) {
  if (options.pipeline.batch_size_is_auto) throw ConfigError("batch size: auto must be solved before data are opened");
  const SampleSplits splits{train_reader(options), options.source.validation};
  if (!device.meta)
    for (const auto& reader : {splits.train, splits.validation}) reader->check(options.verify, runtime.threads());
  PipelineOptions evaluated = evaluation_pipeline(options.pipeline);
  LoaderOptions train{.pipeline = std::move(options.pipeline), .device = device, .seed = seed};
  LoaderOptions validation{.pipeline = std::move(evaluated), .device = device, .seed = seed};
  auto train_source = std::make_unique<ImageBatchSource>(runtime, splits.train, std::move(train));
  return {std::move(train_source),
          std::make_unique<ImageBatchSource>(runtime, splits.validation, std::move(validation))};
}

}  // namespace bantam

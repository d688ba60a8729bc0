// From the `data:` section to readers, and from them to batch sources.
#include "bantam/data/delivery/data_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/delivery/loader.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/data/pipeline/epoch_order.h"

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
  if (facts.image_shape.rank() != 3) return;
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

std::string as_format(const ConfigNode& format) {
  const std::vector<std::string> known = sample_formats().names();
  const std::vector<std::string_view> names(known.begin(), known.end());
  return format.as_choice(names);
}

/// Another data set, whose keys stand in the section as they would in `data`; only its held-out samples are read.
std::shared_ptr<const SampleReader> read_own_validation(ConfigMap& map, const std::string& format) {
  std::string name = format;
  if (const auto own = map.find({"format", "Of another data set.", "cifar10", "that of `data`"}))
    name = as_format(*own);
  if (!map.self().is_described()) {
    SampleSplits other = sample_formats().at(name)(map);
    return other.whole != nullptr ? other.whole : other.validation;
  }
  // Each format's keys are described once, in `data`.
  if (const auto path = map.find({"path",
                                  "Another data set's folder: its held-out samples are the validation samples. Keys of "
                                  "its format may stand beside it, as in `data`.",
                                  "data/other", "no other data set"}))
    (void)path->as_text();
  return nullptr;
}

/// `named`: text is the format's own key, which it has read.
ValidationOptions read_validation(ConfigMap& data, const std::string& format, bool named) {
  const auto node = data.find(
      {"validation",
       "Samples that the run is evaluated on while it trains: the format's held-out samples, a share of the training "
       "samples, or those of another data set. Other than {from: test}, the held-out samples are the test set, which "
       "the run looks at once, at its end. For image_folder, segmentation_folder and csv it may be the name of a "
       "folder or file of the set.",
       "{from: test} | {split: 0.1}", "{from: test}"});
  if (!node || (named && node->is_scalar())) return {};
  ConfigMap map = node->as_map();
  ValidationOptions options;
  const auto split =
      map.find({"split", "Share of the training samples that is held out, chosen at random whatever their classes.",
                "0.1", "0"});
  const auto from = map.find({"from", "test: the format's held-out samples.", "test", "test, unless others are named"});
  if (split && from && !map.self().is_described())
    from->fail_at_key(fmt::format("{}: samples are split off, or those of the test set, not both", map.self().path()));
  if (split) options.split = split->as_number({.min = 0, .max = 1, .min_open = true, .max_open = true});
  if (from) (void)from->as_choice({"test"});
  if (split || map.self().is_described())
    if (const auto seed = map.find({"seed", "Of the choice of a split, apart from the run's.", "7", "the run's seed"}))
      options.seed = static_cast<std::uint64_t>(seed->as_integer({.min = 0}));
  if ((!split && !from) || map.self().is_described()) options.own = read_own_validation(map, format);
  map.finish();
  return options;
}

std::shared_ptr<const SampleReader> all_training(const DataOptions& options) {
  return options.limit > 0 ? first_samples(options.source.train, options.limit) : options.source.train;
}

/// Of `samples`: at least one, and not all.
std::int64_t held_out(const ValidationOptions& options, std::int64_t samples) {
  if (options.split == 0) return 0;
  return std::clamp<std::int64_t>(std::llround(options.split * static_cast<double>(samples)), 1,
                                  std::max<std::int64_t>(samples - 1, 1));
}

/// Training samples and held-out ones, each in the data set's order.
SampleSplits split_training(const DataOptions& options, std::uint64_t seed) {
  constexpr std::int64_t kNoEpoch = -1;  // the choice is none of the epochs' orders
  const std::shared_ptr<const SampleReader> all = all_training(options);
  const std::int64_t samples = all->facts().size, aside = held_out(options.validation, samples);
  if (aside == 0) return {all, options.validation.own != nullptr ? options.validation.own : options.source.validation};
  std::vector<std::int32_t> out = shuffled_order(samples, 0, options.validation.seed.value_or(seed), kNoEpoch);
  std::vector<std::int32_t> in(out.begin() + aside, out.end());
  out.resize(static_cast<std::size_t>(aside));
  std::ranges::sort(out);
  std::ranges::sort(in);
  return {chosen_samples(all, std::move(in)), chosen_samples(all, std::move(out))};
}

/// Null where the validation samples are the test samples.
std::shared_ptr<const SampleReader> test_reader(const DataOptions& options) {
  if (options.source.test != nullptr) return options.source.test;
  return options.validation.from_test() ? nullptr : options.source.validation;
}

std::int64_t evaluated_batch(const DataOptions& options) {
  return options.evaluation.batch_size > 0 ? options.evaluation.batch_size : options.pipeline.batch_size;
}

/// Most validation samples that are evaluated.
std::int64_t evaluated_samples(const DataOptions& options) {
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (options.evaluation.samples > 0) most = options.evaluation.samples;
  if (options.evaluation.batches > 0) most = std::min(most, options.evaluation.batches * evaluated_batch(options));
  return most;
}

}  // namespace

DataOptions read_data_config(const ConfigNode& data) {
  ConfigMap map = data.as_map();
  map.describe("The data set, and its way into batches. See DATA.md.",
               "data:\n  format: cifar10\n  path: data/cifar-10-batches-bin\n  pipeline:\n    - shuffle\n"
               "    - random_crop: {padding: 4}\n    - random_flip\n    - normalize: {scale: 0.00392156862745098}\n"
               "    - batch: {size: 128, drop_last: true}\n    - prefetch");
  DataOptions options;
  const std::string format = as_format(map.node({"format",
                                                 "How the data set is stored. Each format has keys of its own beside "
                                                 "this one; a program adds formats.",
                                                 "generated"}));
  options.source = read_beside(sample_formats(), map, "format", format);
  // Read only where given: without a limit there is no number that says "all".
  if (const auto limit =
          map.find({"limit", "Only the first so many training samples, for trials.", "1000", "all samples"}))
    options.limit = limit->as_integer({.min = 1});
  options.verify =
      map.boolean({"verify", "Check the published SHA-256 of the files first, where there are some."}, false);
  options.validation = read_validation(map, format, options.source.names_validation);
  const ConfigNode stages = map.node(
      {"pipeline",
       "Stages that samples pass, each a name or a name with its options, each once: cache, shuffle, a program's own "
       "augmentations, then normalize, random_crop and random_flip in any order, batch (the only required one), "
       "prefetch. Held-out samples pass them without shuffle and chance.",
       "[cache: auto, shuffle, batch: {size: 32}, prefetch]"});
  const DatasetFacts facts = train_facts(options);
  options.pipeline = read_pipeline(stages, facts.image_shape, facts.image_dtype);
  map.finish();
  check_drop_last(stages, options.pipeline, facts.size);
  check_pixel_targets(stages, options.pipeline, facts);
  return options;
}

DatasetFacts train_facts(const DataOptions& options) {
  DatasetFacts facts = all_training(options)->facts();
  facts.size -= held_out(options.validation, facts.size);
  return facts;
}

DatasetFacts validation_facts(const DataOptions& options) {
  DatasetFacts facts = options.validation.split > 0        ? all_training(options)->facts()
                       : options.validation.own != nullptr ? options.validation.own->facts()
                                                           : options.source.validation->facts();
  if (options.validation.split > 0) facts.size = held_out(options.validation, facts.size);
  facts.size = std::min(facts.size, evaluated_samples(options));
  return facts;
}

DatasetFacts test_facts(const DataOptions& options) {
  return (options.source.test != nullptr ? options.source.test : options.source.validation)->facts();
}

std::vector<DatasetFacts> opened_facts(const DataOptions& options) {
  std::vector<DatasetFacts> facts = {train_facts(options), validation_facts(options)};
  if (test_reader(options) != nullptr) facts.push_back(test_facts(options));
  return facts;
}

std::uint64_t resident_bytes(const DataOptions& options) {
  std::uint64_t bytes = options.source.train->resident_bytes();
  if (options.source.whole == nullptr) bytes += options.source.validation->resident_bytes();
  if (options.source.test != nullptr) bytes += options.source.test->resident_bytes();
  if (options.validation.own != nullptr) bytes += options.validation.own->resident_bytes();
  return bytes;
}

void settle_cache(DataOptions& options, const CacheRoom& room) {
  if (options.pipeline.cache != CacheKind::automatic) return;
  std::uint64_t bytes = resident_bytes(options);
  for (const DatasetFacts& facts : opened_facts(options))
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
  const SampleSplits splits = split_training(options, seed);
  const std::shared_ptr<const SampleReader> test = test_reader(options);
  const bool split = options.validation.split > 0;  // one check for both
  if (!device.meta)
    for (const auto& reader : {splits.train, split ? nullptr : splits.validation, test})
      if (reader != nullptr) reader->check(options.verify, runtime.threads());
  PipelineOptions evaluated = evaluation_pipeline(options.pipeline);
  evaluated.batch_size = evaluated_batch(options);
  const auto source = [&](std::shared_ptr<const SampleReader> reader, const PipelineOptions& pipeline) {
    return std::make_unique<ImageBatchSource>(runtime, std::move(reader),
                                              LoaderOptions{.pipeline = pipeline, .device = device, .seed = seed});
  };
  OpenedData data;
  data.train = source(splits.train, options.pipeline);
  data.validation = source(first_samples(splits.validation, evaluated_samples(options)), evaluated);
  if (test != nullptr) data.test = source(test, evaluated);
  return data;
}

}  // namespace bantam

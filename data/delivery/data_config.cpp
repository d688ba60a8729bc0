// From the `data:` section to data sets and batch sources: a reader of keys, of facts and of images for each format.
#include "bantam/data/delivery/data_config.h"

#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/delivery/loader.h"

namespace bantam {
namespace {

Cifar10Options read_cifar10_keys(ConfigMap& map) { return {.path = map.text("path")}; }

GeneratedOptions read_generated_keys(ConfigMap& map) {
  const GeneratedOptions defaults;
  constexpr IntegerRange kSamples{.min = 1, .max = 10'000'000};
  return {
      .train_samples = map.integer("train_samples", kSamples, defaults.train_samples),
      .test_samples = map.integer("test_samples", kSamples, defaults.test_samples),
      .seed = static_cast<std::uint64_t>(map.integer("seed", {.min = 0}, static_cast<std::int64_t>(defaults.seed)))};
}

DatasetFacts facts(const Cifar10Options& options, bool train) {
  return train ? cifar10_train_facts(options) : cifar10_test_facts(options);
}
DatasetFacts facts(const GeneratedOptions& options, bool train) {
  return train ? generated_train_facts(options) : generated_test_facts(options);
}

DatasetSplits read(Runtime& runtime, const Cifar10Options& options) { return read_cifar10(runtime, options); }
DatasetSplits read(Runtime& runtime, const GeneratedOptions& options) { return generate_dataset(runtime, options); }

void set_common(Cifar10Options& source, const DataOptions& options) {
  source.limit = options.limit;
  source.verify = options.verify;
}
void set_common(GeneratedOptions& source, const DataOptions& options) { source.limit = options.limit; }

DatasetFacts facts_with_limit(DataOptions options, bool train) {
  return std::visit(
      [&](auto& source) {
        set_common(source, options);
        return facts(source, train);
      },
      options.source);
}

/// A source refuses the same; here its place in the file is known.
void check_drop_last(const ConfigNode& stages, const PipelineOptions& pipeline, std::int64_t samples) {
  if (!pipeline.drop_last || samples >= pipeline.batch_size) return;
  for (const ConfigNode& item : stages.items()) {
    const ConfigNode::Named named = item.as_named();
    if (named.name == "batch")
      named.options.fail_at_key(
          fmt::format("a batch of {} with drop_last leaves no batch of {} images", pipeline.batch_size, samples));
  }
}

}  // namespace

DataOptions read_data_config(const ConfigNode& data) {
  ConfigMap map = data.as_map();
  DataOptions options;
  if (map.choice("format", {"cifar10", "generated"}) == "cifar10")
    options.source = read_cifar10_keys(map);
  else
    options.source = read_generated_keys(map);
  // Read only where given: without a limit there is no number that says "all".
  if (const auto limit = map.find("limit")) options.limit = limit->as_integer({.min = 1});
  options.verify = map.boolean("verify", false);
  const ConfigNode stages = map.node("pipeline");
  const DatasetFacts facts = train_facts(options);
  options.pipeline = read_pipeline(stages, facts.image_shape);
  map.finish();
  check_drop_last(stages, options.pipeline, facts.size);
  return options;
}

DatasetFacts train_facts(const DataOptions& options) { return facts_with_limit(options, true); }
DatasetFacts test_facts(const DataOptions& options) { return facts_with_limit(options, false); }

OpenedData open_data(Runtime& runtime, DataOptions options, Device device, std::uint64_t seed) {
  if (options.pipeline.batch_size_is_auto) throw ConfigError("batch size: auto must be solved before data are opened");
  DatasetSplits splits;
  if (device.meta) {
    splits = {Dataset::stand_in(runtime, train_facts(options), device),
              Dataset::stand_in(runtime, test_facts(options), device)};
  } else {
    splits = std::visit(
        [&](auto& source) {
          set_common(source, options);
          return read(runtime, source);
        },
        options.source);
  }
  const PipelineOptions held_out = evaluation_pipeline(options.pipeline);
  LoaderOptions train{.pipeline = std::move(options.pipeline), .device = device, .seed = seed};
  LoaderOptions validation{.pipeline = held_out, .device = device, .seed = seed};
  return {std::make_unique<ImageBatchSource>(runtime, std::move(splits.train), std::move(train)),
          std::make_unique<ImageBatchSource>(runtime, std::move(splits.test), std::move(validation))};
}

}  // namespace bantam

// A program that includes bantam/bantam.h alone: a layer of its own that normalises, and a whole run of a configuration
// with a data format, an augmentation and a callback of its own.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/bantam.h"

namespace {

using namespace bantam;

/// Batch normalisation and ReLU, as a program writes it.
class OwnNorm : public Layer {
 public:
  std::string_view kind() const override { return "own_norm"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  bool uses_batch_statistics() const override { return true; }
  bool supports_meta() const override { return true; }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena& buffers,
                                   std::span<const Shape> inputs) const override {
    struct Bound : BoundLayer {
      Bound(LayerScope& scope, BufferArena& arena, const Shape& channels)
          : scale(scope.parameter("scale", channels, ones(), true, false)),
            shift(scope.parameter("shift", channels, zeros(), true, false)),
            mean(scope.buffer("running_mean", channels, 0.0f)),
            variance(scope.buffer("running_variance", channels, 1.0f)),
            buffers(arena) {}
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        return ops::batch_norm(context, inputs[0],
                               {.scale = scale.value(),
                                .shift = shift.value(),
                                .running_mean = buffers.current(mean),
                                .running_variance = buffers.current(variance),
                                .next_running_mean = buffers.next(mean),
                                .next_running_variance = buffers.next(variance)},
                               {.rate = 0.1f, .activation = {Activation::relu}});
      }
      Parameter &scale, &shift;
      Buffer &mean, &variance;
      BufferArena& buffers;
    };
    return std::make_unique<Bound>(scope, buffers, Shape{inputs[0][-1]});
  }
};

/// Logits of the batch in evaluation, after some updates of a network with `norm` in its middle.
std::vector<float> trained_logits(Runtime& runtime, const LayerPtr& norm) {
  Graph graph({4, 4, 3});
  graph.add(conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()}));
  graph.add("norm", norm);
  graph.add(global_average_pool());
  graph.add(dense({.units = 2}));
  Model model(runtime, Device::cpu(), graph, {.seed = 3, .fusion = false});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 1e-2f})});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {16}});
  PhiloxSequence random(philox_key(3, RandomPurpose::dataset));
  std::vector<float> pixels(16 * 48);
  for (float& pixel : pixels) pixel = random.uniform();
  std::vector<std::int32_t> labels(16);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 2);
  const Context context = model.context(Pass::evaluate);
  const Tensor images = context.upload({16, 4, 4, 3}, pixels.data());
  const Batch batch{.tensors = {{kImages, images}, {kLabels, context.upload({16}, labels.data())}}, .size = 16};
  for (int i = 0; i < 5; ++i) step.step(batch);
  return to_host_floats(model.forward(context, images), context.stream);
}

TEST(Program, ItsOwnNormTrainsAsTheBuiltInOne) {
  Runtime runtime;
  const std::vector<float> own = trained_logits(runtime, std::make_shared<OwnNorm>());
  const std::vector<float> built_in =
      trained_logits(runtime, batch_norm({.rate = 0.1f, .activation = {Activation::relu}}));
  EXPECT_EQ(own, built_in);
}

/// Images of one brightness, which is their class.
class Flat : public SampleReader {
 public:
  explicit Flat(std::int64_t size) : size_(size) {}
  DatasetFacts facts() const override {
    return {.size = size_, .image_shape = {8, 8, 3}, .class_names = {"dark", "bright"}};
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    const auto label = static_cast<std::int32_t>(index % 2);
    std::ranges::fill(fields[0], std::byte(label == 0 ? 20 : 220));
    std::memcpy(fields[1].data(), &label, sizeof label);
  }

 private:
  std::int64_t size_;
};

/// Blackens a pixel.
class Speck : public Augmentation {
 public:
  std::string_view name() const override { return "speck"; }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    sample.buffers[0][random.below(static_cast<std::uint32_t>(sample.buffers[0].size()))] = std::byte{0};
  }
};

struct Epochs : Callback {
  void on_epoch_end(const EpochEvent&) override { ++count; }
  int count = 0;
};

constexpr const char* kConfig = R"(
seed: 1
device: cpu
data:
  format: flat
  pipeline: [cache: ram, shuffle: {}, speck: {}, normalize: {scale: 0.0039}, batch: {size: 8}]
model:
  input: [8, 8, 3]
  layers: [own_norm, global_average_pool, dense: {units: 2}]
train: {epochs: 2, optimizer: {sgd: {learning_rate: 0.1}}}
)";

TEST(Program, RunsAWholeConfiguration) {
  layer_kinds().add("own_norm", [](ConfigMap&) -> LayerPtr { return std::make_shared<OwnNorm>(); });
  sample_formats().add("flat", [](ConfigMap&) {
    return SampleSplits{.train = std::make_shared<Flat>(32), .validation = std::make_shared<Flat>(16)};
  });
  augmentations().add("speck", [](ConfigMap&) { return std::make_shared<const Speck>(); });

  const std::string schema = run::config_schema(), page = run::config_reference();
  for (const std::string name : {"own_norm", "flat", "speck"}) {
    EXPECT_NE(schema.find("\"" + name + "\""), std::string::npos) << name << " is registered, so it is in the schema";
    EXPECT_NE(page.find(name + "`"), std::string::npos) << name;
  }

  const run::Config config = run::Config::from_text(kConfig, "flat.yaml");
  EXPECT_EQ(config.name(), "flat");
  EXPECT_EQ(config.device(), Device::cpu());
  EXPECT_EQ(config.epochs(), 2);
  EXPECT_EQ(config.batch_size(), 8);
  EXPECT_EQ(run::Config::from_text(config.resolved_yaml()).resolved_yaml(), config.resolved_yaml());
  EXPECT_THROW(run::Config::from_text("train: {epoch: 1}"), ConfigError);

  const run::MemoryPlan planned = run::plan(config, {.batches = {8, 16}});
  ASSERT_EQ(planned.rows.size(), 2u);
  EXPECT_EQ(planned.rows[0].batch, 8);
  EXPECT_LT(planned.rows[0].peak_bytes, planned.rows[1].peak_bytes);
  EXPECT_EQ(planned.rows[0].by_category.total(), planned.rows[0].peak_bytes);
  EXPECT_FALSE(run::plan(config, {.memory = 1024}).rows.at(0).fits);

  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("bantam_program_" + std::to_string(getpid()));
  Epochs epochs;
  Callback* const callbacks[] = {&epochs};
  int asked = 0;
  const run::Outcome stopped =
      run::train(config, {.threads = 1, .folder = folder, .stop = [&] { return ++asked > 2; }});
  EXPECT_TRUE(stopped.result.stopped);
  const run::Outcome outcome = run::resume(folder, {.threads = 1}, callbacks);
  EXPECT_EQ(stopped.result.updates + outcome.result.updates, 8);
  EXPECT_EQ(epochs.count, 2);
  EXPECT_EQ(outcome.folder, folder);
  EXPECT_EQ(outcome.config.batch_size(), 8);
  EXPECT_EQ(outcome.planned_peak_bytes, planned.rows[0].peak_bytes);
  EXPECT_LE(outcome.memory.peak_bytes, outcome.planned_peak_bytes);

  Runtime runtime;
  Model model(runtime, Device::cpu(), config.graph(), config.model_options());
  load_weights(model, folder / "weights.safetensors");
  export_model(model, "safetensors", folder / "exported.safetensors");
  EXPECT_TRUE(std::filesystem::exists(folder / "exported.safetensors"));
  std::filesystem::remove_all(folder);
}

}  // namespace

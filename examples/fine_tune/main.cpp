// Fine-tuning: a network and its weights from a file, a new head, and a backbone that is frozen: no gradients, no
// optimizer state and no backward for it.
#include <cstdio>
#include <filesystem>
#include <string>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

constexpr std::int64_t kBatch = 64, kSide = 12;

/// The backbone's names are the same in every network that is made here; the head has its own number of classes.
Graph network(std::int64_t classes) {
  Graph graph({kSide, kSide, 1});
  graph.add("backbone/conv1", conv2d({.filters = 16, .activation = {Activation::relu}}));
  graph.add("backbone/conv2", conv2d({.filters = 32, .stride = {2, 2}, .activation = {Activation::relu}}));
  graph.add("flat", flatten());
  graph.add("head", dense({.units = classes}));
  return graph;
}

/// Noise with a bar in one of four places: top, bottom, left, right. `label` makes the class of the place.
Batch bars(const Context& context, std::uint64_t number, std::int32_t (*label)(std::int32_t place)) {
  PhiloxSequence random(philox_key(number, RandomPurpose::dataset));
  std::vector<float> pixels(kBatch * kSide * kSide);
  std::vector<std::int32_t> labels(kBatch);
  for (float& pixel : pixels) pixel = random.uniform();
  for (std::size_t sample = 0; sample < kBatch; ++sample) {
    const auto place = static_cast<std::int32_t>(random.below(4));
    const std::size_t across = random.below(kSide / 2) + (place % 2 == 0 ? 0 : kSide / 2);
    for (std::size_t along = 0; along < kSide; ++along)
      pixels[sample * kSide * kSide + (place < 2 ? across * kSide + along : along * kSide + across)] += 0.7f;
    labels[sample] = label(place);
  }
  return {.tensors = {{kImages, context.upload({kBatch, kSide, kSide, 1}, pixels.data())},
                      {kLabels, context.upload({kBatch}, labels.data())}},
          .size = kBatch};
}

double train(Model& model, int updates, std::int32_t (*label)(std::int32_t)) {
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 3e-3f})});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {kBatch}, .evaluation_batches = {kBatch}});
  const Context context = model.context(Pass::train);
  for (int i = 0; i < updates; ++i) step.step(bars(context, static_cast<std::uint64_t>(i), label));
  for (std::uint64_t i = 0; i < 8; ++i) step.evaluate(bars(context, 100000 + i, label));
  return step.read_evaluation().accuracy;
}

std::vector<float> weights_of(Model& model, std::string_view name) {
  return to_host_floats(model.parameters().find(name)->master(), model.context(Pass::evaluate).stream);
}

}  // namespace

int main() {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "bantam-fine-tune.safetensors";
  Runtime runtime;
  {  // Stands for a network that somebody trained on much data: four classes, the bar's place.
    Model model(runtime, Device::cpu(), network(4), {.seed = 1});
    std::printf("four places: accuracy %.3f\n", train(model, 200, [](std::int32_t place) { return place; }));
    save_weights(model, file);
  }
  // Two classes: does the bar lie or stand? Groups match parameters by name; `skip` keeps the new head's initial
  // values.
  const ModelOptions frozen{.seed = 2, .groups = {{.match = "backbone/*", .freeze = true}}};
  Model model(runtime, Device::cpu(), network(2), frozen);
  const LoadedWeights loaded = load_weights(model, read_safetensors(file), file, {.skip = {"head/*"}});
  std::filesystem::remove(file);
  std::printf("%zu tensors loaded; %lld of %lld parameters are trained\n", loaded.loaded,
              static_cast<long long>(model.parameters().trainable_count()),
              static_cast<long long>(model.parameters().parameter_count()));
  const std::vector<float> before = weights_of(model, "backbone/conv2/weight");
  const double accuracy = train(model, 60, [](std::int32_t place) { return place / 2; });
  const bool stayed = before == weights_of(model, "backbone/conv2/weight");
  std::printf("lies or stands: accuracy %.3f after 60 updates; the backbone %s\n", accuracy,
              stayed ? "has not moved" : "MOVED");
  return accuracy > 0.9 && stayed ? 0 : 1;
}

// Trains with an installed Bantam: which quarter of an image is bright. Exits with 0 at an accuracy of 0.95 or more.
#include <cstdint>
#include <cstdio>
#include <vector>

#include <bantam/bantam.h>

using namespace bantam;

int main() {
  try {
    run::Config::from_text("train: {epochs: none}");
  } catch (const ConfigError& error) {  // thrown in the library
    std::printf("refused: %s\n", error.what());
  }
  Runtime runtime({.limits = {{"cpu", 64u << 20}}});
  Graph graph({8, 8, 1});
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}, .activation = {Activation::relu}}));
  graph.add("flatten", flatten());
  graph.add("dense", dense({.units = 4}));
  Model model(runtime, Device::cpu(), graph, {.seed = 1});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 3e-3f})});
  TrainingStep step(model, optimizer, {});

  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  std::vector<float> pixels(64 * 8 * 8);
  std::vector<std::int32_t> labels(64);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::size_t sample = i / 64, quarter = i % 64 / 32 * 2 + i % 8 / 4;
    labels[sample] = static_cast<std::int32_t>(sample % 4);
    pixels[i] = random.uniform() + (quarter == sample % 4 ? 1.0f : 0.0f);
  }
  const Context context = model.context(Pass::train);
  const Batch batch{
      {{kImages, context.upload({64, 8, 8, 1}, pixels.data())}, {kLabels, context.upload({64}, labels.data())}}, 64};
  for (int i = 0; i < 100; ++i) step.step(batch);
  const double accuracy = step.read_metrics().back().accuracy;
  std::printf("accuracy %.3f\n", accuracy);
  return accuracy >= 0.95 ? 0 : 1;
}

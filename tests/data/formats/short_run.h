// Test support: two epochs of a small network on what `data:` says.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing {

/// `data: {keys}`, in which $ stands for the folder.
inline DataOptions data_of(std::string keys, const std::filesystem::path& folder) {
  for (std::size_t at; (at = keys.find('$')) != std::string::npos;) keys.replace(at, 1, folder.string());
  return read_data_config(ConfigDocument::parse("data: {" + keys + "}", "t.yaml").map().node("data"));
}

struct EpochLosses : Callback {
  void on_epoch_end(const EpochEvent& event) override { values.push_back(event.train.loss); }
  std::vector<double> values;
};

/// Training losses of the epochs of a network of one hidden layer with `outputs` outputs.
inline std::vector<double> train_two_epochs(const DataOptions& options, std::int64_t outputs, LossOptions loss = {}) {
  Runtime runtime({.threads = 2});
  OpenedData data = open_data(runtime, options, Device::cpu(), 5);
  Graph graph(data.train->image_shape());
  if (data.train->image_shape().rank() == 3) graph.add(flatten());
  graph.add("hidden", dense({.units = 32, .activation = {Activation::relu}}));
  graph.add("head", dense({.units = outputs}));
  Model model(runtime, Device::cpu(), graph, {.seed = 7});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 5e-3f})});
  TrainingStep step(model, optimizer, std::move(loss));
  EpochLosses losses;
  Trainer trainer(step, *data.train, data.validation.get(), {.epochs = 2});
  trainer.add(losses);
  (void)trainer.run();
  return losses.values;
}

}  // namespace bantam::testing

// What a program may do wrong, and what it hears: only errors of base/error.h leave public calls, and what a program's
// own code throws passes through unchanged. What a layer of its own has to promise is checked where it can be.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

#include <gtest/gtest.h>

#include "tests/public/small_training.h"

namespace bantam::promises_test {
namespace {

using testing::small_batch;
using testing::small_network;

/// A layer whose parts a test replaces.
struct OwnLayer : Layer {
  using Forward = std::function<Tensor(const Context&, std::span<Tensor>)>;
  explicit OwnLayer(Forward forward, bool meta = false) : own(std::move(forward)), meta(meta) {}
  std::string_view kind() const override { return "own"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  bool supports_meta() const override { return meta; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      explicit Bound(Forward forward) : own(std::move(forward)) {}
      Tensor forward(const Context& context, std::span<Tensor> inputs) override { return own(context, inputs); }
      Forward own;
    };
    return own ? std::make_unique<Bound>(own) : nullptr;
  }
  Forward own;
  bool meta;
};

/// One update of a network with `layer` in it.
void train_with(const LayerPtr& layer) {
  Runtime runtime;
  Graph graph({8, 8, 2});
  graph.add("own", layer);
  graph.add(flatten());
  graph.add(dense({.units = 3}));
  Model model(runtime, Device::cpu(), graph, {.seed = 1});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {16}});
  step.step(small_batch(model.context(Pass::train), 1));
  step.read_metrics();
}

/// The message of the Error that leaves `work`; a failure where nothing or something else does.
std::string error_of(const std::string& what, const std::function<void()>& work) {
  try {
    work();
    ADD_FAILURE() << what << ": nothing was thrown";
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << what << ": " << typeid(other).name() << ": " << other.what();
  }
  return "";
}

struct BadCall {
  std::string what;
  std::function<void()> call;
  std::string says;  // a part of the message
};

void expect_errors(const std::vector<BadCall>& calls) {
  for (const BadCall& bad : calls) {
    const std::string message = error_of(bad.what, bad.call);
    EXPECT_NE(message.find(bad.says), std::string::npos) << bad.what << ": '" << message << "'";
  }
}

/// A model that trains, and the batch that tests break.
struct Trained {
  Runtime runtime;
  Model model{runtime, Device::cpu(), small_network(), {.seed = 1}};
  Optimizer optimizer{model, {}};
  TrainingStep step{model, optimizer, {}};
  Context context = model.context(Pass::train);
  Batch batch = small_batch(context, 1);
  Batch with(std::string_view name, Tensor tensor) {
    Batch changed = batch;
    changed.tensors.set(name, std::move(tensor));
    return changed;
  }
};

TEST(Promises, GraphsAndModelsRefuseWhatDoesNotFit) {
  Runtime runtime;
  expect_errors({
      {"no layer", [] { Graph({4}).add("none", nullptr); }, "none"},
      {"an input that is not there", [] { Graph({4}).add("d", dense({}), {7}); }, "7"},
      {"a negative input", [] { Graph({4}).add("d", dense({}), {-1}); }, "-1"},
      {"a name twice",
       [] {
         Graph graph({4});
         graph.add("d", dense({}));
         graph.add("d", dense({}));
       },
       "d"},
      {"no units", [] { Graph({4}).add(dense({.units = 0})); }, "units"},
      {"negative filters",
       [] {
         Graph({8, 8, 1}).add(conv2d({.filters = -3}));
       },
       "filters"},
      {"a kernel larger than the image",
       [] {
         Graph({2, 2, 1}).add(conv2d({.kernel = {9, 9}}));
       },
       ""},
      {"a device that is not there", [&] { Model(runtime, Device::cuda(99), small_network(), {}); }, "99"},
      {"a group without parameters",
       [&] { Model(runtime, Device::cpu(), small_network(), {.groups = {{.match = "nowhere*"}}}); }, "nowhere*"},
      {"everything frozen",
       [&] { Model(runtime, Device::cpu(), small_network(), {.groups = {{.match = "*", .freeze = true}}}); }, ""},
      {"a device's name", [] { parse_device("gpu0"); }, "gpu0"},
      {"a limit of nothing",
       [&] {
         Runtime({.limits = {{"cpu", 1}}}).require_pool(Device::cpu(), 1 << 20);
       },
       ""},
  });
}

TEST(Promises, BatchesAreChecked) {
  Trained t;
  const std::vector<float> zeros(16 * 8 * 8 * 2);
  const std::vector<std::int32_t> labels(16);
  expect_errors({
      {"no labels",
       [&] {
         t.step.step({.tensors = {{kImages, t.batch.at(kImages)}}, .size = 16});
       },
       "labels"},
      {"no images",
       [&] {
         t.step.step({.tensors = {{kLabels, t.batch.at(kLabels)}}, .size = 16});
       },
       "images"},
      {"another shape",
       [&] {
         t.step.step(t.with(kImages, t.context.upload({16, 4, 4, 8}, zeros.data())));
       },
       ""},
      {"another type",
       [&] {
         t.step.step(t.with(kImages, t.context.upload({16, 8, 8, 2}, std::vector<std::int32_t>(2048).data())));
       },
       ""},
      {"fewer labels", [&] { t.step.step(t.with(kLabels, t.context.upload({8}, labels.data()))); }, ""},
      {"float labels", [&] { t.step.step(t.with(kLabels, t.context.upload({16}, zeros.data()))); }, ""},
      {"an undefined tensor", [&] { t.step.step(t.with(kImages, Tensor())); }, ""},
      {"no samples", [&] { t.step.micro_batch({}, 0, 0); }, ""},
      {"a slice beyond the end",
       [&] {
         t.batch.at(kImages).slice(0, {99, 8, 8, 2});
       },
       ""},
  });
  t.step.step(t.batch);  // after all of that it trains
  EXPECT_GT(t.step.read_metrics().back().loss, 0);
}

TEST(Promises, FilesAreChecked) {
  Trained t;
  const testing::ScratchPath folder("promises");
  const std::filesystem::path missing = folder.path() / "no" / "such" / "file";
  expect_errors({
      {"weights that are not there", [&] { load_weights(t.model, missing); }, "file"},
      {"a folder that is not there", [&] { save_weights(t.model, missing); }, "file"},
      {"a folder in place of a file", [&] { load_weights(t.model, std::filesystem::temp_directory_path()); }, ""},
      {"an unknown format", [&] { export_model(t.model, "pickle", missing); }, "pickle"},
      {"a configuration that is not there", [&] { run::Config::from_file(missing); }, "file"},
      {"no YAML", [] { run::Config::from_text("{[", "bad.yaml"); }, "bad.yaml"},
      {"a binary file", [] { run::Config::from_text(std::string_view("\0\1\2\xff", 4), "bad.yaml"); }, "bad.yaml"},
      {"an empty text", [] { run::Config::from_text("", "bad.yaml"); }, "bad.yaml"},
      {"a list", [] { run::Config::from_text("[1, 2]", "bad.yaml"); }, "bad.yaml"},
      {"an override without a value",
       [] {
         const std::string overrides[] = {"train.epochs"};
         run::Config::from_text(testing::kSmallRun, "bad.yaml", overrides);
       },
       "train.epochs"},
      {"a run that is not there", [&] { run::resume(missing); }, "file"},
      {"a folder that cannot be made",
       [&] { run::train(run::Config::from_text(testing::kSmallRun), {.folder = "/proc/bantam/x"}); }, "/proc"},
  });
}

TEST(Promises, ALayerReturnsTheShapeThatItDeclared) {
  const auto wrong_shape = [](const Context& context, std::span<Tensor> inputs) {
    return context.allocate({inputs[0].shape()[0], 3}, inputs[0].dtype());
  };
  const auto wrong_type = [](const Context& context, std::span<Tensor> inputs) {
    return context.allocate(inputs[0].shape(), DType::int32);
  };
  const auto nothing = [](const Context&, std::span<Tensor>) { return Tensor(); };
  expect_errors({
      {"another shape", [&] { train_with(std::make_shared<OwnLayer>(wrong_shape)); }, "own"},
      {"another shape on a meta device", [&] { train_with(std::make_shared<OwnLayer>(wrong_shape, true)); }, "own"},
      {"another type", [&] { train_with(std::make_shared<OwnLayer>(wrong_type)); }, "int32"},
      {"no tensor", [&] { train_with(std::make_shared<OwnLayer>(nothing)); }, "own"},
      {"nothing that runs", [&] { train_with(std::make_shared<OwnLayer>(nullptr)); }, "own"},
  });
}

TEST(Promises, WhatAProgramsLayerThrowsPassesThrough) {
  struct Mine : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  const auto throws = [](const Context&, std::span<Tensor>) -> Tensor { throw Mine("my own error"); };
  EXPECT_THROW(train_with(std::make_shared<OwnLayer>(throws)), Mine);
  const auto in_backward = [](const Context& context, std::span<Tensor> inputs) {
    Tensor y = inputs[0];
    y.set_value_id(context.runtime->new_value_id());
    if (context.tape != nullptr)
      context.tape->record(context, y, [](const Context&, const Tensor&, GradientStore&) { throw Mine("backward"); });
    return y;
  };
  EXPECT_THROW(train_with(std::make_shared<OwnLayer>(in_backward)), Mine);
  EXPECT_THROW(
      {
        struct Stops : Callback {
          void on_epoch_end(const EpochEvent&) override { throw Mine("callback"); }
        } stops;
        Callback* const callbacks[] = {&stops};
        const testing::ScratchPath folder("promises_callback");
        run::train(run::Config::from_text(testing::kSmallRun), {.folder = folder.path()}, callbacks);
      },
      Mine);
}

}  // namespace
}  // namespace bantam::promises_test

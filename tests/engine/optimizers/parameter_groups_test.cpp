// Groups of parameters: their names, values of their own, and parameters that are frozen, for good or for some updates.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "bantam/base/error.h"
#include "bantam/engine/model/frozen_norms.h"
#include "tests/base/config_error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::parameter_groups_test {
namespace {

class ParameterGroupsTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ParameterGroupsTest);

/// A stem with a norm, a block with another, and a head.
Graph norm_network() {
  const auto convolution = [] {
    return conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::symmetric(1), .bias = false});
  };
  const auto norm = [] { return batch_norm({.rate = 0.1f, .activation = {Activation::relu}}); };
  Graph graph({8, 8, 3});
  graph.add("stem", convolution());
  graph.add("stem_norm", norm());
  graph.add("block/conv", convolution());
  graph.add("block/norm", norm());
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 4}));
  return graph;
}

constexpr const char* kNames[] = {"stem/weight",      "stem_norm/scale",  "stem_norm/shift", "block/conv/weight",
                                  "block/norm/scale", "block/norm/shift", "head/weight",     "head/bias"};

struct Trained {
  Trained(Runtime& runtime, Device device, std::vector<ParameterGroup> groups, OptimizerOptions options = {},
          RecomputeOptions recompute = {}, bool planned = false)
      : model(runtime, device, norm_network(), {.seed = 3, .recompute = recompute, .groups = std::move(groups)}),
        optimizer(model, options),
        step(model, optimizer, {}) {
    if (planned) step.prepare({.batches = {8}});
    model.register_state(state);
    optimizer.register_state(state);
  }
  void update(std::int64_t number) {
    const Context context = Context::make(model.runtime(), model.device());
    step.step(make_batch(context, model.graph().input_shape(), 4, 8 * number, 8));
  }
  std::vector<float> values(const std::string& name) {
    return to_host<float>(model.parameters().find(name)->master(), stream());
  }
  std::vector<float> of_state(const std::string& name) {
    for (const StateEntry& entry : state.tensors())
      if (entry.name == name) return to_host<float>(entry.tensor, stream());
    return {};
  }
  std::vector<float> all() {
    std::vector<float> all;
    for (const char* name : kNames)
      for (const float value : values(name)) all.push_back(value);
    for (const float value : to_host<float>(model.buffers().current(), stream())) all.push_back(value);
    return all;
  }
  Stream stream() { return model.runtime().stream(model.device()); }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
  StateRegistry state;
};

TEST(ParameterGroups, TheFirstThatMatchesCounts) {
  const std::vector<ParameterGroup> groups = {{.match = "stem_norm*"}, {.match = "stem*"}};
  EXPECT_EQ(group_of(groups, "stem_norm/scale"), 0);
  EXPECT_EQ(group_of(groups, "stem/weight"), 1);
  EXPECT_EQ(group_of(groups, "head/bias"), -1);
}

TEST(ParameterGroups, WhatDoesNothingIsAnError) {
  const std::vector<std::string> names = parameter_names(norm_network());
  ASSERT_EQ(names.size(), std::size(kNames));
  for (const char* name : kNames) EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  const auto said = [&](std::vector<ParameterGroup> groups) {
    return config_error_of([&] { check_groups(groups, names); });
  };
  EXPECT_EQ(said({{.match = "*/weight"}}), "nothing was thrown");
  EXPECT_NE(said({{.match = "head/wieght"}}).find("did you mean 'head/weight'?"), std::string::npos);
  EXPECT_NE(said({{.match = "backbone*"}}).find("there are 8 parameters, from 'stem/weight' to"), std::string::npos);
  EXPECT_NE(said({{.match = "*"}, {.match = "head*"}}).find("are in groups before it"), std::string::npos);
  EXPECT_NE(said({{.match = "*", .freeze = true}}).find("nothing is left to train"), std::string::npos);
  EXPECT_EQ(said({{.match = "*", .freeze = true, .frozen_updates = 5}}), "nothing was thrown");
}

/// One step of descent from the same weights: w - scale·rate·(g + decay·w).
TEST_P(ParameterGroupsTest, HaveRatesAndDecaysOfTheirOwn) {
  const OptimizerOptions descent{.rule = sgd({.learning_rate = 0.5f, .weight_decay = 0.1f}), .decay_biases = false};
  Trained run(runtime(), device(),
              {{.match = "head/weight", .weight_decay = 0.25f, .learning_rate_scale = 0.5f},
               {.match = "head*", .weight_decay = 0.5f, .learning_rate_scale = 2.0f},
               {.match = "stem/*", .weight_decay = 0.0f}},
              descent);
  std::vector<std::vector<float>> before, gradients;
  for (const char* name : kNames) before.push_back(run.values(name));
  const Context context = Context::make(runtime(), device());
  run.step.micro_batch(make_batch(context, run.model.graph().input_shape(), 4, 0, 8), 0, 8);
  const ParameterArena& parameters = run.model.parameters();
  for (const char* name : kNames)
    for (const Parameter& parameter : parameters.all())
      if (parameter.name() == name) gradients.push_back(to_host<float>(parameter.gradient(), run.stream()));
  run.step.update();
  const float rates[] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.25f, 1.0f};
  const float decays[] = {0.0f, 0.0f, 0.0f, 0.1f, 0.0f, 0.0f, 0.25f, 0.0f};
  for (std::size_t p = 0; p < std::size(kNames); ++p) {
    const std::vector<float> after = run.values(kNames[p]);
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_NEAR(after[i], before[p][i] - rates[p] * (gradients[p][i] + decays[p] * before[p][i]), 1e-6)
          << kNames[p] << " " << i;
  }
}

/// Stem and its norm 0.25 of the rate, block 0.5, head 1; groups multiply.
TEST_P(ParameterGroupsTest, RatesDecayFromBlockToBlock) {
  Trained run(runtime(), device(), {{.match = "block/norm/*", .learning_rate_scale = 3.0f}},
              {.rule = sgd({.learning_rate = 0.5f}), .layer_decay = 0.5f});
  std::vector<std::vector<float>> before, gradients;
  for (const char* name : kNames) before.push_back(run.values(name));
  const Context context = Context::make(runtime(), device());
  run.step.micro_batch(make_batch(context, run.model.graph().input_shape(), 4, 0, 8), 0, 8);
  for (const char* name : kNames)
    gradients.push_back(to_host<float>(run.model.parameters().find(name)->gradient(), run.stream()));
  run.step.update();
  const float rates[] = {0.125f, 0.125f, 0.125f, 0.25f, 0.75f, 0.75f, 0.5f, 0.5f};
  for (std::size_t p = 0; p < std::size(kNames); ++p) {
    const std::vector<float> after = run.values(kNames[p]);
    float moved = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_NEAR(after[i], before[p][i] - rates[p] * gradients[p][i], 1e-6) << kNames[p] << " " << i;
      moved = std::max(moved, std::abs(after[i] - before[p][i]));
    }
    EXPECT_GT(moved, 1e-4) << kNames[p];
  }
}

TEST_P(ParameterGroupsTest, LayerDecayIsChecked) {
  for (const float wrong : {0.0f, -0.5f, 1.5f, std::nanf("")})
    EXPECT_NE(config_error_of([&] {
                Trained(runtime(), device(), {}, {.layer_decay = wrong});
              }).find("layer_decay must be in (0, 1]"),
              std::string::npos);
}

const std::vector<ParameterGroup> kFrozenStem = {{.match = "stem*", .freeze = true},
                                                 {.match = "block*", .freeze = true}};

TEST_P(ParameterGroupsTest, FrozenForGoodHasNoMemoryAndNoBackward) {
  for (const RecomputeOptions::Kind kind : {RecomputeOptions::Kind::none, RecomputeOptions::Kind::all}) {
    Trained run(runtime(), device(), kFrozenStem, {}, {.kind = kind});
    const ParameterArena& parameters = run.model.parameters();
    EXPECT_EQ(parameters.trainable_count(), 8 * 4 + 4);
    EXPECT_EQ(parameters.trainable_elements(), 2 * 128);
    EXPECT_EQ(parameters.gradient_slot().elements(), 2 * 128);
    EXPECT_TRUE(run.of_state("optimizer/moment1/stem/weight").empty());
    EXPECT_FALSE(run.of_state("optimizer/moment1/head/weight").empty());
    const std::vector<float> before = run.all();
    Context context = run.model.context(Pass::train);
    Tape tape;
    std::vector<std::string> written;
    tape.set_parameter_hook([&](Parameter& parameter) { written.push_back(parameter.name()); });
    context.tape = &tape;
    const Batch batch = make_batch(context, run.model.graph().input_shape(), 4, 0, 8);
    const Tensor y = run.model.forward(context, batch.tensors.at(kImages));
    (void)tape.backward(context, y, random_tensor(context, y.shape(), 5));
    for (const std::string& name : written) EXPECT_EQ(name.substr(0, 5), "head/");
    EXPECT_GE(written.size(), 1u);
    for (int i = 0; i < 3; ++i) run.update(i);
    const std::vector<float> after = run.all();
    const std::size_t head = before.size() - static_cast<std::size_t>(run.model.buffers().elements()) - 36;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const bool trains = i >= head && i < head + 36;
      ASSERT_TRUE(trains || after[i] == before[i]) << "weights and running statistics stay: " << i;
    }
    EXPECT_NE(run.values("head/weight"), std::vector<float>(before.begin() + static_cast<std::ptrdiff_t>(head),
                                                            before.begin() + static_cast<std::ptrdiff_t>(head) + 32));
  }
}

/// With the norms of a trained stem frozen, training sees what evaluation sees.
TEST_P(ParameterGroupsTest, AFrozenNormUsesRunningStatistics) {
  Trained run(runtime(), device(), {{.match = "*norm*", .freeze = true}});
  const Context train = run.model.context(Pass::train), evaluate = run.model.context(Pass::evaluate);
  const Tensor x = make_batch(train, run.model.graph().input_shape(), 4, 0, 8).tensors.at(kImages);
  EXPECT_EQ(to_host<float>(run.model.forward(train, x), run.stream()),
            to_host<float>(run.model.forward(evaluate, x), run.stream()));
  EXPECT_FALSE(uses_batch_statistics(run.model.graph()));
  const std::vector<float> stem = run.values("stem/weight");
  run.update(0);
  EXPECT_NE(run.values("stem/weight"), stem) << "its gradient came through both norms";
  Trained half(runtime(), device(), {{.match = "*norm/scale", .freeze = true}});
  EXPECT_TRUE(uses_batch_statistics(half.model.graph())) << "with a shift that trains";
}

TEST_P(ParameterGroupsTest, FrozenForNowBeginsAsIfNew) {
  const float rate = 0.01f;
  Trained run(runtime(), device(), {{.match = "stem/weight", .freeze = true, .frozen_updates = 2}},
              {.rule = adam({.learning_rate = rate, .epsilon = 1e-12f})});
  const std::vector<float> start = run.values("stem/weight"), head = run.values("head/weight");
  run.update(0);
  run.update(1);
  EXPECT_EQ(run.values("stem/weight"), start);
  EXPECT_NE(run.values("head/weight"), head);
  const std::vector<float> zeros(start.size());
  EXPECT_EQ(run.of_state("optimizer/moment1/stem/weight"), zeros);
  EXPECT_EQ(run.of_state("optimizer/moment2/stem/weight"), zeros);
  run.update(2);
  // Adam's first step is the rate, whatever the gradient is.
  const std::vector<float> moved = run.values("stem/weight");
  for (std::size_t i = 0; i < start.size(); ++i) EXPECT_NEAR(std::abs(moved[i] - start[i]), rate, 1e-5) << i;
}

TEST_P(ParameterGroupsTest, ModesAndRecomputeHaveTheSameBits) {
  const std::vector<ParameterGroup> some = {{.match = "stem*", .freeze = true},
                                            {.match = "block/norm/*", .weight_decay = 0.0f},
                                            {.match = "head*", .freeze = true, .frozen_updates = 2}};
  const OptimizerOptions options{.rule = adamw({.weight_decay = 0.1f}), .clip_norm = 0.5f};
  std::vector<std::vector<float>> results;
  for (const bool planned : {false, true})
    for (const RecomputeOptions::Kind kind : {RecomputeOptions::Kind::none, RecomputeOptions::Kind::all}) {
      Trained run(runtime(), device(), some, options, {.kind = kind}, planned);
      for (int i = 0; i < 4; ++i) run.update(i);
      results.push_back(run.all());
    }
  for (const std::vector<float>& result : results)
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
}

TEST_P(ParameterGroupsTest, AScheduleMovesEveryGroup) {
  Trained run(runtime(), device(), {{.match = "head/bias", .learning_rate_scale = 4.0f}},
              {.rule = sgd({.learning_rate = 1.0f, .momentum = 0.5f})});
  const UpdateValues values[] = {{.learning_rate = 0.5f, .momentum = 0.0f}, {.learning_rate = 0.25f, .momentum = 0.5f}};
  run.optimizer.set_values(values);
  EXPECT_EQ(run.optimizer.values(), values[1]);
  const std::vector<float> ones(4, 1.0f);
  Parameter& bias = *run.model.parameters().find("head/bias");
  std::vector<float> before = run.values("head/bias");
  const float moved[] = {4 * 0.5f, 4 * 0.25f * 1.5f};  // momentum: 1, then 0.5 + 1
  for (int i = 0; i < 2; ++i) {
    copy_bytes(bias.gradient().data(), ones.data(), 4 * sizeof(float), run.stream());
    synchronize(run.stream());
    run.optimizer.update(i);
    const std::vector<float> after = run.values("head/bias");
    for (std::size_t c = 0; c < 4; ++c) EXPECT_FLOAT_EQ(after[c], before[c] - moved[i]);
    before = after;
  }
  EXPECT_THROW(run.optimizer.set_values(std::vector<UpdateValues>{{.momentum = 1.0f}}), ConfigError);
  Trained plain(runtime(), device(), {}, {.rule = sgd()});
  EXPECT_THROW(plain.optimizer.set_values(std::vector<UpdateValues>{{.momentum = 0.5f}}), ConfigError)
      << "there is no slot for it";
}

}  // namespace
}  // namespace bantam::testing::parameter_groups_test

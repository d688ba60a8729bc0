// Predictor: what a Model computes, from any number of threads, cut into passes, without an allocation in a call.
#include "bantam/models/infer/predictor.h"

#include <memory>
#include <thread>

#include "tests/engine/engine_fixture.h"
#include "tests/models/infer/random_weights.h"

namespace bantam::predictor_test {
namespace {

using testing::evaluated;
using testing::random_floats;
using testing::random_weights;

/// With every kind of layer that has an op of inference: sums on either side, padding of other modes, groups, a dense
/// layer with an activation, and layers that have none.
Graph mixed_network() {
  Graph graph({12, 10, 3});
  const auto relu = ActivationOptions{Activation::relu};
  graph.add("stem", conv2d({.filters = 16, .stride = {2, 2}, .padding = Padding::same(), .bias = false}));
  const NodeId x = graph.add("stem_norm", batch_norm({.activation = relu}));
  graph.add("a/conv1",
            conv2d({.filters = 16, .padding = Padding::same(), .groups = 2, .activation = {Activation::silu}}), {x});
  graph.add("a/conv2", conv2d({.filters = 16, .padding = Padding::same(), .bias = false}));
  const NodeId branch = graph.add("a/norm2", batch_norm());
  const NodeId sum = graph.add("a/add", add(relu), {branch, x});
  graph.add("b/depthwise", depthwise_conv2d({.padding = Padding::same(), .bias = false}), {sum});
  graph.add("b/norm", batch_norm({.activation = {Activation::relu6}}));
  graph.add("b/project", conv2d({.filters = 16, .kernel = {1, 1}}));
  const NodeId second = graph.add("b/add", add(), {sum, graph.output()});
  graph.add("c/reflect", conv2d({.filters = 20, .padding = Padding::same(), .padding_mode = ops::PaddingMode::reflect}),
            {second});
  graph.add("c/squeeze_excite", squeeze_excite({.units = 4}));
  graph.add("c/separable", separable_conv2d({.filters = 24, .activation = {Activation::hard_swish}}));
  graph.add("drop", dropout());
  graph.add("pool", global_average_pool());
  graph.add("hidden", dense({.units = 17, .activation = {Activation::gelu}}));
  graph.add("classifier", dense({.units = 5}));
  return graph;
}

/// A vision transformer whose tokens a permutation mixes in place of attention.
Graph token_network() {
  Graph graph({12, 8, 3});
  graph.add("stem", conv2d({.filters = 24, .kernel = {4, 4}, .stride = {4, 4}}));
  graph.add("class_token", class_token({.initializer = {"normal", 0.5f}}));
  NodeId x = graph.add("position_embedding", position_embedding({.initializer = {"truncated_normal", 0.5f}}));
  graph.add("tokens/norm", layer_norm(), {x});
  graph.add("tokens/permute", permute({.dims = {2, 1}}));
  graph.add("tokens/expand", dense({.units = 14, .activation = {Activation::gelu}}));
  graph.add("tokens/contract", dense({.units = 7}));
  graph.add("tokens/back", permute({.dims = {2, 1}}));
  x = graph.add("tokens/add", add(), {x, graph.output()});
  graph.add("channels/norm", layer_norm(), {x});
  graph.add("channels/expand", dense({.units = 48, .activation = {Activation::gelu}}));
  graph.add("channels/contract", dense({.units = 24, .bias = false}));
  graph.add("channels/add", add(), {x, graph.output()});
  graph.add("pool", global_average_pool());
  graph.add("classifier", dense({.units = 5}));
  return graph;
}

std::vector<float> predicted(Predictor& predictor, const std::vector<float>& inputs) {
  const auto samples = static_cast<std::int64_t>(inputs.size()) / predictor.input_shape().elements();
  std::vector<float> outputs(static_cast<std::size_t>(samples * predictor.output_shape().elements()), NAN);
  predictor.predict(inputs, outputs);
  return outputs;
}

class PredictorTest : public testing::EngineTest {
 protected:
  PredictorTest() : graph_(mixed_network()), weights_(random_weights(graph_, 11)) {}
  Predictor make(PredictorOptions options) { return {runtime(), device(), graph_, weights_, options}; }
  std::vector<float> inputs(std::int64_t samples) const {
    return random_floats(samples * graph_.input_shape().elements(), 5);
  }

  Graph graph_;
  SafetensorsFile weights_;
};

/// About twenty layers, each with a sum of at most 180 products: rounding errors of 2^-24 (2^-11 and 2^-8 in the half
/// types, whose every layer's output is rounded) that add up as a random walk, and 4 for their spread.
double tolerance(Precision precision) {
  const double roundoff = precision.kind == PrecisionKind::float32         ? 1.0 / (1 << 24) * std::sqrt(180.0)
                          : precision.kind == PrecisionKind::mixed_float16 ? 1.0 / (1 << 11)
                                                                           : 1.0 / (1 << 8);
  return 4 * roundoff * std::sqrt(20.0);
}

TEST_P(PredictorTest, ComputesWhatTheModelComputesInEvaluation) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16})
    for (const bool folds : {true, false}) {
      Predictor predictor = make({.precision = {kind}, .most_batch = 4, .fold_batch_norm = folds});
      const std::vector<float> expected = evaluated(runtime(), device(), graph_, weights_, inputs(4));
      EXPECT_LT(testing::relative_difference(predicted(predictor, inputs(4)), expected), tolerance({kind}))
          << to_string(Precision{kind}) << (folds ? ", folded" : "");
    }
}

// Dense layers of tokens, and the sum after one, are ops of inference as well.
TEST_P(PredictorTest, ComputesWhatAModelOfTokensComputes) {
  const Graph graph = token_network();
  const SafetensorsFile weights = random_weights(graph, 3);
  const std::vector<float> samples = random_floats(5 * graph.input_shape().elements(), 5);
  const std::vector<float> expected = evaluated(runtime(), device(), graph, weights, samples);
  for (const PrecisionKind kind :
       {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16}) {
    Predictor predictor(runtime(), device(), graph, weights, {.precision = {kind}, .most_batch = 3});
    EXPECT_LT(testing::relative_difference(predicted(predictor, samples), expected), tolerance({kind}))
        << to_string(Precision{kind});
  }
}

TEST_P(PredictorTest, LargeCallsAreCutAndTheLastPassMayBeShort) {
  Predictor predictor = make({.most_batch = 6});
  for (const std::int64_t samples : {1, 2, 3, 5, 6, 7, 12, 23}) {
    const std::vector<float> all = inputs(samples), together = predicted(predictor, all);
    const std::vector<float> expected = evaluated(runtime(), device(), graph_, weights_, all);
    EXPECT_LT(testing::relative_difference(together, expected), tolerance({})) << samples;
    EXPECT_EQ(predicted(predictor, all), together) << "the same call computes the same bits";
  }
  EXPECT_NO_THROW(predictor.predict({}, {}));
}

TEST_P(PredictorTest, LengthsThatDoNotAgreeAreRefused) {
  Predictor predictor = make({.most_batch = 2});
  std::vector<float> two = inputs(2), outputs(10);
  EXPECT_THROW(predictor.predict(std::span(two).first(two.size() - 1), outputs), ShapeError);
  EXPECT_THROW(predictor.predict(two, std::span(outputs).first(5)), ShapeError);
  EXPECT_THROW(predictor.predict({}, outputs), ShapeError);
  EXPECT_THROW((void)make({.most_batch = 0}), Error);
  EXPECT_THROW((void)make({.lanes = 0}), Error);
}

TEST_P(PredictorTest, EightThreadsComputeTheBitsOfOne) {
  constexpr int kThreads = 8, kCalls = 5;
  for (const int lanes : {1, 3}) {
    Predictor predictor = make({.most_batch = 4, .lanes = lanes});
    std::vector<std::vector<float>> samples, expected;
    for (int i = 0; i < kThreads; ++i) {
      samples.push_back(random_floats((i % 5 + 1) * graph_.input_shape().elements(), 100 + static_cast<unsigned>(i)));
      expected.push_back(predicted(predictor, samples.back()));
    }
    std::vector<int> wrong(kThreads, 0);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        for (int call = 0; call < kCalls; ++call) wrong[i] += predicted(predictor, samples[i]) == expected[i] ? 0 : 1;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(kThreads, 0)) << lanes << " lanes";
  }
}

TEST_P(PredictorTest, ACallAllocatesNothingAndWhatIsPlannedIsReserved) {
  BfcAllocator& memory = runtime().allocator(device());
  BfcAllocator& pinned = runtime().pinned_allocator();
  const std::uint64_t before = memory.stats().in_use_bytes;
  Predictor predictor = make({.most_batch = 8, .lanes = 2});
  const std::uint64_t allocations = memory.stats().allocations, page_locked = pinned.stats().allocations;
  for (const std::int64_t samples : {8, 3, 17, 1}) (void)predicted(predictor, inputs(samples));
  EXPECT_EQ(memory.stats().allocations, allocations);
  EXPECT_EQ(pinned.stats().allocations, page_locked);
  const std::uint64_t reserved = memory.stats().in_use_bytes - before;
  EXPECT_GE(reserved, predictor.planned_bytes());
  EXPECT_LE(reserved, predictor.planned_bytes() + 4096) << "but for rounding";
}

TEST_P(PredictorTest, MemoryIsReleasedWithItAndALimitHolds) {
  BfcAllocator& memory = runtime().allocator(device());
  const std::uint64_t before = memory.stats().in_use_bytes;
  { Predictor predictor = make({.most_batch = 8, .lanes = 2}); }
  EXPECT_EQ(memory.stats().in_use_bytes, before);
  memory.trim();  // waits for the streams that freed memory: lanes' streams are gone, and must not be among them
  EXPECT_NO_THROW((void)predicted(*std::make_unique<Predictor>(make({.most_batch = 2})), inputs(2)));
  if (device().is_cuda()) return;  // there everything of the process counts
  Runtime small({.threads = 1, .limits = {{"cpu", 64 << 10}}});
  EXPECT_THROW(Predictor(small, device(), graph_, weights_, {.most_batch = 64}), OutOfMemory);
}

TEST_P(PredictorTest, WeightsLieOnTheDeviceOnce) {
  std::uint64_t weights = 0;
  for (const auto& [name, tensor] : weights_.tensors) weights += tensor.bytes.size();
  const Predictor single = make({.most_batch = 1}), twice = make({.most_batch = 1, .lanes = 2});
  const std::uint64_t arena = twice.planned_bytes() - single.planned_bytes();
  // Every tensor begins at a multiple of 128 elements.
  EXPECT_LE(single.planned_bytes() - arena, weights + weights_.tensors.size() * 128 * sizeof(float));
}

TEST_P(PredictorTest, AMissingTensorIsNamed) {
  for (const bool folds : {true, false}) {
    SafetensorsFile weights = weights_;
    weights.tensors.erase("hidden/weight");
    try {
      const Predictor predictor(runtime(), device(), graph_, weights, {.fold_batch_norm = folds});
      FAIL() << "expected a DataError";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("'hidden/weight'"), std::string::npos) << error.what();
    }
  }
}

TEST_P(PredictorTest, WeightsOfAnotherNetworkAreRefused) {
  for (const bool folds : {true, false}) {
    SafetensorsFile weights = weights_;
    weights.tensors["other/weight"] = host_tensor({1}, std::vector<float>{1});
    weights.path = "trained.safetensors";
    try {
      const Predictor predictor(runtime(), device(), graph_, weights, {.fold_batch_norm = folds});
      FAIL() << "expected a DataError";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("'other/weight'"), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("trained.safetensors: "), 0u) << error.what();
    }
  }
}

TEST_P(PredictorTest, GraphsWithoutParametersArePredicted) {
  Graph graph({4, 4, 2});
  graph.add("pool", max_pool());
  Predictor predictor(runtime(), device(), graph, {}, {.most_batch = 2});
  const std::vector<float> x = random_floats(3 * 32, 1);
  EXPECT_EQ(predicted(predictor, x), evaluated(runtime(), device(), graph, {}, x));
  Graph nothing({4});
  nothing.add("drop", dropout());
  Predictor same(runtime(), device(), nothing, {}, {.most_batch = 2});
  EXPECT_EQ(predicted(same, x), x);
}

/// On a GPU in several chunks, and on the host in several parts.
TEST_P(PredictorTest, LargeInputsArriveWhole) {
  Graph graph({1024, 1023});  // 4 MiB a sample
  graph.add("none", activation({}));
  Predictor predictor(runtime(), device(), graph, {}, {.most_batch = 5});
  const std::vector<float> five = random_floats(5 * 1024 * 1023, 1);
  EXPECT_TRUE(predicted(predictor, five) == five);
  const std::vector<float> three(five.begin(), five.begin() + 3 * 1024 * 1023);
  EXPECT_TRUE(predicted(predictor, three) == three);
}

/// A layer of a program's own that says nothing about meta devices.
class OwnLayer : public Layer {
 public:
  std::string_view kind() const override { return "own"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    class Same : public BoundLayer {
      Tensor forward(const Context&, std::span<Tensor> inputs) override { return std::move(inputs[0]); }
    };
    return std::make_unique<Same>();
  }
};

TEST_P(PredictorTest, LayersThatCannotBePlannedAreNamed) {
  Graph graph({4});
  graph.add("mine", std::make_shared<OwnLayer>());
  try {
    const Predictor predictor(runtime(), device(), graph, {});
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("layer 'mine' (own)"), std::string::npos) << error.what();
  }
}

BANTAM_INSTANTIATE_ON_DEVICES(PredictorTest);

/// In float32 on the CPU the ops of inference compute the same bits in passes of every size.
TEST(PredictorOnCpu, ASamplesBitsDoNotDependOnHowManyCameWithIt) {
  Graph graph({14, 14, 8});
  graph.add("conv", conv2d({.filters = 40, .padding = Padding::same(), .activation = {Activation::relu}}));
  graph.add("depthwise", depthwise_conv2d({.padding = Padding::same()}));
  graph.add("project", conv2d({.filters = 24, .kernel = {1, 1}}));
  graph.add("pool", global_average_pool());
  graph.add("classifier", dense({.units = 10}));
  Runtime runtime({.threads = 2});
  Predictor predictor(runtime, Device::cpu(), graph, random_weights(graph, 3), {.most_batch = 16});
  const std::int64_t sample = graph.input_shape().elements();
  const std::vector<float> inputs = random_floats(13 * sample, 9), together = predicted(predictor, inputs);
  for (std::int64_t i = 0; i < 13; ++i) {
    const std::vector<float> alone =
        predicted(predictor, {inputs.begin() + i * sample, inputs.begin() + (i + 1) * sample});
    EXPECT_EQ(alone, std::vector<float>(together.begin() + i * 10, together.begin() + (i + 1) * 10)) << i;
  }
}

}  // namespace
}  // namespace bantam::predictor_test

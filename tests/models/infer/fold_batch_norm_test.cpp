// Folding for inference: which norms go, what the graph then looks like, and that it computes the same.
#include "bantam/models/infer/fold_batch_norm.h"

#include <algorithm>

#include "tests/engine/engine_fixture.h"
#include "tests/models/infer/random_weights.h"

namespace bantam::fold_batch_norm_test {
namespace {

using testing::evaluated;
using testing::random_floats;
using testing::random_weights;

class FoldBatchNorm : public testing::EngineTest {
 protected:
  /// Folds `graph`; what it computes then differs by rounding only: each of a few layers in a sum of at most some
  /// hundred products, whose rounding errors of 2^-24 each add up as a random walk.
  InferenceGraph folded(const Graph& graph, int expected_norms) {
    constexpr double kTolerance = 1e-5;
    const SafetensorsFile weights = random_weights(graph, 7);
    InferenceGraph result = fold_for_inference(graph, weights);
    EXPECT_EQ(result.folded, expected_norms);
    const std::vector<float> inputs = random_floats(3 * graph.input_shape().elements(), 5);
    const std::vector<float> before = evaluated(runtime(), device(), graph, weights, inputs);
    const std::vector<float> after = evaluated(runtime(), device(), result.graph, result.weights, inputs);
    EXPECT_LT(testing::relative_difference(after, before), kTolerance);
    return result;
  }
};

Graph with_norm(LayerPtr layer, BatchNormOptions norm, Shape input = {7, 6, 8}) {
  Graph graph(input);
  graph.add("layer", std::move(layer));
  graph.add("norm", batch_norm(norm));
  return graph;
}

bool has_kind(const Graph& graph, std::string_view kind) {
  return std::ranges::any_of(graph.nodes(),
                             [&](const GraphNode& node) { return node.layer && node.layer->kind() == kind; });
}

TEST_P(FoldBatchNorm, EveryLinearLayerIsFoldedWithAndWithoutItsBias) {
  for (const bool bias : {false, true}) {
    const BatchNormOptions relu{.activation = {Activation::relu}};
    for (const LayerPtr& layer :
         {conv2d({.filters = 6, .bias = bias}), conv2d({.filters = 6, .stride = {2, 1}, .groups = 2, .bias = bias}),
          conv2d({.filters = 6, .padding = Padding::same(), .padding_mode = ops::PaddingMode::reflect, .bias = bias}),
          depthwise_conv2d({.multiplier = 2, .bias = bias}),
          separable_conv2d({.filters = 5, .multiplier = 2, .bias = bias}),
          transposed_conv2d({.filters = 6, .bias = bias}),
          transposed_conv2d({.filters = 6, .kernel = {3, 3}, .groups = 2, .bias = bias})}) {
      const InferenceGraph result = folded(with_norm(layer, relu), 1);
      EXPECT_EQ(result.graph.output(), 1) << layer->kind();
      EXPECT_EQ(result.weights.tensors.count("layer/bias"), 1u);
      EXPECT_EQ(result.weights.tensors.count("norm/scale"), 0u);
      EXPECT_EQ(result.weights.tensors.count("norm/running_mean"), 0u);
    }
    (void)folded(with_norm(dense({.units = 9, .bias = bias}), relu, {12}), 1);
  }
}

TEST_P(FoldBatchNorm, NormsWithoutScaleOrShiftAreFolded) {
  (void)folded(with_norm(conv2d({.filters = 6}), {.epsilon = 0.1f, .scale = false}), 1);
  (void)folded(with_norm(conv2d({.filters = 6}), {.shift = false}), 1);
  (void)folded(with_norm(conv2d({.filters = 6}), {.scale = false, .shift = false}), 1);
}

// As fine-tuning with frozen norms has them.
TEST_P(FoldBatchNorm, FrozenNormsAreFolded) { (void)folded(with_norm(conv2d({.filters = 6}), {.frozen = true}), 1); }

TEST_P(FoldBatchNorm, NormsOfWhatOthersReadOrOfAnActivationStay) {
  Graph graph({6, 6, 4});
  const NodeId conv = graph.add("conv", conv2d({.filters = 4, .padding = Padding::same()}));
  const NodeId norm = graph.add("norm", batch_norm(), {conv});
  graph.add("sum", add(), {conv, norm});
  (void)folded(graph, 0);
  const InferenceGraph activated = folded(with_norm(conv2d({.filters = 4, .activation = {Activation::tanh}}), {}), 0);
  EXPECT_TRUE(has_kind(activated.graph, "batch_norm"));
  Graph first({6, 6, 4});
  first.add("norm", batch_norm());
  first.add("conv", conv2d({.filters = 4}));
  (void)folded(first, 0);
}

TEST_P(FoldBatchNorm, LayersOfTrainingAreLeftOutWhereverTheyAre) {
  Graph graph({6, 6, 4});
  graph.add("first", dropout());
  graph.add("conv", conv2d({.filters = 6}));
  graph.add("between", spatial_dropout());
  graph.add("norm", batch_norm());
  graph.add("relu", activation({Activation::leaky_relu, 0.2f}));
  graph.add("last", drop_path());
  const InferenceGraph result = folded(graph, 1);
  EXPECT_EQ(result.graph.output(), 1);
  EXPECT_EQ(result.graph.node(1).name, "conv");
  EXPECT_EQ(result.graph.node(1).layer->options<Conv2dOptions>()->activation.kind, Activation::leaky_relu);
  Graph nothing({3});
  nothing.add("only", dropout());
  EXPECT_EQ(folded(nothing, 0).graph.output_shape(), Shape{3});
}

TEST_P(FoldBatchNorm, AnOutputThatIsNotLastStaysTheOutput) {
  Graph graph({6, 6, 4});
  const NodeId a = graph.add("a", conv2d({.filters = 4}));
  graph.add("b", conv2d({.filters = 4}), {graph.input()});
  graph.add("out", dropout(), {a});
  const InferenceGraph result = folded(graph, 0);
  EXPECT_EQ(result.graph.node(result.graph.output()).name, "out");
}

TEST_P(FoldBatchNorm, AResidualNetworkIsTheSame) {
  const InferenceGraph result = folded(testing::small_network(), 2);
  for (const char* kind : {"batch_norm", "dropout"}) EXPECT_FALSE(has_kind(result.graph, kind));
}

TEST_P(FoldBatchNorm, AMissingTensorIsNamed) {
  const Graph graph = testing::small_network();
  for (const std::string name : {"stem/weight", "stem_norm/running_variance", "head/bias"}) {
    SafetensorsFile weights = random_weights(graph, 7);
    weights.tensors.erase(name);
    try {
      (void)fold_for_inference(graph, weights);
      FAIL() << "expected a DataError";
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("'" + name + "'"), std::string::npos) << error.what();
    }
  }
  SafetensorsFile weights = random_weights(graph, 7);
  weights.tensors.at("head/bias").shape = {1, 5};
  EXPECT_THROW((void)fold_for_inference(graph, weights), DataError);
}

BANTAM_INSTANTIATE_ON_DEVICES(FoldBatchNorm);

}  // namespace
}  // namespace bantam::fold_batch_norm_test

// Every layer kind from YAML: its node, its output shape and its number of parameters, worked out by hand.
#include "bantam/models/yaml/network.h"

#include <optional>
#include <set>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/graph/lower.h"
#include "tests/cpu_seconds.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models::network_test {
namespace {

struct Case {
  std::string yaml, kind;
  Shape output;  // of an input (9, 9, 4)
  std::int64_t parameters;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.yaml; }

class LayerKinds : public ::testing::TestWithParam<Case> {};

TEST_P(LayerKinds, OutputShapeAndParameters) {
  const ModelSpec model = one_layer(GetParam().yaml);
  const GraphNode& node = model.graph.nodes().back();
  EXPECT_EQ(node.layer->kind(), GetParam().kind);
  EXPECT_EQ(to_string(node.output), to_string(GetParam().output));
  EXPECT_EQ(parameter_count(model.graph), GetParam().parameters);
}

std::vector<Case> convolutions() {
  return {
      Case{"conv2d: {filters: 8, kernel: 3}", "conv2d", {7, 7, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: [3, 5], bias: false}", "conv2d", {7, 5, 8}, 8 * 15 * 4},
      Case{"conv2d: {filters: 8, kernel: 3, padding: same, stride: 2}", "conv2d", {5, 5, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: 3, padding: valid, stride: [2, 1]}", "conv2d", {4, 7, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: 3, padding: 1}", "conv2d", {9, 9, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: 3, padding: [1, 0]}", "conv2d", {9, 7, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: 3, padding: {bottom: 1, right: 2}}", "conv2d", {8, 9, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: 3, dilation: 2}", "conv2d", {5, 5, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: 3, groups: 2, initializer: he_normal}", "conv2d", {7, 7, 8}, 8 * 9 * 2 + 8},
      Case{"depthwise_conv2d: {kernel: 3, multiplier: 2}", "depthwise_conv2d", {7, 7, 8}, 9 * 8 + 8},
      Case{"depthwise_conv2d: {kernel: 3, stride: 2, padding: 1, bias: false}", "depthwise_conv2d", {5, 5, 4}, 9 * 4},
      // depthwise without bias, pointwise with one
      Case{"separable_conv2d: {filters: 8, kernel: 3, activation: relu}",
           "separable_conv2d",
           {7, 7, 8},
           9 * 4 + 4 * 8 + 8},
      Case{"separable_conv2d: {filters: 8, kernel: 3, multiplier: 3, bias: false}",
           "separable_conv2d",
           {7, 7, 8},
           9 * 12 + 12 * 8},
      Case{"transposed_conv2d: {filters: 6, kernel: 2, stride: 2}", "transposed_conv2d", {18, 18, 6}, 4 * 4 * 6 + 6},
      Case{"transposed_conv2d: {filters: 6, kernel: [3, 4], stride: 2, padding: 1, output_padding: [1, 0], groups: 2, "
           "bias: false}",
           "transposed_conv2d",
           {18, 18, 6},
           4 * 12 * 3},
      Case{"transposed_conv2d: {filters: 6, kernel: 3, stride: [2, 3], padding: same, initializer: he_normal}",
           "transposed_conv2d",
           {18, 27, 6},
           4 * 9 * 6 + 6},
      Case{"conv2d: {filters: 8, kernel: 3, padding: 1, padding_mode: reflect}", "conv2d", {9, 9, 8}, 8 * 9 * 4 + 8},
      Case{"conv2d: {filters: 8, kernel: 3, stride: 2, padding: same, padding_mode: circular}",
           "conv2d",
           {5, 5, 8},
           8 * 9 * 4 + 8}};
}

std::vector<Case> others() {
  return {
      Case{"batch_norm", "batch_norm", {9, 9, 4}, 8},
      Case{"batch_norm: {scale: false, epsilon: 1e-5, rate: 0.1, unbiased: false}", "batch_norm", {9, 9, 4}, 4},
      Case{"batch_norm: {momentum: 0.9, activation: relu6}", "batch_norm", {9, 9, 4}, 8},
      Case{"layer_norm", "layer_norm", {9, 9, 4}, 8},
      Case{"layer_norm: {epsilon: 1e-5, shift: false}", "layer_norm", {9, 9, 4}, 4},
      Case{"group_norm: {groups: 2, activation: silu}", "group_norm", {9, 9, 4}, 8},
      Case{"instance_norm: {scale: false, shift: false, epsilon: 1e-3}", "instance_norm", {9, 9, 4}, 0},
      Case{"max_pool", "max_pool", {4, 4, 4}, 0},
      Case{"max_pool: {size: 3}", "max_pool", {3, 3, 4}, 0},
      Case{"max_pool: {size: 3, stride: 2, padding: 1}", "max_pool", {5, 5, 4}, 0},
      Case{"average_pool: {size: [2, 3], stride: 1, padding: same, count_padding: true}", "average_pool", {9, 9, 4}, 0},
      Case{"max_pool: {size: 2, ceil_mode: true}", "max_pool", {5, 5, 4}, 0},
      Case{"max_pool: {size: 3, stride: 1, dilation: [2, 3]}", "max_pool", {5, 3, 4}, 0},
      Case{"average_pool: {size: 3, stride: 3, padding: 1, ceil_mode: true}", "average_pool", {4, 4, 4}, 0},
      Case{"upsample", "upsample", {18, 18, 4}, 0},
      Case{"upsample: {scale: [3, 1], interpolation: bilinear, align_corners: true}", "upsample", {27, 9, 4}, 0},
      Case{"zero_padding: {padding: 1}", "zero_padding", {11, 11, 4}, 0},
      Case{"zero_padding: {padding: {top: 2, right: 3}, mode: reflect}", "zero_padding", {11, 12, 4}, 0},
      Case{"crop: {cropping: [1, 2]}", "crop", {7, 5, 4}, 0},
      Case{"crop: {cropping: {left: 4}}", "crop", {9, 5, 4}, 0},
      Case{"depth_to_space: {order: channel_first}", "depth_to_space", {18, 18, 1}, 0},
      Case{"channel_slice: {begin: 1, end: 3}", "channel_slice", {9, 9, 2}, 0},
      Case{"channel_slice: {begin: 1}", "channel_slice", {9, 9, 3}, 0},
      Case{"channel_shuffle: {groups: 4}", "channel_shuffle", {9, 9, 4}, 0},
      Case{"global_average_pool: {}", "global_average_pool", {4}, 0},
      Case{"global_max_pool:", "global_max_pool", {4}, 0},
      Case{"dropout: {rate: 0.3}", "dropout", {9, 9, 4}, 0},
      Case{"spatial_dropout: {rate: 0.3}", "spatial_dropout", {9, 9, 4}, 0},
      Case{"drop_path: {rate: 0.3}", "drop_path", {9, 9, 4}, 0},
      Case{"prelu", "prelu", {9, 9, 4}, 4},
      Case{"prelu: {initial: 0.1, shared: true}", "prelu", {9, 9, 4}, 1},
      Case{"layer_scale: {initial: 0.1}", "layer_scale", {9, 9, 4}, 4},
      Case{"softmax", "softmax", {9, 9, 4}, 0},
      Case{"flatten: {}", "flatten", {324}, 0},
      Case{"flatten\n    - dense: {units: 7}", "dense", {7}, 324 * 7 + 7},
      Case{"squeeze_excite: {units: 3}", "squeeze_excite", {9, 9, 4}, 2 * 3 * 4 + 3 + 4},
      Case{"squeeze_excite: {units: 1, activation: {leaky_relu: {slope: 0.2}}, gate: hard_sigmoid}",
           "squeeze_excite",
           {9, 9, 4},
           2 * 4 + 1 + 4},
      Case{"reshape: {shape: [27, 12]}", "reshape", {27, 12}, 0},
      Case{"relu: {name: a}\n    - add: {inputs: [a, input], activation: relu}", "add", {9, 9, 4}, 0},
      Case{"relu: {name: a}\n    - concat: {inputs: [a, input, a]}", "concat", {9, 9, 12}, 0},
      Case{"relu: {name: a}\n    - average: {inputs: [a, input]}", "average", {9, 9, 4}, 0},
      Case{"relu: {name: a}\n    - multiply: {inputs: [a, input]}", "multiply", {9, 9, 4}, 0},
      Case{"global_average_pool: {name: a}\n    - multiply: {inputs: [input, a]}", "multiply", {9, 9, 4}, 0},
      Case{"reshape: {shape: [3, -1, 6]}\n    - batch_norm", "batch_norm", {3, 18, 6}, 12}};
}

INSTANTIATE_TEST_SUITE_P(Convolutions, LayerKinds, ::testing::ValuesIn(convolutions()));
INSTANTIATE_TEST_SUITE_P(Others, LayerKinds, ::testing::ValuesIn(others()));

std::vector<std::string> activations() {
  return {"relu",
          "relu6",
          "leaky_relu: {slope: 0.2}",
          "gelu",
          "silu",
          "sigmoid",
          "tanh: {}",
          "elu: {alpha: 0.5}",
          "selu",
          "mish",
          "hard_swish",
          "hard_sigmoid",
          "softplus: {}"};
}

std::vector<std::string> joins() { return {"concat", "average", "multiply"}; }

std::string name_in(const std::string& yaml) { return yaml.substr(0, yaml.find(':')); }

TEST(LayerKindTable, HasAReaderAndATestForEveryKind) {
  std::set<std::string> tested;
  for (const auto& cases : {convolutions(), others()})
    for (const Case& c : cases) tested.insert(c.kind);
  for (const std::string& yaml : activations()) tested.insert(name_in(yaml));
  const std::vector<std::string> names = layer_kinds().names();
  EXPECT_EQ(tested, std::set<std::string>(names.begin(), names.end()));
  EXPECT_EQ(tested.size(), names.size());  // no kind stands twice in the engine's table
  EXPECT_EQ(layer_kinds().find("no_such_layer"), nullptr);
}

TEST(Layers, ActivationsAreLayersToo) {
  for (const std::string& name : activations()) {
    const ModelSpec model = one_layer(name);
    EXPECT_EQ(model.graph.nodes().size(), 2u) << name;
    EXPECT_EQ(to_string(model.graph.output_shape()), "(9, 9, 4)") << name;
    EXPECT_EQ(model.graph.nodes()[1].name, name_in(name));
  }
}

TEST(Layers, JoinsOfOneInputAreRefused) {
  for (const std::string& name : joins()) {
    try {
      (void)one_layer(name);
      ADD_FAILURE() << name << " is accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name + ": expected two or more inputs, got 1"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Layers, AnActivationMayHaveOptions) {
  const ModelSpec model = one_layer("conv2d: {filters: 2, kernel: 1, activation: {leaky_relu: {slope: 0.3}}}");
  EXPECT_EQ(model.graph.nodes().size(), 2u);  // the activation belongs to the layer's node
}

TEST(Layers, DenseAfterFlatten) {
  const ModelSpec model =
      model_from("model: {input: [3, 3, 2], layers: [flatten, dense: {units: 7, activation: gelu}]}");
  EXPECT_EQ(to_string(model.graph.output_shape()), "(7)");
  EXPECT_EQ(parameter_count(model.graph), 18 * 7 + 7);
}

TEST(Layers, NamesAreGivenOrCounted) {
  const ModelSpec model = model_from(
      "model: {name: tiny, input: [4, 4, 1], layers: [relu, conv2d: {filters: 2, kernel: 1, name: mix}, relu, relu]}");
  EXPECT_EQ(model.name, "tiny");
  std::vector<std::string> names;
  for (const GraphNode& node : model.graph.nodes()) names.push_back(node.name);
  EXPECT_EQ(names, (std::vector<std::string>{"input", "relu", "mix", "relu_2", "relu_3"}));
}

TEST(Layers, ModelsAreCalledAsTheCallerSaysWhereTheyHaveNoName) { EXPECT_EQ(one_layer("relu").name, "test"); }

constexpr const char* kResidual = R"(
model:
  input: [8, 8, 4]
  layers:
    - residual:
        body:
          - conv2d: {filters: 4, kernel: 3, padding: 1, bias: false}
          - batch_norm: {activation: relu}
          - conv2d: {filters: 4, kernel: 3, padding: 1, bias: false}
        activation: relu
    - residual:
        name: down
        body: [conv2d: {filters: 6, kernel: 3, padding: 1, stride: 2}]
        shortcut: [conv2d: {filters: 6, kernel: 1, stride: 2}]
    - block: {name: tail, body: [relu, flatten]}
)";

TEST(Layers, ResidualBlocksExpandToNodesUnderTheirName) {
  const ModelSpec model = model_from(kResidual);
  std::vector<std::string> names;
  for (const GraphNode& node : model.graph.nodes()) names.push_back(node.name);
  EXPECT_EQ(names, (std::vector<std::string>{"input", "residual/conv2d", "residual/batch_norm", "residual/conv2d_2",
                                             "residual/add", "down/conv2d", "down/shortcut_conv2d", "down/add",
                                             "tail/relu", "tail/flatten"}));
  const auto& nodes = model.graph.nodes();
  EXPECT_EQ(nodes[4].inputs, (std::vector<NodeId>{3, 0}));  // body and identity
  EXPECT_EQ(nodes[6].inputs, (std::vector<NodeId>{4}));     // the shortcut reads what the body reads
  EXPECT_EQ(nodes[7].inputs, (std::vector<NodeId>{5, 6}));
  EXPECT_EQ(to_string(model.graph.output_shape()), "(96)");
  const auto segments =
      lower(model.graph, {.kind = RecomputeOptions::Kind::named, .names = {"residual", "down", "tail"}}).segments;
  EXPECT_EQ(segments.size(), 3u);  // each block is one unit of recompute
}

TEST(Layers, ResolvedYamlGivesTheSameModelAgain) {
  const ConfigDocument first = ConfigDocument::parse(kResidual, "first.yaml");
  const ModelSpec model = read_model(first.map().node("model"));
  const ConfigDocument second = ConfigDocument::parse(first.resolved_yaml(), "second.yaml");
  const ModelSpec again = read_model(second.map().node("model"));
  ASSERT_EQ(again.graph.nodes().size(), model.graph.nodes().size());
  for (std::size_t i = 0; i < model.graph.nodes().size(); ++i) {
    EXPECT_EQ(again.graph.nodes()[i].name, model.graph.nodes()[i].name);
    EXPECT_EQ(to_string(again.graph.nodes()[i].output), to_string(model.graph.nodes()[i].output));
  }
  EXPECT_EQ(first.resolved_yaml(), second.resolved_yaml());
  EXPECT_NE(first.resolved_yaml().find("glorot_uniform"), std::string::npos) << "defaults are written out";
}

TEST(Layers, ThousandsWithoutNamesAreReadInSeconds) {
  std::string text = "model:\n  input: [2, 2, 1]\n  layers:\n";
  for (int i = 0; i < 100'000; ++i) text += i % 2 == 0 ? "  - relu\n" : "  - dropout: {rate: 0.1}\n";
  text += "  - block: {body: [relu, relu]}\n  - block: {body: [relu]}\n";
  std::optional<ModelSpec> read;
  EXPECT_LT(testing::cpu_seconds([&] { read = model_from(text); }), 5);
  const ModelSpec& model = *read;
  const std::vector<GraphNode>& nodes = model.graph.nodes();
  ASSERT_EQ(nodes.size(), 100'004u);
  EXPECT_EQ(nodes[1].name, "relu");
  EXPECT_EQ(nodes[3].name, "relu_2");
  EXPECT_EQ(nodes[100'000].name, "dropout_50000");
  EXPECT_EQ(nodes[100'001].name, "block/relu");
  EXPECT_EQ(nodes[100'002].name, "block/relu_2");
  EXPECT_EQ(nodes[100'003].name, "block_2/relu");
}

TEST(Layers, NumbersGoRoundNamesThatAreTaken) {
  const ModelSpec model = model_from(
      "model:\n  input: [2, 2, 1]\n  layers: [relu: {name: relu_2}, relu, relu, block: {name: relu_4, body: [relu]}, "
      "relu]\n");
  std::vector<std::string> names;
  for (const GraphNode& node : model.graph.nodes()) names.push_back(node.name);
  EXPECT_EQ(names, (std::vector<std::string>{"input", "relu_2", "relu", "relu_3", "relu_4/relu", "relu_5"}));
}

}  // namespace
}  // namespace bantam::models::network_test

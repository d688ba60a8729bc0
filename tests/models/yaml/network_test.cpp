// Lists of layers and blocks from YAML: their nodes, names and shapes.
#include "bantam/models/yaml/network.h"

#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/model/lower.h"
#include "tests/cpu_seconds.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models::network_test {
namespace {

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

TEST(Layers, MultiHeadAttentionIsTwoDenseLayersAroundAttention) {
  const auto attention_of = [](const std::string& options) {
    return model_from("model:\n  input: [1, 5, 48]\n  layers:\n    - multi_head_attention: {" + options + "}\n").graph;
  };
  const Graph graph = attention_of("heads: 3");
  std::vector<std::string> names, shapes;
  for (const GraphNode& node : graph.nodes()) {
    names.push_back(node.name);
    shapes.push_back(to_string(node.output));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"input", "multi_head_attention/qkv", "multi_head_attention/attention",
                                             "multi_head_attention/project"}));
  EXPECT_EQ(shapes, (std::vector<std::string>{"(1, 5, 48)", "(1, 5, 144)", "(1, 5, 48)", "(1, 5, 48)"}));
  EXPECT_EQ(parameter_count(graph), 48 * 144 + 144 + 48 * 48 + 48);
  EXPECT_EQ(parameter_count(attention_of("heads: 3, qkv_bias: false")), 48 * 144 + 48 * 48 + 48);
  EXPECT_EQ(parameter_count(attention_of("heads: 3, bias: false")), 48 * 144 + 144 + 48 * 48);
  EXPECT_EQ(parameter_count(attention_of("heads: 5, head_size: 8, bias: false, qkv_bias: false")), 48 * 120 + 40 * 48);
  EXPECT_EQ(graph.node(2).layer->flops(graph.input_shapes(2)), 4 * 5 * 5 * 48);
}

TEST(Layers, MultiHeadAttentionSaysWhatItNeeds) {
  const auto error_of = [](const std::string& input, const std::string& options) -> std::string {
    try {
      (void)model_from("model:\n  input: " + input + "\n  layers:\n    - multi_head_attention: {" + options + "}\n");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_of("[1, 5, 48]", "heads: 5")
                .find("multi_head_attention: the 48 channels of (1, 5, 48) do not divide into 5 heads; say head_size"),
            std::string::npos);
  EXPECT_NE(
      error_of("[48]", "heads: 3")
          .find("multi_head_attention: expected an input (tokens, channels) or (height, width, channels), got (48)"),
      std::string::npos);
  EXPECT_NE(error_of("[1, 5, 48]", "heads: 3, head_size: 6")
                .find("attention: a head has 6 channels; expected a multiple of 4 from 8 to 128"),
            std::string::npos);
  EXPECT_NE(error_of("[1, 5, 48]", "heads: 3, head: 6").find("unknown key 'head'"), std::string::npos);
  EXPECT_NE(error_of("[1, 5, 48]", "qkv_bias: true").find("heads"), std::string::npos);
}

// docs/NETWORKS.md has this network; its parameters are those of timm's vit_small_patch16_224.
TEST(Layers, AVisionTransformerFitsOnAScreen) {
  const ModelSpec model = model_from(R"(
model:
  input: [224, 224, 3]
  parameters: {classes: 1000, embed: 384, heads: 6, depth: 12, drop: 0.0}
  blocks:
    encoder:
      parameters: {heads: null, ratio: 4, drop: 0.0}
      layers:
        - residual:
            body:
              - layer_norm
              - multi_head_attention: {heads: $(heads)}
              - drop_path: {rate: $(drop), when: $(drop > 0)}
        - residual:
            body:
              - layer_norm
              - dense: {units: $(ratio * channels), activation: gelu}
              - dense: {units: $(channels)}
              - drop_path: {rate: $(drop), when: $(drop > 0)}
  layers:
    - conv2d: {filters: $(embed), kernel: 16, stride: 16, name: stem}
    - class_token
    - position_embedding
    - encoder: {heads: $(heads), drop: $(drop), repeat: $(depth)}
    - slice: {axis: 0, stop: 1}
    - flatten
    - layer_norm
    - dense: {units: $(classes), name: classifier}
)");
  EXPECT_EQ(parameter_count(model.graph), 22'050'664);
  EXPECT_EQ(to_string(model.graph.output_shape()), "(1000)");
  const auto& nodes = model.graph.nodes();
  const auto found = std::ranges::find(nodes, "encoder_12/residual/multi_head_attention/attention", &GraphNode::name);
  ASSERT_NE(found, nodes.end());
  EXPECT_EQ(to_string(found->output), "(197, 384)");
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

// Graphs from YAML: names and inputs, repetitions, conditions, and named blocks with parameters.
#include <gtest/gtest.h>

#include "bantam/engine/model/lower.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models::graph_test {
namespace {

/// "name(inputs) shape" of each node but the input.
std::vector<std::string> nodes_of(const ModelSpec& model) {
  std::vector<std::string> texts;
  const auto& nodes = model.graph.nodes();
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    std::string text = nodes[i].name + "(";
    for (const NodeId input : nodes[i].inputs) text += (text.back() == '(' ? "" : ", ") + model.graph.node(input).name;
    texts.push_back(text + ") " + to_string(nodes[i].output));
  }
  return texts;
}

using Nodes = std::vector<std::string>;

/// A model of images of 8x8x4 with `blocks` (indented by 4) and `layers` (by 4).
ModelSpec network(const std::string& layers, const std::string& blocks = "") {
  return model_from("model:\n  input: [8, 8, 4]\n" + (blocks.empty() ? "" : "  blocks:\n" + blocks) + "  layers:\n" +
                    layers);
}

TEST(Graphs, LayersReadWhatTheyName) {
  EXPECT_EQ(
      nodes_of(network("    - relu: {name: a}\n"
                       "    - tanh: {inputs: [input]}\n"
                       "    - add: {inputs: [a, tanh], activation: relu}\n"
                       "    - add: {inputs: [add, input], name: sum}\n")),
      (Nodes{"a(input) (8, 8, 4)", "tanh(input) (8, 8, 4)", "add(a, tanh) (8, 8, 4)", "sum(add, input) (8, 8, 4)"}));
}

TEST(Graphs, NamesAreLookedUpInTheBlockFirstThenOutwards) {
  EXPECT_EQ(nodes_of(network("    - relu: {name: a}\n"
                             "    - block:\n"
                             "        name: b\n"
                             "        body:\n"
                             "          - add: {inputs: [input, a]}\n"  // the block's input, which is a, and a
                             "          - tanh: {name: a}\n"
                             "          - add: {inputs: [a, add]}\n"  // both of the block
                             "    - add: {inputs: [a, b]}\n")),       // outside again
            (Nodes{"a(input) (8, 8, 4)", "b/add(a, a) (8, 8, 4)", "b/a(b/add) (8, 8, 4)",
                   "b/add_2(b/a, b/add) (8, 8, 4)", "add(a, b/add_2) (8, 8, 4)"}));
}

TEST(Graphs, ADefaultMayBeTheModelsParameterOfThatName) {
  const ModelSpec model = model_from(
      "model:\n  input: [8]\n  parameters: {classes: 3}\n  blocks:\n    head:\n      parameters: {classes: "
      "$(classes)}\n"
      "      layers: [dense: {units: $(classes)}]\n  layers: [head: {classes: 5}, head]\n");
  EXPECT_EQ(nodes_of(model), (Nodes{"head/dense(input) (5)", "head_2/dense(head/dense) (3)"}));
}

TEST(Graphs, ABlocksNameIsItsOutput) {
  EXPECT_EQ(nodes_of(network("    - block: {name: stem, body: [relu, tanh]}\n"
                             "    - max_pool\n"
                             "    - block: {inputs: [stem], body: [max_pool]}\n"
                             "    - add: {inputs: [max_pool, block]}\n")),
            (Nodes{"stem/relu(input) (8, 8, 4)", "stem/tanh(stem/relu) (8, 8, 4)", "max_pool(stem/tanh) (4, 4, 4)",
                   "block/max_pool(stem/tanh) (4, 4, 4)", "add(max_pool, block/max_pool) (4, 4, 4)"}));
}

TEST(Graphs, ARepeatedEntryIsAsOftenThere) {
  EXPECT_EQ(nodes_of(network("    - relu: {repeat: 2}\n"
                             "    - conv2d: {filters: 4, kernel: 1, repeat: 2, name: mix}\n"
                             "    - add: {inputs: [mix, relu_2], name: again, repeat: 2}\n"
                             "    - add: {inputs: [mix_1, again]}\n")),
            (Nodes{"relu(input) (8, 8, 4)", "relu_2(relu) (8, 8, 4)", "mix_1(relu_2) (8, 8, 4)",
                   "mix_2(mix_1) (8, 8, 4)", "again_1(mix_2, relu_2) (8, 8, 4)", "again_2(again_1, relu_2) (8, 8, 4)",
                   "add(mix_1, again_2) (8, 8, 4)"}));
}

TEST(Graphs, TheNameOfARepeatedEntryIsItsLast) {
  EXPECT_EQ(nodes_of(network("    - relu: {repeat: 2}\n"
                             "    - tanh: {repeat: 2, name: twice}\n"
                             "    - add: {inputs: [relu, twice]}\n")),
            (Nodes{"relu(input) (8, 8, 4)", "relu_2(relu) (8, 8, 4)", "twice_1(relu_2) (8, 8, 4)",
                   "twice_2(twice_1) (8, 8, 4)", "add(relu_2, twice_2) (8, 8, 4)"}));
}

TEST(Graphs, ARepeatedBlockHasWeightsOfItsOwn) {
  const ModelSpec model = network("    - residual: {body: [conv2d: {filters: 4, kernel: 1}], repeat: 3}\n");
  EXPECT_EQ(parameter_count(model.graph), 3 * (4 * 4 + 4));
  EXPECT_EQ(model.graph.nodes().back().name, "residual_3/add");
}

TEST(Graphs, AnEntryIsThereWhenItSaysSo) {
  EXPECT_EQ(nodes_of(network(
                "    - relu: {when: false}\n    - tanh: {when: true}\n    - block: {when: $(1 > 2), body: [relu]}\n")),
            (Nodes{"tanh(input) (8, 8, 4)"}));
}

constexpr const char* kConvNorm =
    "    conv_norm:\n"
    "      parameters: {filters: null, kernel: 3, activation: relu}\n"
    "      layers:\n"
    "        - conv2d: {filters: $(filters), kernel: $(kernel), padding: $(kernel // 2), bias: false}\n"
    "        - batch_norm: {activation: $(activation)}\n";

TEST(NamedBlocks, HaveParametersWithDefaults) {
  const ModelSpec model = network(
      "    - conv_norm: {filters: 6}\n"
      "    - conv_norm: {filters: 2, kernel: 1, activation: {leaky_relu: {slope: 0.3}}, name: thin}\n",
      kConvNorm);
  EXPECT_EQ(nodes_of(model),
            (Nodes{"conv_norm/conv2d(input) (8, 8, 6)", "conv_norm/batch_norm(conv_norm/conv2d) (8, 8, 6)",
                   "thin/conv2d(conv_norm/batch_norm) (8, 8, 2)", "thin/batch_norm(thin/conv2d) (8, 8, 2)"}));
  EXPECT_EQ(parameter_count(model.graph), 6 * 9 * 4 + 12 + 2 * 6 + 4);
}

TEST(NamedBlocks, MayHaveListsForParameters) {
  const ModelSpec model = network("    - conv: {kernel: [1, 3]}\n",
                                  "    conv:\n      parameters: {kernel: null}\n      layers:\n"
                                  "        - conv2d: {filters: 2, kernel: $(kernel)}\n");
  EXPECT_EQ(to_string(model.graph.output_shape()), "(8, 6, 2)");
}

TEST(NamedBlocks, HoldOthersAndNamesNest) {
  const ModelSpec model =
      network("    - bottleneck: {filters: 2, repeat: 2}\n",
              std::string(kConvNorm) +
                  "    bottleneck:\n"
                  "      parameters: {filters: null, wide: $(4 * filters)}\n"
                  "      layers:\n"
                  "        - residual:\n"
                  "            body:\n"
                  "              - conv_norm: {filters: $(filters), kernel: 1}\n"
                  "              - conv_norm: {filters: $(wide), activation: none}\n"
                  "            shortcut:\n"
                  "              - conv_norm: {filters: $(wide), kernel: 1, when: $(channels != wide)}\n");
  const std::string shortcut = "bottleneck/residual/shortcut_conv_norm", second = "bottleneck_2/residual";
  EXPECT_EQ(nodes_of(model),
            (Nodes{"bottleneck/residual/conv_norm/conv2d(input) (8, 8, 2)",
                   "bottleneck/residual/conv_norm/batch_norm(bottleneck/residual/conv_norm/conv2d) (8, 8, 2)",
                   "bottleneck/residual/conv_norm_2/conv2d(bottleneck/residual/conv_norm/batch_norm) (8, 8, 8)",
                   "bottleneck/residual/conv_norm_2/batch_norm(bottleneck/residual/conv_norm_2/conv2d) (8, 8, 8)",
                   "bottleneck/residual/shortcut_conv_norm/conv2d(input) (8, 8, 8)",
                   shortcut + "/batch_norm(" + shortcut + "/conv2d) (8, 8, 8)",
                   "bottleneck/residual/add(bottleneck/residual/conv_norm_2/batch_norm, " + shortcut +
                       "/batch_norm) (8, 8, 8)",
                   // the second reads eight channels and has no shortcut of its own
                   "bottleneck_2/residual/conv_norm/conv2d(bottleneck/residual/add) (8, 8, 2)",
                   "bottleneck_2/residual/conv_norm/batch_norm(bottleneck_2/residual/conv_norm/conv2d) (8, 8, 2)",
                   "bottleneck_2/residual/conv_norm_2/conv2d(bottleneck_2/residual/conv_norm/batch_norm) (8, 8, 8)",
                   "bottleneck_2/residual/conv_norm_2/batch_norm(bottleneck_2/residual/conv_norm_2/conv2d) (8, 8, 8)",
                   second + "/add(" + second + "/conv_norm_2/batch_norm, bottleneck/residual/add) (8, 8, 8)"}));
}

TEST(NamedBlocks, AreUnitsOfRecomputeAtEveryDepth) {
  const ModelSpec model = network("    - outer: {repeat: 2}\n",
                                  "    inner: {layers: [relu, conv2d: {filters: 4, kernel: 1}]}\n"
                                  "    outer: {layers: [inner, inner: {name: last}]}\n");
  const auto recomputed = [&](const std::string& name) {
    std::vector<std::pair<NodeId, NodeId>> segments;
    for (const ProgramSegment& segment :
         lower(model.graph, {.kind = RecomputeOptions::Kind::named, .names = {name}}).segments)
      if (segment.recompute) segments.emplace_back(segment.first, segment.last);
    return segments;
  };
  using Segments = std::vector<std::pair<NodeId, NodeId>>;
  EXPECT_EQ(recomputed("outer"), (Segments{{1, 4}}));
  EXPECT_EQ(recomputed("outer_2/inner"), (Segments{{5, 6}}));
  EXPECT_EQ(recomputed("outer/last"), (Segments{{3, 4}}));
  EXPECT_EQ(recomputed("outer/last..outer_2/inner"), (Segments{{3, 6}}));
  EXPECT_EQ(recomputed("outer/last/conv2d"), (Segments{{4, 4}}));
}

TEST(NamedBlocks, ReadNamesAroundTheirUse) {
  EXPECT_EQ(nodes_of(network("    - relu: {name: skip}\n    - tanh\n    - join: {from: skip}\n",
                             "    join:\n      parameters: {from: null}\n      layers:\n"
                             "        - tanh\n        - add: {inputs: [tanh, $(from)]}\n")),
            (Nodes{"skip(input) (8, 8, 4)", "tanh(skip) (8, 8, 4)", "join/tanh(tanh) (8, 8, 4)",
                   "join/add(join/tanh, skip) (8, 8, 4)"}));
}

TEST(NamedBlocks, KnowTheExtentsOfTheirInput) {
  const ModelSpec model = network("    - max_pool: {size: [2, 1]}\n    - whole\n    - flatten\n    - half\n",
                                  "    whole: {layers: [average_pool: {size: $(height)}, reshape: {shape: [1, "
                                  "\"$(width // height * channels)\"]}]}\n"
                                  "    half: {layers: [dense: {units: $(channels / 2)}]}\n");
  EXPECT_EQ(nodes_of(model), (Nodes{"max_pool(input) (4, 8, 4)", "whole/average_pool(max_pool) (1, 2, 4)",
                                    "whole/reshape(whole/average_pool) (1, 8)", "flatten(whole/reshape) (8)",
                                    "half/dense(flatten) (4)"}));
}

TEST(NamedBlocks, ModelsHaveParametersToo) {
  const std::string text =
      "model:\n  input: [4]\n  parameters: {units: 3, twice: $(2 * units)}\n"
      "  blocks:\n    wide: {parameters: {units: 1}, layers: [dense: {units: $(units * twice)}]}\n"
      "  layers: [dense: {units: $(units * channels)}, wide, wide: {units: 2}]\n";
  EXPECT_EQ(nodes_of(model_from(text)),
            (Nodes{"dense(input) (12)", "wide/dense(dense) (6)", "wide_2/dense(wide/dense) (12)"}));
  const std::vector<std::string> overrides = {"model.parameters.units=1"};
  const ConfigDocument document = ConfigDocument::parse(text, "test.yaml", overrides);
  EXPECT_EQ(to_string(read_model(document.map().node("model")).graph.output_shape()), "(4)");
}

TEST(NamedBlocks, ResolvedYamlHasThemAsTheyAre) {
  const std::string text = std::string("model:\n  input: [8, 8, 4]\n  blocks:\n") + kConvNorm +
                           "  layers:\n    - conv_norm: {filters: 6, repeat: 2}\n    - relu\n";
  const ConfigDocument first = ConfigDocument::parse(text, "first.yaml");
  const ModelSpec model = read_model(first.map().node("model"));
  const ConfigDocument second = ConfigDocument::parse(first.resolved_yaml(), "second.yaml");
  EXPECT_EQ(nodes_of(read_model(second.map().node("model"))), nodes_of(model));
  EXPECT_EQ(second.resolved_yaml(), first.resolved_yaml());
  EXPECT_NE(first.resolved_yaml().find("\"$(kernel // 2)\""), std::string::npos) << first.resolved_yaml();
}

TEST(NamedBlocks, ALeftOutEntryNeedsNoValues) {
  EXPECT_EQ(nodes_of(network("    - half: {by: 0}\n    - half: {by: 2}\n",
                             "    half:\n      parameters: {by: null}\n      layers:\n"
                             "        - conv2d: {filters: $(channels // by), kernel: 1, when: $(by > 0)}\n")),
            (Nodes{"half_2/conv2d(input) (8, 8, 2)"}));
}

}  // namespace
}  // namespace bantam::models::graph_test

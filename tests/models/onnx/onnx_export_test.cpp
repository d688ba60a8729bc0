// Graphs as ONNX models: that models are well-formed, and where weights, windows and orders of axes go. What the nodes
// compute is compared with ONNX Runtime by compare_with_onnxruntime.py.
#include "bantam/models/onnx/onnx_export.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/models/zoo/zoo.h"
#include "tests/models/onnx/random_network.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::onnx::onnx_export_test {
namespace {

using models::host_tensor;
using models::model_from;
using Integers = std::vector<std::int64_t>;

/// Values 1, 2, 3, … of each tensor that the graph has.
SafetensorsFile counted_weights(const Graph& graph) {
  Runtime runtime;
  const bantam::Model model(runtime, Device::meta_of(Device::cpu()), graph, {});
  SafetensorsFile file;
  const auto add = [&](const std::string& name, const Shape& shape) {
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    std::iota(values.begin(), values.end(), 1.0f);
    file.tensors.emplace(name, host_tensor(shape, values));
  };
  for (const Parameter& parameter : model.parameters().all()) add(parameter.name(), parameter.shape());
  for (const Buffer& buffer : model.buffers().all()) add(buffer.name, buffer.shape);
  return file;
}

Model exported(const Graph& graph, const ExportOptions& options = {}) {
  return export_graph(graph, counted_weights(graph), options);
}

Graph graph_of(const std::string& shape, const std::string& layers) {
  return model_from(fmt::format("model: {{input: {}, layers: [{}]}}", shape, layers)).graph;
}

const Node& node_of(const Model& model, const std::string& op) {
  const auto found = std::ranges::find(model.nodes, op, &Node::op);
  if (found == model.nodes.end()) throw Error("no node " + op);
  return *found;
}

const Tensor& tensor_of(const Model& model, const std::string& name) {
  const auto found = std::ranges::find(model.initializers, name, &Tensor::name);
  if (found == model.initializers.end()) throw Error("no tensor " + name);
  return *found;
}

Integers integers_of(const Node& node, const std::string& name) { return std::get<Integers>(node.attributes.at(name)); }

std::vector<std::string> ops_of(const Model& model) {
  std::vector<std::string> ops;
  for (const Node& node : model.nodes) ops.push_back(node.op);
  return ops;
}

/// Every name is written once, and before it is read; every constant is read.
void expect_well_formed(const Model& model, const std::string& what) {
  std::set<std::string> written, read;
  const auto write = [&](const std::string& name) {
    EXPECT_TRUE(written.insert(name).second) << what << ": '" << name << "' is written twice";
  };
  for (const Value& value : model.inputs) write(value.name);
  for (const Tensor& tensor : model.initializers) write(tensor.name);
  for (const Node& node : model.nodes) {
    for (const std::string& input : node.inputs) {
      if (input.empty()) continue;
      EXPECT_TRUE(written.contains(input)) << what << ": " << node.name << " reads '" << input << "'";
      read.insert(input);
    }
    for (const std::string& output : node.outputs) write(output);
  }
  for (const Tensor& tensor : model.initializers)
    EXPECT_TRUE(read.contains(tensor.name)) << what << ": nothing reads '" << tensor.name << "'";
  for (const Value& value : model.outputs) EXPECT_TRUE(written.contains(value.name)) << what;
}

/// A use of every kind of layer of the table, on images of 9x9x4.
const std::map<std::string, std::string>& uses_of_kinds() {
  static const std::map<std::string, std::string> uses{
      {"conv2d", "conv2d: {filters: 6, kernel: 3}"},
      {"depthwise_conv2d", "depthwise_conv2d: {kernel: 3}"},
      {"separable_conv2d", "separable_conv2d: {filters: 6, kernel: 3}"},
      {"transposed_conv2d", "transposed_conv2d: {filters: 6, kernel: 2, stride: 2}"},
      {"dense", "flatten, dense: {units: 3}"},
      {"add", "relu, add: {inputs: [input, relu]}"},
      {"average", "relu, average: {inputs: [input, relu]}"},
      {"multiply", "relu, multiply: {inputs: [input, relu]}"},
      {"concat", "relu, concat: {inputs: [input, relu]}"},
      {"dropout", "dropout: {rate: 0.5}"},
      {"spatial_dropout", "spatial_dropout: {rate: 0.5}"},
      {"drop_path", "drop_path: {rate: 0.5}"},
      {"reshape", "reshape: {shape: [81, 4]}"},
      {"permute", "permute: {dims: [2, 1, 3]}"},
      {"squeeze_excite", "squeeze_excite: {units: 2}"},
      {"group_norm", "group_norm: {groups: 2}"},
      {"attention", "conv2d: {filters: 48, kernel: 1}, attention: {heads: 2}"},
      {"zero_padding", "zero_padding: {padding: 1}"},
      {"crop", "crop: {cropping: 1}"}};
  return uses;
}

TEST(ExportOnnx, WritesEveryKindOfLayer) {
  for (const std::string& kind : layer_kinds().names()) {
    const auto found = uses_of_kinds().find(kind);
    const Graph graph = graph_of("[9, 9, 4]", found != uses_of_kinds().end() ? found->second : kind);
    for (const std::int64_t opset : {13, 17, 18, 20, 21, 23, 24})
      for (const bool nhwc : {false, true})
        for (const bool float16 : {false, true}) {
          const Model model = exported(graph, {.opset = opset, .nhwc_input = nhwc, .float16 = float16});
          expect_well_formed(model, fmt::format("{}, opset {}", kind, opset));
          EXPECT_EQ(model.opset, opset);
        }
  }
}

TEST(ExportOnnx, WritesEveryNetworkOfTheZoo) {
  for (const models::ZooModel& network : models::zoo()) {
    const bool small = network.defaults.input[0] == 32;
    const Graph graph = network.build({.input = small ? Shape{32, 32, 3} : Shape{64, 64, 3}, .classes = 5});
    const Model model = exported(graph);
    expect_well_formed(model, std::string(network.name));
    const Integers logits{-1, 5}, masks{-1, 5, 64, 64};
    EXPECT_EQ(model.outputs[0].dims, network.name == "unet" ? masks : logits) << network.name;
    EXPECT_EQ(model.inputs[0].dims[1], 3) << network.name;
  }
}

TEST(ExportOnnx, WritesWeightsChannelsFirst) {
  const Model model = exported(graph_of("[5, 5, 2]", "conv2d: {filters: 1, kernel: [1, 2], bias: false}"));
  EXPECT_EQ(tensor_of(model, "conv2d/weight").dims, (Integers{1, 2, 1, 2}));
  EXPECT_EQ(tensor_of(model, "conv2d/weight").as_floats(), (std::vector<float>{1, 3, 2, 4}));
  const Model depthwise = exported(graph_of("[5, 5, 2]", "depthwise_conv2d: {kernel: [1, 2], bias: false}"));
  EXPECT_EQ(tensor_of(depthwise, "depthwise_conv2d/weight").dims, (Integers{2, 1, 1, 2}));
  EXPECT_EQ(tensor_of(depthwise, "depthwise_conv2d/weight").as_floats(), (std::vector<float>{1, 3, 2, 4}));
  EXPECT_EQ(std::get<std::int64_t>(node_of(depthwise, "Conv").attributes.at("group")), 2);
}

TEST(ExportOnnx, SameIsExplicitAndAsymmetric) {
  const Model model = exported(graph_of("[8, 9, 2]", "conv2d: {filters: 1, kernel: 3, stride: 2, padding: same}"));
  EXPECT_EQ(integers_of(node_of(model, "Conv"), "pads"), (Integers{0, 1, 1, 1}));  // top, left, bottom, right
  EXPECT_EQ(integers_of(node_of(model, "Conv"), "strides"), (Integers{2, 2}));
}

TEST(ExportOnnx, PermutesTheWeightsAfterFlatten) {
  const std::string layers = "conv2d: {filters: 2, kernel: 1}, flatten, dropout: {rate: 0.5}, dense: {units: 1}";
  const Model model = exported(graph_of("[1, 3, 2]", layers));
  EXPECT_EQ(ops_of(model), (std::vector<std::string>{"Conv", "Flatten", "Gemm"}));
  EXPECT_EQ(tensor_of(model, "dense/weight").as_floats(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

TEST(ExportOnnx, TransposesWhereNoWeightsFollow) {
  const Model model = exported(graph_of("[1, 3, 2]", "conv2d: {filters: 2, kernel: 1}, flatten"));
  EXPECT_EQ(ops_of(model), (std::vector<std::string>{"Conv", "Flatten", "Reshape", "Transpose", "Flatten"}));
}

TEST(ExportOnnx, InputsMayHaveChannelsLast) {
  const Graph graph = graph_of("[5, 6, 3]", "conv2d: {filters: 2, kernel: 1}, relu");
  const Model first = exported(graph), last = exported(graph, {.nhwc_input = true});
  EXPECT_EQ(first.inputs[0].dims, (Integers{-1, 3, 5, 6}));
  EXPECT_EQ(first.outputs[0].dims, (Integers{-1, 2, 5, 6}));
  EXPECT_EQ(last.inputs[0].dims, (Integers{-1, 5, 6, 3}));
  EXPECT_EQ(last.outputs[0].dims, (Integers{-1, 5, 6, 2}));
  EXPECT_EQ(last.inputs[0].names, (std::vector<std::string>{"batch", "", "", ""}));
  EXPECT_EQ(ops_of(first), (std::vector<std::string>{"Conv", "Relu"}));
  EXPECT_EQ(ops_of(last), (std::vector<std::string>{"Transpose", "Conv", "Relu", "Transpose"}));
}

TEST(ExportOnnx, ABatchMayBeFixed) {
  const Model model = exported(graph_of("[4]", "dense: {units: 2}"), {.batch = 8});
  EXPECT_EQ(model.inputs[0].dims, (Integers{8, 4}));
  EXPECT_EQ(model.outputs[0].dims, (Integers{8, 2}));
  EXPECT_EQ(model.outputs[0].names, (std::vector<std::string>{"", ""}));
}

TEST(ExportOnnx, NodesHaveTheLayersNames) {
  const Model model = exported(graph_of("[4]", "dense: {units: 2, name: output, activation: relu}, dense: {units: 3}"));
  ASSERT_EQ(model.nodes.size(), 3u);
  EXPECT_EQ(model.nodes[0].name, "output/Gemm");
  EXPECT_EQ(model.nodes[1].name, "output_2");  // the graph's output has the name
  EXPECT_EQ(model.nodes[2].name, "dense");
  EXPECT_EQ(model.nodes[2].outputs, (std::vector<std::string>{"output"}));
}

TEST(ExportOnnx, ANetworkMayPassItsInputOn) {
  const Model model = exported(graph_of("[4]", "dropout: {rate: 0.5}"));
  EXPECT_EQ(ops_of(model), (std::vector<std::string>{"Identity"}));
  expect_well_formed(model, "dropout alone");
}

TEST(ExportOnnx, PreprocessingIsInTheGraph) {
  const Preprocessing preprocessing{.scale = 0.5, .mean = {1.0, 2.0}, .std = {0.25, 4.0}};
  const Model model = exported(graph_of("[3, 3, 2]", "relu"), {.preprocessing = preprocessing});
  EXPECT_EQ(model.inputs[0].type, Type::uint8);
  EXPECT_EQ(model.outputs[0].type, Type::float32);
  EXPECT_EQ(ops_of(model), (std::vector<std::string>{"Cast", "Mul", "Add", "Relu"}));
  EXPECT_EQ(tensor_of(model, "input/factor").as_floats(), (std::vector<float>{2.0f, 0.125f}));
  EXPECT_EQ(tensor_of(model, "input/shift").as_floats(), (std::vector<float>{-4.0f, -0.5f}));
  EXPECT_EQ(tensor_of(model, "input/shift").dims, (Integers{2, 1, 1}));
}

TEST(ExportOnnx, Float16HasFloat32AtItsEnds) {
  const Model model = exported(graph_of("[3, 3, 2]", "conv2d: {filters: 2, kernel: 1}"), {.float16 = true});
  EXPECT_EQ(ops_of(model), (std::vector<std::string>{"Cast", "Conv", "Cast"}));
  EXPECT_EQ(model.inputs[0].type, Type::float32);
  EXPECT_EQ(model.outputs[0].type, Type::float32);
  for (const Tensor& tensor : model.initializers) EXPECT_EQ(tensor.type, Type::float16) << tensor.name;
}

// In float16 a running variance of 1e-8 is 0, and one of 1e6 has no number.
TEST(ExportOnnx, VariancesOfFloat16AreInTheScale) {
  const Graph graph = graph_of("[2]", "batch_norm: {epsilon: 1e-12}");
  SafetensorsFile weights = counted_weights(graph);
  weights.tensors.at("batch_norm/running_variance") = host_tensor({2}, {1e-8f, 1e6f});
  weights.tensors.at("batch_norm/scale") = host_tensor({2}, {1e-4f, 1e3f});
  const Model model = export_graph(graph, weights, {.float16 = true});
  const std::vector<float> scale = tensor_of(model, "batch_norm/scale").as_floats();
  EXPECT_NEAR(scale[0], 1.0f, 1e-3f);  // 1e-4 / √(1e-8 + 1e-12), in float16
  EXPECT_NEAR(scale[1], 1.0f, 1e-3f);
  EXPECT_EQ(tensor_of(model, "batch_norm/running_variance").as_floats(), (std::vector<float>{1.0f, 1.0f}));
}

// As fine-tuning with frozen norms has them.
TEST(ExportOnnx, WritesFrozenNormsAsOthers) {
  Graph frozen(Shape{3, 3, 2}), free(Shape{3, 3, 2});
  frozen.add("norm", batch_norm({.epsilon = 1e-5f, .frozen = true}));
  free.add("norm", batch_norm({.epsilon = 1e-5f}));
  EXPECT_EQ(serialize(exported(frozen)), serialize(exported(free)));
}

TEST(ExportOnnx, ClassNamesAreMetadata) {
  const Model model = exported(graph_of("[4]", "dense: {units: 2}"), {.class_names = {"a \"b\"", "ü"}});
  EXPECT_EQ(model.metadata.at("class_names"), "[\"a \\\"b\\\"\",\"ü\"]");
  EXPECT_EQ(model.producer, "bantam");
  const Model of_bytes = exported(graph_of("[4]", "dense: {units: 1}"), {.class_names = {"\xff"}});
  EXPECT_EQ(of_bytes.metadata.at("class_names"), "[\"\uFFFD\"]");
}

template <class Exception, class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Exception& error) {
    return error.what();
  }
  return "nothing of the kind was thrown";
}

class MyLayer : public Layer {
 public:
  explicit MyLayer(std::string kind) : kind_(std::move(kind)) {}
  std::string_view kind() const override { return kind_; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override { return nullptr; }

 private:
  std::string kind_;
};

TEST(ExportOnnx, NamesWhatCannotBeWritten) {
  Graph own(Shape{4}), alike(Shape{4}), norm(Shape{4});
  own.add("mine", std::make_shared<MyLayer>("my_layer"));
  alike.add("mine", std::make_shared<MyLayer>("dense"));
  norm.add("mine", std::make_shared<MyLayer>("batch_norm"));
  const auto failure = [](const Graph& graph) { return error_of<ConfigError>([&] { export_graph(graph, {}, {}); }); };
  EXPECT_EQ(failure(own), "layer 'mine' (my_layer): only built-in kinds of layers can be written to ONNX");
  EXPECT_EQ(failure(alike),
            "layer 'mine' (dense): it has not the options of the built-in kind, so that it cannot be "
            "written to ONNX");
  EXPECT_NE(failure(norm).find("layer 'mine' (batch_norm): it has not the options"), std::string::npos);
  const Graph dense = graph_of("[4]", "dense: {units: 2}");
  for (const std::int64_t opset : {12, 25})
    EXPECT_EQ(error_of<ConfigError>([&] { exported(dense, {.opset = opset}); }),
              fmt::format("expected an opset from 13 to 24, got {}", opset));
  EXPECT_NE(error_of<ConfigError>([&] {
              exported(dense, {.preprocessing = Preprocessing{1.0, {0.0}, {1.0}}});
            }).find("expected images"),
            std::string::npos);
}

TEST(ExportOnnx, NamesTensorsThatDoNotFit) {
  const Graph graph = graph_of("[4]", "dense: {units: 2}");
  SafetensorsFile weights = counted_weights(graph);
  weights.tensors.at("dense/bias").shape = {3};
  EXPECT_EQ(error_of<DataError>([&] { export_graph(graph, weights, {}); }),
            "tensor 'dense/bias': expected float32 (2), got float32 (3)");
  weights.tensors.erase("dense/weight");
  EXPECT_EQ(error_of<DataError>([&] { export_graph(graph, weights, {}); }),
            "the weights have no tensor 'dense/weight' (2, 4)");
  weights = counted_weights(graph);
  weights.tensors.at("dense/bias") = host_tensor({2}, {1.0f, 1e6f});
  EXPECT_EQ(error_of<DataError>([&] { export_graph(graph, weights, {.float16 = true}); }),
            "'dense/bias' has the value 1000000, and float16 none above 65504: write float32");
}

}  // namespace
}  // namespace bantam::onnx::onnx_export_test

// Networks exported to ONNX and imported again: the same outputs, for every network of the zoo and every kind of layer.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/engine/layers/norm_options.h"
#include "bantam/models/onnx/onnx_export.h"
#include "bantam/models/onnx/onnx_import.h"
#include "tests/models/onnx/imported_model.h"
#include "tests/models/onnx/random_network.h"
#include "tests/models/yaml/model_text.h"
#include "tests/models/zoo/distinct_networks.h"

namespace bantam::onnx::onnx_round_trip_test {
namespace {

constexpr std::int64_t kImages = 2;

/// What is exported with `options`, imported from the file's bytes, computes as the network does. float32 sums in
/// another order differ by 1e-5 of the largest output at most, 1e-4 after a hundred layers.
void expect_round_trip(const Graph& graph, const ExportOptions& options, float tolerance) {
  Runtime runtime;
  const std::vector<float> images = models::uniform(kImages * graph.input_shape().elements(), -2.0f, 2.0f, 1);
  const SafetensorsFile weights = models::random_weights(runtime, graph, images);
  const std::vector<float> expected = models::outputs_of(runtime, graph, weights, images);
  const ImportedNetwork network =
      import_model(parse(serialize(export_graph(graph, weights, options)), "exported.onnx"));
  const auto imported = testing::bound(runtime, network);
  const std::vector<float> outputs = testing::outputs_of(*imported, images);
  ASSERT_EQ(outputs.size(), expected.size()) << network.yaml;
  float largest = 1, difference = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(outputs[i] - expected[i]));
  }
  EXPECT_LE(difference, tolerance * largest) << network.yaml;
}

class ZooRoundTrip : public ::testing::TestWithParam<std::string> {};

TEST_P(ZooRoundTrip, ComputesTheSame) {
  const std::string& name = GetParam();
  const models::ZooModel* zoo = models::find_zoo_model(name);
  models::ZooOptions options = zoo->defaults;
  const bool small = options.input[0] <= 32;
  options.input = small ? Shape{32, 40, options.input[2]} : Shape{64, 96, options.input[2]};
  if (name == "mobilevit_s") options.input = {64, 128, 3};  // it halves its images six times
  options.classes = 7;
  if (name == "wide_resnet28_10") options.width = 0.2;
  const Graph graph = zoo->build(options);
  expect_round_trip(graph, {}, 1e-4f);
}

std::vector<std::string> networks() {
  std::vector<std::string> names = models::distinct_networks();
  std::erase(names, "vgg16");  // as vgg11, with more of the same and half a gigabyte of weights
  return names;
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooRoundTrip, ::testing::ValuesIn(networks()),
                         [](const auto& info) { return info.param; });

TEST(OnnxRoundTrip, KeepsTheNamesAndKindsOfLayers) {
  const Graph graph = models::model_from("model: {zoo: mobilenet_v3_small, classes: 5, input: [64, 64, 3]}").graph;
  Runtime runtime;
  const std::vector<float> images = models::uniform(graph.input_shape().elements() * kImages, -1.0f, 1.0f, 1);
  const SafetensorsFile weights = models::random_weights(runtime, graph, images);
  const ImportedNetwork network = import_model(export_graph(graph, weights, {}));
  const auto kinds = [](const Graph& of) {
    std::vector<std::string> list;
    for (NodeId node = 1; node <= of.output(); ++node)
      if (of.node(node).layer->kind() != "activation" && of.node(node).layer->kind() != "dropout")
        list.emplace_back(of.node(node).layer->kind());
    return list;
  };
  EXPECT_EQ(kinds(testing::graph_of(network)), kinds(graph));
  EXPECT_EQ(network.weights.tensors.size(), weights.tensors.size());
  for (const auto& [name, tensor] : weights.tensors) {
    std::string own = name.substr(0, name.rfind('/')), last = name.substr(name.rfind('/'));
    if (own.ends_with("/reduce") || own.ends_with("/expand"))
      if (weights.tensors.contains(own.substr(0, own.rfind('/')) + "/reduce/weight"))
        last = own.substr(own.rfind('/')) + last, own = own.substr(0, own.rfind('/'));
    std::ranges::replace(own, '/', '.');
    ASSERT_TRUE(network.weights.tensors.contains(own + last)) << own + last;
    EXPECT_EQ(network.weights.tensors.at(own + last).bytes, tensor.bytes) << name;
  }
}

// Outputs do not show it: a network that is imported and trained moves its running statistics as before.
TEST(OnnxRoundTrip, KeepsTheMomentumOfBatchNorms) {
  for (const char* momentum : {"0.97", "0.9", "0.5", "0.999"}) {
    const Graph graph = models::model_from(fmt::format("model: {{input: [9, 7, 3], layers: [{{conv2d: {{filters: 4, "
                                                       "kernel: 3}}}}, {{batch_norm: {{momentum: {}}}}}]}}",
                                                       momentum))
                            .graph;
    Runtime runtime;
    const std::vector<float> images = models::uniform(kImages * graph.input_shape().elements(), -1.0f, 1.0f, 1);
    const SafetensorsFile weights = models::random_weights(runtime, graph, images);
    const ImportedNetwork network = import_model(parse(serialize(export_graph(graph, weights, {})), "exported.onnx"));
    const Graph imported = testing::graph_of(network);
    const BatchNormOptions *before = batch_norm_options(*graph.node(graph.output()).layer),
                           *after = batch_norm_options(*imported.node(imported.output()).layer);
    ASSERT_NE(before, nullptr);
    ASSERT_NE(after, nullptr) << network.yaml;
    ASSERT_TRUE(after->rate && before->rate) << network.yaml;
    EXPECT_NEAR(*after->rate, *before->rate, 6e-8f);  // 1 - momentum, rounded to float32 on the way
  }
}

// Pixels are scaled and shifted by the first layer.
TEST(OnnxRoundTrip, PreprocessingIsALayer) {
  const Graph graph =
      models::model_from("model: {input: [9, 7, 3], layers: [{conv2d: {filters: 4, kernel: 3}}]}").graph;
  Runtime runtime;
  std::vector<float> pixels = models::uniform(kImages * graph.input_shape().elements(), 0.0f, 255.0f, 1), images;
  const Preprocessing preprocessing{1.0 / 255, {0.5, 0.4, 0.3}, {0.2, 0.3, 0.25}};
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = std::floor(pixels[i]);
    images.push_back(static_cast<float>((pixels[i] / 255.0 - preprocessing.mean[i % 3]) / preprocessing.std[i % 3]));
  }
  const SafetensorsFile weights = models::random_weights(runtime, graph, images);
  const std::vector<float> expected = models::outputs_of(runtime, graph, weights, images);
  for (const bool nhwc : {false, true}) {
    const ImportedNetwork network =
        import_model(export_graph(graph, weights, {.nhwc_input = nhwc, .preprocessing = preprocessing}));
    EXPECT_EQ(std::ranges::count(network.notes,
                                 "the first layer scales and shifts the network's input, as `normalize` "
                                 "does in a pipeline"),
              1);
    const auto imported = testing::bound(runtime, network);
    const std::vector<float> outputs = testing::outputs_of(*imported, pixels);
    ASSERT_EQ(outputs.size(), expected.size());
    for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_NEAR(outputs[i], expected[i], 1e-4f) << network.yaml;
  }
}

class LayerRoundTrip : public ::testing::TestWithParam<std::string> {};

/// The same after a convolution of 1 x 1, before which an exporter of channels-last images transposes them.
std::string after_convolution(std::string model) {
  const std::string layers = "layers: [";
  return model.insert(model.find(layers) + layers.size(), "{conv2d: {filters: 4, kernel: 1, name: before}}, ");
}

// In several opsets, and with images in either order.
TEST_P(LayerRoundTrip, ComputesTheSame) {
  const std::string model = "model: " + GetParam();
  for (const std::int64_t opset : {13, 17, 21, 23}) {
    SCOPED_TRACE(fmt::format("opset {}", opset));
    expect_round_trip(models::model_from(model).graph, {.opset = opset}, 1e-5f);
  }
  if (model.find("input: [9") == std::string::npos || model.find("input]") != std::string::npos) return;
  expect_round_trip(models::model_from(after_convolution(model)).graph, {.nhwc_input = true}, 1e-5f);
}

std::string chain(const std::string& layers, const std::string& input = "[9, 7, 4]") {
  return fmt::format("{{input: {}, layers: [{}]}}", input, layers);
}

std::vector<std::string> layers() {
  const std::string after = ", {flatten: {}}, {dense: {units: 3}}";
  std::vector<std::string> cases;
  for (const char* layer :
       {"relu",
        "relu6",
        "{leaky_relu: {slope: 0.2}}",
        "gelu",
        "silu",
        "sigmoid",
        "tanh",
        "{elu: {alpha: 0.7}}",
        "selu",
        "mish",
        "hard_swish",
        "hard_sigmoid",
        "softplus",
        "softmax",
        "prelu",
        "{prelu: {shared: true}}",
        "{layer_scale: {initial: 0.1}}",
        "{conv2d: {filters: 6, kernel: [3, 2], stride: 2, padding: same}}",
        "{conv2d: {filters: 6, kernel: 3, dilation: 2, groups: 2, padding: {bottom: 3, left: 2, right: 1}}}",
        "{conv2d: {filters: 6, kernel: 3, padding: 2, padding_mode: reflect, activation: silu}}",
        "{conv2d: {filters: 6, kernel: 3, padding: {top: 2, bottom: 1, left: 0, right: 3}, padding_mode: circular}}",
        "{depthwise_conv2d: {kernel: 3, stride: 2, padding: same, multiplier: 3}}",
        "{separable_conv2d: {filters: 5, kernel: 3, multiplier: 2, padding: same, activation: relu}}",
        "{batch_norm: {activation: relu}}",
        "{batch_norm: {scale: false, shift: false}}",
        "layer_norm",
        "{layer_norm: {scale: false, shift: false}}",
        "{group_norm: {groups: 2, activation: silu}}",
        "{group_norm: {groups: 1, scale: false}}",
        "instance_norm",
        "{instance_norm: {scale: false, shift: false}}",
        "global_response_norm",
        "{global_response_norm: {epsilon: 0.1}}, {reshape: {shape: [63, 4]}}, global_response_norm",
        "max_pool",
        "{max_pool: {size: [3, 2], stride: 2, padding: 1, ceil_mode: true}}",
        "{max_pool: {size: 3, stride: 2, padding: same}}",
        "average_pool",
        "{average_pool: {size: 3, stride: 2, padding: same, count_padding: true}}",
        "{average_pool: {size: 4, stride: 3, padding: 1, ceil_mode: true}}",
        "global_average_pool",
        "{global_average_pool: {keepdims: true}}",
        "global_max_pool",
        "{spatial_dropout: {rate: 0.2}}, relu",
        "{transposed_conv2d: {filters: 6, kernel: 3, stride: 2, padding: same, groups: 2, bias: false}}",
        "{transposed_conv2d: {filters: 5, kernel: [3, 4], stride: [2, 3], padding: 1, output_padding: [1, 2]}}",
        "{upsample: {scale: [3, 2]}}",
        "{upsample: {scale: [2, 3], interpolation: bilinear}}",
        "{upsample: {scale: [3, 2], interpolation: bilinear, align_corners: true}}",
        "{zero_padding: {padding: {bottom: 1, left: 2, right: 3}}}",
        "{zero_padding: {padding: [1, 2], mode: replicate}}",
        "{zero_padding: {padding: {top: 1, right: 3}, mode: circular}}",
        "{crop: {cropping: {top: 1, bottom: 2, right: 3}}}",
        "depth_to_space",
        "{depth_to_space: {order: channel_first}}",
        "{channel_slice: {begin: 1, end: 3}}",
        "{slice: {start: 1, stop: -2}}",
        "{slice: {axis: 2, start: -3, stop: 9}}",
        "{channel_shuffle: {groups: 2}}",
        "{dense: {units: 5}}",
        "{dense: {units: 5, bias: false, activation: gelu}}",
        "{class_token: {count: 2, initializer: {normal: 1}}}",
        "position_embedding",
        "{permute: {dims: [2, 1, 3]}}",
        "{permute: {dims: [3, 1, 2]}}, {dense: {units: 5}}, layer_norm",
        "{dense: {units: 48}}, {attention: {heads: 2}}",
        "{multi_head_attention: {heads: 2, head_size: 8}}, {dense: {units: 5}}",
        "{reshape: {shape: [21, 12]}}, {dense: {units: 48}}, {attention: {heads: 1}}, {slice: {stop: 1}}",
        "{reshape: {shape: [21, 12]}}, {permute: {dims: [2, 1]}}, {dense: {units: 5}}, {permute: {dims: [2, 1]}}",
        "{reshape: {shape: [21, 12]}}, global_average_pool",
        "{reshape: {shape: [21, 12]}}, {global_max_pool: {keepdims: true}}",
        "{reshape: {shape: [21, 12]}}, {slice: {axis: 0, start: 3, stop: -2}}, {slice: {axis: 1, start: 2}}",
        "{squeeze_excite: {units: 3}}",
        "{squeeze_excite: {units: 3, activation: silu, gate: hard_sigmoid}}"}) {
    cases.push_back(chain(layer));
    if (std::string(layer).find("global_") == std::string::npos) cases.push_back(chain(layer + after));
  }
  for (const char* layer : {"{dense: {units: 5}}", "{dense: {units: 5, bias: false, activation: gelu}}", "batch_norm",
                            "layer_norm", "prelu", "softmax", "relu", "{layer_scale: {initial: 0.1}}", "instance_norm"})
    cases.push_back(chain(layer, "[7]"));
  cases.push_back(
      "{input: [9, 7, 4], layers: [{conv2d: {filters: 4, kernel: 1, name: a}}, {conv2d: {filters: 4, kernel: "
      "1, inputs: [input], name: b}}, {concat: {inputs: [a, b, input]}}, {global_average_pool: {}}, {dense: "
      "{units: 3}}]}");
  cases.push_back(
      "{input: [9, 7, 4], layers: [{conv2d: {filters: 4, kernel: 1, name: a}}, {average: {inputs: [a, "
      "input]}}, {multiply: {inputs: [average, a]}}, {add: {inputs: [multiply, a, input]}}, flatten, {dense: "
      "{units: 3}}]}");
  cases.push_back(
      "{input: [9, 7, 4], layers: [{global_average_pool: {name: pool}}, {dense: {units: 4, activation: "
      "sigmoid, name: gate}}, {multiply: {inputs: [input, gate]}}]}");
  cases.push_back(
      "{input: [8, 6, 3], layers: [{conv2d: {filters: 16, kernel: 2, stride: 2}}, {class_token: {initializer: {normal: "
      "1}}}, position_embedding, {residual: {body: [layer_norm, {multi_head_attention: {heads: 2}}, {layer_scale: "
      "{initial: 0.5}}]}}, {residual: {body: [layer_norm, {dense: {units: 32, activation: gelu}}, {dense: {units: "
      "16}}]}}, {slice: {stop: 1}}, flatten, layer_norm, {dense: {units: 3}}]}");
  cases.push_back(
      "{input: [8, 6, 3], layers: [{conv2d: {filters: 16, kernel: 2, stride: 2}}, position_embedding, {residual: "
      "{body: "
      "[layer_norm, {multi_head_attention: {heads: 1}}]}}, global_average_pool, {dense: {units: 3}}]}");
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Layers, LayerRoundTrip, ::testing::ValuesIn(layers()));

}  // namespace
}  // namespace bantam::onnx::onnx_round_trip_test

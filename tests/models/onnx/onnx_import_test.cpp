// ONNX models as networks: the list of layers, tensors in our order, and values by hand.
#include "bantam/models/onnx/onnx_import.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/models/onnx/imported_model.h"
#include "tests/models/onnx/small_models.h"

namespace bantam::onnx::onnx_import_test {
namespace {

using namespace std::string_literals;
using testing::Attributes;
using testing::Chain;
using testing::integers;
using testing::Integers;
using testing::numbers;
using testing::weight;

/// The entries of `layers:` of a model that is imported, and read as a configuration.
std::string layers_of(const Model& model, const ImportOptions& options = {}) {
  const ImportedNetwork network = import_model(model, options);
  (void)testing::graph_of(network);
  return network.yaml.substr(network.yaml.find("layers:\n") + 8);
}

std::vector<float> tensor_of(const ImportedNetwork& network, const std::string& name) {
  const HostTensor& tensor = network.weights.tensors.at(name);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST(ImportOnnx, WritesAListOfLayers) {
  const ImportedNetwork network = import_model(testing::small_network());
  EXPECT_EQ(network.yaml,
            "input: [8, 6, 3]\n"
            "layers:\n"
            "  - conv2d: {filters: 4, kernel: 3, padding: 1, bias: false, name: conv}\n"
            "  - batch_norm: {momentum: 0.9, epsilon: 1e-05, activation: relu, name: bn}\n"
            "  - conv2d: {filters: 4, kernel: 2, padding: same, name: tail}\n"
            "  - add: {inputs: [tail, bn]}\n"
            "  - max_pool: {size: 2, name: pool}\n"
            "  - flatten\n"
            "  - dense: {units: 5, name: fc}\n");
  const Graph graph = testing::graph_of(network);
  EXPECT_EQ(graph.output_shape(), (Shape{5}));
  EXPECT_EQ(network.weights.tensors.size(), 9u);
  EXPECT_EQ(network.weights.tensors.at("conv/weight").shape, (Shape{4, 3, 3, 3}));
  EXPECT_TRUE(network.notes.empty());
}

TEST(ImportOnnx, WeightsLieInOurOrder) {
  const Model model = testing::small_network();
  const ImportedNetwork network = import_model(model);
  const std::vector<float> theirs = model.initializers[0].as_floats(), ours = tensor_of(network, "conv/weight");
  const std::vector<float> dense = model.initializers.at(8).as_floats(), own_dense = tensor_of(network, "fc/weight");
  ASSERT_EQ(model.initializers[8].name, "fc.weight");
  for (std::size_t o = 0; o < 4; ++o)
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t k = 0; k < 9; ++k) EXPECT_EQ(ours[(o * 9 + k) * 3 + c], theirs[(o * 3 + c) * 9 + k]);
  for (std::size_t unit = 0; unit < 5; ++unit)  // of (4, 4, 3) images, flattened
    for (std::size_t c = 0; c < 4; ++c)
      for (std::size_t k = 0; k < 12; ++k) EXPECT_EQ(own_dense[unit * 48 + k * 4 + c], dense[unit * 48 + c * 12 + k]);
}

// y = relu(W · flatten(x) + b), of two images, with W's columns in the order of (channels, height, width).
TEST(ImportOnnx, FlattenedImagesMeetTheirWeights) {
  const Model model = Chain({-1, 2, 2, 3})
                          .add("Flatten")
                          .add("Gemm", {{"transB", std::int64_t{1}}, {"alpha", 2.0f}, {"beta", 0.5f}},
                               {weight("w", {2, 12}), weight("b", {2})})
                          .add("Relu")
                          .model();
  Runtime runtime;
  const auto bound = testing::bound(runtime, import_model(model));
  std::vector<float> images(24), expected;
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = std::sin(static_cast<float>(i));
  const std::vector<float> w = model.initializers[0].as_floats(), b = model.initializers[1].as_floats();
  for (std::size_t n = 0; n < 2; ++n)
    for (std::size_t unit = 0; unit < 2; ++unit) {
      float sum = 0.5f * b[unit];
      for (std::size_t c = 0; c < 2; ++c)
        for (std::size_t k = 0; k < 6; ++k) sum += 2 * w[unit * 12 + c * 6 + k] * images[n * 12 + k * 2 + c];
      expected.push_back(std::max(sum, 0.0f));
    }
  const std::vector<float> values = testing::outputs_of(*bound, images);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-5f);  // sums of 12 of about 1
}

struct OneNode {
  std::string name;
  Model model;
  std::string layers;
};

void PrintTo(const OneNode& c, std::ostream* out) { *out << c.name; }

class ImportOnnxNode : public ::testing::TestWithParam<OneNode> {};

TEST_P(ImportOnnxNode, IsALayer) { EXPECT_EQ(layers_of(GetParam().model), GetParam().layers); }

Chain conv() { return Chain().add("Conv", {}, {weight("c.weight", {4, 3, 1, 1})}); }
const std::string kConv = "  - conv2d: {filters: 4, kernel: 1, bias: false, name: c}\n";
std::string with(const std::string& activation) {
  return "  - conv2d: {filters: 4, kernel: 1, bias: false, activation: " + activation + ", name: c}\n";
}

std::vector<OneNode> convolutions() {
  const Attributes strided{{"strides", Integers{2, 1}}, {"dilations", Integers{2, 1}}, {"pads", Integers{1, 2, 1, 2}}};
  return {
      {"strides", Chain().add("Conv", strided, {weight("c.weight", {4, 3, 3, 3}), weight("b", {4})}).model(),
       "  - conv2d: {filters: 4, kernel: 3, stride: [2, 1], dilation: [2, 1], padding: [1, 2], name: c}\n"},
      {"asymmetric", Chain().add("Conv", {{"pads", Integers{0, 1, 2, 0}}}, {weight("c.weight", {4, 3, 3, 3})}).model(),
       "  - conv2d: {filters: 4, kernel: 3, padding: {bottom: 2, left: 1}, bias: false, name: c}\n"},
      {"same_upper", Chain().add("Conv", {{"auto_pad", "SAME_UPPER"s}}, {weight("c.weight", {4, 3, 3, 3})}).model(),
       "  - conv2d: {filters: 4, kernel: 3, padding: same, bias: false, name: c}\n"},
      {"same_lower", Chain().add("Conv", {{"auto_pad", "SAME_LOWER"s}}, {weight("c.weight", {4, 3, 2, 3})}).model(),
       "  - conv2d: {filters: 4, kernel: [2, 3], padding: {top: 1, left: 1, right: 1}, bias: false, name: c}\n"},
      {"grouped", conv().add("Conv", {{"group", std::int64_t{2}}}, {weight("g.weight", {6, 2, 1, 1})}).model(),
       kConv + "  - conv2d: {filters: 6, kernel: 1, groups: 2, bias: false, name: g}\n"},
      {"depthwise",
       Chain().add("Conv", {{"group", std::int64_t{3}}}, {weight("d.weight", {6, 1, 3, 3}), weight("b", {6})}).model(),
       "  - depthwise_conv2d: {kernel: 3, multiplier: 2, name: d}\n"},
      {"transposed",
       Chain()
           .add("ConvTranspose",
                {{"strides", Integers{2, 2}}, {"pads", Integers{1, 1, 1, 1}}, {"output_padding", Integers{1, 1}}},
                {weight("t.weight", {3, 5, 3, 3}), weight("b", {5})})
           .model(),
       "  - transposed_conv2d: {filters: 5, kernel: 3, stride: 2, padding: 1, output_padding: 1, name: t}\n"},
      {"matmul_and_bias",
       Chain({-1, 7}).add("MatMul", {}, {weight("w", {7, 5})}).add("Add", {}, {weight("b", {5})}).model(),
       "  - dense: {units: 5, name: dense}\n"},
      {"bias_of_a_convolution", conv().add("Add", {}, {weight("b", {1, 4, 1, 1})}).model(),
       "  - conv2d: {filters: 4, kernel: 1, name: c}\n"},
      {"matmul_of_channels",
       conv()
           .add("Transpose", {{"perm", Integers{0, 2, 3, 1}}})
           .add("MatMul", {}, {weight("m", {4, 5})})
           .add("Transpose", {{"perm", Integers{0, 3, 1, 2}}})
           .model(),
       kConv + "  - conv2d: {filters: 5, kernel: 1, bias: false, name: conv2d}\n"},
  };
}

std::vector<OneNode> activations() {
  const Tensor zero = Tensor::of("", {}, std::vector<float>{0}), six = Tensor::of("", {}, std::vector<float>{6});
  return {
      {"relu", conv().add("Relu").model(), with("relu")},
      {"relu6", conv().add("Clip", {}, {zero, six}).model(), with("relu6")},
      {"relu6_of_old", conv().opset(6).add("Clip", {{"min", 0.0f}, {"max", 6.0f}}).model(), with("relu6")},
      {"relu_of_clip", conv().add("Clip", {}, {zero}).model(), with("relu")},
      {"leaky", conv().add("LeakyRelu", {{"alpha", 0.2f}}).model(), with("{leaky_relu: {slope: 0.2}}")},
      {"elu", conv().add("Elu", {{"alpha", 0.5f}}).model(), with("{elu: {alpha: 0.5}}")},
      {"elu_1", conv().add("Elu").model(), with("elu")},
      {"selu", conv().add("Selu").model(), with("selu")},
      {"hard_sigmoid", conv().add("HardSigmoid", {{"alpha", 1.0f / 6}}).model(), with("hard_sigmoid")},
      {"gelu", conv().add("Gelu").model(), with("gelu")},
      {"prelu", conv().add("PRelu", {}, {weight("s.weight", {4, 1, 1})}, "/act/PRelu").model(),
       kConv + "  - prelu: {name: act}\n"},
      {"prelu_shared", conv().add("PRelu", {}, {weight("s", {1})}, "/act/PRelu").model(),
       kConv + "  - prelu: {shared: true, name: act}\n"},
      {"softmax", Chain({-1, 4}).add("Softmax").model(), "  - softmax\n"},
      {"softmax_of_pixels", conv().add("Softmax", {{"axis", std::int64_t{1}}}).model(), kConv + "  - softmax\n"},
      {"log_softmax_is_left_out", conv().add("LogSoftmax", {{"axis", std::int64_t{1}}}).model(), kConv},
      {"dropout", conv().add("Dropout", {}, {Tensor::of("", {}, std::vector<float>{0.25f})}).model(),
       kConv + "  - dropout: {rate: 0.25}\n"},
      {"identity_and_cast", conv().add("Identity").add("Cast", {{"to", std::int64_t{1}}}).model(), kConv},
      {"two_activations", conv().add("Relu").add("Sigmoid").model(), with("relu") + "  - sigmoid\n"},
  };
}

std::vector<OneNode> images() {
  const Attributes window{
      {"kernel_shape", Integers{3, 3}}, {"strides", Integers{2, 2}}, {"pads", Integers{1, 1, 1, 1}}};
  Attributes counted = window;
  counted["count_include_pad"] = std::int64_t{1};
  counted["ceil_mode"] = std::int64_t{1};
  const Tensor scales = numbers("", {1, 1, 2, 3}), none = numbers("roi", {});
  const Attributes asymmetric{{"coordinate_transformation_mode", "asymmetric"s}, {"nearest_mode", "floor"s}};
  return {
      {"max_pool", Chain().add("MaxPool", window).model(), "  - max_pool: {size: 3, stride: 2, padding: 1}\n"},
      {"average_pool", Chain().add("AveragePool", counted).model(),
       "  - average_pool: {size: 3, stride: 2, padding: 1, ceil_mode: true, count_padding: true}\n"},
      {"steps_of_1", Chain().add("MaxPool", {{"kernel_shape", Integers{2, 2}}}).model(),
       "  - max_pool: {size: 2, stride: 1}\n"},
      {"global", Chain().add("GlobalMaxPool").add("Flatten").model(), "  - global_max_pool\n"},
      {"global_image", Chain().add("GlobalAveragePool").add("Conv", {}, {weight("c.weight", {4, 3, 1, 1})}).model(),
       "  - global_average_pool: {keepdims: true}\n" + kConv},
      {"reduce_mean", Chain().add("ReduceMean", {{"axes", Integers{-1, -2}}, {"keepdims", std::int64_t{0}}}).model(),
       "  - global_average_pool\n"},
      {"reduce_max_18", Chain().opset(18).add("ReduceMax", {}, {integers("", {2, 3})}).model(),
       "  - global_max_pool\n"},
      {"pad", Chain().add("Pad", {}, {integers("", {0, 0, 1, 0, 0, 0, 2, 3})}).model(),
       "  - zero_padding: {padding: {top: 1, bottom: 2, right: 3}}\n"},
      {"pad_reflect", Chain().add("Pad", {{"mode", "reflect"s}, {"pads", Integers{0, 0, 1, 1, 0, 0, 1, 1}}}).model(),
       "  - zero_padding: {mode: reflect, padding: 1}\n"},
      {"pad_cuts", Chain().add("Pad", {}, {integers("", {0, 0, -1, 0, 0, 0, -1, 0})}).model(),
       "  - crop: {cropping: [1, 0]}\n"},
      {"slice",
       Chain().add("Slice", {}, {integers("", {1, 0}), integers("", {1 << 30, -2}), integers("", {2, 3})}).model(),
       "  - crop: {cropping: {top: 1, right: 2}}\n"},
      {"slice_of_all",
       Chain()
           .add("Relu")
           .add("Slice", {{"starts", Integers{0}}, {"ends", Integers{8}}, {"axes", Integers{2}}})
           .model(),
       "  - relu\n"},
      {"slice_of_channels", Chain().add("Slice", {}, {integers("", {1}), integers("", {3}), integers("", {1})}).model(),
       "  - channel_slice: {begin: 1}\n"},
      {"slice_of_all_axes",
       Chain()
           .add("Slice", {}, {integers("", {0, 2, 0}), integers("", {2, 8, 5}), integers("", {1, 2, 3})}, "/s/Slice")
           .model(),
       "  - crop: {cropping: {top: 2, right: 1}, name: s}\n  - channel_slice: {end: 2, name: s_2}\n"},
      {"gathered_channel",
       Chain()
           .add("Gather", {{"axis", std::int64_t{1}}}, {Tensor::of("", {}, Integers{2})})
           .add("Unsqueeze", {}, {integers("", {1})})
           .model(),
       "  - channel_slice: {begin: 2}\n"},
      {"channels_backwards",
       Chain().add("Gather", {{"axis", std::int64_t{1}}}, {integers("", {2, 1, 0})}, "/g/Gather").model(),
       "  - channel_slice: {begin: 2, name: g}\n  - channel_slice: {begin: 1, end: 2, name: g_2, inputs: [input]}\n"
       "  - channel_slice: {end: 1, name: g_3, inputs: [input]}\n  - concat: {name: g_4, inputs: [g, g_2, g_3]}\n"},
      {"channels_by_transposes",
       Chain()
           .add("Transpose", {{"perm", Integers{1, 0, 2, 3}}})
           .add("GatherND", {}, {Tensor::of("", {2, 1}, Integers{1, 2})})
           .add("Transpose", {{"perm", Integers{1, 0, 2, 3}}})
           .model(),
       "  - channel_slice: {begin: 1}\n"},
      {"channel_shuffle",
       Chain({-1, 6, 4, 4})
           .add("Reshape", {}, {integers("", {0, 2, 3, 4, 4})})
           .add("Transpose", {{"perm", Integers{0, 2, 1, 3, 4}}})
           .add("Reshape", {}, {integers("", {0, 6, 4, 4})})
           .add("Relu")
           .model(),
       "  - relu\n  - channel_shuffle: {groups: 2}\n"},
      {"mean_of_channels", Chain().add("ReduceMean", {{"axes", Integers{1}}}).model(),
       "  - reshape: {shape: [48, 3, 1]}\n  - average_pool: {size: [1, 3], stride: [1, 3]}\n  - reshape: {shape: [8, "
       "6, "
       "1]}\n"},
      {"largest_of_channels",
       Chain()
           .add("ReduceMax", {{"keepdims", std::int64_t{0}}}, {integers("", {1})})
           .add("Unsqueeze", {}, {integers("", {1})})
           .model(),
       "  - reshape: {shape: [48, 3, 1]}\n  - max_pool: {size: [1, 3], stride: [1, 3]}\n  - reshape: {shape: [8, 6, "
       "1]}\n"},
      {"expanded_mean", Chain().add("GlobalAveragePool").add("Expand", {}, {integers("", {1, 3, 8, 6})}).model(),
       "  - global_average_pool: {keepdims: true}\n  - upsample: {scale: [8, 6]}\n"},
      {"resize", Chain().add("Resize", asymmetric, {none, scales}).model(), "  - upsample: {scale: [2, 3]}\n"},
      {"resize_linear", Chain().add("Resize", {{"mode", "linear"s}}, {none, scales}).model(),
       "  - upsample: {scale: [2, 3], interpolation: bilinear}\n"},
      {"upsample_9", Chain().opset(9).add("Upsample", {}, {scales}).model(), "  - upsample: {scale: [2, 3]}\n"},
      {"depth_to_space",
       Chain({-1, 12, 4, 4}).add("DepthToSpace", {{"blocksize", std::int64_t{2}}, {"mode", "CRD"s}}).model(),
       "  - depth_to_space: {block: 2, order: channel_first}\n"},
  };
}

std::vector<OneNode> tokens() {
  const Integers last{0, 2, 3, 1}, rows{0, 48, 4};
  const auto tokens = [&] {
    return conv().add("Transpose", {{"perm", last}}).add("Reshape", {}, {integers("", rows)});
  };
  const std::string permuted = "  - permute: {dims: [3, 1, 2]}\n", one = "  - reshape: {shape: [48, 4]}\n";
  Chain with_token = tokens();
  Model class_token = with_token
                          .node({.op = "Concat",
                                 .inputs = {"token", with_token.last()},
                                 .outputs = {"joined"},
                                 .attributes = {{"axis", std::int64_t{1}}}})
                          .add("Gather", {{"axis", std::int64_t{1}}}, {Tensor::of("", {}, Integers{0})})
                          .model();
  class_token.initializers.push_back(weight("token", {1, 2, 4}));
  return {
      {"position_embedding", tokens().add("Add", {}, {weight("p", {1, 48, 4})}).model(),
       kConv + "  - position_embedding: {name: position_embedding}\n"},
      {"class_token", class_token,
       kConv + "  - class_token: {count: 2, name: class_token}\n  - slice: {stop: 1}\n  - flatten\n"},
      {"mean_of_tokens", tokens().add("ReduceMean", {{"axes", Integers{1}}}).model(),
       kConv + "  - global_average_pool\n"},
      {"dense",
       tokens()
           .add("Relu")
           .add("Slice", {}, {integers("", {1}), integers("", {9}), integers("", {1})})
           .add("MatMul", {}, {weight("m.weight", {4, 5})})
           .model(),
       with("relu") + one + "  - slice: {start: 1, stop: 9}\n  - dense: {units: 5, bias: false, name: m}\n"},
      {"dense_of_the_tokens",
       tokens()
           .add("Transpose", {{"perm", Integers{0, 2, 1}}})
           .add("MatMul", {}, {weight("m.weight", {48, 5})})
           .model(),
       kConv + one + "  - permute: {dims: [2, 1]}\n  - dense: {units: 5, bias: false, name: m}\n"},
      {"transposed_image",
       conv()
           .add("Transpose", {{"perm", Integers{0, 2, 1, 3}}})
           .add("Conv", {}, {weight("w.weight", {5, 8, 1, 1})})
           .model(),
       kConv + "  - permute: {dims: [3, 2, 1]}\n  - conv2d: {filters: 5, kernel: 1, bias: false, name: w}\n"},
      {"softmax_of_rows", conv().add("Softmax", {{"axis", std::int64_t{3}}}).model(),
       kConv + permuted + "  - softmax\n"},
      {"layer_norm_of_rows", conv().add("LayerNormalization", {}, {weight("n.weight", {6})}).model(),
       kConv + permuted + "  - layer_norm: {epsilon: 1e-05, shift: false, name: n}\n"},
      {"order_of_the_output", conv().add("Flatten").model(),
       kConv + one + "  - permute: {dims: [2, 1]}\n  - flatten\n"},
  };
}

std::vector<OneNode> norms() {
  const Tensor ones = numbers("", {1, 1}), zeros = numbers("", {0, 0});
  return {
      {"layer_norm",
       Chain({-1, 7})
           .add("LayerNormalization", {{"epsilon", 1e-6f}}, {weight("n.weight", {7}), weight("n.bias", {7})})
           .model(),
       "  - layer_norm: {epsilon: 1e-06, name: n}\n"},
      {"layer_norm_without_shift", Chain({-1, 7}).add("LayerNormalization", {}, {weight("n.weight", {7})}).model(),
       "  - layer_norm: {epsilon: 1e-05, shift: false, name: n}\n"},
      {"instance_norm",
       conv().add("InstanceNormalization", {}, {weight("n.weight", {4}), weight("n.bias", {4})}).model(),
       kConv + "  - instance_norm: {epsilon: 1e-05, name: n}\n"},
      {"group_norm_18",
       conv()
           .opset(18)
           .add("GroupNormalization", {{"num_groups", std::int64_t{2}}},
                {weight("n.weight", {2}), weight("n.bias", {2})})
           .model(),
       kConv + "  - group_norm: {groups: 2, epsilon: 1e-05, name: n}\n"},
      {"group_norm_of_torch",
       conv()
           .add("Reshape", {}, {integers("", {0, 2, -1})})
           .add("InstanceNormalization", {}, {ones, zeros}, "/gn/InstanceNormalization")
           .add("Reshape", {}, {integers("", {-1, 4, 8, 6})})
           .add("Mul", {}, {weight("", {4, 1, 1})})
           .add("Add", {}, {weight("", {4, 1, 1})})
           .model(),
       kConv + "  - group_norm: {groups: 2, epsilon: 1e-05, name: gn}\n"},
      {"layer_scale", conv().add("Mul", {}, {weight("", {4, 1, 1})}, "/scale/Mul").model(),
       kConv + "  - layer_scale: {name: scale}\n"},
      {"factor_and_term",
       Chain()
           .add("Div", {}, {Tensor::of("", {}, std::vector<float>{2})}, "/pre/Div")
           .add("Sub", {}, {weight("", {1, 3, 1, 1})})
           .model(),
       "  - depthwise_conv2d: {kernel: 1, name: pre}\n"},
  };
}

std::string name_of(const ::testing::TestParamInfo<OneNode>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Convolutions, ImportOnnxNode, ::testing::ValuesIn(convolutions()), name_of);
INSTANTIATE_TEST_SUITE_P(Activations, ImportOnnxNode, ::testing::ValuesIn(activations()), name_of);
INSTANTIATE_TEST_SUITE_P(Images, ImportOnnxNode, ::testing::ValuesIn(images()), name_of);
INSTANTIATE_TEST_SUITE_P(Tokens, ImportOnnxNode, ::testing::ValuesIn(tokens()), name_of);
INSTANTIATE_TEST_SUITE_P(Norms, ImportOnnxNode, ::testing::ValuesIn(norms()), name_of);

Tensor scalar(float value) { return Tensor::of("", {}, std::vector<float>{value}); }

/// conv, then nodes that compute an activation of its output "c", with constants.
Model composite(const std::vector<std::pair<std::string, std::vector<std::string>>>& nodes) {
  Chain chain = conv();
  const std::string x = chain.last();
  std::size_t number = 0;
  for (const auto& [op, inputs] : nodes) {
    Node node{.op = op, .outputs = {"n" + std::to_string(number++)}};
    for (const std::string& input : inputs) node.inputs.push_back(input == "x" ? x : input);
    chain.node(std::move(node));
  }
  Model model = chain.model();
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, float>>{{"half", 0.5f},
                                                                                        {"one", 1},
                                                                                        {"three", 3},
                                                                                        {"six", 6},
                                                                                        {"sixth", 1.0f / 6},
                                                                                        {"zero", 0},
                                                                                        {"twenty", 20},
                                                                                        {"root", 1.41421356f}}) {
    Tensor tensor = scalar(value);
    tensor.name = name;
    model.initializers.push_back(std::move(tensor));
  }
  return model;
}

TEST(ImportOnnx, ReadsActivationsThatWereComposed) {
  EXPECT_EQ(layers_of(composite({{"Sigmoid", {"x"}}, {"Mul", {"x", "n0"}}})), with("silu"));
  EXPECT_EQ(layers_of(composite({{"Softplus", {"x"}}, {"Tanh", {"n0"}}, {"Mul", {"x", "n1"}}})), with("mish"));
  EXPECT_EQ(layers_of(composite({{"Div", {"x", "root"}},
                                 {"Erf", {"n0"}},
                                 {"Add", {"n1", "one"}},
                                 {"Mul", {"x", "n2"}},
                                 {"Mul", {"n3", "half"}}})),
            with("gelu"));
  EXPECT_EQ(layers_of(composite({{"Mul", {"half", "x"}},
                                 {"Div", {"x", "root"}},
                                 {"Erf", {"n1"}},
                                 {"Add", {"one", "n2"}},
                                 {"Mul", {"n0", "n3"}}})),
            with("gelu"));
  EXPECT_EQ(
      layers_of(composite(
          {{"Add", {"x", "three"}}, {"Clip", {"n0", "zero", "six"}}, {"Mul", {"x", "n1"}}, {"Div", {"n2", "six"}}})),
      with("hard_swish"));
  EXPECT_EQ(layers_of(composite({{"Add", {"x", "three"}}, {"Clip", {"n0", "zero", "six"}}, {"Mul", {"n1", "sixth"}}})),
            with("hard_sigmoid"));
  EXPECT_EQ(layers_of(composite({{"Max", {"x", "zero"}}, {"Min", {"n0", "six"}}})), with("relu6"));
  EXPECT_EQ(layers_of(composite({{"Softplus", {"x"}}, {"Greater", {"x", "twenty"}}, {"Where", {"n1", "x", "n0"}}})),
            with("softplus"));
  EXPECT_EQ(layers_of(composite({{"Mul", {"x", "one"}},
                                 {"Softplus", {"n0"}},
                                 {"Div", {"n1", "one"}},
                                 {"Greater", {"n0", "twenty"}},
                                 {"Where", {"n3", "x", "n2"}}})),
            with("softplus"));
  EXPECT_THROW(
      (void)layers_of(composite({{"Softplus", {"x"}}, {"Greater", {"x", "six"}}, {"Where", {"n1", "x", "n0"}}})),
      DataError)
      << "the line begins where it is seen";
}

TEST(ImportOnnx, SqueezeAndExcitationIsOneLayer) {
  Chain chain = conv();
  const std::string x = chain.last();
  chain.add("GlobalAveragePool")
      .add("Conv", {}, {weight("r.weight", {2, 4, 1, 1}), weight("", {2})})
      .add("Relu")
      .add("Conv", {}, {weight("e.weight", {4, 2, 1, 1}), weight("", {4})})
      .add("HardSigmoid", {{"alpha", 1.0f / 6}})
      .node({.name = "/se/Mul", .op = "Mul", .inputs = {chain.last(), x}, .outputs = {"product"}});
  EXPECT_EQ(layers_of(chain.model()), kConv + "  - squeeze_excite: {units: 2, gate: hard_sigmoid, name: se}\n");
}

// A constant of several channels is no scale of a layer that others read, too.
TEST(ImportOnnx, LayersThatAreReadTwiceKeepTheirTensors) {
  Chain chain = conv();
  const std::string x = chain.last();
  chain.add("Add", {}, {weight("", {4, 1, 1})}, "/bias/Add")
      .node({.name = "/sum/Add", .op = "Add", .inputs = {chain.last(), x}, .outputs = {"sum"}});
  EXPECT_EQ(layers_of(chain.model()),
            kConv + "  - depthwise_conv2d: {kernel: 1, name: bias}\n  - add: {name: sum, inputs: [bias, c]}\n");
}

TEST(ImportOnnx, ShapesThatNodesComputeAreConstants) {
  Chain chain = conv();
  Model model = chain.node({.op = "Shape", .inputs = {chain.last()}, .outputs = {"shape"}}).model();
  const std::string x = model.nodes[0].outputs[0];
  model = chain.model();
  model.initializers.push_back(integers("zero", {0}));
  model.initializers.push_back(integers("open", {-1}));
  model.nodes = {
      model.nodes[0],
      {.op = "Shape", .inputs = {x}, .outputs = {"shape"}},
      {.op = "Gather", .inputs = {"shape", "zero"}, .outputs = {"batch"}},
      {.op = "Concat", .inputs = {"batch", "open"}, .outputs = {"to"}, .attributes = {{"axis", std::int64_t{0}}}},
      {.op = "Reshape", .inputs = {x, "to"}, .outputs = {"flat"}},
      {.op = "Gemm", .inputs = {"flat", "w"}, .outputs = {"y"}}};
  model.initializers.push_back(weight("w", {192, 2}));
  EXPECT_EQ(layers_of(model), kConv + "  - flatten\n  - dense: {units: 2, bias: false, name: dense}\n");
}

// Shape arithmetic as today's exporter writes it without its optimizer: what it makes is constant.
TEST(ImportOnnx, ShapesThatAreComputedWithTheBatchAreConstants) {
  Model model = conv().model();
  const std::string x = "x0";
  model.nodes[0].outputs[0] = x;
  const auto number = [](const std::string& name, std::int64_t value) { return Tensor::of(name, {}, Integers{value}); };
  for (const auto& [name, value] : std::map<std::string, std::int64_t>{{"zero", 0}, {"one", 1}, {"three", 3}})
    model.initializers.push_back(number(name, value));
  model.initializers.push_back(integers("ones", {1, 1}));
  model.initializers.push_back(integers("open", {-1}));
  model.initializers.push_back(integers("place", {0}));
  model.initializers.push_back(integers("four", {4}));
  model.initializers.push_back(integers("true", {1, 0}));
  const Attributes axis{{"axis", std::int64_t{0}}};
  model.nodes.insert(
      model.nodes.end(),
      {{.op = "Shape", .inputs = {x}, .outputs = {"b"}, .attributes = {{"end", std::int64_t{1}}}},
       {.op = "Squeeze", .inputs = {"b"}, .outputs = {"batch"}},
       {.op = "Mul", .inputs = {"batch", "one"}, .outputs = {"same"}},
       {.op = "Reshape", .inputs = {"same", "open"}, .outputs = {"again"}},
       {.op = "Range", .inputs = {"zero", "three", "one"}, .outputs = {"range"}},
       {.op = "ReduceMax", .inputs = {"range"}, .outputs = {"two"}, .attributes = {{"keepdims", std::int64_t{0}}}},
       {.op = "Equal", .inputs = {"two", "three"}, .outputs = {"never"}},
       {.op = "Where", .inputs = {"never", "zero", "two"}, .outputs = {"chosen"}},
       {.op = "Expand", .inputs = {"chosen", "open_1"}, .outputs = {"expanded"}},
       {.op = "Min", .inputs = {"expanded", "four"}, .outputs = {"rows"}},
       {.op = "Concat", .inputs = {"again", "rows", "open"}, .outputs = {"to"}, .attributes = axis},
       {.op = "Reshape", .inputs = {x, "to"}, .outputs = {"cut"}},
       {.op = "CastLike", .inputs = {"zero", "cut"}, .outputs = {"low"}},
       {.op = "Clip", .inputs = {"cut", "low"}, .outputs = {"clipped"}},
       {.op = "Reshape", .inputs = {"clipped", "image"}, .outputs = {"y"}}});
  model.initializers.push_back(integers("image", {0, 4, 8, 6}));
  model.initializers.push_back(integers("open_1", {1}));
  const std::string layers = layers_of(model);
  EXPECT_NE(layers.find("activation: relu"), std::string::npos) << layers;
}

// Weights that are standardised while the network runs are constants, too.
TEST(ImportOnnx, WeightsThatANormStandardises) {
  Model model = conv().model();
  const std::vector<float> before = model.initializers[0].as_floats();  // (4, 3, 1, 1)
  for (const char* name : {"mean", "variance"}) model.initializers.push_back(weight(name, {4}));
  model.initializers.push_back(numbers("gain", {1, 2, 1, 1}));
  model.initializers.push_back(numbers("none", {0, 0, 0, 0}));
  model.initializers.push_back(integers("rows", {1, 4, 3}));
  model.initializers.push_back(integers("kernel", {4, 3, 1, 1}));
  model.nodes.insert(model.nodes.begin(), {{.op = "Reshape", .inputs = {"c.weight", "rows"}, .outputs = {"w0"}},
                                           {.op = "BatchNormalization",
                                            .inputs = {"w0", "gain", "none", "mean", "variance"},
                                            .outputs = {"w1", "next_mean", "next_variance"},
                                            .attributes = {{"training_mode", std::int64_t{1}}, {"epsilon", 0.0f}}},
                                           {.op = "Reshape", .inputs = {"w1", "kernel"}, .outputs = {"w2"}}});
  model.nodes.back().inputs[1] = "w2";
  const ImportedNetwork network = import_model(model);
  const std::vector<float> after = tensor_of(network, network.weights.tensors.begin()->first.substr(0));
  const double mean = (before[3] + before[4] + before[5]) / 3.0;
  double variance = 0;
  for (std::size_t i = 3; i < 6; ++i) variance += (before[i] - mean) * (before[i] - mean) / 3;
  for (std::size_t i = 3; i < 6; ++i) EXPECT_NEAR(after[i], 2 * (before[i] - mean) / std::sqrt(variance), 1e-5);
}

// The batch's places in one axis with the values', in the order of channels that lie last (PyTorch's as_strided).
TEST(ImportOnnx, StridedValuesAreSeenInTheirOrder) {
  const auto network = [](Integers dims, Integers places) {
    return Chain({dims[0] == 1 ? 1 : 2, 3, 4, 2})
        .add("Reshape", {}, {integers("", {-1})})
        .add("Gather", {}, {Tensor::of("", dims, places)}, "g")
        .add("Relu")
        .add("Flatten")
        .add("MatMul", {}, {weight("m.weight", {24, 2})})
        .model();
  };
  Integers same(24), channels_last;
  std::iota(same.begin(), same.end(), 0);
  for (std::int64_t i = 0; i < 8; ++i)
    for (std::int64_t c = 0; c < 3; ++c) channels_last.push_back(c * 8 + i);
  EXPECT_NE(layers_of(network({1, 3, 4, 2}, same)).find("dense"), std::string::npos);
  const Model last = network({1, 8, 3}, channels_last);
  const std::vector<float> ours = tensor_of(import_model(last), "m/weight");
  const std::vector<float> theirs = last.initializers.back().as_floats();
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(ours[i], theirs[i * 2]);  // as ours lie: rows, columns, channels
  Integers two = same;
  for (std::int64_t i = 0; i < 24; ++i) two.push_back(24 + i);
  EXPECT_NE(layers_of(network({2, 3, 4, 2}, two)).find("dense"), std::string::npos);
  std::swap(two[30], two[31]);
  EXPECT_THROW((void)import_model(network({2, 3, 4, 2}, two)), DataError);
}

TEST(ImportOnnx, PartsOfASplitAreSlices) {
  Chain chain({-1, 6, 4, 4});
  chain.node({.name = "/s/Split",
              .op = "Split",
              .inputs = {"x"},
              .outputs = {"a", "b", "c"},
              .attributes = {{"axis", std::int64_t{1}}, {"num_outputs", std::int64_t{3}}}});
  chain.node({.name = "/m/Mul", .op = "Mul", .inputs = {"a", "c"}, .outputs = {"product"}});
  EXPECT_EQ(layers_of(chain.model()),
            "  - channel_slice: {end: 2, name: s}\n  - channel_slice: {begin: 4, name: s_2, inputs: [input]}\n"
            "  - multiply: {name: m, inputs: [s, s_2]}\n");
  Chain sequence({-1, 6, 4, 4});
  sequence.add("SplitToSequence", {{"axis", std::int64_t{1}}}, {Tensor::of("", {}, Integers{4})}, "/s/SplitToSequence");
  sequence.add("SequenceAt", {}, {Tensor::of("", {}, Integers{-1})});
  EXPECT_EQ(layers_of(sequence.add("Relu").model()), "  - channel_slice: {begin: 4, name: s}\n  - relu\n");
}

TEST(ImportOnnx, GlobalResponseNormsAreOneLayer) {
  const std::string norm = kConv + "  - global_response_norm: {epsilon: 1e-06, name: grn}\n";
  Chain first = conv();
  const ImportedNetwork network = import_model(testing::add_global_response_norm(first, {2, 3}, 1, 4).model());
  EXPECT_EQ(network.yaml, "input: [8, 6, 3]\nlayers:\n" + norm);
  for (const auto& [ours, theirs] : {std::pair("grn/scale", "grn.weight"), std::pair("grn/shift", "grn.bias")})
    EXPECT_EQ(tensor_of(network, ours), weight(theirs, {4}).as_floats());
  Chain last = conv().add("Transpose", {{"perm", Integers{0, 2, 3, 1}}});
  testing::add_global_response_norm(last, {1, 2}, -1, 4);
  EXPECT_EQ(layers_of(last.add("Transpose", {{"perm", Integers{0, 3, 1, 2}}}).model()), norm);
}

// The activation before it is a product, too, and a sum before it is no part of its own.
TEST(ImportOnnx, GlobalResponseNormsReadWhatIsBefore) {
  Chain chain = conv();
  const std::string x = chain.last();
  chain.node({.op = "Sigmoid", .inputs = {x}, .outputs = {"gate"}});
  chain.node({.name = "/silu/Mul", .op = "Mul", .inputs = {x, "gate"}, .outputs = {"silu"}});
  chain.node({.name = "/sum/Add", .op = "Add", .inputs = {"silu", x}, .outputs = {"sum"}});
  const std::string layers = layers_of(testing::add_global_response_norm(chain, {2, 3}, 1, 4).model());
  EXPECT_EQ(layers, kConv +
                        "  - silu: {name: silu.Mul}\n  - add: {name: sum, inputs: [silu.Mul, c]}\n"
                        "  - global_response_norm: {epsilon: "
                        "1e-06, name: grn}\n");
}

TEST(ImportOnnx, GeluByTanhIsItsOwnFunction) {
  const ImportedNetwork network = import_model(Chain({-1, 3}).add("Gelu", {{"approximate", "tanh"s}}).model());
  Runtime runtime;
  const auto model = testing::bound(runtime, network);
  const std::vector<float> x{-2.0f, 0.5f, 2.25f}, y = testing::outputs_of(*model, x);
  for (std::size_t i = 0; i < 3; ++i) {
    const double v = x[i];
    EXPECT_NEAR(y[i], 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))), 1e-6);
  }
  EXPECT_EQ(network.notes.size(), 1u);
}

TEST(ImportOnnx, OneOfSeveralOutputs) {
  Chain chain = conv();
  Model model = chain.add("Relu").model();
  model.outputs.push_back({.name = model.nodes[0].outputs[0], .dims = {-1, 4, 8, 6}});
  const ImportedNetwork network = import_model(model, {.output = model.nodes[0].outputs[0]});
  EXPECT_NE(network.yaml.find(kConv), std::string::npos);
  EXPECT_EQ(network.notes[0], "left out: the output 'y'");
  EXPECT_EQ(layers_of(model, {.output = "y"}), with("relu"));
}

// Channels that were shuffled, times factors that were not.
TEST(ImportOnnx, FactorsInAnotherOrder) {
  Chain chain = Chain({-1, 4, 2, 2});
  chain.node({.op = "GlobalAveragePool", .inputs = {"x"}, .outputs = {"factors"}})
      .node({.op = "Identity", .inputs = {"x"}, .outputs = {"same"}})
      .add("Reshape", {}, {integers("", {0, 2, 2, 2, 2})})
      .add("Transpose", {{"perm", Integers{0, 2, 1, 3, 4}}})
      .add("Reshape", {}, {integers("", {0, 4, 2, 2})});
  chain.node({.name = "m", .op = "Mul", .inputs = {chain.last(), "factors"}, .outputs = {"product"}});
  const ImportedNetwork network = import_model(chain.model());
  Runtime runtime;
  const auto model = testing::bound(runtime, network);
  std::vector<float> x(16);  // (2, 2, 4), where a channel's mean is its number + 1
  for (std::size_t i = 0; i < 16; ++i) x[i] = static_cast<float>(i % 4 + 1);
  const std::vector<float> y = testing::outputs_of(*model, x);
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_EQ(y[i], static_cast<float>(i % 4 + 1) * static_cast<float>(std::array{1, 3, 2, 4}[i % 4]));
}

// Today's exporter writes 0 of a norm that it exports for evaluation: training would forget all but its last batch.
TEST(ImportOnnx, BatchNormsWithoutMomentumHaveTheUsualOne) {
  Model model = testing::small_network();
  ASSERT_EQ(model.nodes[1].op, "BatchNormalization");
  model.nodes[1].attributes["momentum"] = 0.0f;
  const ImportedNetwork network = import_model(model);
  EXPECT_NE(network.yaml.find("batch_norm: {momentum: 0.9, "), std::string::npos) << network.yaml;
  EXPECT_EQ(network.notes.size(), 1u);
}

TEST(ImportOnnx, ModulesNameTheirLayers) {
  Model model = conv().add("Relu").model();
  model.initializers[0].name = model.nodes[0].inputs[1] = "val_3";
  model.nodes[0].module = "features.0.conv";
  EXPECT_NE(layers_of(model).find("name: features.0.conv}"), std::string::npos) << layers_of(model);
}

// Means that are reshaped to an image are no longer one pixel of channels.
TEST(ImportOnnx, MeansMayBecomeAnImage) {
  const Attributes nearest{{"coordinate_transformation_mode", "asymmetric"s}, {"nearest_mode", "floor"s}};
  const Model model = Chain({-1, 4, 8, 6})
                          .add("GlobalAveragePool")
                          .add("Reshape", {}, {integers("", {0, 1, 2, 2})})
                          .add("Resize", nearest, {numbers("roi", {}), numbers("", {1, 1, 2, 2})})
                          .model();
  EXPECT_EQ(layers_of(model), "  - global_average_pool\n  - reshape: {shape: [2, 2, 1]}\n  - upsample: {scale: 2}\n");
}

TEST(ImportOnnx, ImagesWithChannelsLastAreJoined) {
  Chain chain = conv();
  chain.add("Transpose", {{"perm", Integers{0, 2, 3, 1}}});
  const std::string x = chain.last();
  chain.add("Relu", {}, {}, "/a/Relu")
      .node({.name = "/j/Concat",
             .op = "Concat",
             .inputs = {x, chain.last()},
             .outputs = {"joined"},
             .attributes = {{"axis", std::int64_t{3}}}})
      .add("Transpose", {{"perm", Integers{0, 3, 1, 2}}});
  EXPECT_EQ(layers_of(chain.model()), kConv + "  - relu: {name: a}\n  - concat: {name: j, inputs: [c, a]}\n");
}

TEST(ImportOnnx, ImagesMayHaveTheirChannelsLast) {
  const Model model = Chain({-1, 8, 6, 3})
                          .add("Transpose", {{"perm", Integers{0, 3, 1, 2}}})
                          .add("Conv", {}, {weight("c.weight", {4, 3, 1, 1})})
                          .add("Transpose", {{"perm", Integers{0, 2, 3, 1}}})
                          .add("Flatten")
                          .model();
  const ImportedNetwork network = import_model(model);
  EXPECT_EQ(network.yaml, "input: [8, 6, 3]\nlayers:\n" + kConv + "  - flatten\n");
  EXPECT_EQ(network.notes, (std::vector<std::string>{"images are (height, width, channels), as in the model"}));
}

TEST(ImportOnnx, SizesMayBeLeftOpen) {
  Model model = conv().model();
  model.inputs[0].dims = {-1, 3, -1, -1};
  model.inputs[0].names = {"batch", "", "height", ""};
  EXPECT_EQ(import_model(model, {.size = {5, 7}}).yaml, "input: [5, 7, 3]\nlayers:\n" + kConv);
}

TEST(ImportOnnx, TheLastLayerMayHaveOtherUnits) {
  const ImportedNetwork network = import_model(testing::small_network(), {.classes = 3});
  EXPECT_NE(network.yaml.find("dense: {units: 3, name: fc}"), std::string::npos) << network.yaml;
  EXPECT_EQ(network.left_out, (std::vector<std::string>{"fc/bias", "fc/weight"}));
  EXPECT_FALSE(network.weights.tensors.contains("fc/weight"));
  EXPECT_TRUE(import_model(testing::small_network(), {.classes = 5}).left_out.empty());
}

TEST(ImportOnnx, WeightsOfOtherTypesAreFloat32) {
  Model model = conv().model();
  model.initializers[0] = {.name = "c.weight", .type = Type::float16, .dims = {4, 3, 1, 1}};
  for (int i = 0; i < 12; ++i) model.initializers[0].data += "\x00\x3e"s;
  EXPECT_EQ(tensor_of(import_model(model), "c/weight"), std::vector<float>(12, 1.5f));
}

}  // namespace
}  // namespace bantam::onnx::onnx_import_test

// The zoo: parameters as the peers count them, output shapes, and that the small ones run a step on the meta device.
#include "bantam/models/zoo/zoo.h"

#include <gtest/gtest.h>

#include "bantam/engine/step/training_step.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models::zoo_test {
namespace {

struct Case {
  std::string name;
  std::int64_t parameters;
  std::int64_t buffers;  // running statistics: 2 a normalised channel
  Shape output;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

/// A label a position of the output.
Shape labels_of(const Graph& graph) {
  const auto extents = graph.output_shape().extents();
  return Shape(extents.first(extents.size() - 1));
}

class Zoo : public ::testing::TestWithParam<Case> {};

TEST_P(Zoo, ParametersAndOutputAreThePeers) {
  const ModelSpec spec = model_from("model: {zoo: " + GetParam().name + "}");
  EXPECT_EQ(spec.name, GetParam().name);
  Runtime runtime;
  const Model model(runtime, Device::meta_of(Device::cuda()), spec.graph, {});
  EXPECT_EQ(model.parameters().parameter_count(), GetParam().parameters);
  std::int64_t buffers = 0;
  for (const Buffer& buffer : model.buffers().all()) buffers += buffer.shape.elements();
  EXPECT_EQ(buffers, GetParam().buffers);
  EXPECT_EQ(spec.graph.output_shape(), GetParam().output);
}

TEST_P(Zoo, TrainsOnTheMetaDevice) {
  const ModelSpec spec = model_from("model: {zoo: " + GetParam().name + "}");
  Runtime runtime;
  const Device device = Device::meta_of(Device::cpu());
  Model model(runtime, device, spec.graph, {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  const Context context = model.context(Pass::train);
  Batch batch;
  batch.size = 2;
  batch.tensors = {{kImages, context.allocate(spec.graph.input_shape().prepend(2), DType::float32, Category::input)},
                   {kLabels, context.allocate(labels_of(spec.graph).prepend(2), DType::int32, Category::input)}};
  step.step(batch);
  // Weights, gradients and Adam's two moments of every parameter are in use, and activations were.
  const MemoryStats stats = runtime.allocator(device).stats();
  EXPECT_GE(stats.in_use_bytes, static_cast<std::uint64_t>(4 * 4 * GetParam().parameters));
  EXPECT_GT(stats.by_category_at_peak[Category::activation], 0u);
  EXPECT_EQ(stats.by_category[Category::activation], 0u) << "activations are gone after the step";
}

INSTANTIATE_TEST_SUITE_P(
    Networks, Zoo,
    ::testing::Values(Case{"separable_cnn", 695493, 0, {10}}, Case{"resnet18_cifar", 11173962, 9600, {10}},
                      Case{"resnet20", 272474, 1568, {10}}, Case{"resnet56", 855770, 4256, {10}},
                      Case{"wide_resnet28_10", 36479194, 17952, {10}}, Case{"vgg11", 132863336, 0, {1000}},
                      Case{"vgg16", 138357544, 0, {1000}}, Case{"resnet18", 11689512, 9600, {1000}},
                      Case{"resnet34", 21797672, 17024, {1000}}, Case{"resnet50", 25557032, 53120, {1000}},
                      Case{"resnet101", 44549160, 105344, {1000}}, Case{"mobilenet_v1", 4231976, 21888, {1000}},
                      Case{"mobilenet_v2", 3504872, 34112, {1000}}, Case{"mobilenet_v3_small", 2542856, 12112, {1000}},
                      Case{"mobilenet_v3_large", 5483032, 24400, {1000}},
                      Case{"efficientnet_b0", 5288548, 42016, {1000}}, Case{"convnext_tiny", 28589128, 0, {1000}},
                      Case{"convnextv2_atto", 3708400, 0, {1000}}, Case{"convnextv2_tiny", 28635496, 0, {1000}},
                      Case{"shufflenet_v2_x1_0", 2278604, 16180, {1000}}, Case{"mobilevit_s", 5578632, 12256, {1000}},
                      Case{"vit_tiny_16", 5717416, 0, {1000}}, Case{"vit_small_16", 22050664, 0, {1000}},
                      Case{"vit_base_16", 86567656, 0, {1000}}, Case{"vit_base_32", 88224232, 0, {1000}},
                      Case{"vit_large_16", 304326632, 0, {1000}}, Case{"deit3_small_16", 22059496, 0, {1000}},
                      Case{"deit3_base_16", 86585320, 0, {1000}}, Case{"densenet121", 7978856, 83648, {1000}},
                      Case{"unet", 31037698, 11776, {256, 256, 2}}),
    [](const auto& info) { return info.param.name; });

TEST(ZooOptionsTest, ClassesInputAndWidthCanBeSaid) {
  const ModelSpec cifar100 = model_from("model: {zoo: resnet18_cifar, classes: 100, input: [40, 40, 1]}");
  EXPECT_EQ(to_string(cifar100.graph.output_shape()), "(100)");
  EXPECT_EQ(to_string(cifar100.graph.input_shape()), "(40, 40, 1)");
  const ModelSpec half = model_from("model: {zoo: mobilenet_v1, width: 0.5, classes: 10, input: [64, 64, 3]}");
  EXPECT_EQ(to_string(half.graph.nodes()[1].output), "(32, 32, 16)");
  // The sum over its layers: stem, classifier, and per block a depthwise and a pointwise convolution with their norms.
  std::int64_t expected = 27 * 16 + 2 * 16 + 512 * 10 + 10, in = 16;
  for (const std::int64_t out : {32, 64, 64, 128, 128, 256, 256, 256, 256, 256, 256, 512, 512}) {
    expected += 9 * in + 2 * in + in * out + 2 * out;
    in = out;
  }
  EXPECT_EQ(parameter_count(half.graph), expected);
}

TEST(ZooOptionsTest, UNetsParametersAreTheSumOverItsConvolutions) {
  const ModelSpec spec = model_from("model: {zoo: unet, width: 0.25, classes: 3, input: [48, 32, 1]}");
  EXPECT_EQ(to_string(spec.graph.output_shape()), "(48, 32, 3)");
  const auto conv_norm = [](std::int64_t in, std::int64_t out) { return 9 * in * out + 2 * out; };
  std::int64_t expected = 0, in = 1;
  for (const std::int64_t out : {16, 32, 64, 128, 256}) {
    expected += conv_norm(in, out) + conv_norm(out, out);
    in = out;
  }
  for (const std::int64_t out : {128, 64, 32, 16}) {
    expected += 4 * in * out + out + conv_norm(2 * out, out) + conv_norm(out, out);  // the transposed one has a bias
    in = out;
  }
  EXPECT_EQ(parameter_count(spec.graph), expected + 16 * 3 + 3);
}

TEST(ZooOptionsTest, AWideResNetFor100ClassesHasThePublishedParameters) {
  EXPECT_EQ(parameter_count(model_from("model: {zoo: wide_resnet28_10, classes: 100}").graph), 36536884);
}

TEST(ZooOptionsTest, OtherWidthsAreMultiplesOf8) {
  const auto channels_of = [](const std::string& options, const std::string& name) {
    const ModelSpec spec = model_from("model: {" + options + "}");
    for (const GraphNode& node : spec.graph.nodes())
      if (node.name == name) return node.output[node.output.rank() - 1];
    return std::int64_t{0};
  };
  // 32·0.35 = 11.2 rounds to 8, which is less than nine tenths of it: 16. The last convolution is never below 1280.
  EXPECT_EQ(channels_of("zoo: mobilenet_v2, width: 0.35", "stem"), 16);
  EXPECT_EQ(channels_of("zoo: mobilenet_v2, width: 0.35", "block2/project"), 8);
  EXPECT_EQ(channels_of("zoo: mobilenet_v2, width: 0.35", "head"), 1280);
  EXPECT_EQ(channels_of("zoo: mobilenet_v2, width: 1.4", "head"), 1792);
}

TEST(ZooOptionsTest, InputsThatAreTooSmallOrNoImagesAreRefused) {
  struct Refused {
    std::string_view name;
    Shape input;
  };
  std::vector<Refused> cases = {
      {"separable_cnn", {7, 7, 3}},   {"vgg11", {31, 32, 3}},      {"vgg16", {32, 31, 3}}, {"densenet121", {16, 16, 3}},
      {"convnext_tiny", {31, 32, 3}}, {"unet", {24, 32, 3}},       {"unet", {32, 8, 3}},   {"vit_tiny_16", {40, 32, 3}},
      {"vit_base_32", {32, 48, 3}},   {"mobilevit_s", {64, 32, 3}}};
  for (const ZooModel& model : zoo()) cases.push_back({model.name, {3072}});
  for (const Refused& refused : cases) {
    const ZooModel& model = *find_zoo_model(refused.name);
    EXPECT_THROW((void)model.build({refused.input, 10, 1.0}), ShapeError)
        << model.name << " " << to_string(refused.input);
  }
}

/// Rates of the drop_path layers, by their order.
std::vector<float> drop_rates(const std::string& options) {
  std::vector<float> rates;
  const ModelSpec spec = model_from("model: {" + options + "}");
  for (const GraphNode& node : spec.graph.nodes())
    if (node.layer != nullptr && node.layer->kind() == "drop_path")
      rates.push_back(node.layer->options<DropoutOptions>()->rate);
  return rates;
}

TEST(ZooOptionsTest, StochasticDepthGrowsFromBlockToBlock) {
  EXPECT_TRUE(drop_rates("zoo: vit_tiny_16").empty());
  const std::vector<float> vit = drop_rates("zoo: vit_tiny_16, drop_path: 0.11");
  ASSERT_EQ(vit.size(), 2u * 11) << "both branches of each block but the first";
  for (std::size_t i = 0; i < vit.size(); ++i) {
    const std::size_t block = i / 2 + 1;
    EXPECT_NEAR(vit[i], 0.01 * static_cast<double>(block), 1e-7);
  }
  const std::vector<float> convnext = drop_rates("zoo: convnext_tiny"),
                           deeper = drop_rates("zoo: convnext_tiny, drop_path: 0.4");
  ASSERT_EQ(convnext.size(), 17u);
  EXPECT_EQ(convnext.back(), 0.1f);
  EXPECT_EQ(deeper.back(), 0.4f);
  EXPECT_EQ(drop_rates("zoo: convnextv2_atto, drop_path: 0.1").size(), 11u);
  EXPECT_TRUE(drop_rates("zoo: efficientnet_b0, drop_path: 0").empty());
  EXPECT_NEAR(drop_rates("zoo: efficientnet_b0").back(), 0.2 * 14 / 16, 1e-7) << "of 16 blocks the last has no sum";
  EXPECT_THROW((void)model_from("model: {zoo: resnet18, drop_path: 0.1}"), ConfigError);
  EXPECT_THROW((void)model_from("model: {zoo: vit_tiny_16, drop_path: 1}"), ConfigError);
}

TEST(ZooOptionsTest, TheLastBlockOfAVitGoesOnWithTheClassTokenAlone) {
  const ModelSpec spec = model_from("model: {zoo: vit_tiny_16, classes: 10, input: [64, 32, 3]}");
  const auto output = [&](const std::string& name) {
    for (const GraphNode& node : spec.graph.nodes())
      if (node.name == name) return to_string(node.output);
    return std::string("no such node");
  };
  EXPECT_EQ(output("stem"), "(4, 2, 192)");
  EXPECT_EQ(output("position_embedding"), "(9, 192)");
  EXPECT_EQ(output("block11/expand"), "(9, 768)");
  EXPECT_EQ(output("block12/attention"), "(9, 192)");
  EXPECT_EQ(output("block12/project"), "(1, 192)");
  EXPECT_EQ(output("block12/expand"), "(1, 768)");
  EXPECT_EQ(output("norm"), "(192)");
}

TEST(ZooOptionsTest, AModelMayHaveANameOfItsOwn) {
  EXPECT_EQ(model_from("model: {zoo: resnet50, name: mine}").name, "mine");
}

}  // namespace
}  // namespace bantam::models::zoo_test

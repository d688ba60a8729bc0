// The networks of configs/architectures: as many parameters as the published networks have, ResNet-50's shapes, and a
// training step of each.
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/step/random_batch.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::models::architectures_test {
namespace {

ModelSpec architecture(const std::string& name,
                       const std::vector<std::string>& overrides = {"model.parameters.classes=1000"}) {
  const std::string path = std::string(BANTAM_SOURCE_DIR) + "/configs/architectures/" + name + ".yaml";
  return read_model(ConfigDocument::load(path, overrides).map().node("model"));
}

Shape shape_of(const ModelSpec& model, const std::string& node) {
  for (const GraphNode& other : model.graph.nodes())
    if (other.name == node) return other.output;
  ADD_FAILURE() << "there is no node " << node;
  return {};
}

TEST(Architectures, ResNet50HasTorchvisionsParametersAndShapes) {
  const ModelSpec model = architecture("resnet50");
  EXPECT_EQ(parameter_count(model.graph), 25'557'032);
  const std::map<std::string, Shape> shapes = {
      {"conv_norm/batch_norm", {112, 112, 64}},
      {"max_pool", {56, 56, 64}},
      {"bottleneck/residual/add", {56, 56, 256}},
      {"bottleneck_3/residual/add", {56, 56, 256}},
      {"bottleneck_4/residual/add", {28, 28, 512}},
      {"bottleneck_7/residual/add", {28, 28, 512}},
      {"bottleneck_8/residual/add", {14, 14, 1024}},
      {"bottleneck_13/residual/add", {14, 14, 1024}},
      {"bottleneck_14/residual/add", {7, 7, 2048}},
      {"bottleneck_16/residual/add", {7, 7, 2048}},
      {"global_average_pool", {2048}},
      {"dense", {1000}},
      // the stride is in the second convolution, and of each stage only the first block has a shortcut of its own
      {"bottleneck_4/residual/conv_norm/batch_norm", {56, 56, 128}},
      {"bottleneck_4/residual/conv_norm_2/batch_norm", {28, 28, 128}},
      {"bottleneck_4/residual/shortcut_conv_norm/batch_norm", {28, 28, 512}}};
  for (const auto& [node, shape] : shapes) EXPECT_EQ(to_string(shape_of(model, node)), to_string(shape)) << node;
  EXPECT_EQ(model.graph.nodes().size(), 1u + 2 + 1 + 16 * 7 + 4 * 2 + 2);
}

TEST(Architectures, MobileNetV2HasTorchvisionsParameters) {
  const ModelSpec model = architecture("mobilenet_v2");
  EXPECT_EQ(parameter_count(model.graph), 3'504'872);
  int sums = 0;
  for (const GraphNode& node : model.graph.nodes()) sums += node.layer && node.layer->kind() == "add" ? 1 : 0;
  EXPECT_EQ(sums, 10);
}

TEST(Architectures, EfficientNetB0HasTorchvisionsParameters) {
  const ModelSpec model = architecture("efficientnet_b0");
  EXPECT_EQ(parameter_count(model.graph), 5'288'548);
  EXPECT_EQ(to_string(shape_of(model, "mbconv_16/conv_norm_2/batch_norm")), "(7, 7, 320)");
}

TEST(Architectures, UNetHasTheParametersOfThePaper) {
  const ModelSpec paper = architecture("unet", {"model.input=[512,512,1]", "model.parameters.classes=2"});
  EXPECT_EQ(parameter_count(paper.graph), 31'030'658);
  EXPECT_EQ(to_string(paper.graph.output_shape()), "(512, 512, 2)");
  EXPECT_EQ(parameter_count(architecture("unet", {}).graph), 31'032'395);
}

struct Outcome {
  std::vector<float> weights;
  double loss = 0;
  MemoryStats memory;
};

/// One update of two samples on the CPU.
Outcome trained(const Graph& graph, const ModelOptions& options) {
  Runtime fresh({.threads = 2});
  const Device device = Device::cpu();
  Model model(fresh, device, graph, options);
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {2}});
  step.step(random_batch(model, 2, philox_key(7, RandomPurpose::test)));
  const double loss = step.read_metrics().back().loss;
  return {to_host<float>(model.parameters().master(), fresh.stream(device)), loss, fresh.allocator(device).stats()};
}

class ArchitectureStep : public ::testing::TestWithParam<std::string> {};

TEST_P(ArchitectureStep, IsFiniteAndPlannedAndRecomputeChangesNoBit) {
  const Graph graph = architecture(GetParam(), {"model.input=[32,32,3]", "model.parameters.classes=5"}).graph;
  std::vector<Outcome> runs;
  for (const auto kind : {RecomputeOptions::Kind::none, RecomputeOptions::Kind::all}) {
    const ModelOptions options{.seed = 3, .recompute = {.kind = kind}};
    runs.push_back(trained(graph, options));
    EXPECT_EQ(runs.back().memory.departures, 0u);
    EXPECT_EQ(runs.back().memory.peak_bytes,
              plan_step(graph, {.model = options, .batch = 2, .device = Device::cpu()}).peak_bytes);
  }
  EXPECT_TRUE(std::isfinite(runs[0].loss));
  EXPECT_EQ(runs[1].weights, runs[0].weights);
}

INSTANTIATE_TEST_SUITE_P(Networks, ArchitectureStep,
                         ::testing::Values("resnet50", "mobilenet_v2", "efficientnet_b0", "unet"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace bantam::models::architectures_test

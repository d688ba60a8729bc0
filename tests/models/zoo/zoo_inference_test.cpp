// Networks of the zoo, folded for inference: no norm after a convolution is left, and they, and a predictor of them,
// compute the same.
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/models/infer/fold_batch_norm.h"
#include "bantam/models/infer/predictor.h"
#include "tests/engine/engine_fixture.h"
#include "tests/models/infer/random_weights.h"
#include "tests/models/zoo/distinct_networks.h"

namespace bantam::models::zoo_inference_test {
namespace {

/// A small version of a network, for small images.
Graph small(const ZooModel& model) {
  const std::int64_t extent = model.defaults.input[0] <= 32 ? 32 : 64;
  ZooOptions options{.input = {extent, extent, 3}, .classes = 10};
  if (model.has_width) options.width = model.name == "wide_resnet28_10" ? 0.1 : 0.5;
  return model.build(options);
}

/// Of norms that follow a convolution or a dense layer without activation which only they read.
int foldable_norms(const Graph& graph) {
  int count = 0;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    const GraphNode& norm = graph.node(node);
    if (norm.layer->kind() != "batch_norm" || graph.only_reader(norm.inputs[0]) != node || norm.inputs[0] == 0)
      continue;
    const std::string_view before = graph.node(norm.inputs[0]).layer->kind();
    count += before.ends_with("conv2d") || before == "dense" ? 1 : 0;
  }
  return count;
}

/// The two differ by rounding. A sum of K products rounds to about √K·u of its size (u = 2^-24, K the longest sum:
/// 4608 products of a 3x3 convolution of 512 channels), and so do weights by u; L layers, each with such an error of
/// its own and passing on those before it, add up to √L of that where errors are independent. 2: the errors'
/// spread.
double tolerance(const Graph& graph) {
  constexpr double kRounding = 1.0 / (1 << 24), kLongestSum = 4608;
  return 2 * kRounding * std::sqrt(kLongestSum) * std::sqrt(static_cast<double>(graph.output()));
}

class ZooInference : public ::testing::TestWithParam<std::string> {};

TEST_P(ZooInference, FoldedNetworksComputeTheSame) {
  const Graph graph = small(*find_zoo_model(GetParam()));
  const SafetensorsFile weights = testing::random_weights(graph, 3);
  const InferenceGraph folded = fold_for_inference(graph, weights);
  EXPECT_EQ(folded.folded, foldable_norms(graph));
  EXPECT_EQ(foldable_norms(folded.graph), 0);
  const std::vector<float> inputs = testing::random_floats(2 * graph.input_shape().elements(), 5);
  Runtime runtime{{.threads = 2}};
  const std::vector<float> before = testing::evaluated(runtime, Device::cpu(), graph, weights, inputs);
  const std::vector<float> after = testing::evaluated(runtime, Device::cpu(), folded.graph, folded.weights, inputs);
  const double difference = testing::relative_difference(after, before);
  RecordProperty("difference", fmt::format("{:.2e}", difference));
  EXPECT_LT(difference, tolerance(graph));
  Predictor predictor(runtime, Device::cpu(), graph, weights, {.most_batch = 2});
  std::vector<float> predicted(before.size());
  predictor.predict(inputs, predicted);
  EXPECT_LT(testing::relative_difference(predicted, before), tolerance(graph));
  for (const float value : after) ASSERT_TRUE(std::isfinite(value));
}

INSTANTIATE_TEST_SUITE_P(Networks, ZooInference, ::testing::ValuesIn(distinct_networks()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace bantam::models::zoo_inference_test

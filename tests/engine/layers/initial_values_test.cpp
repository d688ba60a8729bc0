// What layers start with: each weight's fans, zeros and ones where they belong, and the same bits
// for the same seed.
#include <algorithm>
#include <cmath>

#include "tests/engine/engine_fixture.h"

namespace bantam::initial_values_test {
namespace {

using testing::EngineTest;

class InitialValuesTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(InitialValuesTest);

/// One layer of each kind that has weights; the default initializer is glorot_uniform.
Graph every_kind(const std::string& initializer = "glorot_uniform") {
  Graph graph({16, 16, 16});
  graph.add("conv", conv2d({.filters = 64, .kernel = {3, 5}, .initializer = initializer}));
  graph.add("grouped", conv2d({.filters = 64, .kernel = {3, 3}, .groups = 4, .initializer = initializer}));
  graph.add("transposed", transposed_conv2d({.filters = 64, .groups = 2, .initializer = initializer}));
  graph.add("norm", batch_norm());
  graph.add("depthwise", depthwise_conv2d({.kernel = {3, 3}, .initializer = initializer}));
  graph.add("separable", separable_conv2d({.filters = 96, .kernel = {3, 3}, .initializer = initializer}));
  graph.add(global_average_pool());
  graph.add("dense", dense({.units = 80, .initializer = initializer}));
  return graph;
}

std::vector<float> values_of(Model& model, const std::string& name) {
  const Parameter* parameter = model.parameters().find(name);
  EXPECT_NE(parameter, nullptr) << name;
  return parameter == nullptr ? std::vector<float>(1)
                              : to_host<float>(parameter->master(), model.runtime().stream(model.device()));
}

struct Weight {
  const char* name;
  double fan_in, fan_out;
};

/// Fans of a convolution: the kernel's area times the channels that an output reads, and times the filters that an
/// input feeds: of four groups, a quarter of either.
const Weight kWeights[] = {{"conv/weight", 15 * 16, 15 * 64},
                           {"grouped/weight", 9 * 16, 9 * 16},
                           {"transposed/weight", 4 * 32, 4 * 32},
                           {"depthwise/weight", 9 * 64, 9},
                           {"separable/depthwise_weight", 9 * 64, 9},
                           {"separable/pointwise_weight", 64, 96},
                           {"dense/weight", 96, 80}};

struct Moments {
  double mean = 0, variance = 0, most = 0;
};

Moments moments_of(const std::vector<float>& values) {
  Moments moments;
  const auto count = static_cast<double>(values.size());
  for (const float v : values) moments.mean += v / count;
  for (const float v : values) moments.variance += (v - moments.mean) * (v - moments.mean) / count;
  for (const float v : values) moments.most = std::max(moments.most, std::abs(static_cast<double>(v)));
  return moments;
}

/// A sample's mean deviates by √(variance/n), its variance by at most variance·√(2/n): five of those.
void expect_moments(const std::vector<float>& values, double variance, const std::string& what) {
  const Moments moments = moments_of(values);
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(moments.mean, 0, 5 * std::sqrt(variance / count)) << what;
  EXPECT_NEAR(moments.variance, variance, 5 * variance * std::sqrt(2 / count)) << what;
}

TEST_P(InitialValuesTest, GlorotUniformHasEachLayersFans) {
  Model model(runtime(), device(), every_kind(), {.seed = 5});
  for (const Weight& weight : kWeights) {
    const std::vector<float> values = values_of(model, weight.name);
    const double bound = std::sqrt(6 / (weight.fan_in + weight.fan_out));
    EXPECT_LE(moments_of(values).most, bound * (1 + 1e-6)) << weight.name;
    EXPECT_GT(moments_of(values).most, bound * 0.98) << weight.name << ": the least has 576 values";
    expect_moments(values, bound * bound / 3, weight.name);
  }
}

TEST_P(InitialValuesTest, HeAndLecunCountInputsOnly) {
  for (const auto& [initializer, factor] : {std::pair{"he_normal", 2.0}, {"he_uniform", 2.0}, {"lecun_normal", 1.0}}) {
    Model model(runtime(), device(), every_kind(initializer), {.seed = 5});
    for (const Weight& weight : kWeights)
      expect_moments(values_of(model, weight.name), factor / weight.fan_in,
                     std::string(initializer) + " of " + weight.name);
  }
}

TEST_P(InitialValuesTest, BiasesAndShiftsAreZeroScalesAndVariancesOne) {
  Model model(runtime(), device(), every_kind(), {.seed = 5});
  for (const char* name :
       {"conv/bias", "grouped/bias", "transposed/bias", "depthwise/bias", "separable/bias", "dense/bias", "norm/shift"})
    EXPECT_EQ(moments_of(values_of(model, name)).most, 0.0) << name;
  EXPECT_EQ(values_of(model, "norm/scale"), std::vector<float>(64, 1.0f));
  const Stream stream = runtime().stream(device());
  for (const auto& [name, value] : {std::pair{"norm/running_mean", 0.0f}, {"norm/running_variance", 1.0f}}) {
    const Buffer* buffer = model.buffers().find(name);
    ASSERT_NE(buffer, nullptr) << name;
    EXPECT_EQ(to_host<float>(model.buffers().current(*buffer), stream), std::vector<float>(64, value)) << name;
  }
}

TEST_P(InitialValuesTest, TheSameSeedGivesTheSameBits) {
  Model one(runtime(), device(), every_kind(), {.seed = 5}), two(runtime(), device(), every_kind(), {.seed = 5}),
      other(runtime(), device(), every_kind(), {.seed = 6});
  for (const Weight& weight : kWeights) {
    EXPECT_EQ(values_of(one, weight.name), values_of(two, weight.name)) << weight.name;
    EXPECT_NE(values_of(one, weight.name), values_of(other, weight.name)) << weight.name;
  }
  EXPECT_NE(values_of(one, "depthwise/weight"), values_of(one, "separable/depthwise_weight")) << "of one shape";
}

}  // namespace
}  // namespace bantam::initial_values_test

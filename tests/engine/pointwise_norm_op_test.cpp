// Pointwise convolution behind a pending norm: a stretch of norms, depthwise and pointwise convolutions with everything
// left to its reader, against the layers apart; which norms a graph leaves.
#include "bantam/engine/batch_statistics.h"
#include "bantam/engine/graph.h"
#include "bantam/engine/ops/norm_depthwise.h"
#include "bantam/engine/ops/pointwise_norm.h"
#include "tests/engine/engine_fixture.h"

namespace bantam {
namespace {

using kernels::Activation;
using testing::EngineTest;

class PointwiseNormOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(PointwiseNormOpTest);

/// Two depthwise convolutions between norms, and a pointwise one between them.
class Stretch {
 public:
  Stretch(Runtime& runtime, Device device, std::int64_t in, std::int64_t out)
      : runtime_(runtime), context_(Context::make(runtime, device, {PrecisionKind::mixed_float16})) {
    context_.tape = &tape_;
    x_ = leaf(testing::random_tensor(context_, {3, 9, 7, in}, 1, -2, 3));
    depthwise_[0] = leaf(testing::random_tensor(context_, {3, 3, in}, 2));
    pointwise_ = leaf(testing::random_tensor(context_, {out, 1, 1, in}, 3));
    depthwise_[1] = leaf(testing::random_tensor(context_, {3, 3, out}, 4));
    for (std::uint64_t i = 0; i < 4; ++i) norms_.push_back(norm(i < 2 ? in : out, 10 * (i + 1)));
  }

  /// The output, the third norm's running statistics, and the gradients of x, the weights and the norms' vectors.
  std::vector<std::vector<float>> results(bool fused) {
    Tensor y = fused ? run_fused() : run_apart();
    const Tensor seed = testing::random_tensor(context_, y.shape(), 5);
    std::vector<std::vector<float>> all{to_host_floats(y, context_.stream)};
    for (const Tensor& moved : {norms_[2].tensors.pending_mean, norms_[2].tensors.pending_variance})
      all.push_back(to_host_floats(moved, context_.stream));
    GradientStore store = tape_.backward(context_, std::move(y), seed);
    for (const std::uint64_t id : ids_) all.push_back(to_host_floats(store.take(id), context_.stream));
    return all;
  }

 private:
  Tensor leaf(const Tensor& values) {
    Tensor x = values;
    ids_.push_back(runtime_.new_value_id());
    x.set_value_id(ids_.back());
    return x;
  }
  ops::NormStage norm(std::int64_t channels, std::uint64_t seed) {
    const auto vector = [&](std::uint64_t s, float low, float high) {
      return context_.upload({channels}, testing::random_floats(channels, seed + s, low, high).data());
    };
    return {.tensors = {.scale = leaf(vector(0, 0.5f, 1.5f)),
                        .shift = leaf(vector(1, -0.5f, 0.5f)),
                        .pending_mean = vector(2, -1, 1),
                        .pending_variance = vector(3, 0.5f, 1.5f)},
            .settings = {.running = {.rate = 0.3f}, .activation = {Activation::relu}}};
  }
  Tensor run_fused() {
    const Window2d window{.padding = Padding::symmetric(1)};
    Context leaving = context_, asking = context_;
    leaving.defer = true;
    asking.norm_behind = &norms_[2];
    const Tensor pending = ops::norm_depthwise(leaving, x_, norms_[0], depthwise_[0], window, norms_[1]);
    EXPECT_NE(pending.pending(), nullptr);
    const Tensor product = ops::conv2d(asking, pending, pointwise_);
    EXPECT_TRUE(product.statistics() != nullptr && product.statistics()->makes_gradient == (product.shape()[3] <= 128));
    return ops::norm_depthwise(context_, product, norms_[2], depthwise_[1], window, norms_[3]);
  }
  Tensor run_apart() {
    const Window2d window{.padding = Padding::symmetric(1)};
    const auto normed = [&](const Tensor& x, const ops::NormStage& n) {
      return ops::batch_norm(context_, x, n.tensors, n.settings);
    };
    const auto between = [&](const Tensor& x, int i) {
      const Tensor y = ops::depthwise_conv2d(context_, normed(x, norms_[2 * i]), depthwise_[i], window);
      return normed(y, norms_[2 * i + 1]);
    };
    return between(ops::conv2d(context_, between(x_, 0), pointwise_), 1);
  }

  Runtime& runtime_;
  Context context_;
  Tape tape_;
  std::vector<std::uint64_t> ids_;
  Tensor x_, pointwise_, depthwise_[2];
  std::vector<ops::NormStage> norms_;
};

TEST_P(PointwiseNormOpTest, GivesWhatTheLayersGive) {
  for (const std::array<std::int64_t, 2> channels : {std::array<std::int64_t, 2>{8, 24}, {72, 136}, {32, 64}}) {
    const auto fused = Stretch(runtime(), device(), channels[0], channels[1]).results(true),
               apart = Stretch(runtime(), device(), channels[0], channels[1]).results(false);
    ASSERT_EQ(fused.size(), apart.size());
    for (std::size_t i = 0; i < fused.size(); ++i) {
      ASSERT_EQ(fused[i].size(), apart[i].size());
      // float16 rounds what lies between the seven ops, which is of the size of the largest.
      EXPECT_LT(testing::relative_difference(fused[i], apart[i]), 0.02)
          << channels[0] << " to " << channels[1] << ", result " << i;
    }
  }
}

TEST(PointwiseNormLowering, LeavesTheNormToAPointwiseConvolution) {
  const auto norm = [] { return batch_norm({.activation = {Activation::relu}}); };
  const auto left = [&](std::int64_t channels, Conv2dOptions reader, DType compute) {
    Graph graph({8, 8, channels});
    graph.add(norm());
    graph.add("depthwise", depthwise_conv2d({.padding = Padding::symmetric(1), .bias = false}));
    graph.add("behind", norm());
    reader.bias = false;
    graph.add("reader", conv2d(reader));
    std::vector<std::string> names;
    const auto fusions = find_fusions(graph, {.compute = compute, .device = DeviceKind::cuda});
    for (const LoweredSegment& segment : lower(graph, {}, fusions))
      for (const NodeId node : segment.deferred) names.push_back(graph.nodes()[static_cast<std::size_t>(node)].name);
    // A stretch that has one of the two has both.
    for (const char* name : {"depthwise", "reader"}) {
      const auto cut = lower(graph, {.kind = RecomputeOptions::Kind::named, .names = {name}}, fusions);
      if (!names.empty()) {
        EXPECT_EQ(cut.front().last, graph.output()) << name;
      }
    }
    return names;
  };
  const std::vector<std::string> behind{"behind"};
  EXPECT_EQ(left(32, {.filters = 64, .kernel = {1, 1}}, DType::float16), behind);
  EXPECT_TRUE(left(32, {.filters = 64, .kernel = {1, 1}}, DType::float32).empty()) << "half types";
  EXPECT_TRUE(left(32, {.filters = 64, .kernel = {3, 3}}, DType::float16).empty());
  EXPECT_TRUE(left(32, {.filters = 64, .kernel = {1, 1}, .stride = {2, 2}}, DType::float16).empty());
  EXPECT_TRUE(left(256, {.filters = 256, .kernel = {1, 1}}, DType::float16).empty()) << "bound by the matrix units";
}

}  // namespace
}  // namespace bantam

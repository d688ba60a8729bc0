// Pointwise convolution after a deferred norm: a chain of norms, depthwise and pointwise convolutions with everything
// deferred to its reader, against the layers apart; which norms a graph defers.
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/model/lower.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/ops/pointwise_norm.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::pointwise_norm_op_test {
namespace {

using testing::EngineTest;

class PointwiseNormOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(PointwiseNormOpTest);

/// Two depthwise convolutions between norms, and a pointwise one between them.
class FusedPair {
 public:
  FusedPair(Runtime& runtime, Device device, std::array<std::int64_t, 2> channels, PrecisionKind precision)
      : runtime_(runtime), context_(Context::make(runtime, device, {precision})) {
    const auto [in, out] = channels;
    context_.tape = &tape_;
    x_ = leaf(halves({3, 9, 7, in}, 1, -2, 3));
    depthwise_[0] = leaf(halves({3, 3, in}, 2));
    pointwise_ = leaf(halves({out, 1, 1, in}, 3));
    depthwise_[1] = leaf(halves({3, 3, out}, 4));
    for (std::uint64_t i = 0; i < 4; ++i) norms_.push_back(norm(i < 2 ? in : out, 10 * (i + 1)));
  }

  /// The output, the third norm's running statistics, and the gradients of x, the weights and the norms' vectors.
  std::vector<std::vector<float>> results(bool fused) {
    Tensor y = fused ? run_fused() : run_apart();
    const Tensor seed = halves(y.shape(), 5);
    std::vector<std::vector<float>> all{to_host_floats(y, context_.stream)};
    for (const Tensor& moved : {norms_[2].next_running_mean, norms_[2].next_running_variance})
      all.push_back(to_host_floats(moved, context_.stream));
    GradientStore store = tape_.backward(context_, std::move(y), seed);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::vector<float> gradient = to_host_floats(store.pop(ids_[i]), context_.stream);
      // A norm's two as one: the shift's may be 0 but for rounding, where a norm after it subtracts what it adds.
      if (i < kWeights || i % 2 == 0)
        all.push_back(gradient);
      else
        all.back().insert(all.back().end(), gradient.begin(), gradient.end());
    }
    return all;
  }

 private:
  static constexpr std::size_t kWeights = 4;  ///< and x, before the norms' vectors in ids_

  /// Random values of float16, in the compute type.
  Tensor halves(const Shape& shape, std::uint64_t seed, float low = -1, float high = 1) {
    const Context half = Context::make(runtime_, context_.device, {PrecisionKind::mixed_float16});
    return ops::cast(context_, testing::random_tensor(half, shape, seed, low, high), context_.precision.compute());
  }
  Tensor leaf(const Tensor& values) {
    Tensor x = values;
    ids_.push_back(runtime_.new_value_id());
    x.set_value_id(ids_.back());
    return x;
  }
  /// Channels that relu does not change, and one of four that it closes: none lies where rounding decides.
  Norm norm(std::int64_t channels, std::uint64_t seed) {
    const auto vector = [&](std::uint64_t s, float low, float high) {
      return context_.upload({channels}, testing::random_floats(channels, seed + s, low, high).data());
    };
    std::vector<float> shift = testing::random_floats(channels, seed + 1, 5.0f, 6.0f);
    for (std::size_t c = 2; c < shift.size(); c += 4) shift[c] = -shift[c];
    return {.scale = leaf(vector(0, 0.5f, 1.0f)),
            .shift = leaf(context_.upload({channels}, shift.data())),
            .next_running_mean = vector(2, -1, 1),
            .next_running_variance = vector(3, 0.5f, 1.5f),
            .running = {.rate = 0.3f},
            .activation = {Activation::relu}};
  }
  Tensor run_fused() {
    const Window2d window{.padding = Padding::symmetric(1)};
    const testing::FixedNorm after(norms_[2]);
    const NodePlan defers{.defers_norm = true}, computes{.norm_after = &after};
    const Tensor deferred =
        ops::norm_depthwise(testing::under(context_, defers), x_, norms_[0], depthwise_[0], window, norms_[1]);
    EXPECT_NE(deferred_norm_of(deferred), nullptr);
    const Tensor product = ops::conv2d(testing::under(context_, computes), deferred, pointwise_);
    const BatchStatistics* statistics = statistics_of(product);
    EXPECT_TRUE(statistics != nullptr && statistics->computes_norm_gradient == (product.shape()[3] <= 128));
    return ops::norm_depthwise(context_, product, norms_[2], depthwise_[1], window, norms_[3]);
  }
  Tensor run_apart() {
    const Window2d window{.padding = Padding::symmetric(1)};
    const auto normed = [&](const Tensor& x, const Norm& n) { return ops::batch_norm(context_, x, n); };
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
  std::vector<Norm> norms_;
};

// Within 1e-3 of float32, two roundings of float16; or, where what lies between the seven ops loses more (sums cancel),
// no further off than the layers apart, which round no less.
TEST_P(PointwiseNormOpTest, ComesAsNearToFloat32AsTheLayersApart) {
  using enum PrecisionKind;
  for (const std::array<std::int64_t, 2> channels : {std::array<std::int64_t, 2>{8, 24}, {72, 136}, {32, 64}}) {
    const auto fused = FusedPair(runtime(), device(), channels, mixed_float16).results(true),
               apart = FusedPair(runtime(), device(), channels, mixed_float16).results(false),
               exact = FusedPair(runtime(), device(), channels, float32).results(false);
    ASSERT_EQ(fused.size(), apart.size());
    for (std::size_t i = 0; i < fused.size(); ++i) {
      ASSERT_EQ(fused[i].size(), apart[i].size());
      const double error = testing::relative_difference(fused[i], exact[i]),
                   allowed = testing::relative_difference(apart[i], exact[i]);
      EXPECT_LT(error, std::max(1.25 * allowed, 1e-3)) << channels[0] << " to " << channels[1] << ", result " << i;
    }
  }
}

TEST(PointwiseNormLowering, DefersTheNormToAPointwiseConvolution) {
  const auto norm = [] { return batch_norm({.activation = {Activation::relu}}); };
  const auto left = [&](std::int64_t channels, Conv2dOptions reader, DType compute) {
    Graph graph({8, 8, channels});
    graph.add(norm());
    graph.add("depthwise", depthwise_conv2d({.padding = Padding::symmetric(1), .bias = false}));
    graph.add("after", norm());
    reader.bias = false;
    graph.add("reader", conv2d(reader));
    std::vector<std::string> names;
    const auto fusions = find_fusions(graph, {.compute = compute, .device = DeviceKind::cuda});
    for (const ProgramSegment& segment : lower(graph, {}, fusions).segments)
      for (const NodePlan& plan : segment.nodes)
        if (plan.defers_norm) names.push_back(graph.node(plan.last).name);
    // A segment that has one of the two has both.
    for (const char* name : {"depthwise", "reader"}) {
      const auto cut = lower(graph, {.kind = RecomputeOptions::Kind::named, .names = {name}}, fusions);
      if (!names.empty()) {
        EXPECT_EQ(cut.segments.front().last, graph.output()) << name;
      }
    }
    return names;
  };
  const std::vector<std::string> after{"after"};
  EXPECT_EQ(left(32, {.filters = 64, .kernel = {1, 1}}, DType::float16), after);
  EXPECT_TRUE(left(32, {.filters = 64, .kernel = {1, 1}}, DType::float32).empty()) << "half types";
  EXPECT_TRUE(left(32, {.filters = 64, .kernel = {3, 3}}, DType::float16).empty());
  EXPECT_TRUE(left(32, {.filters = 64, .kernel = {1, 1}, .stride = {2, 2}}, DType::float16).empty());
  EXPECT_TRUE(left(256, {.filters = 256, .kernel = {1, 1}}, DType::float16).empty()) << "bound by the matrix units";
}

}  // namespace
}  // namespace bantam::pointwise_norm_op_test

// Convolution with bias and relu as one op, and max pooling that multiplies its gradient by relu': against the ops
// apart, which layers become them, recompute, observed gradients, and how much less a step keeps.
#include <cmath>
#include <string>

#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/model/lower.h"
#include "bantam/engine/plan/step_plan.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::conv_relu_op_test {
namespace {

using testing::EngineTest;

const Precision kHalf{PrecisionKind::mixed_float16};
const Window2d kSame{.kernel = {3, 3}, .padding = Padding::same()};

class ConvReluOpTest : public EngineTest {
 protected:
  /// Output and gradients of x, w and b; with pooling after the convolution, whose gradient is then masked.
  std::vector<std::vector<float>> results(bool fused, bool pooled, Precision precision) {
    Context ctx = context(precision);
    Tape tape;
    ctx.tape = &tape;
    testing::LeafTensors leaf(runtime());
    const Tensor x = leaf(testing::random_tensor(ctx, {3, 18, 14, 64}, 1)),
                 w = leaf(testing::random_tensor(ctx, {32, 3, 3, 64}, 2, -0.1f, 0.1f)),
                 b = leaf(testing::random_tensor(ctx, {32}, 3));
    const NodePlan masked{.gradient_is_masked = true}, masks{.masks_gradient = true};
    Context at = ctx;
    at.node = fused && pooled ? &masked : ctx.node;
    Tensor y = fused ? ops::conv2d_relu(at, x, w, b, kSame)
                     : ops::bias_activation(at, ops::conv2d(at, x, w, kSame), b, {Activation::relu});
    if (pooled) {
      at.node = fused ? &masks : ctx.node;
      y = ops::max_pool2d(at, y, {.kernel = {2, 2}, .stride = {2, 2}});
    }
    std::vector<std::vector<float>> all{to_host_floats(y, ctx.stream)};
    const Tensor seed = testing::random_tensor(ctx, y.shape(), 4);
    GradientStore store = tape.backward(ctx, std::move(y), seed);
    for (const std::uint64_t id : leaf.ids()) all.push_back(to_host_floats(store.pop(id), ctx.stream));
    return all;
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(ConvReluOpTest);

/// Of half types: which side of relu's corner a sum is on depends on whether it was rounded before the bias was added.
TEST_P(ConvReluOpTest, ComputesWhatTheOpsApartCompute) {
  for (const Precision& precision : {Precision{}, kHalf})
    for (const bool pooled : {false, true}) {
      const auto fused = results(true, pooled, precision), apart = results(false, pooled, precision);
      for (std::size_t i = 0; i < apart.size(); ++i)
        EXPECT_LT(testing::relative_difference(fused[i], apart[i]), precision.compute() == DType::float32 ? 1e-5 : 0.02)
            << "result " << i << (pooled ? ", pooled" : "");
      EXPECT_EQ(results(true, pooled, precision), fused) << "the same bits";
    }
}

/// The same for the plain op: what comes masked needs no mask.
TEST_P(ConvReluOpTest, ABiasAcceptsAMaskedGradient) {
  const auto run = [&](bool masked) {
    Context ctx = context();
    Tape tape;
    ctx.tape = &tape;
    testing::LeafTensors leaf(runtime());
    const Tensor x = leaf(testing::random_tensor(ctx, {3, 9, 8, 5}, 1)), b = leaf(testing::random_tensor(ctx, {5}, 2));
    const NodePlan producer{.gradient_is_masked = masked}, reader{.masks_gradient = masked};
    std::vector<std::vector<float>> all;
    tape.set_gradient_hook([&](const char*, const Tensor& dy) { all.push_back(to_host_floats(dy, ctx.stream)); });
    Context at = ctx;
    at.node = &producer;
    Tensor y = ops::bias_activation(at, x, b, {Activation::relu});
    at.node = &reader;
    y = ops::max_pool2d(at, y, {.kernel = {3, 3}, .stride = {2, 2}});
    const Tensor seed = testing::random_tensor(ctx, y.shape(), 4);
    GradientStore store = tape.backward(ctx, std::move(y), seed);
    for (const std::uint64_t id : leaf.ids()) all.push_back(to_host_floats(store.pop(id), ctx.stream));
    return all;
  };
  const auto masked = run(true), apart = run(false);
  ASSERT_EQ(masked.size(), 4u) << "two observed, two returned";
  EXPECT_EQ(masked[0], apart[0]);
  EXPECT_EQ(masked[1], apart[1]) << "observed without relu'";
  EXPECT_LT(testing::relative_difference(masked[2], apart[2]), 1e-6);
  EXPECT_LT(testing::relative_difference(masked[3], apart[3]), 1e-5);
}

LayerPtr biased(std::int64_t filters, Activation f = Activation::relu) {
  return conv2d({.filters = filters, .kernel = {3, 3}, .padding = Padding::symmetric(1), .activation = {f}});
}

/// Two stages of two convolutions as VGG has them; nodes 1 to 6, then a dense layer.
Graph small_vgg() {
  Graph graph({16, 16, 3});
  for (const std::string stage : {"one", "two"}) {
    graph.add(stage + "/conv1", biased(64));
    graph.add(stage + "/conv2", biased(64));
    graph.add(stage + "/pool", max_pool({}));
  }
  graph.add(flatten());
  graph.add(dense({.units = 4}));
  return graph;
}

std::vector<std::string> fused(const Graph& graph, const FusionTarget& target) {
  std::vector<std::string> names;
  for (const Fusion& fusion : find_fusions(graph, target))
    if (fusion.pattern->name == "conv_relu") names.push_back(graph.node(fusion.first).name);
  return names;
}

TEST(ConvReluPattern, IsABiasedConvolutionWhoseReadersKeepItOrMaskItsGradient) {
  const FusionTarget target{.compute = DType::float16, .device = DeviceKind::cuda};
  EXPECT_EQ(fused(small_vgg(), target), (std::vector<std::string>{"one/conv1", "one/conv2", "two/conv1", "two/conv2"}));
  EXPECT_TRUE(fused(small_vgg(), {.compute = DType::float32, .device = DeviceKind::cuda}).empty());
  EXPECT_TRUE(fused(small_vgg(), {.compute = DType::float16, .device = DeviceKind::cpu}).empty());
  FusionTarget inference = target;
  inference.inference = true;
  EXPECT_TRUE(fused(small_vgg(), inference).empty());
  Graph graph({16, 16, 64});
  graph.add("gelu", biased(64, Activation::gelu));
  graph.add("averaged", biased(64));
  graph.add("pool", average_pool({}));
  graph.add("shared", biased(64));
  const NodeId shared = graph.output();
  graph.add("max", max_pool({}));
  graph.add("other", biased(64), {shared});
  EXPECT_TRUE(fused(graph, target).empty()) << "the last is the graph's output, others' readers do not keep them";
}

TEST(ConvReluPattern, PoolingsMaskTheGradientsOfTheirOnlyInputs) {
  for (const DType compute : {DType::float16, DType::float32}) {
    const Graph graph = small_vgg();
    const StepProgram program = lower(graph, {}, true, {.compute = compute, .device = DeviceKind::cuda});
    for (NodeId node = 1; node <= 6; ++node) {
      EXPECT_EQ(program.plan_of(node).masks_gradient, node == 3 || node == 6) << node;
      EXPECT_EQ(program.plan_of(node).gradient_is_masked, node == 2 || node == 5) << node;
    }
  }
  const StepProgram apart = lower(small_vgg(), {}, true, {.device = DeviceKind::cpu});
  EXPECT_FALSE(apart.plan_of(3).masks_gradient);
}

/// Weights after a few updates.
std::vector<float> trained(Device device, ModelOptions options, int updates = 3) {
  Runtime fresh({.threads = 2});
  options.seed = 5;
  Model model(fresh, device, small_vgg(), options);
  Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.05f})});
  TrainingStep step(model, optimizer, {});
  for (int i = 0; i < updates; ++i)
    step.step(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 4, 16 * i, 16));
  return to_host<float>(model.parameters().master(), fresh.stream(device));
}

TEST_P(ConvReluOpTest, RecomputeChangesNoBit) {
  using Kind = RecomputeOptions::Kind;
  for (const Precision& precision : {Precision{}, kHalf}) {
    const auto plain = trained(device(), {.precision = precision});
    const auto with = [&](const RecomputeOptions& recompute) {
      return trained(device(), {.precision = precision, .recompute = recompute});
    };
    EXPECT_EQ(with({.kind = Kind::all}), plain);
    EXPECT_EQ(with({.derive = Derive::cheap}), plain);
    EXPECT_EQ(with({.kind = Kind::named, .names = {"one"}}), plain);
    EXPECT_EQ(with({.kind = Kind::named, .names = {"one/conv1..one/conv2"}}), plain) << "the pool masks outside of it";
    EXPECT_EQ(with({.kind = Kind::named, .names = {"one/pool..two/conv1"}}), plain) << "and within one";
    EXPECT_EQ(with({.kind = Kind::named, .names = {"two/conv2"}}), plain);
    EXPECT_EQ(with({.kind = Kind::named, .names = {"two/pool"}}), plain);
  }
}

/// How far weights moved, beside float32.
TEST_P(ConvReluOpTest, TrainsAsTheLayersApart) {
  const auto begin = trained(device(), {.precision = kHalf}, 0);
  auto fused = trained(device(), {.precision = kHalf}),
       apart = trained(device(), {.precision = kHalf, .fusion = false}), exact = trained(device(), {.fusion = false});
  for (auto* end : {&fused, &apart, &exact})
    for (std::size_t k = 0; k < end->size(); ++k) (*end)[k] -= begin[k];
  EXPECT_LT(testing::relative_difference(fused, exact),
            std::max(1.5 * testing::relative_difference(apart, exact), 1e-3));
}

/// A mask is a sixteenth of an output. In turn an output is kept until its own convolution's backward has run, so that
/// one tensor more is alive while its reader's writes the input gradient.
TEST(ConvReluPlan, KeepsNoMasks) {
  constexpr int kConvolutions = 32;
  Graph graph({16, 16, 64});
  for (int i = 0; i < kConvolutions; ++i) graph.add(biased(64));
  graph.add("pool", max_pool({}));
  graph.add(flatten());
  graph.add(dense({.units = 4}));
  const auto peak = [&](bool fusion) {
    StepPlanOptions options{.batch = 64, .device = Device::cuda(0)};
    options.model.precision = kHalf;
    options.model.fusion = fusion;
    return plan_step(graph, options).peak_bytes;
  };
  const std::size_t output = std::size_t{64} * 16 * 16 * 64 * 2;
  EXPECT_LE(peak(true) + (kConvolutions / 16 - 1) * output, peak(false) + output / 4);
}

}  // namespace
}  // namespace bantam::conv_relu_op_test

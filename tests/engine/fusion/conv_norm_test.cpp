// Batch statistics computed by the convolution that writes the norm's input: which ones, against the two ops apart, and
// where a segment is recomputed.
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/plan/step_plan.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::conv_norm_test {
namespace {

using testing::EngineTest;

class ConvNormTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ConvNormTest);

LayerPtr plain_conv(std::int64_t filters, std::int64_t kernel = 3, std::int64_t stride = 1) {
  return conv2d({.filters = filters,
                 .kernel = {kernel, kernel},
                 .stride = {stride, stride},
                 .padding = Padding::symmetric(kernel / 2),
                 .bias = false});
}

/// A stem, a residual block whose last norm its sum applies, a depthwise convolution between norms, and products of
/// more than 64 channels and of every second pixel; without activations where `linear`.
Graph small_network(bool linear = false) {
  const auto norm = [=](Activation f) { return batch_norm({.activation = {linear ? Activation::none : f}}); };
  Graph graph({12, 12, 3});
  graph.add("stem", plain_conv(16));
  const NodeId stem = graph.add("stem_norm", norm(Activation::relu));
  graph.add("block/conv1", plain_conv(16));
  graph.add("block/norm1", norm(Activation::relu));
  graph.add("block/conv2", plain_conv(16));
  const NodeId body = graph.add("block/norm2", norm(Activation::none));
  graph.add("block/add", add({.kind = linear ? Activation::none : Activation::relu}), {body, stem});
  graph.add("pointwise", plain_conv(24, 1));
  graph.add("pointwise_norm", norm(Activation::relu6));
  graph.add("depthwise", depthwise_conv2d({.padding = Padding::symmetric(1), .bias = false}));
  graph.add("depthwise_norm", norm(Activation::relu6));
  graph.add("wide", plain_conv(72, 1));
  graph.add("wide_norm", norm(Activation::relu));
  graph.add("strided", plain_conv(144, 1, 2));
  graph.add("strided_norm", norm(Activation::relu));
  graph.add(global_average_pool());
  graph.add(dense({.units = 4}));
  return graph;
}

std::vector<std::string> convolutions(const Graph& graph, const FusionTarget& target) {
  std::vector<std::string> names;
  for (NodeId node = 1; node <= graph.output(); ++node)
    if (const NodeId norm = norm_after_conv(graph, node, target); norm != 0)
      names.push_back(graph.node(node).name + " " + graph.node(norm).name);
  return names;
}

TEST(ConvNormPattern, IsAConvolutionThatOnlyANormReads) {
  const FusionTarget target{.compute = DType::float16, .device = DeviceKind::cuda};
  EXPECT_EQ(convolutions(small_network(), target),
            (std::vector<std::string>{"stem stem_norm", "pointwise pointwise_norm", "wide wide_norm",
                                      "strided strided_norm"}))
      << "kernels compute statistics of image convolutions and of 1x1 ones";
  EXPECT_TRUE(convolutions(small_network(), {.compute = DType::float16, .device = DeviceKind::cpu}).empty());
  EXPECT_TRUE(convolutions(small_network(), {.compute = DType::float32, .device = DeviceKind::cuda}).empty());
  Graph others({8, 8, 3});
  const Padding same = Padding::symmetric(1);
  others.add("biased", conv2d({.filters = 8, .padding = same}), {others.input()});
  others.add(batch_norm({}));
  others.add("activated", conv2d({.filters = 8, .padding = same, .bias = false, .activation = {Activation::relu}}),
             {others.input()});
  others.add(batch_norm({}));
  const NodeId shared = others.add("shared", plain_conv(8), {others.input()});
  const NodeId norm = others.add(batch_norm({}));
  others.add("sum", add({}), {norm, shared});
  EXPECT_TRUE(convolutions(others, target).empty());
}

/// The op's output, statistics as the norm after it receives them, and the running ones.
TEST_P(ConvNormTest, TheOpComputesTheNormsStatistics) {
  Context context = Context::make(runtime(), device(), {PrecisionKind::mixed_float16});
  const Shape channels{16};
  for (const Shape& shape : {Shape{3, 21, 18, 3}, Shape{3, 10, 9, 8}}) {
    const Tensor x = testing::random_tensor(context, shape, 1, -2, 3),
                 w = testing::random_tensor(context, {16, 3, 3, shape[-1]}, 2);
    const auto norm = [&] {
      const std::vector<float> ones(16, 1.0f);
      return Norm{.next_running_mean = context.upload(channels, ones.data()),
                  .next_running_variance = context.upload(channels, ones.data()),
                  .epsilon = 0.01f,
                  .running = {.rate = 0.3f},
                  .activation = {Activation::relu}};
    };
    const Norm apart = norm(), given = norm();
    const Window2d window{.padding = Padding::symmetric(1)};
    const Tensor expected = ops::batch_norm(context, ops::conv2d(context, x, w, window), apart);
    const testing::FixedNorm after(given);
    const NodePlan plan{.norm_after = &after};
    Context asking = testing::under(context, plan);
    const Tensor y = ops::conv2d(asking, x, w, window);
    ASSERT_NE(statistics_of(y), nullptr);
    const Tensor normed = ops::batch_norm(context, y, given);
    const auto compare = [&](const Tensor& got, const Tensor& want, double tolerance) {
      const auto a = to_host_floats(got, context.stream), b = to_host_floats(want, context.stream);
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i])));
    };
    compare(normed, expected, 2e-3);  // one rounding of float16 and one of the convolution's own
    compare(given.next_running_mean, apart.next_running_mean, 1e-4);
    compare(given.next_running_variance, apart.next_running_variance, 1e-4);
    asking.pass = Pass::evaluate;
    EXPECT_EQ(statistics_of(ops::conv2d(asking, x, w, window)), nullptr) << "evaluation asks for none";
    asking.pass = Pass::recompute;
    const auto moved = to_host_floats(given.next_running_mean, context.stream);
    EXPECT_EQ(to_host_floats(ops::conv2d(asking, x, w, window), context.stream), to_host_floats(y, context.stream));
    EXPECT_EQ(to_host_floats(given.next_running_mean, context.stream), moved) << "recompute moves nothing";
  }
}

const Precision kHalf{PrecisionKind::mixed_float16};

/// Weights and running statistics after a few updates.
std::vector<std::vector<float>> trained(Device device, ModelOptions options, const Graph& graph = small_network(),
                                        int updates = 3, const OptimizerOptions& how = {}) {
  Runtime fresh({.threads = 2});
  options.seed = 5;
  Model model(fresh, device, graph, options);
  Optimizer optimizer(model, how);
  TrainingStep step(model, optimizer, {});
  for (int i = 0; i < updates; ++i)
    step.step(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 4, 16 * i, 16));
  const Stream stream = fresh.stream(device);
  return {to_host<float>(model.parameters().master(), stream), to_host<float>(model.buffers().current(), stream)};
}

TEST_P(ConvNormTest, RecomputeChangesNoBit) {
  using Kind = RecomputeOptions::Kind;
  const auto plain = trained(device(), {.precision = kHalf});
  const auto with = [&](const RecomputeOptions& recompute) {
    return trained(device(), {.precision = kHalf, .recompute = recompute});
  };
  EXPECT_EQ(with({.kind = Kind::all}), plain);
  EXPECT_EQ(with({.derive = Derive::cheap}), plain);
  EXPECT_EQ(with({.kind = Kind::named, .names = {"stem", "block/conv1", "pointwise", "strided"}}), plain)
      << "the norm after a recomputed convolution does not";
}

/// The sum works in place where its segment runs for the first time: what the convolution found out about that memory
/// must not reach the norm after the sum.
TEST_P(ConvNormTest, ASumAfterANormHasNoStatisticsOfTheConvolution) {
  Graph graph({12, 12, 3});
  graph.add("stem", plain_conv(16));
  const NodeId stem = graph.add("stem_norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("block/conv", plain_conv(16, 1));
  const NodeId body = graph.add("block/norm", batch_norm());
  graph.add("block/add", add(), {body, stem});
  graph.add("after", batch_norm({.activation = {Activation::relu}}));
  graph.add(global_average_pool());
  graph.add(dense({.units = 4}));
  const auto plain = trained(device(), {.precision = kHalf}, graph);
  for (const char* segment : {"block", "block..after", "stem..after"}) {
    const RecomputeOptions again{.kind = RecomputeOptions::Kind::named, .names = {segment}};
    EXPECT_EQ(trained(device(), {.precision = kHalf, .recompute = again}, graph), plain) << segment;
  }
}

/// How far weights and statistics moved, beside float32. No activations, since rounding decides which side of 0 a value
/// is on: one that changes sides moves a weight's gradient by percents.
TEST_P(ConvNormTest, TrainsAsTheLayersApart) {
  const OptimizerOptions descent{.rule = sgd({.learning_rate = 0.05f})};  // Adam's steps have no size
  const Graph graph = small_network(true);
  const auto begin = trained(device(), {.precision = kHalf}, graph, 0);
  auto fused = trained(device(), {.precision = kHalf}, graph, 3, descent),
       apart = trained(device(), {.precision = kHalf, .fusion = false}, graph, 3, descent),
       exact = trained(device(), {.fusion = false}, graph, 3, descent);
  for (std::size_t i = 0; i < begin.size(); ++i) {
    for (auto* end : {&fused[i], &apart[i], &exact[i]})
      for (std::size_t k = 0; k < end->size(); ++k) (*end)[k] -= begin[i][k];
    const double error = testing::relative_difference(fused[i], exact[i]),
                 allowed = testing::relative_difference(apart[i], exact[i]);
    EXPECT_LT(error, std::max(1.25 * allowed, 1e-3));
  }
}

}  // namespace
}  // namespace bantam::conv_norm_test

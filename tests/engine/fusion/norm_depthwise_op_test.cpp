// The op norm, depthwise convolution, norm: against the three ops, forward, running statistics and all gradients; where
// a segment is recomputed; and which nodes of a graph become it.
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/ops/batch_norm.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::norm_depthwise_op_test {
namespace {

using testing::EngineTest;

class NormDepthwiseOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(NormDepthwiseOpTest);

struct Case {
  Shape shape;
  std::int64_t stride = 1;
  PrecisionKind precision = PrecisionKind::float32;
  bool derive = false;
};

/// The output (as backward rebuilds it, where it does), running statistics, and the gradients of x, the weights and
/// four vectors.
std::vector<std::vector<float>> results(Runtime& runtime, Device device, const Case& c, bool fused) {
  Context context = Context::make(runtime, device, {c.precision});
  Tape tape;
  context.tape = &tape;
  const NodePlan plan{.derive = c.derive ? Derive::cheap : Derive::none};
  context.node = &plan;
  testing::LeafTensors leaf(runtime);
  const Shape channels{c.shape[-1]};
  const auto vector = [&](std::uint64_t seed, float low, float high) {
    return context.upload(channels, testing::random_floats(channels[0], seed, low, high).data());
  };
  const auto norm = [&](std::uint64_t seed) {
    return Norm{.scale = leaf(vector(seed, 0.5f, 1.5f)),
                .shift = leaf(vector(seed + 1, -0.5f, 0.5f)),
                .next_running_mean = vector(seed + 2, -1, 1),
                .next_running_variance = vector(seed + 3, 0.5f, 1.5f),
                .running = {.rate = 0.3f},
                .activation = {Activation::relu}};
  };
  const Tensor x = leaf(testing::random_tensor(context, c.shape, 1, -2, 3)),
               w = leaf(testing::random_tensor(context, {3, 3, channels[0]}, 2));
  const Norm before = norm(10), after = norm(20);
  const Window2d window{.stride = {c.stride, c.stride}, .padding = Padding::symmetric(1)};
  Tensor y = fused
                 ? ops::norm_depthwise(context, x, before, w, window, after)
                 : ops::batch_norm(
                       context, ops::depthwise_conv2d(context, ops::batch_norm(context, x, before), w, window), after);
  Context later = context;
  later.tape = nullptr;
  const SavedTensor saved = y;
  EXPECT_EQ(saved.traffic() > 0, c.derive);
  const Tensor seed = testing::random_tensor(context, y.shape(), 3);
  std::vector<std::vector<float>> all{to_host_floats(y, context.stream)};
  y = Tensor(saved.get(later));
  EXPECT_EQ(to_host_floats(y, context.stream), all[0]) << "rebuilt: the same bits";
  y.set_value_id(saved.ref().id);
  for (const Norm* moving : {&before, &after})
    for (const Tensor& moved : {moving->next_running_mean, moving->next_running_variance})
      all.push_back(to_host_floats(moved, context.stream));
  GradientStore store = tape.backward(context, std::move(y), seed);
  for (const std::uint64_t id : leaf.ids()) all.push_back(to_host_floats(store.pop(id), context.stream));
  return all;
}

TEST_P(NormDepthwiseOpTest, ComputesWhatTheThreeOpsCompute) {
  for (const Shape& shape : {Shape{2, 9, 7, 8}, Shape{3, 14, 15, 72}})
    for (const std::int64_t stride : {1, 2})
      for (const PrecisionKind precision : {PrecisionKind::float32, PrecisionKind::mixed_float16})
        for (const bool derive : {false, true}) {
          const Case c{shape, stride, precision, derive};
          const auto fused = results(runtime(), device(), c, true), plain = results(runtime(), device(), c, false);
          ASSERT_EQ(fused.size(), plain.size());
          for (std::size_t i = 0; i < fused.size(); ++i) {
            ASSERT_EQ(fused[i].size(), plain[i].size());
            // Values of about 1 and sums of some hundred of them; float16 rounds what lies between the three ops.
            const double unit = precision == PrecisionKind::float32 ? 1e-5 : 4e-3;
            double largest = 1;
            for (const float value : plain[i]) largest = std::max(largest, std::abs(static_cast<double>(value)));
            for (std::size_t k = 0; k < fused[i].size(); ++k)
              ASSERT_NEAR(fused[i][k], plain[i][k], 8 * unit * largest)
                  << to_string(shape) << " s" << stride << " " << to_string(Precision{precision}) << " result " << i;
          }
        }
}

/// Two blocks of a MobileNet.
Graph small_mobilenet() {
  const auto norm = [] { return batch_norm({.activation = {Activation::relu}}); };
  Graph graph({12, 12, 3});
  graph.add("stem", conv2d({.filters = 8, .padding = Padding::symmetric(1), .bias = false}));
  graph.add("stem_norm", norm());
  for (const std::int64_t stride : {1, 2}) {
    const std::string block = "block" + std::to_string(stride);
    graph.add(block + "/depthwise",
              depthwise_conv2d({.stride = {stride, stride}, .padding = Padding::symmetric(1), .bias = false}));
    graph.add(block + "/depthwise_norm", norm());
    graph.add(block + "/pointwise", conv2d({.filters = 16, .kernel = {1, 1}, .bias = false}));
    graph.add(block + "/norm", norm());
  }
  graph.add(global_average_pool());
  graph.add(dense({.units = 4}));
  return graph;
}

TEST(NormDepthwisePattern, IsNormDepthwiseNorm) {
  const auto fused = [](const Graph& graph, DeviceKind device) {
    std::vector<std::string> names;
    for (const Fusion& fusion : find_fusions(graph, {.compute = DType::float16, .device = device}))
      if (fusion.pattern->name == "norm_depthwise")
        names.push_back(graph.node(fusion.first).name + ".." + graph.node(fusion.last).name);
    return names;
  };
  const Graph graph = small_mobilenet();
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda})
    EXPECT_EQ(fused(graph, device),
              (std::vector<std::string>{"stem_norm..block1/depthwise_norm", "block1/norm..block2/depthwise_norm"}));
  Graph biased({8, 8, 8});
  biased.add(batch_norm({.activation = {Activation::relu}}));
  biased.add(depthwise_conv2d({.padding = Padding::same()}));
  biased.add(batch_norm({.activation = {Activation::relu}}));
  EXPECT_TRUE(fused(biased, DeviceKind::cuda).empty()) << "a bias lies between";
}

/// Weights and running statistics after three updates.
std::vector<std::vector<float>> trained(Device device, const RecomputeOptions& recompute) {
  Runtime fresh({.threads = 2});
  Model model(fresh, device, small_mobilenet(),
              {.precision = {PrecisionKind::mixed_float16}, .seed = 5, .recompute = recompute});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  for (int i = 0; i < 3; ++i)
    step.step(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 4, 16 * i, 16));
  const Stream stream = fresh.stream(device);
  return {to_host<float>(model.parameters().master(), stream), to_host<float>(model.buffers().current(), stream)};
}

TEST_P(NormDepthwiseOpTest, RecomputeChangesNoBit) {
  using Kind = RecomputeOptions::Kind;
  const auto plain = trained(device(), {});
  EXPECT_EQ(trained(device(), {.kind = Kind::all}), plain);
  EXPECT_EQ(trained(device(), {.derive = Derive::cheap}), plain);
  EXPECT_EQ(trained(device(), {.kind = Kind::named, .names = {"block1/norm"}}), plain)
      << "a segment that cuts the op includes it";
}

}  // namespace
}  // namespace bantam::norm_depthwise_op_test

// The op norm, squeeze-and-excitation: against the two ops, forward, running statistics and all gradients; where its
// output is rebuilt, and where a segment is recomputed; and which nodes of a graph become it.
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/ops/batch_norm.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::norm_squeeze_excite_op_test {
namespace {

using testing::EngineTest;

class NormSqueezeExciteOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(NormSqueezeExciteOpTest);

struct Case {
  Shape shape;
  Activation activation = Activation::silu;
  PrecisionKind precision = PrecisionKind::float32;
};

/// The output, as backward rebuilds it, running statistics, and the gradients of x, the weights and two vectors.
std::vector<std::vector<float>> results(Runtime& runtime, Device device, const Case& c, bool fused) {
  Context context = Context::make(runtime, device, {c.precision});
  Tape tape;
  context.tape = &tape;
  const NodePlan plan{.derive = Derive::cheap};
  context.node = &plan;
  testing::LeafTensors leaf(runtime);
  const std::int64_t channels = c.shape[-1], units = 6;
  const auto vector = [&](std::uint64_t seed, float low, float high) {
    return context.upload({channels}, testing::random_floats(channels, seed, low, high).data());
  };
  const Norm norm{.scale = leaf(vector(10, 0.5f, 1.5f)),
                  .shift = leaf(vector(11, -0.5f, 0.5f)),
                  .next_running_mean = vector(12, -1, 1),
                  .next_running_variance = vector(13, 0.5f, 1.5f),
                  .running = {.rate = 0.3f},
                  .activation = {c.activation}};
  const Tensor x = leaf(testing::random_tensor(context, c.shape, 1, -2, 3));
  const auto weight = [&](const Shape& shape, std::uint64_t seed) {
    return leaf(testing::random_tensor(context, shape, seed, -0.5f, 0.5f));
  };
  const ops::SqueezeExciteTensors tensors{weight({units, channels}, 2), weight({units}, 3),
                                          weight({channels, units}, 4), weight({channels}, 5)};
  const ActivationFunction between{Activation::silu};
  Tensor y =
      fused ? ops::norm_squeeze_excite(context, x, norm, tensors, between, Activation::sigmoid)
            : ops::squeeze_excite(context, ops::batch_norm(context, x, norm), tensors, between, Activation::sigmoid);
  Context later = context;
  later.tape = nullptr;
  const SavedTensor saved = y;
  EXPECT_GT(saved.traffic(), 0);
  const Tensor seed = testing::random_tensor(context, y.shape(), 6);
  std::vector<std::vector<float>> all{to_host_floats(y, context.stream)};
  y = Tensor(saved.get(later));
  EXPECT_EQ(to_host_floats(y, context.stream), all[0]) << "rebuilt: the same bits";
  y.set_value_id(saved.ref().id);
  for (const Tensor& moved : {norm.next_running_mean, norm.next_running_variance})
    all.push_back(to_host_floats(moved, context.stream));
  GradientStore store = tape.backward(context, std::move(y), seed);
  for (const std::uint64_t id : leaf.ids()) all.push_back(to_host_floats(store.pop(id), context.stream));
  return all;
}

TEST_P(NormSqueezeExciteOpTest, ComputesWhatTheTwoOpsCompute) {
  for (const Shape& shape : {Shape{2, 9, 7, 8}, Shape{3, 14, 15, 72}})
    for (const Activation activation : {Activation::silu, Activation::hard_swish, Activation::relu})
      for (const PrecisionKind precision : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
        const Case c{shape, activation, precision};
        const auto fused = results(runtime(), device(), c, true), plain = results(runtime(), device(), c, false);
        ASSERT_EQ(fused.size(), plain.size());
        for (std::size_t i = 0; i < fused.size(); ++i) {
          ASSERT_EQ(fused[i].size(), plain[i].size());
          // Values of about 1 and sums of some hundred of them; float16 rounds what lies between the two ops.
          const double unit = precision == PrecisionKind::float32 ? 1e-5 : 4e-3;
          double largest = 1;
          for (const float value : plain[i]) largest = std::max(largest, std::abs(static_cast<double>(value)));
          for (std::size_t k = 0; k < fused[i].size(); ++k)
            ASSERT_NEAR(fused[i][k], plain[i][k], 8 * unit * largest)
                << to_string(shape) << " " << to_string(activation) << " " << to_string(Precision{precision})
                << " result " << i;
        }
      }
}

/// Two inverted residual blocks of an EfficientNet.
Graph small_efficientnet() {
  const auto norm = [] { return batch_norm({.activation = {Activation::silu}}); };
  Graph graph({12, 12, 3});
  graph.add("stem", conv2d({.filters = 8, .padding = Padding::symmetric(1), .bias = false}));
  graph.add("stem_norm", norm());
  for (const std::int64_t stride : {1, 2}) {
    const std::string block = "block" + std::to_string(stride);
    graph.add(block + "/depthwise",
              depthwise_conv2d({.stride = {stride, stride}, .padding = Padding::symmetric(1), .bias = false}));
    graph.add(block + "/norm", norm());
    graph.add(block + "/squeeze_excite", squeeze_excite({.units = 4, .activation = {Activation::silu}}));
    graph.add(block + "/project", conv2d({.filters = 16, .kernel = {1, 1}, .bias = false}));
    graph.add(block + "/project_norm", batch_norm({}));
  }
  graph.add(global_average_pool());
  graph.add(dense({.units = 4}));
  return graph;
}

TEST(NormSqueezeExcitePattern, IsNormSqueezeExcite) {
  const auto fused = [](const Graph& graph, DeviceKind device) {
    std::vector<std::string> names;
    for (const Fusion& fusion : find_fusions(graph, {.compute = DType::float16, .device = device}))
      if (fusion.pattern->name == "norm_squeeze_excite")
        names.push_back(graph.node(fusion.first).name + ".." + graph.node(fusion.last).name);
    return names;
  };
  const Graph graph = small_efficientnet();
  EXPECT_EQ(fused(graph, DeviceKind::cuda),
            (std::vector<std::string>{"block1/norm..block1/squeeze_excite", "block2/norm..block2/squeeze_excite"}));
  EXPECT_TRUE(fused(graph, DeviceKind::cpu).empty());
}

/// Weights and running statistics after three updates.
std::vector<std::vector<float>> trained(Device device, const RecomputeOptions& recompute) {
  Runtime fresh({.threads = 2});
  Model model(fresh, device, small_efficientnet(),
              {.precision = {PrecisionKind::mixed_float16}, .seed = 5, .recompute = recompute});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  for (int i = 0; i < 3; ++i)
    step.step(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 4, 16 * i, 16));
  const Stream stream = fresh.stream(device);
  return {to_host<float>(model.parameters().master(), stream), to_host<float>(model.buffers().current(), stream)};
}

TEST_P(NormSqueezeExciteOpTest, RecomputeChangesNoBit) {
  using Kind = RecomputeOptions::Kind;
  const auto plain = trained(device(), {});
  EXPECT_EQ(trained(device(), {.kind = Kind::all}), plain);
  EXPECT_EQ(trained(device(), {.derive = Derive::cheap}), plain);
  EXPECT_EQ(trained(device(), {.kind = Kind::named, .names = {"block1/norm"}}), plain)
      << "a segment that cuts the op includes it";
}

}  // namespace
}  // namespace bantam::norm_squeeze_excite_op_test

// The end of a residual block by algebra: against the four ops, forward, running statistics and all gradients; which
// layers of a graph become it; recompute; and how much less a step keeps.
#include <algorithm>

#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/engine/plan/step_plan.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::expand_sum_op_test {
namespace {

using testing::EngineTest;

class ExpandSumOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ExpandSumOpTest);

/// The output (as backward rebuilds it, where it does), running statistics, and the gradients of x, the residual, the
/// weight and four vectors.
std::vector<std::vector<float>> results(Runtime& runtime, Device device, bool fused, Derive derive) {
  Context context = Context::make(runtime, device, {PrecisionKind::mixed_float16});
  Tape tape;
  context.tape = &tape;
  const NodePlan plan{.derive = derive};
  context.node = &plan;
  testing::LeafTensors leaf(runtime);
  constexpr std::int64_t kIn = 64, kOut = 128;
  const auto norm = [&](std::int64_t channels, std::uint64_t seed, Activation f) {
    const auto vector = [&](std::uint64_t add, float low, float high) {
      return context.upload({channels}, testing::random_floats(channels, seed + add, low, high).data());
    };
    return Norm{.scale = leaf(vector(0, 0.5f, 1.5f)),
                .shift = leaf(vector(1, -0.5f, 0.5f)),
                .next_running_mean = vector(2, -1, 1),
                .next_running_variance = vector(3, 0.5f, 1.5f),
                .running = {.rate = 0.3f},
                .activation = {f}};
  };
  const Tensor x = leaf(testing::random_tensor(context, {4, 17, 16, kIn}, 1, -2, 3)),
               residual = leaf(testing::random_tensor(context, {4, 17, 16, kOut}, 2)),
               w = leaf(testing::random_tensor(context, {kOut, 1, 1, kIn}, 3, -0.2f, 0.2f));
  const Norm before = norm(kIn, 10, Activation::relu), after = norm(kOut, 20, Activation::none);
  Tensor y =
      fused
          ? ops::expand_sum(context, x, {before, w, after}, residual)
          : ops::add(context,
                     ops::batch_norm(context, ops::conv2d(context, ops::batch_norm(context, x, before), w, {}), after),
                     residual, {Activation::relu});
  Context later = context;
  later.tape = nullptr;
  const SavedTensor saved = y;
  EXPECT_EQ(saved.traffic() > 0, derive == Derive::cheap);
  const Tensor seed = testing::random_tensor(context, y.shape(), 4);
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

TEST_P(ExpandSumOpTest, ComputesWhatTheFourOpsCompute) {
  const auto plain = results(runtime(), device(), false, Derive::none);
  for (const Derive derive : {Derive::none, Derive::inner, Derive::cheap}) {
    const auto fused = results(runtime(), device(), true, derive);
    ASSERT_EQ(fused.size(), plain.size());
    for (std::size_t i = 0; i < fused.size(); ++i)  // float16 rounds what lies between the four ops, and a corner of
      EXPECT_LT(testing::relative_difference(fused[i], plain[i]), 0.02) << "result " << i;  // relu is on either side
  }
}

LayerPtr plain_conv(std::int64_t filters, std::int64_t kernel = 1, std::int64_t stride = 1) {
  return conv2d({.filters = filters,
                 .kernel = {kernel, kernel},
                 .stride = {stride, stride},
                 .padding = Padding::symmetric(kernel / 2),
                 .bias = false});
}
LayerPtr norm(Activation f) { return batch_norm({.activation = {f}}); }

/// The bottleneck blocks of a ResNet: one with a projection, one without.
Graph small_resnet(Activation end = Activation::relu) {
  Graph graph({12, 12, 3});
  graph.add("stem", plain_conv(64, 3));
  NodeId from = graph.add("stem_norm", norm(Activation::relu));
  for (const std::string block : {"first", "second"}) {
    graph.add(block + "/conv1", plain_conv(64), {from});
    graph.add(block + "/norm1", norm(Activation::relu));
    graph.add(block + "/conv2", plain_conv(64, 3));
    graph.add(block + "/norm2", norm(Activation::relu));
    graph.add(block + "/conv3", plain_conv(256));
    const NodeId body = graph.add(block + "/norm3", norm(Activation::none));
    if (block == "first") {
      graph.add(block + "/shortcut", plain_conv(256), {from});
      from = graph.add(block + "/shortcut_norm", norm(Activation::none));
    }
    from = graph.add(block + "/add", add({.kind = end}), {body, from});
  }
  graph.add(global_average_pool());
  graph.add(dense({.units = 4}));
  return graph;
}

std::vector<std::string> fused(const Graph& graph, const FusionTarget& target) {
  std::vector<std::string> names;
  for (const Fusion& fusion : find_fusions(graph, target))
    if (fusion.pattern->name == "expand_sum")
      names.push_back(graph.node(fusion.first).name + ".." + graph.node(fusion.last).name);
  return names;
}

TEST(ExpandSumPattern, IsTheEndOfABottleneckBlock) {
  const FusionTarget target{.compute = DType::float16, .device = DeviceKind::cuda};
  EXPECT_EQ(fused(small_resnet(), target),
            (std::vector<std::string>{"first/norm2..first/add", "second/norm2..second/add"}));
  EXPECT_TRUE(fused(small_resnet(), {.compute = DType::float32, .device = DeviceKind::cuda}).empty());
  EXPECT_TRUE(fused(small_resnet(), {.compute = DType::float16, .device = DeviceKind::cpu}).empty());
  EXPECT_TRUE(fused(small_resnet(Activation::none), target).empty());
  FusionTarget inference = target;
  inference.inference = true;
  EXPECT_TRUE(fused(small_resnet(), inference).empty());
}

TEST(ExpandSumPattern, ReadsNoValueThatOthersRead) {
  const FusionTarget target{.compute = DType::float16, .device = DeviceKind::cuda};
  for (const bool shared : {false, true}) {
    Graph graph({12, 12, 256});
    graph.add("conv", plain_conv(64));
    const NodeId narrow = graph.add("norm2", norm(Activation::relu));
    graph.add("conv3", plain_conv(256));
    const NodeId body = graph.add("norm3", norm(Activation::none));
    const NodeId sum = graph.add("add", add({.kind = Activation::relu}), {graph.input(), body});
    graph.add("end", concat(), {sum, shared ? narrow : sum});
    EXPECT_EQ(fused(graph, target).size(), shared ? 0 : 1);
  }
}

const Precision kHalf{PrecisionKind::mixed_float16};

/// Weights and running statistics after a few updates.
std::vector<std::vector<float>> trained(Device device, ModelOptions options, int updates = 3,
                                        const OptimizerOptions& how = {}, std::int64_t batch = 16) {
  Runtime fresh({.threads = 2});
  options.seed = 5;
  Model model(fresh, device, small_resnet(), options);
  Optimizer optimizer(model, how);
  TrainingStep step(model, optimizer, {});
  for (int i = 0; i < updates; ++i)
    step.step(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 4, batch * i, batch));
  const Stream stream = fresh.stream(device);
  return {to_host<float>(model.parameters().master(), stream), to_host<float>(model.buffers().current(), stream)};
}

TEST_P(ExpandSumOpTest, RecomputeChangesNoBit) {
  using Kind = RecomputeOptions::Kind;
  const auto plain = trained(device(), {.precision = kHalf});
  const auto with = [&](const RecomputeOptions& recompute) {
    return trained(device(), {.precision = kHalf, .recompute = recompute});
  };
  EXPECT_EQ(with({.kind = Kind::all}), plain);
  EXPECT_EQ(with({.derive = Derive::inner}), plain);
  EXPECT_EQ(with({.derive = Derive::cheap}), plain);
  EXPECT_EQ(with({.kind = Kind::named, .names = {"first"}}), plain);
  EXPECT_EQ(with({.kind = Kind::named, .names = {"second"}, .derive = Derive::cheap}), plain);
  EXPECT_EQ(with({.kind = Kind::named, .names = {"first", "second"}, .whole = true}), plain);
  EXPECT_EQ(with({.kind = Kind::named, .names = {"first/conv3"}}), plain) << "a segment that cuts the op includes it";
}

/// A convolution that multiplies a sum's gradient by relu' as it writes shows who observes gradients the one without.
TEST_P(ExpandSumOpTest, ObservedGradientsAreWhole) {
  Runtime fresh({.threads = 2});
  Model model(fresh, device(), small_resnet(), {.precision = kHalf, .seed = 5});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  std::vector<float> seen;
  const char* const path = device().is_cuda() ? "first/norm2" : "first/add";
  StepHooks hooks;
  hooks.begin = [](std::int64_t, const Batch&) {};
  hooks.output = [](NodeId, NodeId, const Tensor&) {};
  hooks.loss = [](const Tensor&) {};
  hooks.gradient = [&](const char* at, const Tensor& dy) {
    if (std::string_view(at) == path && dy.shape()[-1] == 256) seen = to_host_floats(dy, fresh.stream(device()));
  };
  hooks.parameter = [](const Parameter&) {};
  step.look_into(hooks, 1024.0f, [&] {
    step.micro_batch(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 4, 0, 16), 0, 16);
  });
  ASSERT_EQ(seen.size(), std::size_t{16} * 12 * 12 * 256);
  EXPECT_LT(std::count(seen.begin(), seen.end(), 0.0f), std::ssize(seen) / 8) << "relu' is 0 for about half of them";
}

/// How far weights and statistics moved, beside float32.
TEST_P(ExpandSumOpTest, TrainsAsTheLayersApart) {
  const OptimizerOptions descent{.rule = sgd({.learning_rate = 0.05f})};  // Adam's steps have no size
  const auto begin = trained(device(), {.precision = kHalf}, 0);
  auto fused = trained(device(), {.precision = kHalf}, 3, descent),
       apart = trained(device(), {.precision = kHalf, .fusion = false}, 3, descent),
       exact = trained(device(), {.fusion = false}, 3, descent);
  for (std::size_t i = 0; i < begin.size(); ++i) {
    for (auto* end : {&fused[i], &apart[i], &exact[i]})
      for (std::size_t k = 0; k < end->size(); ++k) (*end)[k] -= begin[i][k];
    const double error = testing::relative_difference(fused[i], exact[i]),
                 allowed = testing::relative_difference(apart[i], exact[i]);
    EXPECT_LT(error, std::max(1.5 * allowed, 1e-3)) << "rounding decides which side of 0 a value is on";
  }
}

/// Too few rows for the algebra to pay: the layers run in its place.
TEST_P(ExpandSumOpTest, AFewSamplesRunAsLayers) {
  const OptimizerOptions descent{.rule = sgd({.learning_rate = 0.05f})};
  const auto few = trained(device(), {.precision = kHalf}, 2, descent, 2),
             apart = trained(device(), {.precision = kHalf, .fusion = false}, 2, descent, 2);
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_LT(testing::relative_difference(few[i], apart[i]), 0.02);
}

TEST(ExpandSumPlan, KeepsNothingAsWideAsTheOutput) {
  const auto peak = [&](bool fusion) {
    StepPlanOptions options{.batch = 512, .device = Device::cuda(0)};
    options.model.precision = kHalf;
    options.model.fusion = fusion;
    return plan_step(small_resnet(), options).peak_bytes;
  };
  const std::size_t wide = std::size_t{512} * 12 * 12 * 256 * 2;
  EXPECT_LT(peak(true) + 2 * wide, peak(false));
}

}  // namespace
}  // namespace bantam::expand_sum_op_test

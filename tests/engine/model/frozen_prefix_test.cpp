// A convolution that is frozen, before which nothing trains, as one op with its bias and activation: which ones, with
// the losses of the ops apart, and with gradients of the model's input where somebody wants them.
#include "bantam/engine/model/frozen_norms.h"
#include "bantam/engine/model/lower.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::frozen_prefix_test {
namespace {

const Precision kHalf{PrecisionKind::mixed_float16};

class FrozenPrefixTest : public testing::EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(FrozenPrefixTest);

LayerPtr activated(std::int64_t filters, bool bias = true, Activation f = Activation::gelu) {
  return conv2d({.filters = filters, .kernel = {2, 2}, .bias = bias, .activation = {f}});
}

/// 1 patches, 2 body, 3 pool, 4 head.
Graph network() {
  Graph graph({13, 11, 3});
  graph.add("patches", activated(24));
  graph.add("body", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

std::vector<ParameterGroup> frozen(const std::string& match, std::int64_t updates = 0) {
  return {{.match = match, .freeze = true, .frozen_updates = updates}};
}

/// Names of nodes that run as frozen_conv2d.
std::vector<std::string> fused(const Graph& graph, const std::vector<ParameterGroup>& groups,
                               DType compute = DType::float16, DeviceKind device = DeviceKind::cuda) {
  const std::vector<bool> without = nodes_without_gradient(graph, nodes_that_train(graph, groups));
  const StepProgram program =
      lower(graph, {}, true, {.compute = compute, .device = device, .without_gradient = &without});
  std::vector<std::string> names;
  for (const ProgramSegment& segment : program.segments)
    for (const NodePlan& plan : segment.nodes)
      if (plan.fusion != nullptr && plan.fusion->name == "frozen_conv2d") names.push_back(graph.node(plan.first).name);
  return names;
}

TEST(FrozenPrefixPattern, IsAnImageConvolutionThatIsFrozenForGoodBeforeAnythingTrains) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(fused(network(), frozen("patches/*")), Names{"patches"});
  EXPECT_EQ(fused(network(), frozen("patches/*"), DType::bfloat16), Names{"patches"});
  EXPECT_EQ(fused(network(), frozen("patches/weight")), Names{}) << "its bias trains";
  EXPECT_EQ(fused(network(), frozen("patches/*", 5)), Names{}) << "it trains later";
  EXPECT_EQ(fused(network(), {}), Names{});
  EXPECT_EQ(fused(network(), frozen("patches/*"), DType::float32), Names{});
  EXPECT_EQ(fused(network(), frozen("patches/*"), DType::float16, DeviceKind::cpu), Names{});
  Graph chain({13, 11, 3});
  chain.add("plain", activated(8, false, Activation::none), {chain.input()});
  const NodeId narrow = chain.add("narrow", conv2d({.filters = 4, .bias = false}), {chain.input()});
  chain.add("second", activated(16, false), {narrow});
  chain.add(global_average_pool());
  chain.add("head", dense({.units = 2}));
  EXPECT_EQ(fused(chain, frozen("narrow/*")), Names{}) << "the second trains";
  EXPECT_EQ(fused(chain, frozen("second/*")), Names{}) << "what it reads trains";
  EXPECT_EQ(fused(chain, {{.match = "narrow/*", .freeze = true}, {.match = "second/*", .freeze = true}}),
            Names{"second"})
      << "after another frozen one; without bias and activation nothing is left to fuse";
}

/// Losses of updates of a network whose first layer is frozen.
std::vector<float> losses(Device device, Precision precision, bool fusion) {
  Runtime runtime({.threads = 2});
  Model model(runtime, device, network(),
              {.precision = precision, .seed = 5, .fusion = fusion, .groups = frozen("patches/*")});
  Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.1f})});
  TrainingStep step(model, optimizer, {});
  std::vector<float> all;
  for (int i = 0; i < 4; ++i) {
    const Context context = model.context(Pass::train);
    const Batch batch = testing::make_batch(context, {13, 11, 3}, 5, 0, 16);
    const Tensor loss = model.forward_loss(context, batch.tensors, *softmax_cross_entropy(), {});
    all.push_back(to_host_floats(loss, context.stream)[0]);
    step.step(batch);
  }
  return all;
}

/// The op rounds once where the ops apart round the convolution, too: some hundredths of a percent of a loss.
TEST_P(FrozenPrefixTest, TrainsWithTheLossesOfTheOpsApart) {
  for (const Precision precision : {Precision{}, kHalf}) {
    const std::vector<float> joined = losses(device(), precision, true), apart = losses(device(), precision, false);
    ASSERT_EQ(joined.size(), apart.size());
    for (std::size_t i = 0; i < joined.size(); ++i) EXPECT_NEAR(joined[i], apart[i], 2e-3 * apart[i]) << i;
    EXPECT_LT(joined.back(), joined.front()) << "the rest trains";
  }
}

/// The gradient of the input, and the output, of a model whose first layer is frozen.
std::pair<std::vector<float>, std::vector<float>> with_input_gradient(Device device, bool fusion) {
  Runtime runtime({.threads = 2});
  Model model(runtime, device, network(),
              {.precision = kHalf, .seed = 5, .fusion = fusion, .groups = frozen("patches/*")});
  Tape tape;
  Context context = model.context(Pass::train);
  Tensor x = testing::random_tensor(context, {3, 13, 11, 3}, 1);
  context.tape = &tape;
  x.set_value_id(runtime.new_value_id());
  Tensor y = model.forward(context, x);
  const Tensor seed = testing::random_tensor(context, y.shape(), 2);
  const std::vector<float> output = to_host_floats(y, context.stream);
  GradientStore store = tape.backward(context, std::move(y), seed);
  return {to_host_floats(store.pop(x.value_id()), context.stream), output};
}

TEST_P(FrozenPrefixTest, AnInputThatWantsAGradientHasTheOneOfTheOpsApart) {
  EXPECT_EQ(with_input_gradient(device(), true), with_input_gradient(device(), false));
}

/// Evaluation runs what training runs: the same bits.
TEST_P(FrozenPrefixTest, EvaluationComputesWhatTrainingDoes) {
  Runtime runtime({.threads = 2});
  Model model(runtime, device(), network(), {.precision = kHalf, .seed = 5, .groups = frozen("patches/*")});
  Context context = model.context(Pass::train);
  const Tensor x = testing::random_tensor(context, {3, 13, 11, 3}, 1);
  Tape tape;
  context.tape = &tape;
  const std::vector<float> trained = to_host_floats(model.forward(context, x), context.stream);
  const Context evaluation = model.context(Pass::evaluate);
  EXPECT_EQ(to_host_floats(model.forward(evaluation, x), evaluation.stream), trained);
}

}  // namespace
}  // namespace bantam::frozen_prefix_test

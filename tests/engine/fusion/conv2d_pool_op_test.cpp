// Convolution and 2x2 max pooling as one op: which layers become it, values and gradients of the two ops, the gradient
// of a bias before it without an input gradient, also by finite differences, and models that train as without it.
#include <cmath>

#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/ops/conv2d.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::conv2d_pool_op_test {
namespace {

using testing::EngineTest;

const Precision kHalf{PrecisionKind::mixed_float16};
const Window2d kSame{.kernel = {3, 3}, .padding = Padding::same()};

Conv2dOptions plain(std::int64_t filters = 16) {
  return {.filters = filters, .kernel = {3, 3}, .padding = Padding::same(), .bias = false};
}

/// 1 patches, 2 conv, 3 pool, 4 mean, 5 head.
Graph network(const Conv2dOptions& conv = plain(), const PoolOptions& pool = {}, std::int64_t filters = 24) {
  Graph graph({31, 16, 3});
  graph.add(
      "patches",
      conv2d({.filters = filters, .kernel = {2, 2}, .padding = Padding::same(), .activation = {Activation::gelu}}));
  graph.add("conv", conv2d(conv));
  graph.add("pool", max_pool(pool));
  graph.add("mean", global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

bool fuses(const Graph& graph, DType dtype = DType::float16, DeviceKind device = DeviceKind::cuda) {
  for (const Fusion& fusion : find_fusions(graph, {.compute = dtype, .device = device}))
    if (fusion.pattern->name == "conv_pool") return fusion.first == 2 && fusion.last == 3;
  return false;
}

TEST(ConvPoolPattern, IsAPlainConvolutionOfFewChannelsAndPairsOfRowsAndColumns) {
  EXPECT_TRUE(fuses(network()));
  EXPECT_TRUE(fuses(network(), DType::bfloat16));
  EXPECT_FALSE(fuses(network(), DType::float32));
  EXPECT_FALSE(fuses(network(), DType::float16, DeviceKind::cpu));
  Conv2dOptions other = plain();
  other.bias = true;
  EXPECT_FALSE(fuses(network(other)));
  other = plain();
  other.activation = {Activation::relu};
  EXPECT_FALSE(fuses(network(other)));
  other = plain();
  other.stride = {2, 2};
  EXPECT_FALSE(fuses(network(other)));
  other = plain();
  other.groups = 2;
  EXPECT_FALSE(fuses(network(other)));
  EXPECT_FALSE(fuses(network(plain(), {.window = {3, 3}})));
  EXPECT_FALSE(fuses(network(plain(), {.stride = {1, 1}})));
  EXPECT_FALSE(fuses(network(plain(), {.padding = Padding::same()}))) << "the odd row would be in a window";
  EXPECT_FALSE(fuses(network(plain(), {.ceil_mode = true})));
  EXPECT_FALSE(fuses(network(plain(), {}, 40))) << "more channels than the kernels read";
  Graph branches = network();
  branches.add("other", global_average_pool(), {2});
  EXPECT_FALSE(fuses(branches)) << "somebody else reads the convolution's output";
  Graph inference = network();
  for (const Fusion& fusion :
       find_fusions(inference, {.compute = DType::float16, .device = DeviceKind::cuda, .inference = true}))
    EXPECT_NE(fusion.pattern->name, "conv_pool");
}

/// z, b and w, and the loss's gradient of y.
struct Operands {
  Operands(Context at, bool input_wants) : context(std::move(at)) {
    z = testing::random_tensor(context, {3, 31, 16, 24}, 1, -2, 2);
    b = testing::random_tensor(context, {24}, 2);
    w = testing::random_tensor(context, {16, 3, 3, 24}, 3);
    seed = testing::random_tensor(context, {3, 15, 8, 16}, 4);
    for (Tensor* leaf : {&b, &w}) leaf->set_value_id(context.runtime->new_value_id());
    if (input_wants) z.set_value_id(context.runtime->new_value_id());
  }

  Tensor output(const Context& ctx, bool fuse) const {
    const Tensor x = ops::bias_activation(ctx, z, b, {Activation::gelu});
    if (fuse) return ops::conv2d_pool(ctx, x, w, kSame);
    return ops::max_pool2d(ctx, ops::conv2d(ctx, x, w, kSame), {.kernel = {2, 2}, .stride = {2, 2}});
  }
  std::vector<float> floats(const Tensor& t) const {
    return t.defined() ? to_host_floats(t, context.stream) : std::vector<float>();
  }

  /// y and the gradients of b, w and z.
  std::vector<std::vector<float>> run(bool fuse) const {
    Tape tape;
    Context ctx = context;
    ctx.tape = &tape;
    Tensor y = output(ctx, fuse);
    std::vector<std::vector<float>> values = {floats(y)};
    GradientStore store = tape.backward(ctx, std::move(y), seed);
    for (const Tensor* leaf : {&b, &w, &z})
      values.push_back(leaf->value_id() != 0 ? floats(store.pop(leaf->value_id())) : std::vector<float>());
    return values;
  }

  Context context;
  Tensor z, b, w, seed;
};

class ConvPoolOpTest : public EngineTest {
 protected:
  /// The type that the device's kernels fuse in.
  Precision precision() const { return device().is_cuda() ? kHalf : Precision{}; }
  /// Of gradients: sums of about 1,700 products of rounded values, themselves rounded where a half type stores them.
  double tolerance() const { return device().is_cuda() ? 3e-3 : 1e-5; }
};
BANTAM_INSTANTIATE_ON_DEVICES(ConvPoolOpTest);

TEST_P(ConvPoolOpTest, HasValuesAndGradientsOfTheOpsApart) {
  for (const bool input_wants : {true, false}) {
    const Operands operands(context(precision()), input_wants);
    const auto fused = operands.run(true), apart = operands.run(false);
    ASSERT_EQ(fused[0].size(), apart[0].size());
    EXPECT_LE(testing::relative_difference(fused[0], apart[0]), device().is_cuda() ? 1e-3 : 0.0);
    for (std::size_t i = 1; i < fused.size(); ++i) {
      ASSERT_EQ(fused[i].size(), apart[i].size()) << i;
      if (fused[i].empty()) continue;
      EXPECT_LE(testing::relative_difference(fused[i], apart[i]), tolerance()) << i;
    }
    EXPECT_EQ(fused[3].empty(), !input_wants);
    EXPECT_EQ(operands.run(true), fused) << "the same bits";
  }
}

TEST_P(ConvPoolOpTest, ABiasBeforeItHasItsGradientByFiniteDifferences) {
  if (device().is_cuda()) GTEST_SKIP() << "in float32, which CUDA kernels do not fuse; compared with the ops apart";
  Operands operands(context(), false);
  const std::vector<float> db = operands.run(true)[1], seed = operands.floats(operands.seed);
  const std::vector<float> b = operands.floats(operands.b);
  const auto loss = [&](const std::vector<float>& values) {
    operands.b = operands.context.upload({24}, values.data());
    const std::vector<float> y = operands.floats(operands.output(operands.context, true));
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(seed[i]);
    return sum;
  };
  double scale = 0;
  for (const float v : db) scale = std::max(scale, std::abs(static_cast<double>(v)));
  for (std::size_t c = 0; c < b.size(); ++c) {
    constexpr float kStep = 1e-3f;  // few windows have another winner within it
    std::vector<float> up = b, down = b;
    up[c] += kStep;
    down[c] -= kStep;
    EXPECT_NEAR((loss(up) - loss(down)) / (2.0 * kStep), db[c], 2e-2 * scale) << c;
  }
}

TEST_P(ConvPoolOpTest, OnlyABiasWhoseInputWantsNothingIsNoted) {
  for (const bool input_wants : {true, false}) {
    const Operands operands(context(precision()), input_wants);
    Tape tape;
    Context ctx = operands.context;
    ctx.tape = &tape;
    const auto noted = [&](Activation f) {
      return biased_activation_of(ops::bias_activation(ctx, operands.z, operands.b, {f})) != nullptr;
    };
    EXPECT_EQ(noted(Activation::gelu), !input_wants);
    EXPECT_EQ(noted(Activation::silu), !input_wants);
    EXPECT_FALSE(noted(Activation::relu)) << "its gradient reads a mask";
    ctx.tape = nullptr;
    EXPECT_FALSE(noted(Activation::gelu)) << "nothing is recorded";
  }
}

/// Losses of updates, and the bias of the first layer after them.
std::pair<std::vector<float>, std::vector<float>> train(Device device, Precision precision, bool fusion) {
  Runtime runtime({.threads = 2});
  Model model(runtime, device, network(),
              {.precision = precision,
               .seed = 5,
               .fusion = fusion,
               .groups = {{.match = "patches/weight", .freeze = true, .frozen_updates = 0}}});
  Optimizer optimizer(model, {.rule = sgd({.learning_rate = 0.1f})});
  TrainingStep step(model, optimizer, {});
  std::vector<float> losses;
  for (int i = 0; i < 4; ++i) {
    const Context context = model.context(Pass::train);
    const Batch batch = testing::make_batch(context, {31, 16, 3}, 5, 0, 16);
    losses.push_back(
        to_host_floats(model.forward_loss(context, batch.tensors, *softmax_cross_entropy(), {}), context.stream)[0]);
    step.micro_batch(testing::make_batch(context, {31, 16, 3}, 5, 0, 8), 0, 16);  // gradients are added, too
    step.micro_batch(testing::make_batch(context, {31, 16, 3}, 5, 8, 8), 8, 16);
    step.update();
  }
  const Parameter& bias = *model.parameters().find("patches/bias");
  return {losses, to_host_floats(bias.master(), runtime.stream(device))};
}

TEST_P(ConvPoolOpTest, ModelsTrainAsWithoutIt) {
  for (const Precision precision : {Precision{}, kHalf}) {
    const auto [fused, fused_bias] = train(device(), precision, true);
    const auto [apart, apart_bias] = train(device(), precision, false);
    for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_NEAR(fused[i], apart[i], 2e-3 * apart[i]) << i;
    EXPECT_LT(fused.back(), fused.front());
    EXPECT_LE(testing::relative_difference(fused_bias, apart_bias), 2e-2);
    double moved = 0;
    for (const float v : fused_bias) moved = std::max(moved, std::abs(static_cast<double>(v)));
    EXPECT_GT(moved, 1e-4) << "it begins at 0";
  }
}

}  // namespace
}  // namespace bantam::conv2d_pool_op_test

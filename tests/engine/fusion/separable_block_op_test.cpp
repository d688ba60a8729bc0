// Separable blocks as one op: the same values and gradients as the layers they stand for; and which layers those are.
#include "bantam/base/error.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::separable_block_op_test {
namespace {

using kernels::SeparableBlockShape;
using testing::EngineTest;

class SeparableBlockOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(SeparableBlockOpTest);

constexpr PrecisionKind kPrecisions[] = {PrecisionKind::float32, PrecisionKind::mixed_float16,
                                         PrecisionKind::mixed_bfloat16};

/// How far results may lie apart that were rounded to the compute type at other places, some of them several times.
double tolerance(Precision precision) {
  switch (precision.kind) {
    case PrecisionKind::mixed_float16:
      return 4e-3;
    case PrecisionKind::mixed_bfloat16:
      return 3e-2;
    default:
      return 3e-6;
  }
}

struct Case {
  SeparableBlockShape shape;
  std::int64_t channels, filters;
  Padding padding;
};

std::vector<Case> cases() {
  const Padding uneven{PaddingKind::explicit_, 0, 1, 2, 0};
  std::vector<Case> all;
  for (const std::int64_t pool : {1, 2})
    for (const bool relu : {true, false}) {
      all.push_back({{.pool = pool, .bias = relu, .relu = relu}, 3, 16, Padding::valid()});
      all.push_back({{.pool = pool, .bias = !relu, .relu = relu}, 16, 24, Padding::same()});
      all.push_back({{.pool = pool, .bias = true, .relu = relu}, 40, 8, uneven});
    }
  return all;
}

/// y and the gradients of x, both weights and the bias: of the op, or of the ops it stands for.
std::vector<std::vector<float>> results(Runtime& runtime, const Context& plain, const Case& c, bool fused) {
  Context context = plain;
  Tape tape;
  context.tape = &tape;
  std::vector<std::uint64_t> ids;
  const auto leaf = [&](const Shape& shape, std::uint64_t seed) {
    Tensor t = testing::random_tensor(context, shape, seed);
    ids.push_back(runtime.new_value_id());
    t.set_value_id(ids.back());
    return t;
  };
  const Tensor x = leaf({3, 9, 8, c.channels}, 1);
  const Tensor depthwise = leaf({3, 3, c.channels}, 2), pointwise = leaf({c.filters, 1, 1, c.channels}, 3);
  const Tensor bias = c.shape.bias ? leaf({c.filters}, 4) : Tensor();
  const Window2d window{.kernel = {3, 3}, .padding = c.padding};
  Tensor y;
  if (fused) {
    SeparableBlockShape shape = c.shape;
    const Padding pad = window.resolve("test", 9, 8);
    shape.pad_top = pad.top, shape.pad_bottom = pad.bottom, shape.pad_left = pad.left, shape.pad_right = pad.right;
    y = ops::separable_block(context, x, {depthwise, pointwise, bias}, shape);
  } else {
    y = ops::conv2d(context, ops::depthwise_conv2d(context, x, depthwise, window), pointwise);
    if (bias.defined()) y = ops::bias_add(context, std::move(y), bias);
    if (c.shape.relu) y = ops::activation(context, std::move(y), Activation::relu);
    if (c.shape.pool == 2) y = ops::max_pool2d(context, y, {.kernel = {2, 2}, .stride = {2, 2}});
  }
  std::vector<std::vector<float>> all{to_host_floats(y, context.stream)};
  const Tensor seed = testing::random_tensor(context, y.shape(), 5);
  GradientStore store = tape.backward(context, std::move(y), seed);
  for (const std::uint64_t id : ids) all.push_back(to_host_floats(store.pop(id), context.stream));
  return all;
}

TEST_P(SeparableBlockOpTest, HasTheValuesAndGradientsOfTheOpsItStandsFor) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16})
    for (const Case& c : cases()) {
      const Context ctx = context({kind});
      const auto fused = results(runtime(), ctx, c, true), apart = results(runtime(), ctx, c, false);
      ASSERT_EQ(fused.size(), apart.size());
      // In half types a value near its neighbour in the window, or near 0, may lose or win by rounding: its gradient
      // then goes to another pixel, or nowhere.
      const double limit = tolerance({kind}) * (kind == PrecisionKind::float32 ? 1 : 10);
      for (std::size_t i = 0; i < fused.size(); ++i)
        EXPECT_LT(testing::relative_difference(fused[i], apart[i]), i == 0 ? tolerance({kind}) : limit)
            << "result " << i << " of " << c.channels << " to " << c.filters << " channels, pooling " << c.shape.pool
            << ", " << to_string(Precision{kind});
    }
}

TEST_P(SeparableBlockOpTest, EvaluationComputesTheSameBits) {
  const Case c = cases().front();
  const Context ctx = context({PrecisionKind::mixed_float16});
  const Tensor x = testing::random_tensor(ctx, {2, 9, 8, c.channels}, 1),
               depthwise = testing::random_tensor(ctx, {3, 3, c.channels}, 2),
               pointwise = testing::random_tensor(ctx, {c.filters, c.channels}, 3),
               bias = testing::random_tensor(ctx, {c.filters}, 4);
  Context taped = ctx;
  Tape tape;
  taped.tape = &tape;
  Tensor known = x;
  known.set_value_id(runtime().new_value_id());
  EXPECT_EQ(to_host_floats(ops::separable_block(ctx, x, {depthwise, pointwise, bias}, c.shape), ctx.stream),
            to_host_floats(ops::separable_block(taped, known, {depthwise, pointwise, bias}, c.shape), ctx.stream));
}

TEST_P(SeparableBlockOpTest, OperandsMustFit) {
  const Context ctx = context();
  const auto block = [&](const Shape& x, const Shape& depthwise, const Shape& pointwise, const Shape& bias) {
    return ops::separable_block(ctx, ctx.allocate(x, DType::float32),
                                {ctx.allocate(depthwise, DType::float32), ctx.allocate(pointwise, DType::float32),
                                 ctx.allocate(bias, DType::float32)},
                                {});
  };
  EXPECT_EQ(block({1, 6, 6, 8}, {3, 3, 8}, {8, 8}, {8}).shape(), (Shape{1, 4, 4, 8}));
  EXPECT_THROW(block({6, 6, 8}, {3, 3, 8}, {8, 8}, {8}), ShapeError);
  EXPECT_THROW(block({1, 6, 6, 8}, {3, 3, 16}, {8, 8}, {8}), ShapeError);
  EXPECT_THROW(block({1, 6, 6, 8}, {3, 3, 8}, {8, 16}, {8}), ShapeError);
  EXPECT_THROW(block({1, 6, 6, 8}, {3, 3, 8}, {8, 8}, {16}), ShapeError);
  EXPECT_THROW(block({1, 6, 6, 12}, {3, 3, 12}, {8, 12}, {8}), ShapeError);  // not a shape that kernels support
}

SeparableConv2dOptions relu_block(std::int64_t filters) {
  return {.filters = filters, .activation = {Activation::relu}};
}

/// The model of cifar10_separable, smaller.
Graph two_blocks() {
  Graph graph({12, 12, 3});
  graph.add(separable_conv2d(relu_block(16)));
  graph.add(max_pool());
  graph.add(separable_conv2d(relu_block(24)));
  graph.add(flatten());
  graph.add(dense({.units = 5}));
  return graph;
}

/// The gradient slot after one step forward and backward.
std::vector<float> gradients(Runtime& runtime, Device device, const ModelOptions& options) {
  Model model(runtime, device, two_blocks(), options);
  Context ctx = model.context(Pass::train);
  Tape tape;
  ctx.tape = &tape;
  const Batch batch = testing::make_batch(model.context(Pass::train), {12, 12, 3}, 5, 0, 6);
  model.parameters().begin_accumulation();
  const Tensor loss = ops::softmax_cross_entropy(ctx, model.forward(ctx, batch.at(kImages)), batch.at(kLabels)).loss;
  const float one = 1.0f;
  (void)tape.backward(ctx, loss, ctx.upload({}, &one));
  model.parameters().end_accumulation(ctx);
  return to_host_floats(model.parameters().gradient(), ctx.stream);
}

TEST_P(SeparableBlockOpTest, AModelHasTheGradientsItHasWithoutFusion) {
  for (const PrecisionKind kind : kPrecisions) {
    const ModelOptions fused{.precision = {kind}, .seed = 5};
    ModelOptions apart = fused;
    apart.fusion = false;
    EXPECT_LT(
        testing::relative_difference(gradients(runtime(), device(), fused), gradients(runtime(), device(), apart)),
        5 * tolerance({kind}))
        << to_string(Precision{kind});
  }
}

TEST_P(SeparableBlockOpTest, RecomputeChangesNoBit) {
  for (const PrecisionKind kind : kPrecisions) {
    ModelOptions options{.precision = {kind}, .seed = 5};
    const std::vector<float> kept = gradients(runtime(), device(), options);
    options.recompute.kind = RecomputeOptions::Kind::all;
    EXPECT_EQ(gradients(runtime(), device(), options), kept) << to_string(Precision{kind});
    options.recompute = {.kind = RecomputeOptions::Kind::named, .names = {"max_pool"}};  // includes the block it ends
    EXPECT_EQ(gradients(runtime(), device(), options), kept) << to_string(Precision{kind});
  }
}

/// The fusions of a graph in float16 on CUDA, as "first-last".
std::vector<std::string> found(const Graph& graph, DeviceKind device = DeviceKind::cuda) {
  std::vector<std::string> all;
  for (const Fusion& fusion : find_fusions(graph, {DType::float16, device}))
    all.push_back(std::to_string(fusion.first) + "-" + std::to_string(fusion.last));
  return all;
}

TEST(SeparableBlockFusionTest, IncludesPoolingWhereItIsTheOnlyReader) {
  EXPECT_EQ(found(two_blocks()), (std::vector<std::string>{"1-2", "3-3"}));
  EXPECT_EQ(found(two_blocks(), DeviceKind::cpu), (std::vector<std::string>{"1-2", "3-3"}));
  Graph shared({12, 12, 3});
  const NodeId conv = shared.add(separable_conv2d(relu_block(16)));
  const NodeId pool = shared.add(max_pool());
  const NodeId other = shared.add("other", average_pool(), {conv});
  shared.add("sum", add(), {pool, other});
  EXPECT_EQ(found(shared), (std::vector<std::string>{"1-1"}));
}

TEST(SeparableBlockFusionTest, DoesNotChangeOtherLayers) {
  const auto with = [](SeparableConv2dOptions options, PoolOptions pool = {}) {
    Graph graph({12, 12, 8});
    graph.add(separable_conv2d(std::move(options)));
    graph.add(max_pool(pool));
    return found(graph);
  };
  using Found = std::vector<std::string>;
  EXPECT_EQ(with(relu_block(8)), Found{"1-2"});
  EXPECT_EQ(with({.filters = 8, .padding = Padding::same()}), Found{"1-2"});  // without activation
  EXPECT_EQ(with({.filters = 8, .activation = {Activation::gelu}}), Found{});
  EXPECT_EQ(with({.filters = 8, .kernel = {5, 5}}), Found{});
  EXPECT_EQ(with({.filters = 8, .stride = {2, 2}}), Found{});
  EXPECT_EQ(with({.filters = 8, .dilation = {2, 2}}), Found{});
  EXPECT_EQ(with({.filters = 8, .multiplier = 2}), Found{});
  EXPECT_EQ(with({.filters = 12}), Found{});
  EXPECT_EQ(with(relu_block(8), {.window = {3, 3}}), Found{"1-1"});
  EXPECT_EQ(with(relu_block(8), {.stride = {1, 1}}), Found{"1-1"});
  EXPECT_EQ(with(relu_block(8), {.padding = Padding::symmetric(1)}), Found{"1-1"});
}

}  // namespace
}  // namespace bantam::separable_block_op_test

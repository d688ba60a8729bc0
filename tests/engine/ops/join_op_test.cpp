// Concat, average and multiply as ops: more inputs than a kernel call has, one value more than once, gradients that are
// there already, refused operands; and a dense block whose concats are rebuilt instead of kept.
#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/finite_differences.h"
#include "tests/engine/ops/join_oracle.h"

namespace bantam::join_op_test {
namespace {

using testing::EngineTest;
using testing::leaf;
using testing::random_floats;

class JoinOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(JoinOpTest);

TEST_P(JoinOpTest, ConcatJoinsAnyNumber) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  constexpr std::int64_t kInputs = 150, kRows = 3;  // three calls
  std::vector<Tensor> inputs;
  std::vector<std::vector<float>> values;
  for (std::int64_t i = 0; i < kInputs; ++i) {
    const std::int64_t width = 1 + i % 5;
    values.push_back(random_floats(kRows * width, static_cast<std::uint64_t>(i)));
    inputs.push_back(leaf(ctx, {kRows, width}, values.back()));
    if (i % 7 == 3) inputs.back().set_value_id(0);  // a constant
  }
  const Tensor y = ops::concat(ctx, inputs);
  ASSERT_EQ(to_string(y.shape()), "(3, 450)");
  const std::vector<float> joined = to_host<float>(y, ctx.stream);
  std::int64_t column = 0;
  for (const Tensor& input : inputs) {
    const std::int64_t width = input.shape()[1];
    const std::vector<float>& own = values[static_cast<std::size_t>(&input - inputs.data())];
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        ASSERT_EQ(joined[static_cast<std::size_t>(r * 450 + column + c)], own[static_cast<std::size_t>(r * width + c)]);
    column += width;
  }
  GradientStore store = tape.backward(ctx, y, ctx.upload(y.shape(), joined.data()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor dx = inputs[i].value_id() != 0 ? store.pop(inputs[i].value_id()) : Tensor();
    EXPECT_EQ(dx.defined() ? to_host<float>(dx, ctx.stream) : std::vector<float>(),
              i % 7 != 3 ? values[i] : std::vector<float>());
  }
}

/// f(inputs) of one value twice and another, where the first is read by a second op, too.
std::vector<std::vector<float>> gradients(Context ctx, Tensor (*f)(const Context&, std::span<const Tensor>)) {
  Tape tape;
  ctx.tape = &tape;
  const Tensor a = leaf(ctx, {2, 2}, {1, 2, 3, 4}), b = leaf(ctx, {2, 2}, {5, 6, 7, 8});
  Tensor joined = f(ctx, std::vector<Tensor>{a, b, a});
  const Tensor y = ops::concat(ctx, std::vector<Tensor>{joined, a});
  std::vector<float> seed(static_cast<std::size_t>(y.elements()));
  for (std::size_t i = 0; i < seed.size(); ++i) seed[i] = static_cast<float>(i);
  GradientStore store = tape.backward(ctx, y, ctx.upload(y.shape(), seed.data()));
  return {testing::gradient_of(ctx, store, a), testing::gradient_of(ctx, store, b)};
}

TEST_P(JoinOpTest, OneValueMoreThanOnceGetsTheSum) {
  // Rows of eight: a, b, a, and a alone.
  const auto concats = gradients(context(), ops::concat);
  EXPECT_EQ(concats[0], (std::vector<float>{0 + 4 + 6, 1 + 5 + 7, 8 + 12 + 14, 9 + 13 + 15}));
  EXPECT_EQ(concats[1], (std::vector<float>{2, 3, 10, 11}));
  // Rows of four: the mean of a, b and a, then a alone.
  const auto averages = gradients(context(), ops::average);
  const std::vector<float> a{2, 1 * 2.0f / 3 + 3, 4 * 2.0f / 3 + 6, 5 * 2.0f / 3 + 7},
      b{0, 1.0f / 3, 4.0f / 3, 5.0f / 3};
  EXPECT_LT(testing::relative_difference(averages[0], a), 1e-6);
  EXPECT_LT(testing::relative_difference(averages[1], b), 1e-6);
}

TEST_P(JoinOpTest, SquaresByMultiplying) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const Tensor x = leaf(ctx, {2, 2}, {1, 2, 3, 4});
  const Tensor y = ops::multiply(ctx, x, x);
  EXPECT_EQ(to_host<float>(y, ctx.stream), (std::vector<float>{1, 4, 9, 16}));
  const float ones[] = {1, 1, 1, 1};
  GradientStore store = tape.backward(ctx, y, ctx.upload({2, 2}, ones));
  EXPECT_EQ(testing::gradient_of(ctx, store, x), (std::vector<float>{2, 4, 6, 8}));
}

TEST_P(JoinOpTest, FactorsAChannelMayComeFirstAndAlone) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const Tensor x = leaf(ctx, {1, 2, 1, 2}, {1, 2, 3, 4});
  const float values[] = {10, 100};
  const Tensor constant = ctx.upload({1, 2}, values);  // no gradient of it, nor is x kept
  const Tensor y = ops::multiply(ctx, constant, x);
  EXPECT_EQ(to_host<float>(y, ctx.stream), (std::vector<float>{10, 200, 30, 400}));
  GradientStore store = tape.backward(ctx, y, ctx.upload(y.shape(), to_host<float>(x, ctx.stream).data()));
  EXPECT_EQ(testing::gradient_of(ctx, store, x), (std::vector<float>{10, 200, 30, 400}));
}

TEST_P(JoinOpTest, RefusesWhatDoesNotFit) {
  const Context ctx = context();
  const Tensor image = ctx.allocate({2, 3, 3, 4}, DType::float32), vector = ctx.allocate({2, 4}, DType::float32);
  const Tensor half = ctx.allocate({2, 4}, DType::float16), other = ctx.allocate({2, 5}, DType::float32);
  EXPECT_THROW((void)ops::concat(ctx, {}), ShapeError);
  EXPECT_THROW((void)ops::concat(ctx, std::vector<Tensor>{image, vector}), ShapeError);
  EXPECT_THROW((void)ops::concat(ctx, std::vector<Tensor>{vector, half}), DTypeError);
  EXPECT_THROW((void)ops::average(ctx, std::vector<Tensor>{vector, other}), ShapeError);
  EXPECT_THROW((void)ops::average(ctx, std::vector<Tensor>(65, vector)), ShapeError);
  EXPECT_THROW((void)ops::average(ctx, std::vector<Tensor>{vector, half}), DTypeError);
  EXPECT_THROW((void)ops::multiply(ctx, image, other), ShapeError);
  EXPECT_THROW((void)ops::multiply(ctx, vector, half), DTypeError);
  const auto weight = [&](const Shape& shape, DType dtype = DType::float32) { return ctx.allocate(shape, dtype); };
  const auto squeezed = [&](const Tensor& x, const Tensor& expand) {
    (void)ops::squeeze_excite(ctx, x, {weight({3, 4}), weight({3}), expand, weight({4})}, {}, Activation::sigmoid);
  };
  EXPECT_THROW(squeezed(vector, weight({4, 3})), ShapeError);
  EXPECT_THROW(squeezed(image, weight({3, 4})), ShapeError);
  EXPECT_THROW(squeezed(image, weight({4, 3}, DType::float16)), DTypeError);
}

/// Operand `k` of tests/oracles/joins.py.
std::vector<float> operand(int k, const Shape& shape) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    values.push_back(static_cast<float>(std::sin(0.7 * static_cast<double>(i) + k)));
  return values;
}

/// Output and gradients of f over operands of these shapes (k counts from 0) against PyTorch's, which come in that
/// order. Sums here are of at most 210 terms of order one.
void expect_like_pytorch(Context ctx, const std::vector<Shape>& shapes,
                         const std::function<Tensor(const Context&, const std::vector<Tensor>&)>& f,
                         const std::vector<const std::vector<float>*>& expected) {
  Tape tape;
  ctx.tape = &tape;
  std::vector<Tensor> operands;
  for (const Shape& shape : shapes)
    operands.push_back(leaf(ctx, shape, operand(static_cast<int>(operands.size()), shape)));
  const Tensor y = f(ctx, operands);
  EXPECT_LT(testing::relative_difference(to_host<float>(y, ctx.stream), *expected[0]), 1e-6);
  GradientStore store = tape.backward(ctx, y, ctx.upload(y.shape(), operand(9, y.shape()).data()));
  for (std::size_t i = 0; i < operands.size(); ++i)
    EXPECT_LT(testing::relative_difference(testing::gradient_of(ctx, store, operands[i]), *expected[i + 1]), 5e-6)
        << "operand " << i;
}

TEST_P(JoinOpTest, SqueezeExcitesLikePyTorch) {
  using namespace bantam::testing;  // NOLINT: the oracle's arrays
  const std::vector<Shape> shapes{{2, 3, 5, 7}, {3, 7}, {3}, {7, 3}, {7}};
  const auto run = [](Activation activation, Activation gate) {
    return [=](const Context& ctx, const std::vector<Tensor>& t) {
      return ops::squeeze_excite(ctx, t[0], {t[1], t[2], t[3], t[4]}, {activation}, gate);
    };
  };
  expect_like_pytorch(
      context(), shapes, run(Activation::silu, Activation::sigmoid),
      {&kSigmoidOutput, &kSigmoidDx, &kSigmoidDreduce, &kSigmoidDreduceBias, &kSigmoidDexpand, &kSigmoidDexpandBias});
  expect_like_pytorch(context(), shapes, run(Activation::relu, Activation::hard_sigmoid),
                      {&kHardOutput, &kHardDx, &kHardDreduce, &kHardDreduceBias, &kHardDexpand, &kHardDexpandBias});
}

TEST_P(JoinOpTest, JoinsLikePyTorch) {
  using namespace bantam::testing;  // NOLINT: the oracle's arrays
  expect_like_pytorch(context(), {{2, 3, 5, 7}, {2, 3, 5, 7}, {2, 7}},
                      [](const Context& ctx, const std::vector<Tensor>& t) {
                        const Tensor mean = ops::average(ctx, std::vector<Tensor>{t[0], t[1], t[0]});
                        return ops::concat(ctx, std::vector<Tensor>{mean, ops::multiply(ctx, t[0], t[1]),
                                                                    ops::multiply(ctx, t[0], t[2])});
                      },
                      {&kJoinedOutput, &kJoinedDa, &kJoinedDb, &kJoinedDs});
}

/// Each layer reads all channels before it (Huang et al., 2017), as one concat of every layer's.
Graph dense_block() {
  Graph graph({12, 12, 16});
  std::vector<NodeId> features{graph.input()};
  for (int i = 0; i < 6; ++i) {
    if (i > 0) graph.add("", concat(), features);
    graph.add("", batch_norm({.activation = {Activation::relu}}));
    features.push_back(graph.add("", conv2d({.filters = 8, .padding = Padding::same(), .bias = false})));
  }
  graph.add("all", concat(), features);
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Outcome {
  std::vector<float> weights;
  std::size_t peak = 0;
};

Outcome trained(Device device, const ModelOptions& options) {
  Runtime runtime({.threads = 2});
  const Graph graph = dense_block();
  Model model(runtime, device, graph, options);
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {8}});
  for (int i = 0; i < 3; ++i)
    step.step(testing::make_batch(model.context(Pass::train), graph.input_shape(), 5, i * 8, 8));
  return {to_host<float>(model.parameters().master(), runtime.stream(device)),
          runtime.allocator(device).stats().peak_bytes};
}

TEST_P(JoinOpTest, ADenseBlockKeepsEachLayersChannelsOnce) {
  for (const PrecisionKind precision : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    ModelOptions options{.precision = {precision}, .seed = 3};
    options.recompute = {.derive = Derive::none};
    const Outcome kept = trained(device(), options);
    options.recompute = {.derive = Derive::cheap};
    const Outcome rebuilt = trained(device(), options);
    EXPECT_EQ(rebuilt.weights, kept.weights);
    // Of 16 + 24 + … + 64 channels that are concats, 8·12·12 values each, all but one at a time are rebuilt.
    const std::size_t channel = 8 * 12 * 12 * (precision == PrecisionKind::float32 ? 4 : 2);
    EXPECT_LT(rebuilt.peak + 60 * channel, kept.peak);
  }
}

}  // namespace
}  // namespace bantam::join_op_test

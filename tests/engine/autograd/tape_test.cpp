// The backward pass: hand-computed gradients, values used twice, errors, memory freed on the way.
#include "bantam/base/error.h"
#include "bantam/engine/ops/batch_norm.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/finite_differences.h"

namespace bantam::tape_test {
namespace {

using testing::EngineTest;
using testing::expect_directional;
using testing::gradient_of;
using testing::leaf;

class TapeTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(TapeTest);

TEST_P(TapeTest, DenseReluByHand) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const Tensor x = leaf(ctx, {1, 2}, {1, 2}), w = leaf(ctx, {2, 2}, {3, -1, -4, 1});
  const Tensor y = ops::activation(ctx, ops::dense(ctx, x, w), Activation::relu);  // (1, -2) → (1, 0)
  EXPECT_EQ(to_host<float>(y, ctx.stream), (std::vector<float>{1, 0}));
  GradientStore store = tape.backward(ctx, y, ctx.upload({1, 2}, std::vector<float>{10, 20}.data()));
  EXPECT_EQ(gradient_of(ctx, store, x), (std::vector<float>{30, -10}));
  EXPECT_EQ(gradient_of(ctx, store, w), (std::vector<float>{10, 20, 0, 0}));
  EXPECT_TRUE(tape.empty());
}

TEST_P(TapeTest, AValueUsedTwiceGetsBothGradients) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const Tensor x = leaf(ctx, {3}, {1, -2, 3});
  const Tensor y = ops::add(ctx, ops::activation(ctx, x, Activation::relu), x);  // 2x where positive, x elsewhere
  const Tensor z = ops::add(ctx, y, y);
  GradientStore store = tape.backward(ctx, z, ctx.upload({3}, std::vector<float>{1, 1, 1}.data()));
  EXPECT_EQ(to_host<float>(z, ctx.stream), (std::vector<float>{4, -4, 12}));
  EXPECT_EQ(gradient_of(ctx, store, x), (std::vector<float>{4, 2, 4}));
}

TEST_P(TapeTest, NothingIsRecordedWithoutATapeOrAWish) {
  Tape tape;
  Context ctx = context();
  const Tensor x = leaf(ctx, {2}, {1, 2});
  EXPECT_EQ(ops::activation(ctx, x, Activation::tanh).value_id(), 0u);
  ctx.tape = &tape;
  const Tensor constant = ctx.upload({2}, std::vector<float>{1, 2}.data());
  EXPECT_EQ(ops::activation(ctx, constant, Activation::tanh).value_id(), 0u);
  EXPECT_TRUE(tape.empty());
}

TEST_P(TapeTest, AGradientOfAnotherSizeIsAnErrorThatNamesTheValue) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  ctx = ctx.at("swish");
  const Tensor x = leaf(ctx, {4}, {1, 2, 3, 4});
  const Tensor y = ops::activation(ctx, x, Activation::tanh);
  Tensor z = y.view({2, 2});  // of an op whose backward returns half of the gradient
  tape.record(ctx, z, [&](const Context& inner, Tensor, GradientStore& store) {
    store.add(inner, y, inner.upload({2}, std::vector<float>{1, 2}.data()));
  });
  try {
    (void)tape.backward(ctx, z, ctx.upload({2, 2}, std::vector<float>{1, 2, 3, 4}.data()));
    ADD_FAILURE() << "memory after the gradient was read";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "backward: the gradient of the output of 'swish' is (2), expected (4)");
  }
}

TEST_P(TapeTest, AnUnknownLossOrAWrongSeedIsAnError) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const Tensor x = leaf(ctx, {2}, {1, 2});
  const Tensor y = ops::activation(ctx, x, Activation::tanh);
  EXPECT_THROW((void)tape.backward(ctx, x, x), Error);
  EXPECT_THROW((void)tape.backward(ctx, y, ctx.allocate({3}, DType::float32)), ShapeError);
}

TEST_P(TapeTest, BackwardFreesEachEntryAsItGoes) {
  Tape tape;
  Context ctx = context();
  const std::uint64_t before = runtime().allocator(device()).stats().in_use_bytes;
  {
    ctx.tape = &tape;
    Tensor x = leaf(ctx, {64, 64}, testing::random_floats(4096, 3));
    for (int i = 0; i < 10; ++i) x = ops::activation(ctx, x, Activation::silu);
    const Tensor seed = ctx.upload({64, 64}, testing::random_floats(4096, 4).data());
    const GradientStore store = tape.backward(ctx, x, seed);
  }
  EXPECT_EQ(runtime().allocator(device()).stats().in_use_bytes, before);
}

TEST_P(TapeTest, EveryOpsGradientAgreesWithItsFunction) {
  const Context ctx = context();
  const Shape image{2, 6, 5, 4};
  const auto parameter = [&](const Shape& shape, std::uint64_t seed) {
    return testing::random_tensor(ctx, shape, seed);
  };
  const Tensor conv_w = parameter({6, 3, 3, 2}, 21), depth_w = parameter({3, 3, 8}, 22), bias = parameter({4}, 23);
  const Tensor dense_w = parameter({7, 120}, 24), scale = parameter({4}, 25), shift = parameter({4}, 26);
  const Window2d window{.stride = {2, 1}, .padding = Padding::same()};
  using T = const Tensor&;
  using C = const Context&;
  expect_directional(
      ctx, image, -1, 1, [&](C c, T x) { return ops::conv2d(c, x, conv_w, window, 2); }, 1e-3);
  expect_directional(
      ctx, image, -1, 1, [&](C c, T x) { return ops::depthwise_conv2d(c, x, depth_w, window); }, 1e-3);
  expect_directional(
      ctx, image, -1, 1, [&](C c, T x) { return ops::bias_add(c, x, bias); }, 1e-3);
  for (const Activation activation : {Activation::leaky_relu, Activation::gelu, Activation::sigmoid})
    expect_directional(
        ctx, image, 0.75f, 2,
        [&](C c, T x) {
          return ops::bias_activation(c, x, bias, {activation, 0.5f});
        },
        1e-3);
  expect_directional(
      ctx, image, -1, 1, [&](C c, T x) { return ops::dense(c, ops::flatten(c, x), dense_w); }, 1e-3);
  expect_directional(
      ctx, image, -1, 1, [&](C c, T x) { return ops::batch_norm(c, x, Norm{.scale = scale, .shift = shift}); }, 5e-3);
  const Tensor mean = parameter({4}, 27), variance = ops::activation(ctx, parameter({4}, 28), Activation::sigmoid);
  for (const Activation activation : {Activation::none, Activation::silu})
    expect_directional(
        ctx, image, -1, 1,
        [&](C c, T x) {
          return ops::batch_norm(c, x,
                                 Norm{.scale = scale,
                                      .shift = shift,
                                      .running_mean = mean,
                                      .running_variance = variance,
                                      .activation = {activation},
                                      .frozen = true});
        },
        1e-3);
  expect_directional(
      ctx, image, -1, 1,
      [&](C c, T x) {
        return ops::avg_pool2d(c, x, {.kernel = {3, 2}, .stride = {2, 2}});
      },
      1e-3);
  expect_directional(
      ctx, image, -1, 1, [&](C c, T x) { return ops::global_avg_pool2d(c, x); }, 1e-3);
  expect_directional(
      ctx, image, -1, 1, [&](C c, T x) { return ops::activation(c, x, Activation::gelu); }, 1e-3);
  // Positive inputs keep clear of relu's corner and steps of the order; max pooling's winners are the larger of clearly
  // apart values.
  expect_directional(
      ctx, image, 0.5f, 1, [&](C c, T x) { return ops::activation(c, x, Activation::relu); }, 1e-3);
  expect_directional(
      ctx, {3, 5}, -1, 1,
      [&](C c, T x) {
        const std::vector<std::int32_t> labels = {1, 0, 4};
        const Tensor loss =
            ops::softmax_cross_entropy(c, x, c.upload({3}, labels.data()), {.label_smoothing = 0.1f}).loss;
        return ops::reshape(c, loss, {1});
      },
      1e-3);
}

TEST_P(TapeTest, AParameterGetsItsGradientThroughAnyOp) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    ParameterArena arena;
    Parameter& gate = arena.declare({.name = "gate", .shape = {2, 3}, .initializer = constant(0.5f)});
    Context ctx = context({kind});
    arena.materialize(ctx, 1);
    Tape tape;
    ctx.tape = &tape;
    int heard = 0;
    tape.set_parameter_hook([&](Parameter& parameter) { heard += parameter.name() == "gate"; });
    const Tensor x = testing::random_tensor(ctx, {6}, 3);
    // Twice in one graph: through reshape and add, and through add alone.
    const Tensor flat = ops::reshape(ctx, gate.value(), {6});
    const Tensor y = ops::add(ctx, ops::add(ctx, x, flat),
                              ops::reshape(ctx, ops::activation(ctx, gate.value(), Activation::relu), {6}));
    const std::vector<float> seed = {1, -2, 3, -4, 5, -6};
    (void)tape.backward(
        ctx, y,
        ops::cast(ctx, ctx.upload({6}, seed.data()), kind == PrecisionKind::float32 ? DType::float32 : DType::float16));
    EXPECT_EQ(to_host<float>(gate.gradient(), ctx.stream), (std::vector<float>{2, -4, 6, -8, 10, -12}));
    EXPECT_EQ(heard, 2);
  }
}

/// Passes its input on, and its gradient as it comes, also a deferred one.
Tensor passed_on(const Context& ctx, const Tensor& x) {
  Tensor y = x.view(x.shape());
  ctx.tape->record_deferred(ctx, y, [x = ValueRef(x)](const Context& inner, Gradient dy, GradientStore& store) {
    store.add(inner, x, std::move(dy));
  });
  return y;
}

TEST_P(TapeTest, ALeafHasTheWholeGradientAlsoWhereAnOpDeferredIt) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const Tensor x = leaf(ctx, {3}, {1, 2, 3});
  const Tensor y = passed_on(ctx, x);
  const Tensor u = ops::add(ctx, y, testing::random_tensor(ctx, {3}, 1));
  const std::vector<float> seed = {1, 10, 100};
  GradientStore store = tape.backward(ctx, ops::add(ctx, u, y), ctx.upload({3}, seed.data()));
  EXPECT_EQ(gradient_of(ctx, store, x), (std::vector<float>{2, 20, 200}));
}

TEST_P(TapeTest, OperandsOfAnotherDeviceAreRefused) {
  const Context ctx = context();
  const Context meta = Context::make(runtime(), Device::meta_of(device()));
  const Tensor elsewhere = meta.allocate({2, 4, 4, 3}, DType::float32),
               here = testing::random_tensor(ctx, {8, 3, 3, 3}, 1);
  EXPECT_THROW((void)ops::conv2d(ctx, elsewhere, here), DeviceError);
  EXPECT_THROW((void)ops::activation(ctx, elsewhere, Activation::relu), DeviceError);
  EXPECT_THROW((void)ops::max_pool2d(ctx, elsewhere, {.kernel = {2, 2}}), DeviceError);
}

TEST_P(TapeTest, GlobalAverageSupportsLargeImages) {
  const Context ctx = context();
  const Tensor x = testing::random_tensor(ctx, {1, 300, 300, 1}, 5, 0.0f, 1.0f);
  double sum = 0;
  for (const float v : to_host<float>(x, ctx.stream)) sum += static_cast<double>(v);
  EXPECT_NEAR(to_host<float>(ops::global_avg_pool2d(ctx, x), ctx.stream)[0], sum / 90000, 1e-5);
  EXPECT_THROW((void)ops::global_max_pool2d(ctx, x), ShapeError);
}

TEST_P(TapeTest, MaxPoolSendsTheGradientToTheWinner) {
  Tape tape;
  Context ctx = context();
  ctx.tape = &tape;
  const Tensor x = leaf(ctx, {1, 2, 2, 1}, {1, 5, 5, 2});
  const Tensor y = ops::max_pool2d(ctx, x, {.kernel = {2, 2}, .stride = {2, 2}});
  GradientStore store = tape.backward(ctx, y, ctx.upload({1, 1, 1, 1}, std::vector<float>{3}.data()));
  EXPECT_EQ(gradient_of(ctx, store, x), (std::vector<float>{0, 3, 0, 0}));
}

TEST_P(TapeTest, BadShapesAreNamed) {
  const Context ctx = context();
  const Tensor image = testing::random_tensor(ctx, {1, 4, 4, 3}, 1), flat = testing::random_tensor(ctx, {2, 6}, 2);
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(
      message([&] {
        (void)ops::conv2d(ctx, image, testing::random_tensor(ctx, {8, 3, 3, 4}, 3));
      }),
      "conv2d: x (1, 4, 4, 3) and weight (8, 3, 3, 4) do not fit: expected 3 input channels a group, the weight has 4");
  EXPECT_EQ(message([&] {
              (void)ops::conv2d(ctx, flat, testing::random_tensor(ctx, {8, 3, 3, 4}, 3));
            }),
            "conv2d: expected (batch, height, width, channels), got (2, 6)");
  EXPECT_EQ(message([&] {
              (void)ops::depthwise_conv2d(ctx, image, testing::random_tensor(ctx, {3, 3, 4}, 3));
            }),
            "depthwise_conv2d: x (1, 4, 4, 3) and weight (3, 3, 4) do not fit: expected (kH, kW, 3·multiplier)");
  EXPECT_EQ(message([&] {
              (void)ops::conv2d(ctx, image, testing::random_tensor(ctx, {8, 5, 5, 3}, 3));
            }),
            "conv2d: a window of 5x5 does not fit an input of 4x4 with padding 0+0, 0+0");
  EXPECT_EQ(message([&] {
              (void)ops::dense(ctx, flat, testing::random_tensor(ctx, {3, 5}, 3));
            }),
            "dense: x (2, 6) and weight (3, 5) do not fit; expected (batch, …, inputs) and (units, inputs)");
  EXPECT_EQ(message([&] { (void)ops::add(ctx, flat, image); }), "add: (2, 6) and (1, 4, 4, 3) differ");
  EXPECT_EQ(message([&] {
              (void)ops::max_pool2d(ctx, image, {.kernel = {2, 2}, .padding = Padding::symmetric(2)});
            }),
            "max_pool2d: padding must be smaller than the window 2x2");
  EXPECT_THROW((void)ops::dropout(ctx, flat, 1.0f), ShapeError);
  EXPECT_THROW((void)ops::bias_add(ctx, flat, testing::random_tensor(ctx, {5}, 3)), ShapeError);
  EXPECT_THROW(
      (void)ops::conv2d(ctx, image, ops::cast(ctx, testing::random_tensor(ctx, {8, 3, 3, 3}, 3), DType::float16)),
      DTypeError);
}

}  // namespace
}  // namespace bantam::tape_test

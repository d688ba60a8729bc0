// Deferred gradients: what they compute, who shares it, and residual blocks whose norms accept them, against the same
// blocks with every gradient made.
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/ops/batch_norm.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::gradient_test {
namespace {

using testing::EngineTest;

class GradientTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(GradientTest);

Tensor values(const Context& context, const std::vector<float>& v) {
  return context.upload({static_cast<std::int64_t>(v.size())}, v.data());
}

Tensor mask_of(const Context& context, std::uint8_t bits) { return context.upload({1}, &bits); }

TEST_P(GradientTest, MakesTheMaskedSumInPlace) {
  const Context ctx = context();
  Tensor first = values(ctx, {1, 2, 3});
  const void* place = first.data();
  Gradient sum(std::move(first), values(ctx, {10, 20, 30}));
  Gradient gradient = std::move(sum).masked(ctx, mask_of(ctx, 0b101), {Activation::leaky_relu, 0.5f});
  EXPECT_TRUE(gradient.is_deferred());
  const Tensor made = std::move(gradient).tensor(ctx);
  EXPECT_EQ(to_host<float>(made, ctx.stream), (std::vector<float>{11, 11, 33}));
  EXPECT_EQ(made.data(), place);
  EXPECT_TRUE(made.sole_owner());
}

TEST_P(GradientTest, CopiesShareWhatTheFirstMakes) {
  const Context ctx = context();
  Gradient one = Gradient(values(ctx, {1, 2})).masked(ctx, mask_of(ctx, 0b01), {Activation::relu});
  Gradient two = one;
  EXPECT_TRUE(one.shared());
  const Tensor first = std::move(one).tensor(ctx);
  EXPECT_FALSE(two.is_deferred());
  const Tensor second = std::move(two).tensor(ctx);
  EXPECT_EQ(first.data(), second.data());
  EXPECT_FALSE(first.sole_owner());  // nobody may work in place
  EXPECT_EQ(to_host<float>(second, ctx.stream), (std::vector<float>{1, 0}));
}

TEST_P(GradientTest, ASecondMaskFollowsTheFirst) {
  const Context ctx = context();
  Gradient gradient = Gradient(values(ctx, {1, 2, 3, 4})).masked(ctx, mask_of(ctx, 0b0111), {Activation::relu});
  gradient = std::move(gradient).masked(ctx, mask_of(ctx, 0b1101), {Activation::relu});
  EXPECT_EQ(to_host<float>(std::move(gradient).tensor(ctx), ctx.stream), (std::vector<float>{1, 0, 3, 0}));
}

TEST_P(GradientTest, MakesANormsInputGradientOfDz) {
  const Context ctx = context();
  constexpr std::size_t kRows = 5, kChannels = 3;
  const auto x = testing::random_floats(kRows * kChannels, 1), dz = testing::random_floats(kRows * kChannels, 2),
             scale = testing::random_floats(kChannels, 3), mean = testing::random_floats(kChannels, 4),
             inv_std = testing::random_floats(kChannels, 5, 0.5f, 2.0f);
  std::vector<float> totals(2 * kChannels), expected(dz.size());
  const auto normalised = [&](std::size_t i) { return (x[i] - mean[i % kChannels]) * inv_std[i % kChannels]; };
  for (std::size_t i = 0; i < dz.size(); ++i) {
    totals[i % kChannels] += dz[i];
    totals[kChannels + i % kChannels] += dz[i] * normalised(i);
  }
  for (std::size_t i = 0; i < dz.size(); ++i) {
    const std::size_t c = i % kChannels;
    expected[i] = scale[c] * inv_std[c] * (dz[i] - (totals[c] + normalised(i) * totals[kChannels + c]) / kRows);
  }
  const auto on_device = [&](const std::vector<float>& v, const Shape& shape) { return ctx.upload(shape, v.data()); };
  Gradient gradient(on_device(dz, {kRows, kChannels}),
                    {.x = on_device(x, {kRows, kChannels}),
                     .norm = {.scale = values(ctx, scale), .mean = values(ctx, mean), .inv_std = values(ctx, inv_std)},
                     .totals = on_device(totals, {2, kChannels})});
  EXPECT_TRUE(gradient.is_deferred() && gradient.of_norm());
  const std::vector<float> made = to_host<float>(std::move(gradient).tensor(ctx), ctx.stream);
  for (std::size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], expected[i], 1e-5);
}

/// An op that does nothing, and whose backward accepts tensors only.
Tensor passed_on(const Context& context, const Tensor& x) {
  Tensor y = x.view(x.shape());
  const ValueRef ref = x;
  context.tape->record(
      context, y, [ref](const Context& ctx, Tensor dy, GradientStore& store) { store.add(ctx, ref, std::move(dy)); });
  return y;
}

struct Case {
  Shape shape;
  PrecisionKind precision;
  Activation activation;
  bool shortcut_norm;  ///< the second block's shortcut has a norm too
};

/// Two residual blocks x → f(norm(x) + x) → f(norm(y) + y or norm(y)): the gradients of x and of all vectors.
std::vector<std::vector<float>> residual_gradients(Runtime& runtime, Device device, const Case& c, bool deferred) {
  Context context = Context::make(runtime, device, {c.precision});
  Tape tape;
  context.tape = &tape;
  std::vector<std::uint64_t> ids;
  const auto leaf = [&](Tensor x) {
    x.set_value_id(runtime.new_value_id());
    ids.push_back(x.value_id());
    return x;
  };
  const Shape channels{c.shape[-1]};
  const auto norm = [&](const Tensor& x, std::uint64_t seed) {
    const auto vector = [&](std::uint64_t s) {
      return leaf(context.upload(channels, testing::random_floats(channels[0], s, 0.5f, 1.5f).data()));
    };
    const Tensor y = ops::batch_norm(context, x, Norm{.scale = vector(seed), .shift = vector(seed + 1)});
    return deferred ? y : passed_on(context, y);
  };
  const Tensor x = leaf(testing::random_tensor(context, c.shape, 1, -2, 3));
  const Tensor y = ops::add(context, norm(x, 10), x, {c.activation, 0.25f});
  const Tensor shortcut = c.shortcut_norm ? norm(y, 30) : y;
  Tensor z = ops::add(context, norm(y, 20), shortcut, {c.activation, 0.25f});
  const Tensor seed = testing::random_tensor(context, c.shape, 2);
  GradientStore store = tape.backward(context, std::move(z), seed);
  std::vector<std::vector<float>> all;
  for (const std::uint64_t id : ids) all.push_back(to_host_floats(store.pop(id), context.stream));
  return all;
}

TEST_P(GradientTest, ResidualBlocksHaveTheSameBits) {
  for (const Shape& shape : {Shape{7, 3}, Shape{2, 5, 3, 9}, Shape{40, 64}, Shape{33, 24}, Shape{520, 128}})
    for (const PrecisionKind precision :
         {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16})
      for (const Activation activation : {Activation::none, Activation::relu, Activation::leaky_relu})
        for (const bool shortcut_norm : {false, true}) {
          const Case c{shape, precision, activation, shortcut_norm};
          EXPECT_TRUE(residual_gradients(runtime(), device(), c, true) ==
                      residual_gradients(runtime(), device(), c, false))
              << to_string(shape) << " " << to_string(Precision{precision}) << " " << kernels::to_string(activation);
        }
}

}  // namespace
}  // namespace bantam::gradient_test

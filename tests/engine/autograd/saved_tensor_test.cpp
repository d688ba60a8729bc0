// Saved tensors: recipes compute the same bits, own no memory, share living copies, and end where a chain gets long.
#include "bantam/engine/autograd/saved_tensor.h"

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/batch_norm.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::saved_tensor_test {
namespace {

using testing::EngineTest;

class SavedTensorTest : public EngineTest {
 protected:
  const NodePlan cheap_{.derive = Derive::cheap};
  /// A context whose ops record and attach recipes.
  Context recording(Precision precision = {}) {
    Context ctx = context(precision);
    ctx.tape = &tape_;
    ctx.node = &cheap_;
    return ctx;
  }
  Context backward_context(Context ctx) {
    ctx.tape = nullptr;
    return ctx;
  }
  /// Random values that want a gradient.
  Tensor leaf(const Context& ctx, const Shape& shape, std::uint64_t seed) {
    Tensor x = testing::random_tensor(ctx, shape, seed);
    x.set_value_id(runtime().new_value_id());
    return x;
  }
  std::uint64_t in_use() { return runtime().allocator(device()).stats().in_use_bytes; }
  std::vector<float> values(const Tensor& tensor) { return to_host_floats(tensor, runtime().stream(device())); }

 private:
  Tape tape_;
};
BANTAM_INSTANTIATE_ON_DEVICES(SavedTensorTest);

const ActivationFunction kRelu{Activation::relu};

TEST_P(SavedTensorTest, ARecipeOwnsNoMemoryAndComputesTheSameBits) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    const Context ctx = recording({kind});
    const Tensor x = leaf(ctx, {64, 33}, 1);
    Tensor y = ops::batch_norm(ctx, x, Norm{.activation = {Activation::silu}});
    const std::vector<float> bits = values(y);
    const std::uint64_t with_y = in_use();
    const SavedTensor saved = y;
    EXPECT_EQ(saved.shape(), y.shape());
    EXPECT_EQ(saved.ref().id, y.value_id());
    EXPECT_EQ(saved.traffic(), 2) << "x is read and y written";
    y = Tensor();
    EXPECT_LT(in_use(), with_y);
    EXPECT_EQ(values(saved.get(backward_context(ctx))), bits);
  }
}

TEST_P(SavedTensorTest, CopiesAreSharedWhileTheyLive) {
  const Context ctx = recording(), later = backward_context(ctx);
  const Tensor x = leaf(ctx, {64, 8}, 1);
  SavedTensor saved = ops::batch_norm(ctx, x, Norm{});
  const std::uint64_t before = in_use();
  {
    const Tensor first = saved.get(later), second = saved.get(later);
    EXPECT_EQ(first.data(), second.data());
    EXPECT_EQ(in_use(), before + first.bytes());
  }
  EXPECT_EQ(in_use(), before);
  const std::vector<float> bits = values(saved.get(later));
  EXPECT_EQ(values(saved.unpack(later)), bits);
  EXPECT_FALSE(saved.defined());
  EXPECT_EQ(saved.shape(), (Shape{64, 8}));
}

TEST_P(SavedTensorTest, WithoutDeriveTheMemoryIsKept) {
  Context ctx = recording();
  const NodePlan none{.derive = Derive::none};
  ctx.node = &none;
  const Tensor x = leaf(ctx, {64, 8}, 1), y = ops::batch_norm(ctx, x, Norm{});
  EXPECT_EQ(recipe_of(y), nullptr);
  const SavedTensor saved = y;
  EXPECT_EQ(saved.get(ctx).data(), y.data());
  EXPECT_EQ(saved.traffic(), 0);
}

TEST_P(SavedTensorTest, ChainsOfCheapOpsComputeTheSameBitsAfterTheOriginalsWereOverwritten) {
  Context ctx = recording();
  const Tensor updates = ctx.allocate({}, DType::int64);
  zero_bytes(updates.data(), updates.bytes(), ctx.stream);
  ctx.random.update = updates.as<std::int64_t>();
  const Tensor x = leaf(ctx, {6, 4, 4, 3}, 1);
  Tensor y = ops::batch_norm(ctx, x, Norm{});
  std::vector<SavedTensor> saved{y};
  std::vector<std::vector<float>> bits{values(y)};
  const auto keep = [&](const Tensor& tensor) {
    saved.emplace_back(tensor);
    bits.push_back(values(tensor));
  };
  y = ops::activation(ctx, std::move(y), Activation::leaky_relu, 0.25f);
  keep(y);
  y = ops::flatten(ctx, y);
  keep(y);
  y = ops::dropout(ctx, ops::batch_norm(ctx, x, Norm{}), 0.4f);
  keep(y);
  y = Tensor();
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_GT(saved[i].traffic(), 0);
    EXPECT_EQ(values(saved[i].get(backward_context(ctx))), bits[i]) << i;
  }
}

TEST_P(SavedTensorTest, NoSumIsMadeFromASumThatIsMade) {
  const Context ctx = recording();
  NodePlan defers = cheap_;
  defers.defers_norm = true;
  const Context deferring = testing::under(ctx, defers);
  Tensor sum = ops::batch_norm(ctx, leaf(ctx, {16, 8}, 1), Norm{});
  std::vector<int> traffic;
  std::vector<SavedTensor> saved;
  std::vector<std::vector<float>> bits;
  for (std::uint64_t block = 0; block < 6; ++block) {
    const SavedTensor shortcut = sum;  // as the next convolution keeps it
    sum = ops::add(ctx, ops::batch_norm(deferring, leaf(ctx, {16, 8}, 2 + block), Norm{}), sum, kRelu);
    saved.emplace_back(sum);
    traffic.push_back(saved.back().traffic());
    bits.push_back(values(sum));
  }
  EXPECT_EQ(traffic, (std::vector<int>{5, 0, 3, 0, 3, 0}));
  for (std::size_t i = 0; i < saved.size(); ++i) EXPECT_EQ(values(saved[i].get(backward_context(ctx))), bits[i]) << i;
}

TEST_P(SavedTensorTest, InnerDerivesNoSums) {
  Context ctx = recording();
  const NodePlan inner{.derive = Derive::inner};
  ctx.node = &inner;
  const Tensor a = ops::batch_norm(ctx, leaf(ctx, {16, 8}, 1), Norm{}), b = leaf(ctx, {16, 8}, 2);
  EXPECT_NE(recipe_of(a), nullptr);
  EXPECT_EQ(recipe_of(ops::add(ctx, a, b, kRelu)), nullptr);
  EXPECT_NE(recipe_of(ops::activation(ctx, a, Activation::relu)), nullptr);
}

TEST_P(SavedTensorTest, WhatNobodyElseKeepsIsNoBasisForARecipe) {
  const Context ctx = recording();
  Tensor x = leaf(ctx, {16, 8}, 1);
  EXPECT_EQ(recipe_of(ops::activation(ctx, std::move(x), Activation::relu)), nullptr);  // works in place
  const Tensor kept = leaf(ctx, {16, 8}, 2);
  EXPECT_NE(recipe_of(ops::activation(ctx, kept, Activation::relu)), nullptr);
  Context silent = ctx;
  silent.tape = nullptr;
  EXPECT_EQ(recipe_of(ops::batch_norm(silent, kept, Norm{})), nullptr);
}

TEST_P(SavedTensorTest, SavedStatisticsComeBackInOrderAndNoMore) {
  const Context ctx = context();
  SavedStatistics saved;
  saved.save(testing::random_tensor(ctx, {3}, 1));
  saved.save(testing::random_tensor(ctx, {4}, 2));
  EXPECT_FALSE(saved.replaying());
  saved.replay();
  EXPECT_EQ(saved.next().shape(), (Shape{3}));
  EXPECT_EQ(saved.next().shape(), (Shape{4}));
  EXPECT_THROW((void)saved.next(), Error);
}

}  // namespace
}  // namespace bantam::saved_tensor_test

// Deferred norms: a sum that applies its operands' batch norms has the bits of one that reads them written, forward and
// backward; and which norms of a graph are deferred to their readers.
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/model/lower.h"
#include "bantam/engine/ops/batch_norm.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"

namespace bantam::deferred_norm_test {
namespace {

using testing::EngineTest;

class DeferredNormTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(DeferredNormTest);

struct Case {
  Shape shape;
  PrecisionKind precision = PrecisionKind::float32;
  ActivationFunction activation;
  bool both = false;  ///< the second operand is a norm too
  bool derive = false;
};

/// The output, its rebuilt copy (where it has a recipe), and the gradients of both inputs and all four vectors.
std::vector<std::vector<float>> results(Runtime& runtime, Device device, const Case& c, bool defer) {
  Context context = Context::make(runtime, device, {c.precision});
  Tape tape;
  context.tape = &tape;
  const NodePlan writes{.derive = c.derive ? Derive::cheap : Derive::none};
  context.node = &writes;
  testing::LeafTensors leaf(runtime);
  const Shape channels{c.shape[-1]};
  const auto vector = [&](std::uint64_t seed) {
    return leaf(context.upload(channels, testing::random_floats(channels[0], seed, 0.5f, 1.5f).data()));
  };
  const auto norm = [&](const Tensor& x, std::uint64_t seed) {
    NodePlan plan = writes;
    plan.defers_norm = defer;
    const Norm norm{.scale = vector(seed), .shift = vector(seed + 1)};
    const Tensor y = ops::batch_norm(testing::under(context, plan), x, norm);
    EXPECT_EQ(deferred_norm_of(y) != nullptr, defer);
    return y;
  };
  const Tensor a = leaf(testing::random_tensor(context, c.shape, 1, -2, 3)),
               b = leaf(testing::random_tensor(context, c.shape, 2));
  const Tensor right = c.both ? norm(b, 30) : b;
  Tensor y = ops::add(context, right, norm(a, 20), c.activation);
  EXPECT_EQ(deferred_norm_of(y), nullptr);
  std::vector<std::vector<float>> all{to_host_floats(y, context.stream)};
  Context later = context;
  later.tape = nullptr;
  const SavedTensor saved = y;
  if (c.derive && (c.activation.kind == Activation::relu || c.activation.kind == Activation::relu6)) {
    EXPECT_EQ(saved.traffic(), defer ? 3 : c.both ? 0 : 5);
  }
  const Tensor seed = testing::random_tensor(context, c.shape, 3);
  y = Tensor(saved.get(later));
  all.push_back(to_host_floats(y, context.stream));
  y.set_value_id(saved.ref().id);
  GradientStore store = tape.backward(context, std::move(y), seed);
  for (const std::uint64_t id : leaf.ids()) all.push_back(to_host_floats(store.pop(id), context.stream));
  return all;
}

TEST_P(DeferredNormTest, ASumThatAppliesNormsHasTheSameBitsForwardAndBackward) {
  for (const Shape& shape : {Shape{7, 3}, Shape{2, 5, 3, 9}, Shape{40, 64}, Shape{33, 24}})
    for (const PrecisionKind precision :
         {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16})
      for (const Activation kind : {Activation::none, Activation::relu, Activation::relu6, Activation::gelu})
        for (const bool both : {false, true})
          for (const bool derive : {false, true}) {
            const Case c{shape, precision, {kind}, both, derive};
            EXPECT_EQ(results(runtime(), device(), c, true), results(runtime(), device(), c, false))
                << to_string(shape) << " " << to_string(Precision{precision}) << " " << kernels::to_string(kind);
          }
}

TEST_P(DeferredNormTest, NothingIsWrittenUntilTheSum) {
  const Context plain = context();
  const NodePlan defers{.defers_norm = true};
  Context ctx = testing::under(plain, defers);
  Tensor x = testing::random_tensor(ctx, {64, 32}, 1), shortcut = testing::random_tensor(ctx, {64, 32}, 2);
  const void* place = x.data();
  Tensor normed = ops::batch_norm(ctx, x, Norm{});
  EXPECT_EQ(normed.data(), place);
  x = Tensor();
  const Tensor y = ops::add(ctx, std::move(normed), shortcut, {Activation::relu});
  EXPECT_EQ(y.data(), place) << "the last holder's memory is written over";
  EXPECT_EQ(deferred_norm_of(y), nullptr);
  ctx.pass = Pass::evaluate;  // by running statistics: written
  const Tensor zeros = ctx.upload({32}, std::vector<float>(32, 0.0f).data());
  EXPECT_EQ(deferred_norm_of(ops::batch_norm(ctx, shortcut, Norm{.running_mean = zeros, .running_variance = zeros})),
            nullptr);
  ctx.pass = Pass::train;  // an activation after it: written
  EXPECT_EQ(deferred_norm_of(ops::batch_norm(ctx, shortcut, Norm{.activation = {Activation::relu}})), nullptr);
}

/// Names of the norms that are deferred to their readers.
std::vector<std::string> deferred(const Graph& graph, const RecomputeOptions& recompute) {
  std::vector<std::string> names;
  for (const ProgramSegment& segment : lower(graph, recompute).segments)
    for (const NodePlan& plan : segment.nodes)
      if (plan.defers_norm) names.push_back(graph.node(plan.last).name);
  return names;
}

TEST(DeferredNorms, AreThoseWithoutActivationWhoseOnlyReaderIsASum) {
  using Names = std::vector<std::string>;
  Graph graph({8, 8, 4});
  graph.add("a/relu", batch_norm({.activation = {Activation::relu}}));
  const NodeId left = graph.add("a/left", batch_norm(), {1}), right = graph.add("a/right", batch_norm(), {1});
  graph.add("b/add", add({Activation::relu}), {left, right});
  const NodeId shared = graph.add("c/shared", batch_norm());
  const NodeId twice = graph.add("c/twice", add(), {shared, shared});
  const NodeId conv =
      graph.add("c/conv", conv2d({.filters = 4, .kernel = {1, 1}}), {graph.add("c/read", batch_norm())});
  graph.add("c/add", add(), {graph.add("c/norm", batch_norm(), {conv}), twice});
  graph.add("last", batch_norm());
  EXPECT_EQ(deferred(graph, {}), (Names{"a/left", "a/right", "c/norm"}));
  const auto named = [](Names names) { return RecomputeOptions{RecomputeOptions::Kind::named, std::move(names)}; };
  EXPECT_EQ(deferred(graph, named({"b/add"})), (Names{"c/norm"})) << "what enters a segment is written";
  EXPECT_EQ(deferred(graph, named({"c/read..c/norm"})), (Names{"a/left", "a/right"})) << "what is read outside it too";
  EXPECT_EQ(deferred(graph, named({"a/relu..b/add", "c"})), (Names{"a/left", "a/right", "c/norm"}));
}

}  // namespace
}  // namespace bantam::deferred_norm_test

// The fused end of a classifier: where it stands in, and that it trains as its parts do.
#include "bantam/base/error.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/model/lower.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::classifier_head_op_test {
namespace {

using testing::EngineTest;

Graph classifier(Activation activation = Activation::relu, std::int64_t classes = 5, bool bias = true) {
  Graph graph({8, 8, 3});
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}, .activation = {Activation::relu}}));
  graph.add("flat", flatten());
  graph.add("hidden", dense({.units = 16, .bias = bias, .activation = {activation}}));
  graph.add("logits", dense({.units = classes}));
  return graph;
}

bool fuses(const Graph& graph, DeviceKind device = DeviceKind::cuda, DType dtype = DType::float16) {
  for (const Fusion& fusion : find_fusions(graph, {.compute = dtype, .device = device}))
    if (fusion.pattern->makes_loss) return true;
  return false;
}

TEST(ClassifierHeadPattern, StandsInForTwoDenseLayersAtTheEnd) {
  EXPECT_TRUE(fuses(classifier()));
  EXPECT_TRUE(fuses(classifier(), DeviceKind::cuda, DType::float32));
  EXPECT_FALSE(fuses(classifier(), DeviceKind::cpu)) << "the parts are as fast there";
  EXPECT_FALSE(fuses(classifier(Activation::gelu)));
  EXPECT_FALSE(fuses(classifier(Activation::relu, 65))) << "more classes than the kernel supports";
  EXPECT_FALSE(fuses(classifier(Activation::relu, 5, false))) << "no bias";
  Graph longer = classifier();
  longer.add("more", dense({.units = 3}));
  EXPECT_FALSE(fuses(longer)) << "not at the end";
}

TEST(ClassifierHeadPattern, IsNeverRecomputed) {
  const Graph graph = classifier();
  const std::vector<Fusion> fusions = find_fusions(graph, {.compute = DType::float16, .device = DeviceKind::cuda});
  const RecomputeOptions all{.kind = RecomputeOptions::Kind::all};
  const RecomputeOptions named{.kind = RecomputeOptions::Kind::named, .names = {"conv..logits"}};
  const RecomputeOptions inner{.kind = RecomputeOptions::Kind::named, .names = {"logits"}};
  for (const RecomputeOptions& options : {all, named, inner}) {
    const std::vector<ProgramSegment> segments = lower(graph, options, fusions).segments;
    EXPECT_EQ(segments.back().first, 3);
    EXPECT_EQ(segments.back().last, 4);
    EXPECT_FALSE(segments.back().recompute);
    EXPECT_EQ(segments.front().recompute, options.names != inner.names) << "the rest of the segment is";
  }
}

/// The op, and the same of parts, on random values.
struct Parts {
  explicit Parts(Context at) : context(at) {
    x = testing::random_tensor(context, {12, 24}, 1);
    p = {testing::random_tensor(context, {16, 24}, 2), testing::random_tensor(context, {16}, 3),
         testing::random_tensor(context, {5, 16}, 4), testing::random_tensor(context, {5}, 5)};
    std::vector<std::int32_t> classes(12);
    for (std::size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<std::int32_t>(i * 3 % 5);
    labels = context.upload({12}, classes.data());
    const float one = 1.0f;
    seed = context.upload({}, &one);
    for (Tensor* leaf : {&x, &p.w1, &p.b1, &p.w2, &p.b2}) leaf->set_value_id(context.runtime->new_value_id());
  }
  Tensor composed(const Context& ctx) const {
    Tensor hidden = ops::bias_add(ctx, ops::dense(ctx, x, p.w1), p.b1);
    hidden = ops::activation(ctx, std::move(hidden), Activation::relu);
    const Tensor logits = ops::bias_add(ctx, ops::dense(ctx, std::move(hidden), p.w2), p.b2);
    return ops::softmax_cross_entropy(ctx, logits, labels, {.label_smoothing = 0.1f}).loss;
  }
  Tensor fused(const Context& ctx, const Tensor& promised) const {
    return ops::classifier_head(ctx, x, p, labels, {{.label_smoothing = 0.1f}, promised});
  }
  /// The loss, and the gradients of x and the parameters.
  std::vector<std::vector<float>> run(bool fuse) {
    Tape tape;
    Context ctx = context;
    ctx.tape = &tape;
    const Tensor loss = fuse ? fused(ctx, seed) : composed(ctx);
    GradientStore store = tape.backward(ctx, loss, seed);
    std::vector<std::vector<float>> values = {floats(loss)};
    for (const Tensor* leaf : {&x, &p.w1, &p.b1, &p.w2, &p.b2}) values.push_back(floats(store.pop(leaf->value_id())));
    return values;
  }
  std::vector<float> floats(const Tensor& t) const { return to_host<float>(t, context.stream); }

  Context context;
  Tensor x, labels, seed;
  ops::ClassifierHeadParameters p;
};

class ClassifierHeadOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ClassifierHeadOpTest);

TEST_P(ClassifierHeadOpTest, HasLossAndGradientsOfItsParts) {
  Parts parts(context());
  const auto fused = parts.run(true), composed = parts.run(false);
  // Sums of at most 24 terms in another order: a few units of float32.
  for (std::size_t i = 0; i < fused.size(); ++i)
    EXPECT_LE(testing::relative_difference(fused[i], composed[i]), 1e-6) << i;
}

TEST_P(ClassifierHeadOpTest, KeepsToThePromisedSeed) {
  Parts parts(context());
  Tape tape;
  Context ctx = parts.context;
  ctx.tape = &tape;
  EXPECT_THROW((void)parts.fused(ctx, Tensor()), Error);
  const Tensor loss = parts.fused(ctx, parts.seed);
  const float two = 2.0f;
  EXPECT_THROW((void)tape.backward(ctx, loss, ctx.upload({}, &two)), Error);
  EXPECT_EQ(parts.floats(parts.fused(parts.context, Tensor())), parts.floats(loss)) << "without a tape none is needed";
}

TEST_P(ClassifierHeadOpTest, RefusesWhatDoesNotFit) {
  Parts parts(context());
  parts.p.b2 = testing::random_tensor(parts.context, {4}, 5);
  EXPECT_THROW((void)parts.fused(parts.context, parts.seed), ShapeError);
}

/// Weights and metrics of three updates in two micro-batches each, and the loss of an evaluation.
struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;
};
Outcome train(Device device, const ModelOptions& options) {
  Runtime runtime({.threads = 2});
  Model model(runtime, device, classifier(), options);
  Optimizer optimizer(model, {.initial_loss_scale = 1024});
  TrainingStep step(model, optimizer, {.loss = softmax_cross_entropy({.label_smoothing = 0.1f})});
  const auto batch = [&](std::int64_t first, std::int64_t samples) {
    return testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, first, samples);
  };
  for (std::int64_t update = 0; update < 3; ++update) {
    step.micro_batch(batch(12 * update, 8), 0, 12);
    step.micro_batch(batch(12 * update + 8, 4), 8, 12);
    step.update();
  }
  Outcome outcome;
  for (const Metrics& metrics : step.read_metrics()) outcome.losses.push_back(metrics.loss);
  step.evaluate(batch(100, 7));
  outcome.losses.push_back(step.read_evaluation().loss);
  outcome.weights = to_host<float>(model.parameters().master(), runtime.stream(device));
  return outcome;
}

// On the CPU the fusion never stands in, and all of these are the same program.
TEST_P(ClassifierHeadOpTest, TrainsAsItsPartsDo) {
  const Outcome fused = train(device(), {.seed = 3}), composed = train(device(), {.seed = 3, .fusion = false});
  // Adam's first steps have the size of the learning rate, 1e-3, whatever the gradient: where one is next to nothing,
  // its sign is a matter of rounding.
  EXPECT_LE(testing::relative_difference(fused.weights, composed.weights), 1e-4);
  ASSERT_EQ(fused.losses.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(fused.losses[i], composed.losses[i], 1e-4) << i;
}

TEST_P(ClassifierHeadOpTest, RecomputeChangesNoBit) {
  for (const PrecisionKind precision : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    const Outcome kept = train(device(), {.precision = {precision}, .seed = 3});
    for (const RecomputeOptions& options :
         {RecomputeOptions{.kind = RecomputeOptions::Kind::all},
          RecomputeOptions{.kind = RecomputeOptions::Kind::named, .names = {"conv..logits"}}}) {
      const Outcome again = train(device(), {.precision = {precision}, .seed = 3, .recompute = options});
      EXPECT_EQ(again.weights, kept.weights);
      EXPECT_EQ(again.losses, kept.losses);
    }
  }
}

}  // namespace
}  // namespace bantam::classifier_head_op_test

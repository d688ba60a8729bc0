// What holds for every built-in layer, a row each: its gradient is its function's, recompute changes no bit, plans are
// the truth to the byte, and shapes that do not fit are refused. A new layer adds its rows.
#include "bantam/base/error.h"
#include "bantam/engine/plan/step_plan.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/finite_differences.h"

namespace bantam {
namespace {

using testing::EngineTest;

struct Row {
  std::string name;
  LayerPtr layer;
  Shape input, output;
  float low = -1;  // of the gradient's inputs: away from corners, where there are some
};

std::vector<Row> rows() {
  const Shape image{6, 4, 4};
  const ActivationOptions gelu{Activation::gelu};
  return {{"conv2d",
           conv2d({.filters = 6, .stride = {2, 1}, .padding = Padding::same(), .groups = 2, .activation = gelu}),
           image,
           {3, 4, 6}},
          {"transposed_conv2d",
           transposed_conv2d({.filters = 6,
                              .kernel = {3, 2},
                              .stride = {2, 1},
                              .output_padding = {1, 0},
                              .padding = Padding::symmetric(1),
                              .groups = 2,
                              .activation = gelu}),
           image,
           {12, 3, 6}},
          {"transposed_conv2d alone", transposed_conv2d({.filters = 3, .bias = false}), image, {12, 8, 3}},
          {"depthwise_conv2d", depthwise_conv2d({.multiplier = 2}), image, {4, 2, 8}},
          {"separable_conv2d", separable_conv2d({.filters = 5, .padding = Padding::same()}), image, {6, 4, 5}},
          {"dense", dense({.units = 7, .activation = gelu}), {9}, {7}},
          {"batch_norm", batch_norm({.activation = gelu}), image, image},
          {"average_pool", average_pool({.window = {3, 2}, .stride = {2, 2}}), image, {2, 2, 4}},
          {"global_average_pool", global_average_pool(), image, {4}},
          {"relu", activation({Activation::relu}), image, image, 0.5f},
          {"silu", activation({Activation::silu}), image, image},
          {"dropout", dropout({.rate = 0.25f}), image, image},
          {"flatten", flatten(), image, {96}},
          {"reshape", reshape({.shape = {12, 2, 4}}), image, {12, 2, 4}},
          {"reshape, one extent inferred", reshape({.shape = {8, -1}}), image, {8, 12}},
          {"reshape to an image", reshape({.shape = {-1, 2, 3}}), {12}, {2, 2, 3}}};
}

struct Misfit {
  std::string name;
  LayerPtr layer;
  Shape input;
  std::string message;
};

std::vector<Misfit> misfits() {
  const std::string extents = "reshape: expected 1 to 7 extents of at least 1, one of which may be -1, got ";
  return {{"conv2d", conv2d({}), {9}, "conv2d: expected an input (height, width, channels), got (9)"},
          {"transposed_conv2d",
           transposed_conv2d({.filters = 6, .groups = 4}),
           {2, 2, 4},
           "transposed_conv2d: 4 input channels and 6 filters do not divide into 4 groups"},
          {"no output",
           transposed_conv2d({.padding = Padding::symmetric(2)}),
           {2, 2, 4},
           "transposed_conv2d: an input of 2x2 with padding 2+2, 2+2 makes an output of 0x0"},
          {"dense", dense({}), {2, 2, 3}, "dense: expected an input (features), got (2, 2, 3); put flatten before it"},
          {"pool", max_pool(), {1, 1, 4}, "max_pool: a window of 2x2 does not fit an input of 1x1"},
          {"dropout", dropout({.rate = 1}), {4}, "dropout: the rate must be in [0, 1), got 1"},
          {"more", reshape({.shape = {4, 4}}), {2, 4, 1}, "reshape: the 8 elements of (2, 4, 1) do not fit (4, 4)"},
          {"fewer", reshape({.shape = {2, 2}}), {2, 4, 1}, "reshape: the 8 elements of (2, 4, 1) do not fit (2, 2)"},
          {"no whole extent", reshape({.shape = {3, -1}}), {8}, "reshape: the 8 elements of (8) do not fit (3, -1)"},
          {"two open", reshape({.shape = {-1, -1}}), {8}, extents + "(-1, -1)"},
          {"zero", reshape({.shape = {0, 8}}), {8}, extents + "(0, 8)"},
          {"negative", reshape({.shape = {-4, -2}}), {8}, extents + "(-4, -2)"},
          {"none", reshape({}), {1}, extents + "()"},
          {"too many", reshape({.shape = {1, 1, 1, 1, 1, 1, 1, 8}}), {8}, extents + "(1, 1, 1, 1, 1, 1, 1, 8)"}};
}

class BuiltInLayers : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(BuiltInLayers);

TEST_P(BuiltInLayers, GradientsAgreeWithTheFunction) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    Graph graph(row.input);
    graph.add("layer", row.layer);
    EXPECT_EQ(graph.output_shape(), row.output);
    Model model(runtime(), device(), graph, {});
    Context base = model.context(Pass::train);
    const std::int64_t no_updates = 0;
    const Tensor updates = base.upload({1}, &no_updates);  // dropout counts by it
    base.random.update = updates.as<std::int64_t>();
    // Statistics of a batch amplify rounding the most: 5e-3, as for the op.
    testing::expect_directional(
        base, row.input.prepend(3), row.low, 1,
        [&](const Context& context, const Tensor& x) { return model.forward(context, x); }, 5e-3);
  }
}

/// The layer in the middle of a network that learns five classes.
Graph network_with(const Row& row) {
  Graph graph(row.input);
  if (row.input.rank() == 3)
    graph.add("first", conv2d({.filters = row.input[2], .padding = Padding::same()}));
  else
    graph.add("first", dense({.units = row.input[0]}));
  graph.add("layer", row.layer);
  if (row.output.rank() > 1) graph.add("flat", flatten());
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Outcome {
  std::vector<float> weights;
  MemoryStats memory;
};

/// Three updates, each of one batch of 6.
Outcome trained(Device device, const Graph& graph, const ModelOptions& options) {
  Runtime fresh({.threads = 2});
  Model model(fresh, device, graph, options);
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {6}});
  for (int i = 0; i < 3; ++i)
    step.step(testing::make_batch(model.context(Pass::train), graph.input_shape(), 5, i * 6, 6));
  return {to_host<float>(model.parameters().master(), fresh.stream(device)), fresh.allocator(device).stats()};
}

TEST_P(BuiltInLayers, RecomputeChangesNoBitAndPlansAreTheTruth) {
  using Kind = RecomputeOptions::Kind;
  for (const Row& row : rows()) {
    const Graph graph = network_with(row);
    for (const PrecisionKind precision : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
      ModelOptions options{.precision = {precision}, .seed = 3};
      const std::vector<float> kept = trained(device(), graph, options).weights;
      for (const RecomputeOptions& recompute :
           {RecomputeOptions{}, RecomputeOptions{.derive = Derive::cheap}, RecomputeOptions{.kind = Kind::all},
            RecomputeOptions{.kind = Kind::named, .names = {"layer"}},
            RecomputeOptions{.kind = Kind::named, .names = {"first..layer"}, .derive = Derive::inner}}) {
        SCOPED_TRACE(row.name + ", " + std::string(to_string(options.precision)));
        options.recompute = recompute;
        const Outcome run = trained(device(), graph, options);
        EXPECT_EQ(run.weights, kept);
        EXPECT_EQ(run.memory.departures, 0u);
        if (precision != PrecisionKind::float32) continue;  // the test's own batches are cast on the device
        const StepPlanOptions planned{.model = options, .batch = 6, .device = device()};
        EXPECT_EQ(run.memory.peak_bytes, plan_step(graph, planned).peak_bytes);
      }
    }
  }
}

TEST(BuiltInLayerShapes, ThatDoNotFitAreRefused) {
  for (const Misfit& misfit : misfits()) {
    SCOPED_TRACE(misfit.name);
    try {
      (void)misfit.layer->output_shape({{misfit.input}});
      ADD_FAILURE() << "accepted";
    } catch (const ShapeError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, misfit.message.size()), misfit.message);
    }
  }
}

}  // namespace
}  // namespace bantam

// A network of tokens without attention: it learns, its plan is the truth to the byte, recompute and threads change no
// bit.
#include "bantam/engine/plan/step_plan.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::token_network_test {
namespace {

class TokenNetworkTest : public testing::EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(TokenNetworkTest);

/// MLP-Mixer (Tolstikhin et al., 2021) with a class token and a position embedding.
Graph network() {
  const ActivationOptions gelu{Activation::gelu};
  Graph graph({12, 8, 3});
  graph.add("stem", conv2d({.filters = 16, .kernel = {4, 4}, .stride = {4, 4}}));
  graph.add("class_token", class_token());
  NodeId x = graph.add("position_embedding", position_embedding());
  for (const std::string block : {"block1", "block2"}) {
    graph.add(block + "/norm1", layer_norm(), {x});
    graph.add(block + "/permute", permute({.dims = {2, 1}}));
    graph.add(block + "/mix", dense({.units = 14, .activation = gelu}));
    graph.add(block + "/unmix", dense({.units = 7}));
    graph.add(block + "/back", permute({.dims = {2, 1}}));
    x = graph.add(block + "/add1", add(), {x, graph.output()});
    graph.add(block + "/norm2", layer_norm(), {x});
    graph.add(block + "/expand", dense({.units = 64, .activation = gelu}));
    graph.add(block + "/contract", dense({.units = 16}));
    graph.add(block + "/drop", drop_path({.rate = 0.1f}));
    x = graph.add(block + "/add2", add(), {x, graph.output()});
  }
  graph.add("norm", layer_norm());
  graph.add("slice", slice({.stop = 1}));
  graph.add("flatten", flatten());
  graph.add("head", dense({.units = 5}));
  return graph;
}

OptimizerOptions optimizer_options() { return {.rule = adam({.learning_rate = 0.01f})}; }

struct Outcome {
  std::vector<float> weights;
  std::uint64_t peak = 0, departures = 0;
  double first_loss = 0, last_loss = 0;
};

Outcome trained(Device device, const ModelOptions& options, int threads, int updates) {
  Runtime fresh({.threads = threads});
  Model model(fresh, device, network(), options);
  Optimizer optimizer(model, optimizer_options());
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {12}});
  const Batch batch = testing::make_batch(model.context(Pass::train), {12, 8, 3}, 5, 0, 12);
  for (int i = 0; i < updates; ++i) step.step(batch);
  const std::vector<Metrics> metrics = step.read_metrics();
  const MemoryStats memory = fresh.allocator(device).stats();
  return {.weights = to_host<float>(model.parameters().master(), fresh.stream(device)),
          .peak = memory.peak_bytes,
          .departures = memory.departures,
          .first_loss = metrics.front().loss,
          .last_loss = metrics.back().loss};
}

TEST_P(TokenNetworkTest, Learns) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    const Outcome run = trained(device(), {.precision = {kind}, .seed = 3}, 2, 40);
    EXPECT_GT(run.first_loss, 1.2);
    EXPECT_LT(run.last_loss, 0.2);
  }
}

TEST_P(TokenNetworkTest, RecomputeAndThreadsChangeNoBitAndPlansAreTheTruth) {
  using Kind = RecomputeOptions::Kind;
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    ModelOptions options{.precision = {kind}, .seed = 3};
    const std::vector<float> kept = trained(device(), options, 1, 3).weights;
    for (const RecomputeOptions& recompute :
         {RecomputeOptions{}, RecomputeOptions{.derive = Derive::inner}, RecomputeOptions{.derive = Derive::cheap},
          RecomputeOptions{.kind = Kind::all},
          RecomputeOptions{.kind = Kind::named, .names = {"class_token..block1", "block2"}, .derive = Derive::inner}}) {
      options.recompute = recompute;
      const Outcome run = trained(device(), options, 3, 3);
      EXPECT_EQ(run.weights, kept);
      EXPECT_EQ(run.departures, 0u);
      if (kind != PrecisionKind::float32) continue;  // the test's own batch is cast on the device
      const StepPlanOptions planned{
          .model = options, .optimizer = optimizer_options(), .batch = 12, .device = device()};
      EXPECT_EQ(run.peak, plan_step(network(), planned).peak_bytes);
    }
  }
}

}  // namespace
}  // namespace bantam::token_network_test

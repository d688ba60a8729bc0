// Plan = truth: random networks on the CPU use to the byte what the meta device predicted; and the plan adds up.
#include "bantam/engine/plan/step_plan.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/engine/model/lower.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::step_plan_test {
namespace {

/// A network drawn from `random`: convolutions of all kinds, normalisation, pooling, residual blocks, dropout, a head.
class NetworkDrawing {
 public:
  explicit NetworkDrawing(PhiloxSequence& random) : random_(random) {}

  Graph draw() {
    const std::int64_t side = 6 + below(7);
    Graph graph({side, side + below(3), 1 + below(4)});
    const std::int64_t parts = 1 + below(4);
    for (std::int64_t part = 0; part < parts; ++part) draw_part(graph, part);
    if (below(2) == 0)
      graph.add(global_average_pool());
    else
      graph.add(flatten());
    if (below(2) == 0) graph.add(dense({.units = 3 + below(9), .activation = some_activation()}));
    if (below(3) == 0) graph.add(dropout({.rate = 0.3f}));
    graph.add("head", dense({.units = 2 + below(6)}));
    return graph;
  }

 private:
  std::int64_t below(std::uint64_t bound) { return static_cast<std::int64_t>(random_.below(bound)); }
  ActivationOptions some_activation() {
    constexpr Activation kKinds[] = {Activation::none, Activation::relu, Activation::gelu, Activation::silu};
    return {kKinds[random_.below(4)]};
  }
  void draw_part(Graph& graph, std::int64_t part) {
    const std::int64_t filters = 2 + 3 * below(5);
    const Extent2d kernel{1 + 2 * below(2), 1 + 2 * below(2)};
    switch (below(5)) {
      case 0:
        graph.add(conv2d(
            {.filters = filters, .kernel = kernel, .padding = Padding::same(), .activation = some_activation()}));
        break;
      case 1:
        graph.add(separable_conv2d(
            {.filters = filters, .kernel = kernel, .padding = Padding::same(), .activation = some_activation()}));
        break;
      case 2:
        graph.add(depthwise_conv2d(
            {.kernel = kernel, .padding = Padding::same(), .multiplier = 1 + below(2), .bias = false}));
        break;
      default:
        draw_block(graph, "block" + std::to_string(part));
    }
    if (below(2) == 0) graph.add(batch_norm({.activation = some_activation()}));
    if (below(4) == 0) graph.add(dropout({.rate = 0.25f}));
    if (below(4) == 0 && graph.output_shape()[0] >= 4 && graph.output_shape()[1] >= 4) graph.add(max_pool());
  }
  void draw_block(Graph& graph, const std::string& name) {
    const NodeId x = graph.output();
    const std::int64_t channels = graph.output_shape()[2];
    graph.add(name + "/conv1",
              conv2d({.filters = channels, .kernel = {3, 3}, .padding = Padding::same(), .bias = below(2) == 0}));
    graph.add(name + "/norm1", batch_norm({.activation = some_activation()}));
    const NodeId y = graph.add(name + "/conv2", conv2d({.filters = channels, .kernel = {1, 1}}));
    graph.add(name + "/add", add(some_activation()), {y, x});
  }

  PhiloxSequence& random_;
};

/// Nothing, everything, cheap tensors, or one to three segments between nodes drawn until they can be cut out.
RecomputeOptions draw_recompute(PhiloxSequence& random, const Graph& graph) {
  const std::uint64_t level = random.below(6);
  RecomputeOptions options{.derive = static_cast<Derive>(level % 3), .whole = level >= 3};
  const std::uint64_t kind = random.below(4);
  if (kind == 0) options.kind = RecomputeOptions::Kind::all;
  if (kind < 2) return options;
  options.kind = RecomputeOptions::Kind::named;
  for (int attempt = 0; attempt < 20 && options.names.size() < 3; ++attempt) {
    const auto node = [&] { return graph.nodes()[1 + random.below(graph.nodes().size() - 1)].name; };
    RecomputeOptions more = options;
    more.names.push_back(node() + ".." + node());
    try {
      (void)lower(graph, more);
      options = more;
    } catch (const ConfigError&) {  // more than one value is read outside it, or it overlaps
    }
  }
  return options;
}

StepPlanOptions draw_options(PhiloxSequence& random, const Graph& graph) {
  StepPlanOptions options;
  constexpr PrecisionKind kPrecisions[] = {PrecisionKind::float32, PrecisionKind::mixed_float16,
                                           PrecisionKind::mixed_bfloat16, PrecisionKind::float16};
  options.model.precision.kind = kPrecisions[random.below(4)];
  options.model.recompute = draw_recompute(random, graph);
  const auto kind = random.below(6);
  const float momentum = random.below(2) == 0 ? 0.0f : 0.9f;
  const RulePtr rules[] = {adam(), sgd({.momentum = momentum}), rmsprop({.momentum = momentum}), lion(), lamb(),
                           muon()};
  options.optimizer.rule = rules[kind];
  options.optimizer.clip_norm = random.below(2) == 0 ? 0.0f : 1.0f;
  options.batch = 1 + static_cast<std::int64_t>(random.below(9));
  options.accumulate = 1 + static_cast<std::int64_t>(random.below(3));
  const bool masters = options.model.precision.keeps_masters();  // which averages and masks need
  if (masters && options.batch % 2 == 0) options.optimizer.ema.emplace();
  if (masters && options.batch % 3 == 0)
    options.optimizer.prune = PruneOptions{.end = 4, .frequency = 2, .match = {"*"}};
  options.replicas.replicas = 1 << random.below(3);
  options.planner.iterations = 0;  // this test is about the peak
  return options;
}

/// The same run for real, with data: five updates, so that a step that grows after the second would show.
MemoryStats measure(const Graph& graph, const StepPlanOptions& options, std::uint64_t pool_bytes,
                    std::uint64_t limit_bytes = 0) {
  const Device device = options.device;
  Runtime runtime({.threads = 2, .budgets = {{to_string(device), limit_bytes}}});
  (void)runtime.allocator(device).reserve_pool(pool_bytes);
  Model model(runtime, device, graph, options.model);
  Optimizer optimizer(model, options.optimizer);
  TrainingStep step(model, optimizer, options.loss, options.replicas);
  step.prepare({.batches = {options.batch}, .accumulates = options.accumulate > 1});
  const Context context = model.context(Pass::train);
  const Shape images = graph.input_shape().prepend(options.batch);
  Batch batch{.size = options.batch};
  batch.tensors.set(kImages, context.allocate(images, options.model.precision.compute(), Category::input));
  std::vector<std::byte> bytes(batch.at(kImages).bytes(), std::byte{0x3c});  // small positive numbers in every type
  copy_bytes(batch.at(kImages).data(), bytes.data(), bytes.size(), context.stream);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(options.batch), 1);
  batch.tensors.set(kLabels, context.upload({options.batch}, labels.data()));
  for (int update = 0; update < 5; ++update) {
    MicroBatches(step).accumulate(options.accumulate * options.replicas.replicas, 0,
                                  [&](std::int64_t) { return batch; });
    step.update();
  }
  synchronize(context.stream);
  return runtime.allocator(device).stats();
}

std::uint64_t sum_of(const std::vector<Holder>& holders) {
  return std::accumulate(holders.begin(), holders.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const Holder& holder) { return sum + holder.bytes; });
}

/// Most live bytes but scratch memory, found by a plain walk over the step, and the most scratch memory.
std::uint64_t live_and_workspace(const StepPlan& plan) {
  std::uint64_t most_live = 0, most_scratch = 0;
  for (const StepBuffer& moment : plan.step) {
    std::uint64_t live = 0, scratch = 0;
    for (const StepBuffer& b : plan.step) {
      if (b.buffer.lower > moment.buffer.lower || b.buffer.upper <= moment.buffer.lower) continue;
      (b.category == Category::workspace ? scratch : live) += b.buffer.size;
    }
    most_live = std::max(most_live, live);
    most_scratch = std::max(most_scratch, scratch);
  }
  return plan.persistent_bytes + most_live + most_scratch;
}

/// Memory comes in pages, of 64 KiB on the host and 2 MiB on a GPU: the last one is not full.
double page_bytes(Device device) { return device.is_cuda() ? 2 << 20 : 64 << 10; }

class StepPlanOnDevices : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(StepPlanOnDevices);

TEST_P(StepPlanOnDevices, IsTheTruthToTheByteOnRandomNetworks) {
  std::size_t in_backward = 0;
  const std::uint64_t networks = device().is_cuda() ? 40 : 120;
  for (std::uint64_t seed = 0; seed < networks; ++seed) {
    PhiloxSequence random(philox_key(seed, RandomPurpose::test));
    const Graph graph = NetworkDrawing(random).draw();
    StepPlanOptions options = draw_options(random, graph);
    options.device = device();
    const StepPlan plan = plan_step(graph, options);
    const MemoryStats measured = measure(graph, options, plan.pool_bytes, plan.pool_bytes);
    ASSERT_EQ(plan.peak_bytes, measured.peak_bytes) << "seed " << seed;
    ASSERT_EQ(measured.peak_pool_bytes, plan.pool_bytes) << "seed " << seed;
    ASSERT_EQ(measured.departures, 0u) << "seed " << seed;
    ASSERT_LE(static_cast<double>(plan.pool_bytes),
              1.02 * static_cast<double>(live_and_workspace(plan)) + page_bytes(device()))
        << "seed " << seed;
    ASSERT_EQ(plan.by_category.bytes, measured.by_category_at_peak.bytes) << "seed " << seed;
    ASSERT_EQ(plan.by_category.total(), plan.peak_bytes);
    ASSERT_EQ(sum_of(plan.holders), plan.peak_bytes);
    ASSERT_EQ(plan.persistent_bytes + plan.arena.max_live_bytes, plan.step_peak_bytes);
    ASSERT_LE(plan.step_peak_bytes, plan.peak_bytes);
    ASSERT_GE(plan.arena.arena_bytes, plan.arena.max_live_bytes);
    std::vector<PlannerBuffer> buffers;
    for (const StepBuffer& b : plan.step) buffers.push_back(b.buffer);
    ASSERT_EQ(check_arena_plan(buffers, plan.arena, 256), "") << "seed " << seed;
    in_backward += plan.moment.phase == "backward" ? 1 : 0;
  }
  EXPECT_GT(in_backward, networks / 4);  // the drawing finds steps whose peak is worth knowing
}

TEST(StepPlan, NamesTheMomentAndTheHolders) {
  Graph graph({16, 16, 3});
  graph.add("wide", conv2d({.filters = 64, .kernel = {3, 3}, .padding = Padding::same()}));
  graph.add("narrow", conv2d({.filters = 2, .kernel = {1, 1}}));
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 4}));
  const StepPlan plan = plan_step(graph, {.batch = 32});
  // The activation of `wide` is all but everything; at the peak it or its gradient, as large, is alive.
  const std::uint64_t wide = 32 * 16 * 16 * 64 * 4;
  EXPECT_EQ(plan.moment.phase, "backward");
  EXPECT_TRUE(plan.moment.owner == "narrow" || plan.moment.owner == "wide") << plan.moment.owner;
  EXPECT_GE(plan.holders.front().bytes, wide);
  EXPECT_GE(plan.by_category[Category::activation], wide);
  EXPECT_EQ(plan.by_category[Category::input], 32u * 16 * 16 * 3 * 4 + 256u);
  EXPECT_GT(plan.persistent_bytes, plan.by_category[Category::input]);
}

TEST(StepPlan, RecomputeHoldsLess) {
  Graph graph({16, 16, 8});
  for (int i = 0; i < 6; ++i) {
    const std::string block = "block" + std::to_string(i);
    graph.add(block + "/conv1", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()}));
    graph.add(block + "/norm", batch_norm({.activation = {Activation::relu}}));
  }
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 4}));
  StepPlanOptions options{.batch = 16};
  const StepPlan kept = plan_step(graph, options);
  options.model.recompute.kind = RecomputeOptions::Kind::all;
  EXPECT_LT(plan_step(graph, options).peak_bytes, kept.peak_bytes);
}

TEST(StepPlan, FitsWhereTheRealRunDoes) {
  const StepPlanOptions options{.batch = 64};
  const StepPlan plan = plan_step(small_network(), options);
  const std::uint64_t peak = plan.peak_bytes;
  EXPECT_TRUE(step_fits(small_network(), options, plan.pool_bytes)) << "a pool that fits the limit runs";
  EXPECT_FALSE(step_fits(small_network(), options, peak - 256));
  EXPECT_TRUE(step_fits(small_network(), options, 2 * peak));
  int refused = 0;
  for (std::uint64_t limit = peak - peak / 10; limit < peak + peak / 2; limit += peak / 25) {
    bool fits = true;
    try {
      (void)measure(small_network(), options, plan.pool_bytes, limit);
    } catch (const OutOfMemory&) {
      fits = false;
    }
    refused += fits ? 0 : 1;
    EXPECT_EQ(step_fits(small_network(), options, limit), fits) << "limit " << limit << ", peak " << peak;
  }
  EXPECT_GT(refused, 0);
}

TEST(StepPlan, ADeviceThatIsNotHereIsNoObstacle) {
  const StepPlan plan = plan_step(small_network(), {.batch = 8, .device = Device::cuda(5)});
  EXPECT_GT(plan.peak_bytes, 0u);
  EXPECT_GT(plan.step.size(), 20u);
}

TEST(StepPlan, RefusesWhatIsNoBatch) {
  EXPECT_THROW(plan_step(small_network(), {.batch = 0}), Error);
  EXPECT_THROW(plan_step(small_network(), {.accumulate = 0}), Error);
}

}  // namespace
}  // namespace bantam::testing::step_plan_test

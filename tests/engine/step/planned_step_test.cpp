// Planned steps: the same bits as eager ones, at the same peak, whatever disturbs them.
#include <memory>

#include "bantam/base/error.h"
#include "bantam/engine/step/step_placements.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::planned_step_test {
namespace {

using testing::EngineTest;
using testing::MemorySource;

class PlannedStepTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(PlannedStepTest);

/// Passes its input on. At a chosen call it also allocates memory that no plan contains, and keeps it for a while.
struct Disturbance {
  std::int64_t calls = 0, at = -1;  // counts forward and backward
  std::int64_t bytes = 4000;
  bool every = false;  // each call allocates memory and releases it
  std::vector<Tensor> kept;
  void call(const Context& context) {
    if (context.device.meta) return;
    if (every) (void)context.allocate({bytes}, DType::uint8);
    if (++calls == at) kept.push_back(context.allocate({bytes}, DType::uint8));
    if (calls == at + 3) kept.clear();
  }
};

class Disturber : public Layer {
 public:
  explicit Disturber(std::shared_ptr<Disturbance> disturbance) : disturbance_(std::move(disturbance)) {}
  std::string_view kind() const override { return "disturber"; }
  bool supports_meta() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      std::shared_ptr<Disturbance> disturbance;
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        disturbance->call(context);
        const ValueRef x(inputs[0]);
        Tensor y = inputs[0].view(inputs[0].shape());
        if (records(context, {&inputs[0]}))
          context.tape->record(context, y, [x, d = disturbance](const Context& ctx, Tensor dy, GradientStore& store) {
            d->call(ctx);
            store.add(ctx, x, std::move(dy));
          });
        return y;
      }
    };
    auto bound = std::make_unique<Bound>();
    bound->disturbance = disturbance_;
    return bound;
  }

 private:
  std::shared_ptr<Disturbance> disturbance_;
};

Graph residual_network() {
  Graph graph({8, 8, 3});
  graph.add("stem", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()}));
  for (int i = 0; i < 3; ++i) {
    const std::string name = "block" + std::to_string(i);
    const NodeId x = graph.output();
    graph.add(name + "/conv1", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
    graph.add(name + "/norm1", batch_norm({.activation = {Activation::relu}}));
    const NodeId y = graph.add(name + "/conv2", conv2d({.filters = 8, .kernel = {1, 1}, .bias = false}));
    graph.add(name + "/add", add({Activation::relu}), {y, x});
  }
  graph.add(global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

/// The small network with a disturber between all layers of its second half.
Graph disturbed_network(const std::shared_ptr<Disturbance>& disturbance) {
  const auto disturber = std::make_shared<Disturber>(disturbance);
  Graph graph({8, 8, 3});
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}, .padding = Padding::same()}));
  graph.add("d0", disturber);
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("d1", disturber);
  graph.add("separable", separable_conv2d({.filters = 12, .activation = {Activation::silu}}));
  graph.add("d2", disturber);
  graph.add("drop", dropout({.rate = 0.25f}));
  graph.add(flatten());
  graph.add("d3", disturber);
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Outcome {
  std::vector<float> weights;
  Metrics evaluation;
  MemoryStats memory;
  std::string invariants;
};

struct Case {
  Graph graph;
  ModelOptions model;
  std::int64_t accumulate = 1;
};

/// Two epochs of batches of 8 with a short last one of 5, and evaluation of 8 and 3.
Outcome train(Device device, const Case& given, bool planned, std::uint64_t limit = 0) {
  Runtime runtime({.threads = 2, .budgets = {{to_string(device), limit}}});
  Outcome outcome;
  {
    Model model(runtime, device, given.graph, given.model);
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, {});
    MemorySource train({8, 8, 3}, 5, 37, 8), held_out({8, 8, 3}, 5, 11, 8);
    Trainer trainer(
        step, train, &held_out,
        {.epochs = 2, .accumulate = given.accumulate, .mode = planned ? StepMode::captured : StepMode::eager});
    outcome.evaluation = trainer.run().validation;
    outcome.weights = to_host<float>(model.parameters().master(), runtime.stream(device));
    outcome.memory = runtime.allocator(device).stats();
    outcome.invariants = runtime.allocator(device).check_invariants();
  }
  EXPECT_EQ(runtime.allocator(device).stats().in_use_bytes, 0u) << "something leaks";
  EXPECT_EQ(runtime.allocator(device).stats().arena_bytes, 0u) << "the arena is released with the step";
  return outcome;
}

void expect_same(const Outcome& eager, const Outcome& planned) {
  EXPECT_EQ(eager.weights, planned.weights);
  EXPECT_EQ(eager.evaluation.loss, planned.evaluation.loss);
  EXPECT_EQ(eager.evaluation.accuracy, planned.evaluation.accuracy);
  EXPECT_EQ(planned.invariants, "");
}

TEST_P(PlannedStepTest, has_the_bits_and_the_peak_of_eager_steps) {
  for (const Graph& graph : {testing::small_network(), testing::small_network(false), residual_network()})
    for (const auto recompute : {RecomputeOptions::Kind::none, RecomputeOptions::Kind::all})
      for (const auto precision : {PrecisionKind::float32, PrecisionKind::mixed_float16})
        for (const std::int64_t accumulate : {1, 3}) {
          const Case given{graph, {.precision = {precision}, .recompute = {.kind = recompute}}, accumulate};
          const Outcome eager = train(device(), given, false), planned = train(device(), given, true);
          expect_same(eager, planned);
          EXPECT_EQ(eager.memory.planned_allocations, 0u);
          EXPECT_GT(planned.memory.planned_allocations, 200u);
          EXPECT_EQ(planned.memory.departures, 0u) << "every shape was foreseen";
          EXPECT_EQ(planned.memory.peak_bytes, eager.memory.peak_bytes);
          EXPECT_EQ(planned.memory.allocations, eager.memory.allocations);
        }
}

TEST_P(PlannedStepTest, goes_on_whenever_it_is_disturbed) {
  const auto quiet = std::make_shared<Disturbance>(), disturbance = std::make_shared<Disturbance>();
  const Outcome eager = train(device(), {disturbed_network(quiet), {.seed = 3}}, false);
  std::int64_t departed = 0;
  for (std::int64_t at = 1; at <= 26; ++at) {  // every call of the first three steps, forward and backward
    *disturbance = {.at = at};
    const Outcome planned = train(device(), {disturbed_network(disturbance), {.seed = 3}}, true);
    expect_same(eager, planned);
    EXPECT_TRUE(disturbance->kept.empty());
    EXPECT_EQ(planned.memory.arena_in_use_bytes, 0u);
    EXPECT_LE(planned.memory.departures, 2u) << "later steps go as planned again";
    departed += planned.memory.departures > 0 ? 1 : 0;
  }
  EXPECT_EQ(departed, 26);
}

TEST_P(PlannedStepTest, a_disturbance_that_finds_no_memory_is_survived) {
  const auto disturbance = std::make_shared<Disturbance>();
  const Case given{disturbed_network(disturbance), {.seed = 3}};
  const Outcome eager = train(device(), given, false);
  constexpr std::uint64_t kLimit = 16u << 20;
  for (std::int64_t at = 1; at <= 26; ++at) {
    *disturbance = {.at = at, .bytes = static_cast<std::int64_t>(kLimit)};
    const Outcome planned = train(device(), given, true, kLimit);
    expect_same(eager, planned);
    EXPECT_EQ(planned.memory.departures, 1u);
  }
}

TEST_P(PlannedStepTest, plans_shapes_it_meets_later) {
  Model model(runtime(), device(), testing::small_network(), {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  const Context context = model.context(Pass::train);
  BfcAllocator& memory = runtime().allocator(device());
  const Batch small = testing::make_batch(context, {8, 8, 3}, 5, 0, 4),
              large = testing::make_batch(context, {8, 8, 3}, 5, 0, 9);
  step.step(small);
  EXPECT_EQ(memory.stats().planned_allocations, 0u) << "eager until prepared";
  EXPECT_EQ(step.arena_bytes(), 0u);
  step.prepare({.batches = {4}});
  const std::uint64_t arena = memory.stats().arena_bytes;
  EXPECT_EQ(arena, step.arena_bytes());
  step.step(small);
  const std::uint64_t planned = memory.stats().planned_allocations;
  EXPECT_GT(planned, 20u);
  step.step(large);
  step.evaluate(large);
  EXPECT_GT(memory.stats().planned_allocations, 2 * planned);
  EXPECT_GT(memory.stats().arena_bytes, arena);
  EXPECT_EQ(memory.stats().departures, 0u);
}

TEST_P(PlannedStepTest, sets_aside_what_the_plans_in_use_need) {
  Model model(runtime(), device(), testing::small_network(), {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  BfcAllocator& memory = runtime().allocator(device());
  step.prepare({.batches = {8}});
  const std::uint64_t small = step.arena_bytes();
  step.prepare({.batches = {64}, .evaluation_batches = {2}});
  EXPECT_GT(step.arena_bytes(), small);
  MicroBatches micro_batches(step);
  for (int halvings = 0; halvings < 3; ++halvings) ASSERT_TRUE(micro_batches.halve(64));
  EXPECT_EQ(step.arena_bytes(), small);
  EXPECT_EQ(memory.stats().arena_bytes, 0u) << "the old one was released";
  step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8));
  EXPECT_EQ(memory.stats().arena_bytes, small);
  EXPECT_EQ(memory.stats().departures, 0u);
}

TEST_P(PlannedStepTest, a_plan_that_is_never_followed_keeps_no_arena) {
  const auto disturbance = std::make_shared<Disturbance>();
  disturbance->every = true;
  Model model(runtime(), device(), disturbed_network(disturbance), {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  BfcAllocator& memory = runtime().allocator(device());
  const Batch batch = testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8);
  step.prepare({.batches = {8}});
  const std::uint64_t prepared = memory.stats().arena_bytes;
  EXPECT_GT(prepared, 0u);
  for (int i = 0; i < 3; ++i) step.step(batch);
  EXPECT_LT(step.arena_bytes(), prepared) << "the plan was dropped";
  step.step(batch);
  EXPECT_LE(memory.stats().arena_bytes, step.arena_bytes()) << "only the update's, if any";
}

TEST_P(PlannedStepTest, trimming_between_steps_costs_nothing_but_time) {
  Model model(runtime(), device(), testing::small_network(), {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  BfcAllocator& memory = runtime().allocator(device());
  const Batch batch = testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8);
  step.prepare({.batches = {8}});
  for (int i = 0; i < 4; ++i) {
    step.step(batch);
    EXPECT_GT(memory.stats().arena_bytes, 0u);
    (void)memory.trim();
    EXPECT_EQ(memory.stats().arena_bytes, 0u);
  }
  EXPECT_EQ(memory.stats().departures, 0u);
}

TEST(PlannedStep, a_layer_that_cannot_be_rehearsed_runs_eagerly) {
  /// Throws on the stand-in, as a program's own layer may that knows CPUs only.
  class RealOnly : public Disturber {
   public:
    RealOnly() : Disturber(std::make_shared<Disturbance>()) {}
    std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena& buffers,
                                     std::span<const Shape> inputs) const override {
      struct Bound : BoundLayer {
        std::unique_ptr<BoundLayer> inner;
        Tensor forward(const Context& context, std::span<Tensor> in) override {
          if (context.device.meta) throw Error("no stand-ins here");
          return inner->forward(context, in);
        }
      };
      auto bound = std::make_unique<Bound>();
      bound->inner = Disturber::bind(scope, buffers, inputs);
      return bound;
    }
  };
  std::string log;
  Runtime runtime({.threads = 1, .log = [&log](std::string_view line) { log += line; }});
  Graph graph({8, 8, 3});
  graph.add("mine", std::make_shared<RealOnly>());
  graph.add(flatten());
  graph.add("head", dense({.units = 5}));
  Model model(runtime, Device::cpu(), graph, {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {4}});
  EXPECT_NE(log.find("no stand-ins here"), std::string::npos) << log;
  step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 4));
  EXPECT_EQ(runtime.allocator(Device::cpu()).stats().planned_allocations, 0u);
}

}  // namespace
}  // namespace bantam::planned_step_test

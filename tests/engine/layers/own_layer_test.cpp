// A program's own layers: what the engine does with one that says nothing of itself.
#include <functional>
#include <utility>

#include <sys/mman.h>

#include "bantam/base/error.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::own_layer_test {
namespace {

using testing::EngineTest;
using testing::MemorySource;

class OwnLayerTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(OwnLayerTest);

struct Seen {
  std::int64_t calls = 0, on_meta = 0;
  std::vector<Tensor> kept;  // of the first three calls, where it keeps some
  bool keeps = false;
};

/// 2x, read and written by the host: through its address on the CPU, by copies elsewhere.
Tensor doubled(const Context& context, const Tensor& x) {
  const auto* floats = x.as<float>();
  std::vector<float> values =
      context.device.is_cuda() ? to_host<float>(x, context.stream) : std::vector<float>(floats, floats + x.elements());
  for (float& value : values) value *= 2;
  return context.upload(x.shape(), values.data(), Category::activation);
}

/// Written as if there were no meta devices. It declares nothing.
class HostDouble : public Layer {
 public:
  explicit HostDouble(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) {}
  std::string_view kind() const override { return "host_double"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      std::shared_ptr<Seen> seen;
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        ++seen->calls;
        if (context.device.meta) ++seen->on_meta;
        if (seen->keeps && seen->kept.size() < 3) seen->kept.push_back(context.allocate({1000}, DType::float32));
        Tensor y = doubled(context, inputs[0]);
        if (records(context, {&inputs[0]}))
          context.tape->record(context, y,
                               [x = ValueRef(inputs[0])](const Context& ctx, Tensor dy, GradientStore& store) {
                                 store.add(ctx, x, doubled(ctx, dy));
                               });
        return y;
      }
    };
    auto bound = std::make_unique<Bound>();
    bound->seen = seen_;
    return bound;
  }

 private:
  std::shared_ptr<Seen> seen_;
};

Graph network_with(const LayerPtr& own) {
  Graph graph({8, 8, 3});
  graph.add("conv", conv2d({.filters = 8, .padding = Padding::same(), .bias = false}));
  const NodeId x = graph.add("own", own);
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("sum", add({Activation::relu}), {graph.output(), x});
  graph.add("drop", dropout({.rate = 0.25f}));
  graph.add(flatten());
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Outcome {
  std::vector<float> weights;
  Metrics evaluation;
  MemoryStats memory;
  std::string log;
};

/// Two epochs of batches of 8 and a short last one, by the trainer.
Outcome train(Device device, const Graph& graph, StepMode mode, std::int64_t accumulate = 1,
              const RecomputeOptions& recompute = {}) {
  Outcome run;
  Runtime runtime({.threads = 2, .log = [&run](std::string_view line) { run.log += std::string(line) + "\n"; }});
  Model model(runtime, device, graph, {.seed = 3, .recompute = recompute});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  MemorySource train({8, 8, 3}, 5, 53, 8), held_out({8, 8, 3}, 5, 11, 8);
  Trainer trainer(step, train, &held_out, {.epochs = 2, .accumulate = accumulate, .mode = mode});
  run.evaluation = trainer.run().validation;
  run.weights = to_host<float>(model.parameters().master(), runtime.stream(device));
  run.memory = runtime.allocator(device).stats();
  EXPECT_EQ(runtime.allocator(device).check_invariants(), "");
  EXPECT_EQ(runtime.allocator(device).trace(), nullptr) << "nobody listens any more";
  return run;
}

TEST_P(OwnLayerTest, one_that_touches_its_tensors_on_the_host_trains_by_default) {
  for (const std::int64_t accumulate : {1, 3})
    for (const RecomputeOptions& recompute :
         {RecomputeOptions{}, RecomputeOptions{.kind = RecomputeOptions::Kind::named, .names = {"own..sum"}}}) {
      const auto seen = std::make_shared<Seen>();
      const Graph graph = network_with(std::make_shared<HostDouble>(seen));
      const Outcome eager = train(device(), graph, StepMode::eager, accumulate, recompute);
      const std::int64_t eager_calls = std::exchange(seen->calls, 0);
      const Outcome run = train(device(), graph, TrainerOptions{}.mode, accumulate, recompute);
      EXPECT_EQ(run.weights, eager.weights);
      EXPECT_EQ(run.evaluation.loss, eager.evaluation.loss);
      EXPECT_EQ(seen->on_meta, 0);
      EXPECT_EQ(seen->calls, eager_calls);
      EXPECT_NE(run.log.find("layer 'own' (host_double) does not support meta devices"), std::string::npos) << run.log;
      // All but the first of each kind of micro-batch and evaluated batch go by the plan, the layer's own memory too.
      EXPECT_GT(run.memory.planned_allocations, 100u);
      EXPECT_EQ(run.memory.departures, 0u);
    }
}

TEST_P(OwnLayerTest, learning_a_plan_ends_with_an_evaluated_batch) {
  Runtime runtime({.threads = 1});
  const Device device = GetParam();
  Model model(runtime, device, network_with(std::make_shared<HostDouble>(std::make_shared<Seen>())), {});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  MemorySource train({8, 8, 3}, 5, 16, 8), held_out({8, 8, 3}, 5, 11, 8);  // 8, then 3: never seen before
  Trainer trainer(step, train, &held_out, {.epochs = 1});
  (void)trainer.run();
  EXPECT_EQ(runtime.allocator(device).trace(), nullptr) << "a step that is kept goes on listening";
}

TEST_P(OwnLayerTest, one_that_keeps_memory_is_planned_once_it_keeps_no_more) {
  const auto seen = std::make_shared<Seen>();
  const Graph graph = network_with(std::make_shared<HostDouble>(seen));
  seen->keeps = true;
  Runtime runtime({.threads = 2});
  Model model(runtime, device(), graph, {.seed = 3});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {8}});
  const Batch batch = testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8);
  const BfcAllocator& memory = runtime.allocator(device());
  for (int i = 0; i < 2; ++i) step.step(batch);
  EXPECT_EQ(memory.stats().planned_allocations, 0u);
  seen->keeps = false;
  step.step(batch);
  EXPECT_EQ(memory.stats().planned_allocations, 0u) << "the third run is the one that is learned";
  step.step(batch);
  EXPECT_GT(memory.stats().planned_allocations, 10u);
  EXPECT_EQ(memory.stats().departures, 0u);
  seen->kept.clear();
}

/// conv, relu, conv, relu as one layer. Memory that it does not write holds something large, since it frees such
/// before.
class TwoConvolutions : public Layer {
 public:
  std::string_view kind() const override { return "two_convolutions"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    struct Bound : BoundLayer {
      Parameter *first = nullptr, *second = nullptr;
      Tensor forward(const Context& context, std::span<Tensor> in) override {
        {
          const Tensor garbage = context.allocate(in[0].shape(), in[0].dtype());
          BANTAM_KERNEL(context.exec, fill, garbage.elements(), garbage.dtype(), 1000.0f, garbage.data());
        }
        const Window2d same{.kernel = {3, 3}, .padding = Padding::same()};
        const auto relu = Activation::relu;
        Tensor x = ops::activation(context, ops::conv2d(context, in[0], first->value(), same), relu);
        return ops::activation(context, ops::conv2d(context, x, second->value(), same), relu);
      }
    };
    auto bound = std::make_unique<Bound>();
    const std::int64_t channels = inputs[0][2];
    const Fans fans{static_cast<double>(9 * channels), static_cast<double>(9 * channels)};
    for (Parameter** weight : {&bound->first, &bound->second})
      *weight = &scope.parameter(weight == &bound->first ? "first" : "second", {channels, 3, 3, channels},
                                 make_initializer("glorot_uniform", fans));
    return bound;
  }
};

// What ends such a segment may be left unwritten where an op knows that nobody reads it; the inner ones are read.
TEST_P(OwnLayerTest, one_of_several_ops_that_ends_a_recomputed_segment_writes_what_it_reads) {
  const auto own = std::make_shared<TwoConvolutions>();
  for (const bool activated : {true, false}) {
    Graph graph({8, 8, 3});
    graph.add("conv", conv2d({.filters = 8, .padding = Padding::same(), .bias = false}));
    graph.add("own", own);
    if (activated) graph.add("relu", activation({Activation::relu}));
    graph.add(global_average_pool());
    graph.add("head", dense({.units = 5}));
    const Outcome kept = train(device(), graph, StepMode::eager);
    for (const char* segment : {"own", "conv..own"})
      for (const bool whole : {false, true})
        EXPECT_EQ(train(device(), graph, StepMode::eager, 1,
                        {.kind = RecomputeOptions::Kind::named, .names = {segment}, .whole = whole})
                      .weights,
                  kept.weights)
            << segment;
  }
}

TEST(OwnLayer, plans_of_one_that_does_not_support_meta_devices_are_refused_by_its_name) {
  const auto seen = std::make_shared<Seen>();
  const Graph graph = network_with(std::make_shared<HostDouble>(seen));
  for (const auto& plan : {std::function([&] { (void)plan_step(graph, {.batch = 4}); }),
                           std::function([&] { (void)step_peak(graph, {.batch = 4}); }),
                           std::function([&] { (void)step_fits(graph, {.batch = 4}, 1u << 30); })}) {
    try {
      plan();
      FAIL() << "planned without running the layer";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("layer 'own' (host_double)"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(seen->calls, 0);
}

TEST(OwnLayer, the_layers_of_the_engine_support_meta_devices) {
  EXPECT_EQ(testing::small_network().first_without_meta(), 0);
  const Graph graph = network_with(std::make_shared<HostDouble>(std::make_shared<Seen>()));
  EXPECT_EQ(graph.node(graph.first_without_meta()).name, "own");
}

/// A tensor of the stand-in for a device.
Tensor meta_tensor(Runtime& runtime, Device target) {
  return Context::make(runtime, Device::meta_of(target)).allocate({1 << 20}, DType::float32);
}

TEST(MetaTensorDeathTest, whoever_reads_or_writes_one_is_stopped) {
  for (const Device target : {Device::cpu(), Device::cuda(0)}) {
    Runtime runtime({.threads = 1});
    const Tensor tensor = meta_tensor(runtime, target);
    volatile float* values = tensor.as<float>();
    EXPECT_DEATH((void)values[0], "");
    EXPECT_DEATH((void)values[tensor.elements() - 1], "");
    EXPECT_DEATH(values[0] = 1.0f, "");
  }
}

TEST(MetaTensor, no_memory_of_the_process_can_be_where_one_is) {
  constexpr std::size_t kPage = 4096;
  for (const Device target : {Device::cpu(), Device::cuda(0)}) {
    Runtime runtime({.threads = 1});
    const Tensor tensor = meta_tensor(runtime, target);
    void* address = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(tensor.data()) / kPage * kPage);
    void* mapped =
        mmap(address, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    EXPECT_NE(mapped, address) << "memory at a meta tensor's address: " << address;
    if (mapped != MAP_FAILED) (void)munmap(mapped, kPage);
  }
}

}  // namespace
}  // namespace bantam::own_layer_test

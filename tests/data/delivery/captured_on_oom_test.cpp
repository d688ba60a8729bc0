// `on_oom: accumulate` where the device makes the batches: updates go on in micro-batches, and are recorded anew.
#include <mutex>

#include "bantam/data/augment/built_in.h"
#include "bantam/engine/train/trainer.h"
#include "tests/data/support.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::captured_on_oom_test {
namespace {

const Shape kImage = {8, 8, 3};
constexpr std::int64_t kBatch = 16, kUpdates = 21, kSamples = kBatch * 20 + 3;  // an epoch's last batch is short
constexpr std::uint64_t kMiB = 1u << 20, kHungerASample = 4 * kMiB;
constexpr std::uint64_t kEnough = 256 * kMiB, kForHalves = 56 * kMiB;  // for micro-batches of 8, and not for 16 samples

/// Takes as much memory for a moment as samples come.
class Hungry : public Layer {
 public:
  std::string_view kind() const override { return "hungry"; }
  bool supports_meta() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        const Scratch scratch = context.scratch(static_cast<std::size_t>(inputs[0].shape()[0]) * kHungerASample);
        return inputs[0];
      }
    };
    return std::make_unique<Bound>();
  }
};

Graph network() {
  Graph graph(kImage);
  graph.add("separable", separable_conv2d({.filters = 8, .activation = {Activation::relu}}));
  graph.add("hungry", std::make_shared<Hungry>());
  graph.add(flatten());
  graph.add("drop", dropout({.rate = 0.4f}));
  graph.add("head", dense({.units = 3}));
  return graph;
}

struct Outcome {
  std::vector<float> weights;
  std::vector<double> losses;
  std::vector<SmallerMicroBatchEvent> smaller;
  std::uint64_t planned_allocations = 0;
  std::string log;
};

/// Two epochs; from an update on, only so much memory is left that whole batches do not fit.
struct Training : Callback {
  Training(Device device, StepMode mode, std::int64_t tight_from) : from(tight_from) {
    Runtime runtime({.threads = 2,
                     .budgets = {{to_string(device), from == 0 ? kForHalves : kEnough}},
                     .log = [this](std::string_view message) {
                       const std::lock_guard lock(guard);
                       outcome.log += std::string(message) + "\n";
                     }});
    Model model(runtime, device, network(), {.seed = 7});
    Optimizer optimizer(model, {.rule = adam({.learning_rate = 2e-3f})});
    TrainingStep step(model, optimizer, {});
    const PipelineOptions pipeline{.cache = CacheKind::device,
                                   .normalize = {.scale = 1.0 / 255},
                                   .augmentations = {random_flip()},
                                   .batch_size = kBatch};
    ImageBatchSource data(runtime, testing::ramp_dataset(runtime, kSamples, kImage),
                          LoaderOptions{.pipeline = pipeline, .device = device, .seed = 5, .staged_on_cpu = true});
    Trainer trainer(step, data, nullptr,
                    {.epochs = 2,
                     .read_every = 4,
                     .read_seconds = 1e9,
                     .mode = mode,
                     .updates_a_launch = 1,
                     .on_oom = OnOutOfMemory::accumulate});
    trainer.add(*this);
    memory = &runtime.allocator(device);
    trainer.run();
    outcome.weights = to_host<float>(model.parameters().master(), runtime.stream(device));
    outcome.planned_allocations = memory->stats().planned_allocations;
    EXPECT_EQ(memory->check_invariants(), "");
  }
  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& metrics : event.metrics) outcome.losses.push_back(metrics.loss);
    if (event.epoch == 0 && from > 0 && event.update >= from) memory->set_limit(kForHalves);
  }
  void on_smaller_micro_batch(const SmallerMicroBatchEvent& event) override { outcome.smaller.push_back(event); }

  std::int64_t from;
  BfcAllocator* memory = nullptr;
  std::mutex guard;
  Outcome outcome;
};

class CapturedOnOomTest : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (GetParam().is_cuda() && cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device: skipped";
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, CapturedOnOomTest, ::testing::Values(Device::cpu(), Device::cuda(0)),
                         [](const auto& info) { return info.param.is_cpu() ? "cpu" : "cuda"; });

TEST_P(CapturedOnOomTest, UpdatesGoOnInPiecesAndAreRecordedAgain) {
  for (const std::int64_t from : {0, 9}) {  // metrics are read after the first update, and every four from there
    const Outcome eager = Training(GetParam(), StepMode::eager, from).outcome,
                  planned = Training(GetParam(), StepMode::planned, from).outcome,
                  captured = Training(GetParam(), StepMode::captured, from).outcome;
    for (const Outcome* outcome : {&eager, &planned, &captured}) {
      ASSERT_EQ(outcome->smaller.size(), 1u) << "from " << from << outcome->log;
      EXPECT_EQ(outcome->smaller[0].samples, kBatch / 2);
      EXPECT_EQ(outcome->smaller[0].epoch, 0);
      EXPECT_EQ(outcome->smaller[0].update, from);
      EXPECT_EQ(outcome->log, "");
      ASSERT_EQ(outcome->losses.size(), static_cast<std::size_t>(2 * kUpdates));
      EXPECT_EQ(outcome->losses, eager.losses) << "from " << from;
      EXPECT_EQ(outcome->weights, eager.weights) << "from " << from;
    }
    if (!GetParam().is_cuda()) continue;
    EXPECT_LT(3 * captured.planned_allocations, planned.planned_allocations) << "most updates ran without the host";
  }
}

}  // namespace
}  // namespace bantam::captured_on_oom_test

// Memory refused at every call of whole updates, forward and backward (the optimizer asks for none): each is rolled
// back, repeated, and has no effect.
#include <algorithm>
#include <set>

#include <sys/mman.h>

#include "bantam/base/error.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/pages/paged_source.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::failing_source_test {
namespace {

using testing::MemorySource;

/// When memory is refused: calls `first` to `first + count - 1` of those that are counted.
struct Refusals {
  bool counts = false;
  std::int64_t calls = 0, first = -1, count = 0;
  bool refuse() {
    if (!counts) return false;
    const std::int64_t call = calls++;
    return first >= 0 && call >= first && call < first + count;
  }
};

/// Host memory in pages so small that hardly an allocation finds its memory mapped already.
class RefusingPages final : public PagedSource {
 public:
  explicit RefusingPages(Refusals& refusals) : refusals_(refusals) {
    void* const pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw Error("no addresses for the test's pages");
    begin_ = reinterpret_cast<std::uintptr_t>(pages);
  }
  ~RefusingPages() override { ::munmap(reinterpret_cast<void*>(begin_), kBytes); }
  std::size_t page_bytes() const override { return 256; }
  AddressRange addresses() const override { return {begin_, kBytes}; }
  bool map(std::uintptr_t, std::size_t) override { return !refusals_.refuse(); }
  void unmap(std::uintptr_t, std::size_t) noexcept override {}
  const char* name() const override { return "refusing pages"; }

 private:
  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  Refusals& refusals_;
  std::uintptr_t begin_ = 0;
};

void give_back(const Context& context) { context.runtime->allocator(context.device).trim(); }

/// Releases idle memory wherever it stands, in forward and backward, so that what comes next asks for more.
class GivesBack : public Layer {
 public:
  std::string_view kind() const override { return "gives_back"; }
  bool supports_meta() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        give_back(context);
        Tensor y = inputs[0].view(inputs[0].shape());
        if (context.tape == nullptr) return y;
        context.tape->record(context, y,
                             [x = ValueRef(inputs[0])](const Context& ctx, Tensor dy, GradientStore& store) {
                               if (wants_gradient(x))
                                 store.add(ctx, x, std::move(dy));
                               else
                                 dy = Tensor();  // the last of the micro-batch's memory
                               give_back(ctx);
                             });
        return y;
      }
    };
    return std::make_unique<Bound>();
  }
};

/// The first layer comes last in backward, so that the update would find no memory either; it allocates none, though
/// the weights are so many that its sums need more than a page.
Graph network() {
  Graph graph({8, 8, 3});
  const auto gives_back = std::make_shared<GivesBack>();
  graph.add("before_all", gives_back);
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}, .activation = {Activation::relu}}));
  graph.add("before_separable", gives_back);
  graph.add("separable", separable_conv2d({.filters = 12, .activation = {Activation::silu}}));
  graph.add("pool", max_pool());
  graph.add("before_head", gives_back);
  graph.add(flatten());
  graph.add("drop", dropout({.rate = 0.5f}));
  graph.add("wide", dense({.units = 6144}));
  graph.add("head", dense({.units = 5}));
  return graph;
}

/// Adam in eager steps, whose every allocation is the allocator's.
struct Training {
  Training()
      : optimizer(model, {.rule = adam({.learning_rate = 1e-3f}), .clip_norm = 1.0f}), step(model, optimizer, {}) {
    model.register_state(state);
    optimizer.register_state(state);
  }
  BfcAllocator& memory() { return runtime.allocator(Device::cpu()); }
  /// Weights, moments and the update's counters, as bytes.
  std::vector<std::vector<std::uint8_t>> bytes() {
    std::vector<std::vector<std::uint8_t>> all;
    for (const StateEntry& entry : state.tensors()) {
      const auto* first = static_cast<const std::uint8_t*>(entry.tensor.data());
      all.emplace_back(first, first + entry.tensor.bytes());
    }
    return all;
  }
  std::vector<float> weights() { return to_host<float>(model.parameters().master(), runtime.stream(Device::cpu())); }

  Refusals refusals;
  Runtime runtime{{.threads = 1, .source = [this](Device) { return std::make_unique<RefusingPages>(refusals); }}};
  Model model{runtime, Device::cpu(), network(), {.seed = 5}};
  Optimizer optimizer;
  TrainingStep step;
  StateRegistry state;
};

/// Refused as often as the allocator asks for one allocation, the first time, after trimming, after waiting.
constexpr std::int64_t kTogether = 4;

TEST(FailingSource, AnUpdateThatThrowsKeepsWeightsAndMomentsAndCanBeRepeated) {
  const auto update = [](Training& training, const std::vector<Batch>& batches) {
    for (std::size_t i = 0; i < batches.size(); ++i)
      training.step.micro_batch(batches[i], static_cast<std::int64_t>(i) * 8, 16);
    training.memory().trim();
    training.step.update();
  };
  const auto make_batches = [](Training& training) {
    const Context context = training.model.context(Pass::train);
    return std::vector{testing::make_batch(context, {8, 8, 3}, 5, 0, 8),
                       testing::make_batch(context, {8, 8, 3}, 5, 8, 8)};
  };
  std::vector<std::vector<std::uint8_t>> expected;
  std::int64_t calls = 0;
  {
    Training training;
    const std::vector<Batch> batches = make_batches(training);
    update(training, batches);
    training.refusals.counts = true;
    update(training, batches);
    calls = training.refusals.calls;
    expected = training.bytes();
  }
  std::set<std::string> refused;
  for (std::int64_t first = 0; first < calls; ++first) {
    Training training;
    const std::vector<Batch> batches = make_batches(training);
    update(training, batches);
    const auto before = training.bytes();
    const std::uint64_t in_use = training.memory().stats().in_use_bytes;
    training.refusals = {.counts = true, .first = first, .count = kTogether};
    try {
      update(training, batches);
      ADD_FAILURE() << "call " << first << " was not needed";
    } catch (const OutOfMemory& error) {
      refused.insert(error.what());
    }
    EXPECT_EQ(training.bytes(), before) << "call " << first;
    EXPECT_EQ(training.memory().stats().in_use_bytes, in_use) << "a leak at call " << first;
    training.refusals = {};
    EXPECT_THROW(training.step.update(), Error) << "nothing of the effective batch is left";
    update(training, batches);
    EXPECT_EQ(training.bytes(), expected) << "call " << first;
  }
  EXPECT_GT(calls, 20) << "the layers do make the source work";
  EXPECT_TRUE(std::ranges::none_of(refused, [](const std::string& what) {
    return what.find("'optimizer'") != what.npos;
  })) << "the update asked for memory";
}

/// Counts samples; how small micro-batches became, and how often that was told.
struct Recorder : Callback {
  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& metrics : event.metrics) samples += metrics.samples;
  }
  void on_smaller_micro_batch(const SmallerMicroBatchEvent& event) override { smaller.push_back(event); }
  std::int64_t samples = 0;
  std::vector<SmallerMicroBatchEvent> smaller;
};

/// Keeps each batch until the next is asked for, so that an update does not find its memory free.
class KeepingSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  bool next(const Context& context, Batch& batch) override {
    kept_ = {};
    const bool given = MemorySource::next(context, batch);
    kept_ = batch;
    return given;
  }

 private:
  Batch kept_;
};

TEST(FailingSource, TrainingGoesOnWhereverMemoryIsRefused) {
  const auto train = [](Training& training, Recorder& heard, StepMode mode) {
    KeepingSource source({8, 8, 3}, 5, 48, 8);
    Trainer trainer(training.step, source, nullptr,
                    {.epochs = 1, .accumulate = 2, .mode = mode, .on_oom = OnOutOfMemory::accumulate});
    trainer.add(heard);
    training.refusals.counts = true;
    trainer.run();
    training.refusals.counts = false;
  };
  for (const StepMode mode : {StepMode::eager, StepMode::planned}) {
    Training undisturbed;
    Recorder whole;
    train(undisturbed, whole, mode);
    const std::vector<float> expected = undisturbed.weights();
    const std::int64_t calls = undisturbed.refusals.calls;
    ASSERT_TRUE(whole.smaller.empty());
    int repeated = 0, in_the_update = 0;
    for (std::int64_t first = 0; first < calls; ++first) {
      Training training;
      const std::uint64_t in_use = training.memory().stats().in_use_bytes;
      training.refusals = {.first = first, .count = kTogether};
      Recorder heard;
      train(training, heard, mode);
      EXPECT_EQ(heard.samples, 48) << first;
      EXPECT_EQ(training.memory().stats().in_use_bytes, in_use) << "a leak at call " << first;
      EXPECT_EQ(training.memory().check_invariants(), "");
      EXPECT_LT(testing::relative_difference(training.weights(), expected), 1e-5) << first;
      EXPECT_LE(heard.smaller.size(), 1u) << "one failure is told once";
      if (heard.smaller.empty()) continue;
      ++repeated;
      in_the_update += heard.smaller.front().reason.find("'optimizer'") != std::string::npos ? 1 : 0;
    }
    if (mode == StepMode::planned) continue;  // its places are kept: few calls are left that can fail
    EXPECT_GT(repeated, 60);
    EXPECT_EQ(in_the_update, 0) << "an update asked for memory";
  }
}

}  // namespace
}  // namespace bantam::failing_source_test

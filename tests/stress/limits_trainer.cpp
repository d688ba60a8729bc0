// Small networks in training, and the thread that moves their limit.
#include "tests/stress/limits_trainer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/limits/process_limit.h"
#include "tests/data/support.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::stress {
namespace {

constexpr std::int64_t kBatch = 16, kClasses = 5;
constexpr std::uint64_t kKiB = 1u << 10, kMiB = 1u << 20;

/// FNV-1a over the bits.
std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 14695981039346656037ull;
  for (const float value : values) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211ull;
  return hash;
}

/// Notes an epoch's losses and the overhead beside its recordings, and ends it where the stress ends.
struct EpochWatch : Callback {
  EpochWatch(Trainer& the_trainer, Runtime& the_runtime, Device the_device, const std::atomic<bool>& the_stop)
      : trainer(the_trainer), runtime(the_runtime), device(the_device), stop(the_stop) {}
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& event) override {
    for (const Metrics& metrics : event.metrics) losses.push_back(static_cast<float>(metrics.loss));
    if (device.is_cuda()) overhead = std::max(overhead, total_bytes(runtime.memory_overhead(device)));
    if (stop) trainer.request_stop();
  }
  Trainer& trainer;
  Runtime& runtime;
  Device device;
  const std::atomic<bool>& stop;
  std::vector<float> losses;
  std::uint64_t overhead = 0;
};

struct RunResult {
  std::array<float, kUpdates> losses{};
  std::uint64_t weights_hash = 0;
  std::uint64_t overhead = 0;  // of the process, recordings included; 0 on the CPU
};

/// As `bantam train` does it: the device makes the batches, and updates run several a launch.
void train_epoch(TrainingStep& step, const std::atomic<bool>& stop, RunResult& result) {
  const Device device = step.model().device();
  Runtime& runtime = step.model().runtime();
  PipelineOptions pipeline{.cache = CacheKind::device, .augmentations = {random_flip()}, .batch_size = kBatch};
  pipeline.shuffle.emplace();
  ImageBatchSource source(runtime,
                          testing::ramp_dataset(runtime, kBatch * kEpoch, step.model().graph().input_shape(), kClasses),
                          LoaderOptions{.pipeline = pipeline, .device = device, .seed = 5, .staged_on_cpu = true});
  Trainer trainer(step, source, nullptr, {.read_every = 4, .updates_a_launch = 4});
  EpochWatch watch(trainer, runtime, device, stop);
  trainer.add(watch);
  trainer.run();
  std::copy_n(watch.losses.begin(), std::min<std::size_t>(kEpoch, watch.losses.size()), result.losses.begin() + kSteps);
  result.overhead = watch.overhead;
}

RunResult train(Runtime& runtime, Device device, const std::atomic<bool>& stop) {
  Model model(runtime, device, testing::small_network(), {.seed = 11});
  Optimizer optimizer(model, {.rule = adam({.learning_rate = 0.01f})});
  TrainingStep step(model, optimizer, {});
  const Context context = Context::make(runtime, device);
  RunResult result;
  for (int update = 0; update < kSteps && !stop; ++update) {
    step.step(testing::make_batch(context, model.graph().input_shape(), kClasses, update * kBatch, kBatch));
    result.losses[static_cast<std::size_t>(update)] = static_cast<float>(step.read_metrics().back().loss);
  }
  if (!stop) train_epoch(step, stop, result);
  result.weights_hash = hash_of(to_host_floats(model.parameters().master(), runtime.stream(device)));
  return result;
}

/// The run's kernels are loaded and counted, as `bantam train` does it.
void settle(Runtime& runtime, Device device) {
  Model model(runtime, device, testing::small_network(), {.seed = 11});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.warm_up(kBatch, false);
  runtime.settle_limit(device);
}

class LimitMover {
 public:
  LimitMover(Runtime& runtime, Device device, const SharedFacts& shared, TrainerFacts& facts, std::uint64_t seed)
      : runtime_(runtime), device_(device), shared_(shared), facts_(facts), random_(seed) {}

  void run() {
    const std::uint64_t least = shared_.overhead + shared_.pool;
    while (!shared_.stop) {
      if (random_() % 8 == 0)
        try_impossible();
      else
        move_to(least + random_() % (3 * shared_.pool));
      std::this_thread::sleep_for(std::chrono::microseconds(500 + random_() % 20000));
    }
  }

 private:
  void move_to(std::uint64_t limit) {
    const std::uint64_t before = facts_.bound;
    facts_.bound = std::max(before, limit);
    runtime_.set_limit(device_, limit);
    facts_.bound = limit;
    ++facts_.changes;
  }
  /// Less than what lives all the time: it must be refused, and nothing change.
  void try_impossible() {
    try {
      runtime_.set_limit(device_, (shared_.overhead + kMiB) / 2);
    } catch (const OutOfMemory&) {
      ++facts_.refusals;
      return;
    }
    throw Error("a limit below live memory was accepted");
  }

  Runtime& runtime_;
  Device device_;
  const SharedFacts& shared_;
  TrainerFacts& facts_;
  std::mt19937_64 random_;
};

/// What a process sees of itself: the pool within its own limit, and with the overhead within the process'.
void sample_pool(Runtime& runtime, Device device, const SharedFacts& shared, TrainerFacts& facts) {
  const BfcAllocator& pool = runtime.allocator(device);
  while (!shared.stop) {
    const std::uint64_t before = facts.bound;
    const MemoryStats stats = pool.stats();
    const std::uint64_t bound = std::max<std::uint64_t>(before, facts.bound);
    ++facts.pool_samples;
    if (stats.pool_bytes > stats.limit_bytes || stats.pool_bytes > bound) ++facts.pool_violations;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// A thread whose exception is the process' failure.
template <class Function>
std::thread guarded(SharedFacts& shared, TrainerFacts& facts, Function function) {
  return std::thread([&shared, &facts, function] {
    try {
      function();
    } catch (const std::exception& error) {
      std::string(error.what()).copy(facts.error.data(), facts.error.size() - 1);
      facts.failed = true;
      shared.stop = true;
    }
  });
}

}  // namespace

void run_undisturbed(SharedFacts& shared, Device device) {
  Runtime runtime({.threads = 1, .limits = {{to_string(device), std::uint64_t{1} << 60}}});
  settle(runtime, device);
  const RunResult result = train(runtime, device, shared.stop);
  shared.losses = result.losses;
  shared.weights_hash = result.weights_hash;
  if (device.is_cuda()) shared.overhead = result.overhead + kKernelReserve;
  // Regions do not fit as tightly as allocations, and the anchor needs its place.
  shared.pool = 2 * runtime.allocator(device).stats().peak_pool_bytes + 8 * kMiB;
}

void run_disturbed(SharedFacts& shared, int trainer, Device device, std::uint64_t seed) {
  TrainerFacts& facts = shared.trainers[static_cast<std::size_t>(trainer)];
  const std::uint64_t first = shared.overhead + 2 * shared.pool;
  facts.bound = first;
  Runtime runtime(
      {.threads = 1, .limits = {{to_string(device), first}}, .log = [&facts](std::string_view) { ++facts.log_lines; }});
  const Tensor anchor = Context::make(runtime, device).allocate({static_cast<std::int64_t>(kMiB + kKiB)}, DType::uint8);
  settle(runtime, device);
  LimitMover mover(runtime, device, shared, facts, seed);
  std::thread moving = guarded(shared, facts, [&] { mover.run(); });
  std::thread sampling = guarded(shared, facts, [&] { sample_pool(runtime, device, shared, facts); });
  std::thread training = guarded(shared, facts, [&] {
    while (!shared.stop) {
      const RunResult result = train(runtime, device, shared.stop);
      if (shared.stop) break;  // cut short: nothing to compare
      if (result.losses != shared.losses || result.weights_hash != shared.weights_hash) ++facts.mismatches;
      ++facts.runs;
    }
  });
  training.join();
  sampling.join();
  moving.join();
}

}  // namespace bantam::stress

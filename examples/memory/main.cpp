// Memory from a program: a step's bytes planned before anything is allocated, a limit that holds, the report of who
// uses what, and the error where a limit is too small.
#include <cstdio>
#include <string>
#include <vector>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

constexpr std::int64_t kBatch = 32;

Graph network() {
  Graph graph({32, 32, 3});
  graph.add("conv", conv2d({.filters = 32, .padding = Padding::same(), .activation = {Activation::relu}}));
  graph.add("pool", max_pool());
  graph.add("flat", flatten());
  graph.add("head", dense({.units = 10}));
  return graph;
}

// One update on grey images of class 0; returns the most bytes that were in use.
std::uint64_t train_once(Runtime& runtime, Device device) {
  Model model(runtime, device, network(), {.seed = 1});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {kBatch}});
  const Context context = model.context(Pass::train);
  const std::vector<float> pixels(kBatch * 32 * 32 * 3, 0.5f);
  const std::vector<std::int32_t> labels(kBatch, 0);
  const Batch batch{.tensors = {{kImages, context.upload({kBatch, 32, 32, 3}, pixels.data())},
                                {kLabels, context.upload({kBatch}, labels.data())}},
                    .size = kBatch};
  step.step(batch);
  step.read_metrics();
  return runtime.allocator(device).stats().peak_bytes;
}

}  // namespace

int main() {
  const Device device = Device::cpu();

  // Before: the same step on a meta device. No kernel runs; the device asked about need not be in this machine.
  const StepPlan plan = plan_step(network(), {.batch = kBatch, .device = device});
  std::printf("planned: %llu bytes in use at the peak, reached by '%s' in %s\n",
              static_cast<unsigned long long>(plan.peak_bytes), plan.moment.owner.c_str(), plan.moment.phase.c_str());

  // During: a limit is never passed. It can change at any time, from any thread.
  Runtime runtime({.limits = {{to_string(device), plan.pool_bytes}}});
  const std::uint64_t measured = train_once(runtime, device);
  std::printf("measured: %llu bytes\n", static_cast<unsigned long long>(measured));
  if (measured != plan.peak_bytes) return 1;

  // After: who uses what. Here the model is destroyed already, so what is left is idle.
  std::printf("%s\n", to_text(runtime.memory_report(device)).c_str());
  runtime.allocator(device).trim();  // idle pages go back to the system

  // A limit that is too small is an error that a program can catch; nothing is half done.
  runtime.set_limit(device, plan.pool_bytes / 4);
  try {
    runtime.require_pool(device, plan.pool_bytes);  // asked before anything is made
    return 1;
  } catch (const OutOfMemory& error) {
    std::printf("refused: %s\n", error.what());
  }
  try {
    train_once(runtime, device);
    return 1;
  } catch (const OutOfMemory& error) {
    std::printf("with a quarter of the limit: %s\n", error.what());
  }
  runtime.set_limit(device, plan.pool_bytes);
  return train_once(runtime, device) > 0 ? 0 : 1;
}

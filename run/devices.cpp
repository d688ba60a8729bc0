// Overhead through a Runtime with a limit (which loads all libraries), rates by timing copies and products.
#include "bantam/run/devices.h"

#include "bantam/base/error.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/run/bench/measure_rates.h"

namespace bantam::run {
namespace {

/// A network that uses each kind of layer once: its step loads a zoo model's kernels.
void warm_up_small_network(Runtime& runtime, Device device, PrecisionKind precision) {
  Graph graph({32, 32, 3});
  graph.add("conv", conv2d({.filters = 32, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("pointwise", conv2d({.filters = 64, .kernel = {1, 1}}));
  graph.add("pool", max_pool());
  graph.add("separable", separable_conv2d({.filters = 64, .activation = {Activation::relu}}));
  graph.add(flatten());
  graph.add("drop", dropout({.rate = 0.5f}));
  graph.add("head", dense({.units = 10}));
  TrainingSession session(runtime, device, std::move(graph), {.model = {.precision = {precision}}});
  session.step().warm_up(64, true);
}

}  // namespace

DeviceProfile measure_profile(Device device) {
  if (!device.is_cuda() || device.is_logical())
    throw DeviceError("devices --measure: a GPU is needed, such as cuda:0; got " + to_string(device));
  // With any limit the Runtime loads each library before the pool and notes its memory.
  Runtime runtime({.threads = 1, .limits = {{to_string(device), std::uint64_t{1} << 60}}});
  (void)runtime.allocator(device);
  const DeviceInfo info = device_info(device);
  warm_up_small_network(runtime, device, PrecisionKind::mixed_float16);
  DeviceProfile profile{.name = info.name,
                        .compute_capability = info.compute_capability,
                        .multiprocessors = info.multiprocessors,
                        .total_bytes = info.total_bytes,
                        .overhead = runtime.memory_overhead(device),
                        .measured = true};
  const Context context = Context::make(runtime, device);
  profile.copy_bytes_per_s = measure_copy_rate(context);
  profile.float32_flops_per_s = measure_matmul_rate(context, DType::float32);
  profile.float16_flops_per_s = measure_matmul_rate(context, DType::float16);
  return profile;
}

}  // namespace bantam::run

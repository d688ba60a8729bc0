// Overhead through a Runtime with a limit (which loads all libraries), rates by timing copies and products.
#include "bantam/cli/measure_profile.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/base/philox.h"
#include "bantam/engine/layers.h"
#include "bantam/engine/ops.h"
#include "bantam/engine/training_step.h"
#include "bantam/kernels/matmul.h"

namespace bantam::cli {
namespace {

constexpr int kWindows = 5, kCalls = 8;
constexpr std::int64_t kCopyBytes = 256 << 20;
constexpr std::int64_t kSide = 4096;  // of the matrices: large enough to fill any GPU

/// Seconds of one call: the best of some windows, after a call that loads and chooses.
double seconds_of(Stream stream, const std::function<void()>& call) {
  call();
  synchronize(stream);
  double best = std::numeric_limits<double>::infinity();
  for (int window = 0; window < kWindows; ++window) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    synchronize(stream);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls);
  }
  return best;
}

/// Values as a network's, not zeros: a GPU that is held back by its power multiplies zeros faster.
Tensor random_matrix(const Context& context, DType dtype) {
  std::vector<float> values(static_cast<std::size_t>(kSide * kSide));
  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  for (float& value : values) value = random.uniform(-1.0f, 1.0f);
  const Tensor floats = context.upload({kSide, kSide}, values.data());
  const Tensor matrix = ops::cast(context, floats, dtype);
  synchronize(context.stream);  // before the host's values go
  return matrix;
}

double copy_rate(const Context& context) {
  const Tensor from = context.allocate({kCopyBytes}, DType::uint8), to = context.allocate({kCopyBytes}, DType::uint8);
  zero_bytes(from.data(), from.bytes(), context.stream);
  const double seconds =
      seconds_of(context.stream, [&] { copy_bytes(to.data(), from.data(), from.bytes(), context.stream); });
  return 2.0 * static_cast<double>(kCopyBytes) / seconds;
}

double matmul_rate(const Context& context, DType dtype) {
  const kernels::MatmulShape shape{.m = kSide, .n = kSide, .k = kSide};
  const Tensor a = random_matrix(context, dtype), b = random_matrix(context, dtype);
  const Tensor c = context.allocate({kSide, kSide}, dtype);
  const Scratch scratch = context.scratch(kernels::matmul_workspace_bytes(shape, dtype, dtype, context.device.kind));
  const double seconds = seconds_of(context.stream, [&] {
    BANTAM_KERNEL(context.exec, matmul, shape, dtype, a.data(), b.data(), dtype, c.data(), false, scratch.get());
  });
  return static_cast<double>(kernels::matmul_flops(shape)) / seconds;
}

/// A network that uses each kind of layer once: its step loads a zoo model's kernels.
void warm_up_small_network(Runtime& runtime, Device device, PrecisionKind precision) {
  Graph graph({32, 32, 3});
  graph.add("conv", conv2d({.filters = 32, .kernel = {3, 3}, .padding = Padding::same(), .bias = false}));
  graph.add("norm", batch_norm({.activation = {kernels::Activation::relu}}));
  graph.add("pointwise", conv2d({.filters = 64, .kernel = {1, 1}}));
  graph.add("pool", max_pool());
  graph.add("separable", separable_conv2d({.filters = 64, .activation = {kernels::Activation::relu}}));
  graph.add(flatten());
  graph.add("drop", dropout({.rate = 0.5f}));
  graph.add("head", dense({.units = 10}));
  Model model(runtime, device, std::move(graph), {.precision = {precision}});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.warm_up(64, true);
}

}  // namespace

DeviceProfile measure_profile(Device device) {
  if (!device.is_cuda() || device.is_logical())
    throw DeviceError("devices --measure: a GPU is needed, such as cuda:0; got " + to_string(device));
  // Any limit has the Runtime load each library before the pool and note what it took.
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
  profile.copy_bytes_per_s = copy_rate(context);
  profile.float32_flops_per_s = matmul_rate(context, DType::float32);
  profile.float16_flops_per_s = matmul_rate(context, DType::float16);
  return profile;
}

nlohmann::ordered_json profile_json(const DeviceProfile& profile) {
  nlohmann::ordered_json json = {{"name", profile.name},
                                 {"compute_capability", profile.compute_capability},
                                 {"multiprocessors", profile.multiprocessors},
                                 {"total_bytes", profile.total_bytes},
                                 {"overhead", nlohmann::ordered_json::object()},
                                 {"copy_bytes_per_s", profile.copy_bytes_per_s},
                                 {"float32_flops_per_s", profile.float32_flops_per_s},
                                 {"float16_flops_per_s", profile.float16_flops_per_s},
                                 {"measured", profile.measured}};
  for (const OverheadLine& line : profile.overhead) json["overhead"][line.name] = line.bytes;
  return json;
}

}  // namespace bantam::cli

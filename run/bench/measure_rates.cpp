// Rates by timing: the best of some windows of equal calls.
#include "bantam/run/bench/measure_rates.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "bantam/base/clock.h"
#include "bantam/base/philox.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/memory/device/captured_work.h"

namespace bantam::run {
namespace {

constexpr int kWindows = 5, kCalls = 8;
/// Large enough to fill the device, and no larger: a CPU's caches are small, and its products slow.
std::int64_t copy_bytes_of(const Context& context) { return (context.device.is_cuda() ? 256 : 32) << 20; }
std::int64_t side_of(const Context& context) { return context.device.is_cuda() ? 4096 : 512; }

/// Seconds of one call: the best of some windows, after a call that loads and chooses.
double seconds_of(Stream stream, const std::function<void()>& call) {
  call();
  synchronize(stream);
  double best = std::numeric_limits<double>::infinity();
  for (int window = 0; window < kWindows; ++window) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    synchronize(stream);
    best = std::min(best, seconds_since(start) / kCalls);
  }
  return best;
}

/// Values like a network's, not zeros: a GPU limited by its power multiplies zeros faster.
Tensor random_matrix(const Context& context, DType dtype) {
  const std::int64_t side = side_of(context);
  std::vector<float> values(static_cast<std::size_t>(side * side));
  PhiloxSequence random(philox_key(1, RandomPurpose::dataset));
  for (float& value : values) value = random.uniform(-1.0f, 1.0f);
  const Tensor floats = context.upload({side, side}, values.data());
  const Tensor matrix = ops::cast(context, floats, dtype);
  synchronize(context.stream);  // before the host's values go
  return matrix;
}

}  // namespace

double measure_copy_rate(const Context& context) {
  const std::int64_t bytes = copy_bytes_of(context);
  const Tensor from = context.allocate({bytes}, DType::uint8), to = context.allocate({bytes}, DType::uint8);
  zero_bytes(from.data(), from.bytes(), context.stream);
  const double seconds =
      seconds_of(context.stream, [&] { copy_bytes(to.data(), from.data(), from.bytes(), context.stream); });
  return 2.0 * static_cast<double>(bytes) / seconds;
}

double measure_matmul_rate(const Context& context, DType dtype) {
  const std::int64_t side = side_of(context);
  const kernels::MatmulShape shape{.m = side, .n = side, .k = side};
  const Tensor a = random_matrix(context, dtype), b = random_matrix(context, dtype);
  const Tensor c = context.allocate({side, side}, dtype);
  const Scratch scratch = context.scratch(kernels::matmul_workspace_bytes(shape, dtype, dtype, context.device.kind));
  const double seconds = seconds_of(context.stream, [&] {
    BANTAM_KERNEL(context.exec, matmul, shape, dtype, a.data(), b.data(), {.data = c.data(), .dtype = dtype},
                  scratch.get());
  });
  return static_cast<double>(kernels::matmul_flops(shape)) / seconds;
}

double measure_kernel_seconds(const Context& context) {
  constexpr int kChain = 256;
  const Tensor value = context.allocate({1}, DType::float32);
  const auto chain = [&] {
    for (int i = 0; i < kChain; ++i) BANTAM_KERNEL(context.exec, fill, 1, DType::float32, 1.0f, value.data());
  };
  if (!context.device.is_cuda()) return seconds_of(context.stream, chain) / kChain;
  chain();  // loads it
  const CapturedWork recorded(context.stream, chain);
  return seconds_of(context.stream, [&] { recorded.launch(); }) / kChain;
}

}  // namespace bantam::run

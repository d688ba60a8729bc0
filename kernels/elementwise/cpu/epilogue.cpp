// The epilogue of a layer on the CPU as a pass of its own: eight channels at a time, rows in parallel.
#include "bantam/kernels/elementwise/epilogue.h"

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"

namespace bantam::kernels::cpu {
namespace {

template <class T, class F>
void run(const Exec& exec, std::int64_t rows, std::int64_t channels, const Epilogue& epilogue, T* y, const F& f) {
  const T* bias = static_cast<const T*>(epilogue.bias);
  const T* residual = static_cast<const T*>(epilogue.residual);
  map_channels<1>(
      rows, channels, exec.threads,
      [&](std::int64_t c, float* value) { value[0] = bias != nullptr ? static_cast<float>(bias[c]) : 0.0f; },
      [&](std::int64_t at, std::int64_t lanes, const Float8* p) {
        Float8 sum = load_lanes(y + at, lanes) + p[0];
        if (residual != nullptr) sum += load_lanes(residual + at, lanes);
        store_lanes(y + at, lanes, f(sum));
      });
}

}  // namespace

void epilogue_forward(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const Epilogue& epilogue,
                      void* y) {
  if (epilogue.empty()) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = static_cast<T*>(y);
    with_optional_activation8<T>(epilogue.f, [&](const auto& f) { run(exec, rows, channels, epilogue, to, f); });
  });
}

}  // namespace bantam::kernels::cpu

// Batch norm over the batches of several ranks on the CPU.
#include "bantam/kernels/norm/sync_norm.h"

#include <algorithm>
#include <cmath>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/norm/cpu/batch_norm_passes.h"

namespace bantam::kernels::cpu {

void pack_moments(const Exec&, std::int64_t channels, std::int64_t rows, const float* mean, const float* variance,
                  double* message) {
  const auto count = static_cast<double>(rows);
  message[0] = count;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double m = mean[c];
    message[1 + c] = count * m;
    message[1 + channels + c] = count * (variance[c] + m * m);
  }
}

void unpack_moments(const Exec&, std::int64_t channels, const double* message, const StatisticsOutput& statistics,
                    float* inv_rows) {
  const double rows = message[0];
  *inv_rows = static_cast<float>(1.0 / rows);
  for (std::int64_t c = 0; c < channels; ++c) {
    const double mean = message[1 + c] / rows;
    const double variance = std::max(message[1 + channels + c] / rows - mean * mean, 0.0);
    write_statistics(statistics, std::llround(rows), c, {mean, variance});
  }
}

void sync_norm_input_gradient(const Exec& exec, const BatchNormShape& shape, DType dtype, const NormOperand& norm,
                              const void* dy, const float* inv_rows, float* sums, void* dx) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  for (std::int64_t i = 0; i < 2 * shape.channels; ++i) sums[i] *= *inv_rows;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Saved<T> saved = saved_of<T>(norm, shape.channels, sums + 2 * shape.channels);
    with_activation8<T>(norm.affine.activation, [&](auto f) {
      input_gradient_of(exec, shape, saved, static_cast<const T*>(dy), f, sums, 1.0f, static_cast<T*>(dx));
    });
  });
}

}  // namespace bantam::kernels::cpu

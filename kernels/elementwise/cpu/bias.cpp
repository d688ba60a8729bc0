// Bias and its gradient on the CPU: eight channels at a time, rows in parallel, partial sums added in part order.
#include "bantam/kernels/elementwise/bias.h"

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"

namespace bantam::kernels::cpu {

void bias_forward(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const void* x, const void* b,
                  void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x);
    const T* bias = static_cast<const T*>(b);
    T* to = static_cast<T*>(y);
    map_channels<1>(
        rows, channels, exec.threads, [&](std::int64_t c, float* value) { value[0] = static_cast<float>(bias[c]); },
        [&](std::int64_t at, std::int64_t lanes, const Float8* p) {
          store_lanes(to + at, lanes, load_lanes(from + at, lanes) + p[0]);
        });
  });
}

void bias_grad(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const void* dy, float* db,
               bool accumulate, Workspace workspace) {
  require_workspace(workspace, bias_grad_workspace_bytes(rows, channels, DeviceKind::cpu), "bias_grad");
  const std::int64_t parts = sum_parts(rows, channels, DeviceKind::cpu);
  float* partials = static_cast<float*>(workspace.data);  // (parts, channels)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(dy);
    parallel_parts(parts, exec.threads, [&](std::int64_t part) {
      const RowBlock rows_of_part{part_begin(rows, parts, part), part_begin(rows, parts, part + 1)};
      float* sums = parts == 1 ? db : partials + part * channels;
      if (parts > 1 || !accumulate) std::fill(sums, sums + channels, 0.0f);
      sum_columns<1>(rows_of_part, channels, &sums,
                     [&](std::int64_t at, std::int64_t, std::int64_t lanes, Float8* sum) {
                       sum[0] += load_lanes(from + at, lanes, rows * channels - at);
                     });
    });
  });
  if (parts > 1) add_parts(partials, parts, channels, db, accumulate, exec.threads);
}

}  // namespace bantam::kernels::cpu

// Depthwise convolution on the CPU: forward and input gradient gather over taps; dw is summed part by part.
#include "bantam/kernels/depthwise/depthwise_conv2d.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/depthwise/cpu/depthwise_weights.h"
#include "bantam/kernels/depthwise/depthwise_parts.h"

namespace bantam::kernels::cpu {

void depthwise_conv2d_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                              const void* w, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Gather<T> gather{rows_of(s, false),
                           columns_of(s, false),
                           s.batch,
                           s.out_h(),
                           s.out_w(),
                           s.out_channels(),
                           s.channels,
                           s.multiplier,
                           static_cast<const T*>(x),
                           static_cast<const T*>(w),
                           static_cast<T*>(y)};
    run_gather(gather, exec.threads);
  });
}

void depthwise_conv2d_grad_input(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* dy,
                                 const void* w, void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Gather<T> gather{rows_of(s, true),
                           columns_of(s, true),
                           s.batch,
                           s.in_h,
                           s.in_w,
                           s.channels,
                           s.out_channels(),
                           s.multiplier,
                           static_cast<const T*>(dy),
                           static_cast<const T*>(w),
                           static_cast<T*>(dx)};
    run_gather(gather, exec.threads);
  });
}

void depthwise_conv2d_grad_weight(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                                  const void* dy, float* dw, bool accumulate, Workspace workspace) {
  require_workspace(workspace, depthwise_conv2d_grad_weight_workspace_bytes(s, dtype, DeviceKind::cpu),
                    "depthwise_conv2d_grad_weight");
  const std::int64_t parts = depthwise_grad_weight_parts(s, DeviceKind::cpu), count = s.w_elements();
  const std::int64_t rows = s.batch * s.out_h();
  float* partials = static_cast<float*>(workspace.data);  // (parts, kernel_h, kernel_w, out_channels)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_parts(parts, exec.threads, [&](std::int64_t part) {
      float* sums = parts == 1 ? dw : partials + part * count;
      if (parts > 1 || !accumulate) std::fill(sums, sums + count, 0.0f);
      add_weight_gradient(s, static_cast<const T*>(x), static_cast<const T*>(dy),
                          {part_begin(rows, parts, part), part_begin(rows, parts, part + 1)}, sums);
    });
  });
  if (parts > 1) add_parts(partials, parts, count, dw, accumulate, exec.threads);
}

}  // namespace bantam::kernels::cpu

// Work of convolutions. 1x1 convolutions without groups are matrix products.
#include "bantam/kernels/common/work.h"

#include <algorithm>

#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/conv2d_inference.h"
#include "bantam/kernels/conv/conv2d_pool.h"
#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/elementwise/epilogue_work.h"

namespace bantam::kernels::work {
namespace {

/// Elements of x that some window reads: strides wider than the kernel pass over the others.
std::int64_t read_elements(const Conv2dShape& s) {
  const std::int64_t rows = std::min(s.in_h, s.out_h() * s.kernel_h),
                     columns = std::min(s.in_w, s.out_w() * s.kernel_w);
  return s.batch * rows * columns * s.in_channels;
}

/// The work of any pass that moves `bytes`: the operations and the kind of kernel are the same for all three.
KernelWork products(const Conv2dShape& s, std::int64_t bytes) {
  const bool is_product = s.kernel_h == 1 && s.kernel_w == 1 && s.groups == 1;
  const std::int64_t flops = conv2d_flops(s), depth = s.in_channels / std::max<std::int64_t>(s.groups, 1);
  return {.kind = is_product ? KernelKind::product : KernelKind::convolution,
          .bytes = bytes,
          .flops = flops,
          .matrix_flops = depth > 0 ? flops / depth * matrix_depth(depth) : 0};
}

std::int64_t forward_bytes(const Conv2dShape& s, DType dtype) {
  return bytes_of(read_elements(s) + s.w_elements() + s.y_elements(), dtype);
}

}  // namespace

void conv2d_forward(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const void*, void*, Workspace) {
  note(exec, "conv2d_forward", products(s, forward_bytes(s, dtype)));
}

void conv2d_forward_statistics(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const void*, void*,
                               const StatisticsOutput& statistics, Workspace) {
  KernelWork work = products(s, forward_bytes(s, dtype) + statistics_bytes(statistics, s.out_channels));
  if (statistics.wanted()) ++work.passes;  // one more reads y, or the parts that were made with it
  if (statistics.wanted() && !conv2d_writes_statistics(s, dtype)) work.bytes += bytes_of(s.y_elements(), dtype);
  note(exec, "conv2d_forward_statistics", work);
}

void conv2d_pack_weights(const Exec& exec, const Conv2dShape& s, DType dtype, void*, Workspace) {
  note(exec, "conv2d_pack_weights", {.bytes = bytes_of(2 * s.w_elements(), dtype)});
}

void conv2d_inference(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const void*,
                      const Epilogue& epilogue, void*, Workspace) {
  const std::int64_t more = epilogue_elements(epilogue, s.y_elements(), s.out_channels);
  note(exec, "conv2d_inference", products(s, forward_bytes(s, dtype) + bytes_of(more, dtype)));
}

void conv2d_grad_input(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const void*, void*,
                       Workspace) {
  note(exec, "conv2d_grad_input", products(s, bytes_of(s.y_elements() + s.w_elements() + s.x_elements(), dtype)));
}

void conv2d_grad_weight(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const void*,
                        const Conv2dWeightGradient& gradient, Workspace) {
  note(exec, "conv2d_grad_weight",
       products(s, bytes_of(read_elements(s) + s.y_elements(), dtype) +
                       gradient_bytes(gradient.dw, gradient.accumulate, s.w_elements())));
}

void conv2d_input_sums(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const float*, float* sums,
                       bool accumulate) {
  note(exec, "conv2d_input_sums",
       {.bytes =
            bytes_of(s.w_elements(), dtype) + 4 * s.w_elements() + gradient_bytes(sums, accumulate, s.in_channels)});
}

namespace {

/// The bytes of the pooled output and its winners, and, where two kernels run, of what lies between, written and read.
std::int64_t pooled_bytes(const Exec& exec, const Conv2dShape& s, DType dtype, bool winners) {
  const std::int64_t pooled = pool_of_conv2d(s).y_elements();
  const std::int64_t between = conv2d_pool_supports(s, dtype, exec.device.kind) ? 0 : 2 * s.y_elements();
  return bytes_of(pooled + between, dtype) + (winners ? 2 * pooled : 0);
}

}  // namespace

void conv2d_pool_forward(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const void*, void*,
                         std::uint16_t* winner, Workspace) {
  note(exec, "conv2d_pool_forward",
       products(s,
                bytes_of(read_elements(s) + s.w_elements(), dtype) + pooled_bytes(exec, s, dtype, winner != nullptr)));
}

void conv2d_pool_grad_weight(const Exec& exec, const Conv2dShape& s, DType dtype, const void*, const void*,
                             const std::uint16_t*, const Conv2dWeightGradient& gradient, Workspace) {
  note(exec, "conv2d_pool_grad_weight",
       products(s, bytes_of(read_elements(s), dtype) + pooled_bytes(exec, s, dtype, true) +
                       gradient_bytes(gradient.dw, gradient.accumulate, s.w_elements())));
}

}  // namespace bantam::kernels::work

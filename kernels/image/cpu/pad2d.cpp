// Padding and cropping on the CPU: rows in parallel; gradients gather.
#include "bantam/kernels/image/pad2d.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/image/cpu/image_rows.h"

namespace bantam::kernels::cpu {

void pad2d_forward(const Exec& exec, const Pad2dShape& s, DType dtype, const void* x, void* y) {
  copy_sources(exec, {s.batch, s.channels}, pad_axis(s.in_h, s.top, s.bottom, s.mode),
               pad_axis(s.in_w, s.left, s.right, s.mode), static_cast<std::int64_t>(size_of(dtype)), x, y);
}

void pad2d_grad_input(const Exec& exec, const Pad2dShape& s, DType dtype, const void* dy, void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    sum_readers(exec, {s.batch, s.channels}, pad_axis(s.in_h, s.top, s.bottom, s.mode),
                pad_axis(s.in_w, s.left, s.right, s.mode), static_cast<const T*>(dy), static_cast<T*>(dx));
  });
}

}  // namespace bantam::kernels::cpu

// Dense: dw = dyᵀ·x, dx = dy·w.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/matmul/matmul.h"

namespace bantam::ops {
namespace {

void product(const Context& context, const kernels::MatmulShape& shape, DType dtype, const Tensor& a, const Tensor& b,
             DType out_dtype, void* out, bool accumulate) {
  const Scratch scratch =
      context.scratch(kernels::matmul_workspace_bytes(shape, dtype, out_dtype, context.device.kind));
  BANTAM_KERNEL(context.exec, matmul, shape, dtype, a.data(), b.data(),
                {.data = out, .dtype = out_dtype, .accumulate = accumulate}, scratch.get());
}

}  // namespace

Tensor dense(const Context& context, const Tensor& x, const Tensor& w) {
  context.check_device("dense", {&x, &w});
  if (x.shape().rank() < 2 || w.shape().rank() != 2 || x.shape()[-1] != w.shape()[1])
    throw ShapeError(
        fmt::format("dense: x {} and weight {} do not fit; expected (batch, …, inputs) and (units, inputs)",
                    to_string(x.shape()), to_string(w.shape())));
  if (x.dtype() != w.dtype())
    throw DTypeError(fmt::format("dense: x is {} and the weight {}", to_string(x.dtype()), to_string(w.dtype())));
  const std::int64_t rows = x.shape().with(-1, 1).elements(), inputs = w.shape()[1], units = w.shape()[0];
  const DType dtype = x.dtype();
  Tensor y = context.allocate(x.shape().with(-1, units), dtype);
  product(context, {.m = rows, .n = units, .k = inputs, .transpose_b = true}, dtype, x, w, dtype, y.data(), false);
  if (!records(context, {&x, &w})) return y;
  context.tape->record(context, y,
                       [=, x = SavedTensor(x)](const Context& ctx, Tensor dy, GradientStore& store) mutable {
                         if (FloatGradient dw(ctx, w, store); dw.data != nullptr) {
                           product(ctx, {.m = units, .n = inputs, .k = rows, .transpose_a = true}, dtype, dy,
                                   x.unpack(ctx), DType::float32, dw.data, dw.accumulate);
                           dw.add_to(ctx, w, store);
                         }
                         if (!wants_gradient(x.ref())) return;
                         Tensor dx = ctx.allocate(x.shape(), dtype);
                         product(ctx, {.m = rows, .n = inputs, .k = units}, dtype, dy, w, dtype, dx.data(), false);
                         store.add(ctx, x.ref(), std::move(dx));
                       });
  return y;
}

}  // namespace bantam::ops

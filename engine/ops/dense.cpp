// Dense: dw = dyᵀ·x, dx = dy·w; the bias's gradient is the sum of dy's rows, the residual's is dy.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/bias.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/matmul/matmul.h"

namespace bantam::ops {
namespace {

void product(const Context& context, const kernels::MatmulShape& shape, DType dtype, const Tensor& a, const Tensor& b,
             const kernels::MatmulOutput& out) {
  const Scratch scratch =
      context.scratch(kernels::matmul_workspace_bytes(shape, dtype, out.dtype, context.device.kind));
  BANTAM_KERNEL(context.exec, matmul, shape, dtype, a.data(), b.data(), out, scratch.get());
}

}  // namespace

Tensor dense(const Context& context, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual) {
  context.check_device("dense", {&x, &w});
  if (x.shape().rank() < 2 || w.shape().rank() != 2 || x.shape()[-1] != w.shape()[1])
    throw ShapeError(
        fmt::format("dense: x {} and weight {} do not fit; expected (batch, …, inputs) and (units, inputs)",
                    to_string(x.shape()), to_string(w.shape())));
  if (x.dtype() != w.dtype())
    throw DTypeError(fmt::format("dense: x is {} and the weight {}", to_string(x.dtype()), to_string(w.dtype())));
  const std::int64_t rows = x.shape().with(-1, 1).elements(), inputs = w.shape()[1], units = w.shape()[0];
  const DType dtype = x.dtype();
  Tensor y = output_of(context, x.shape().with(-1, units), dtype, residual);
  check_addends(context, "dense", y, bias, residual);
  if (!context.output_unused())
    product(context, {.m = rows, .n = units, .k = inputs, .transpose_b = true}, dtype, x, w,
            {.data = y.data(), .dtype = dtype, .bias = data_or_null(bias), .residual = data_or_null(residual)});
  if (!records(context, {&x, &w, &bias, &residual})) return y;
  context.tape->record(
      context, y,
      [=, x = SavedTensor(x), residual_ref = residual.defined() ? ValueRef(residual) : ValueRef()](
          const Context& ctx, Tensor dy, GradientStore& store) mutable {
        store.add(ctx, residual_ref, dy);
        add_bias_gradient(ctx, bias, dy, store);
        if (FloatGradient dw(ctx, w, store); dw.data != nullptr) {
          product(ctx, {.m = units, .n = inputs, .k = rows, .transpose_a = true}, dtype, dy, x.unpack(ctx),
                  {.data = dw.data, .dtype = DType::float32, .accumulate = dw.accumulate});
          dw.add_to(ctx, w, store);
        }
        if (!wants_gradient(x.ref())) return;
        Tensor dx = ctx.allocate(x.shape(), dtype);
        product(ctx, {.m = rows, .n = inputs, .k = units}, dtype, dy, w, {.data = dx.data(), .dtype = dtype});
        store.add(ctx, x.ref(), std::move(dx));
      });
  return y;
}

}  // namespace bantam::ops

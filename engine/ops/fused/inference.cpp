// Ops of inference: kernels with epilogues.
#include "bantam/engine/ops/fused/inference.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/conv2d.h"
#include "bantam/engine/ops/depthwise_conv2d.h"
#include "bantam/kernels/conv/conv2d_inference.h"
#include "bantam/kernels/depthwise/depthwise_inference.h"

namespace bantam::ops {
namespace {

/// Throws where an operand, where there is one, is of another type than x.
void check_type(const char* op, const char* what, const Tensor& operand, DType dtype) {
  if (operand.defined() && operand.dtype() != dtype)
    throw DTypeError(fmt::format("{}: x is {}, but {} is {}; expected one type", op, to_string(dtype), what,
                                 to_string(operand.dtype())));
}

/// Throws where an operand wants a gradient.
void check_records(const char* op, const Context& context, std::initializer_list<const Tensor*> operands) {
  if (records(context, operands))
    throw Error(fmt::format("{}: it has no backward; expected no tape, or operands that want no gradient", op));
}

/// Throws where an operand of the epilogue does not fit an output.
kernels::Epilogue checked(const char* op, const Context& context, const InferenceEpilogue& epilogue, const Tensor& y) {
  context.check_device(op, {&epilogue.bias, &epilogue.residual});
  check_type(op, "the bias", epilogue.bias, y.dtype());
  check_type(op, "the sum", epilogue.residual, y.dtype());
  if (epilogue.bias.defined() && epilogue.bias.shape() != Shape{y.shape()[-1]})
    throw ShapeError(
        fmt::format("{}: expected a bias ({}), got {}", op, y.shape()[-1], to_string(epilogue.bias.shape())));
  if (epilogue.residual.defined() && epilogue.residual.shape() != y.shape())
    throw ShapeError(fmt::format("{}: expected a sum with {}, got {}", op, to_string(y.shape()),
                                 to_string(epilogue.residual.shape())));
  return {.bias = epilogue.bias.defined() ? epilogue.bias.data() : nullptr,
          .residual = epilogue.residual.defined() ? epilogue.residual.data() : nullptr,
          .f = epilogue.f};
}

}  // namespace

void pack_conv2d_weight(const Context& context, const Shape& in, const Tensor& w, Window2d window,
                        std::int64_t groups) {
  window.kernel = {w.shape()[1], w.shape()[2]};
  const kernels::Conv2dShape shape = conv2d_shape(in.prepend(1), w.shape()[0], window, groups);
  const Scratch scratch = context.scratch(kernels::conv2d_pack_workspace_bytes(shape, w.dtype(), context.device.kind));
  BANTAM_KERNEL(context.exec, conv2d_pack_weights, shape, w.dtype(), w.data(), scratch.get());
}

Tensor conv2d_inference(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window,
                        std::int64_t groups, const InferenceEpilogue& epilogue) {
  const kernels::Conv2dShape shape = conv2d_shape(x, w, window, groups);
  const DType dtype = x.dtype();
  context.check_device("conv2d_inference", {&x, &w});
  check_records("conv2d_inference", context, {&x, &w, &epilogue.bias, &epilogue.residual});
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels}, dtype);
  const kernels::Epilogue after = checked("conv2d_inference", context, epilogue, y);
  const Scratch scratch = context.scratch(kernels::conv2d_inference_workspace_bytes(shape, dtype, context.device.kind));
  BANTAM_KERNEL(context.exec, conv2d_inference, shape, dtype, x.data(), w.data(), after, y.data(), scratch.get());
  return y;
}

Tensor depthwise_conv2d_inference(const Context& context, const Tensor& x, const Tensor& w, const Window2d& window,
                                  const InferenceEpilogue& epilogue) {
  const kernels::DepthwiseConv2dShape shape = depthwise_conv2d_shape("depthwise_conv2d", x, w, window);
  context.check_device("depthwise_conv2d_inference", {&x, &w});
  check_records("depthwise_conv2d_inference", context, {&x, &w, &epilogue.bias, &epilogue.residual});
  Tensor y = context.allocate({shape.batch, shape.out_h(), shape.out_w(), shape.out_channels()}, x.dtype());
  const kernels::Epilogue after = checked("depthwise_conv2d_inference", context, epilogue, y);
  BANTAM_KERNEL(context.exec, depthwise_conv2d_inference, shape, x.dtype(), x.data(), w.data(), after, y.data());
  return y;
}

}  // namespace bantam::ops

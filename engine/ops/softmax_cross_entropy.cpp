// Cross-entropy: backward keeps logits and each row's log-sum-exp, in two parts.
#include "bantam/kernels/head/softmax_cross_entropy.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {

SoftmaxCrossEntropyResult softmax_cross_entropy(const Context& context, const Tensor& logits, const Tensor& labels,
                                                SoftmaxCrossEntropyOptions options) {
  context.check_device("softmax_cross_entropy", {&logits, &labels});
  if (logits.shape().rank() != 2 || labels.shape() != Shape{logits.shape()[0]})
    throw ShapeError(
        fmt::format("softmax_cross_entropy: logits {} and labels {} do not fit; expected (batch, classes) and (batch)",
                    to_string(logits.shape()), to_string(labels.shape())));
  if (labels.dtype() != DType::int32)
    throw DTypeError(fmt::format("softmax_cross_entropy: labels must be int32, got {}", to_string(labels.dtype())));
  const kernels::SoftmaxCrossEntropyShape shape{logits.shape()[0], logits.shape()[1], options.label_smoothing};
  const float divisor =
      options.divisor > 0.0f ? options.divisor : static_cast<float>(std::max<std::int64_t>(shape.batch, 1));
  const Tensor losses = context.allocate({shape.batch}, DType::float32),
               lse = context.allocate({shape.batch, 2}, DType::float32);  // LogSumExp
  Tensor loss = context.allocate({}, DType::float32);
  const Tensor correct = context.allocate({shape.batch}, DType::uint8);
  const kernels::SoftmaxCrossEntropyOutputs out{.losses = losses.as<float>(),
                                                .log_sum_exp = lse.as<kernels::LogSumExp<float>>(),
                                                .loss = loss.as<float>(),
                                                .correct = correct.as<std::uint8_t>(),
                                                .ring = options.metrics,
                                                .slot = options.metric_slot};
  BANTAM_KERNEL(context.exec, softmax_cross_entropy_forward, shape, logits.dtype(), logits.data(),
                labels.as<std::int32_t>(), divisor, out);
  if (!records(context, {&logits})) return {loss, losses};
  context.tape->record(context, loss, [=](const Context& ctx, Tensor upstream, GradientStore& store) {
    Tensor dlogits = ctx.allocate(logits.shape(), logits.dtype());
    const kernels::SoftmaxCrossEntropyGradInputs inputs{.logits = logits.data(),
                                                        .labels = labels.as<std::int32_t>(),
                                                        .log_sum_exp = lse.as<kernels::LogSumExp<float>>(),
                                                        .upstream = upstream.as<float>(),
                                                        .divisor = divisor};
    BANTAM_KERNEL(ctx.exec, softmax_cross_entropy_grad, shape, logits.dtype(), inputs, dlogits.data());
    store.add(ctx, logits, std::move(dlogits));
  });
  return {loss, losses};
}

}  // namespace bantam::ops

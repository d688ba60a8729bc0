// Work of softmax, and of the loss, alone and as the end of a fused head.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/head/classifier_head.h"
#include "bantam/kernels/head/softmax.h"
#include "bantam/kernels/head/softmax_cross_entropy.h"

namespace bantam::kernels::work {
namespace {

constexpr auto kMetricBytes = static_cast<std::int64_t>(2 * sizeof(MetricSums));  // read and written
constexpr std::int64_t kLabel = sizeof(std::int32_t), kLoss = sizeof(float);

}  // namespace

void softmax_forward(const Exec& exec, std::int64_t rows, std::int64_t columns, DType dtype, const void*, void*) {
  note(exec, "softmax_forward", {.bytes = 2 * bytes_of(rows * columns, dtype)});
}
void softmax_grad(const Exec& exec, std::int64_t rows, std::int64_t columns, DType dtype, const void*, const void*,
                  void*) {
  note(exec, "softmax_grad", {.bytes = 3 * bytes_of(rows * columns, dtype)});
}

void softmax_cross_entropy_forward(const Exec& exec, const SoftmaxCrossEntropyShape& s, DType dtype, const void*,
                                   const std::int32_t*, float, const SoftmaxCrossEntropyOutputs& to) {
  const std::int64_t sample = kLabel + unless_null(to.losses, kLoss) +
                              unless_null(to.log_sum_exp, static_cast<std::int64_t>(sizeof(LogSumExp<float>))) +
                              unless_null(to.correct, 1);
  note(exec, "softmax_cross_entropy_forward",
       {.bytes = bytes_of(s.batch * s.classes, dtype) + s.batch * sample + unless_null(to.loss, kLoss) +
                 unless_null(to.ring, kMetricBytes),
        .passes = 2});  // samples, and the batch
}

void softmax_cross_entropy_grad(const Exec& exec, const SoftmaxCrossEntropyShape& s, DType dtype,
                                const SoftmaxCrossEntropyGradInputs&, void*) {
  const auto sample = kLabel + static_cast<std::int64_t>(sizeof(LogSumExp<float>));
  note(exec, "softmax_cross_entropy_grad",
       {.bytes = 2 * bytes_of(s.batch * s.classes, dtype) + s.batch * sample + kLoss});
}

void classifier_head_forward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void*,
                             const ClassifierHeadWeights&, const ClassifierHeadLoss& loss,
                             const ClassifierHeadSaved& saved, Workspace) {
  const std::int64_t hidden = 2 * s.batch * s.hidden * s.inputs, logits = 2 * s.batch * s.hidden * s.classes;
  const std::int64_t weights = s.hidden * s.inputs + s.hidden + s.classes * s.hidden + s.classes;
  const std::int64_t small = s.classes * s.hidden + s.classes + s.hidden;  // gradients made on the way
  const bool learns = saved.dhidden != nullptr;
  note(exec, "classifier_head_forward",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(s.batch * s.inputs + weights + (learns ? s.batch * s.hidden : 0), dtype) + s.batch * kLabel +
                 kLoss + unless_null(loss.ring, kMetricBytes) + unless_null(saved.partials, 4 * small),
        .flops = hidden + logits * (learns ? 3 : 1),
        .passes = 2});
}

void classifier_head_backward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void*, const void*,
                              const ClassifierHeadSaved&, const ClassifierHeadGradients& to, Workspace) {
  const std::int64_t product = 2 * s.batch * s.hidden * s.inputs, small = s.classes * s.hidden + s.classes + s.hidden;
  const std::int64_t input = s.batch * s.inputs, w1 = s.hidden * s.inputs;
  note(exec, "classifier_head_backward",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(input + s.batch * s.hidden + w1, dtype) + unless_null(to.dx, bytes_of(input, dtype)) +
                 4 * small + gradient_bytes(to.w1, w1) + gradient_bytes(to.b1, s.hidden) +
                 gradient_bytes(to.w2, s.classes * s.hidden) + gradient_bytes(to.b2, s.classes),
        .flops = product * ((to.dx != nullptr ? 1 : 0) + (to.w1.data != nullptr ? 1 : 0))});
}

}  // namespace bantam::kernels::work

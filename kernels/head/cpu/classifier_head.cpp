// The fused head on the CPU: its contract kept by the kernels of its parts, one after another.
#include "bantam/kernels/head/classifier_head.h"

#include <algorithm>

#include "bantam/kernels/elementwise/activation.h"
#include "bantam/kernels/elementwise/bias.h"
#include "bantam/kernels/head/classifier_head_rules.h"

namespace bantam::kernels::cpu {
namespace {

void add_up(const float* part, std::int64_t count, const ParameterTarget& target) {
  if (target.data == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i) target.data[i] = (target.accumulate ? target.data[i] : 0.0f) + part[i];
}

}  // namespace

void classifier_head_forward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x,
                             const ClassifierHeadWeights& weights, const ClassifierHeadLoss& loss,
                             const ClassifierHeadSaved& saved, Workspace workspace) {
  if (!classifier_head_supports(s, dtype)) throw Error("classifier_head: no kernel supports this shape and type");
  const std::size_t needed = classifier_head_workspace_bytes(s, dtype, DeviceKind::cpu);
  require_workspace(workspace, needed, "classifier_head");
  const std::size_t size = size_of(dtype), rows = static_cast<std::size_t>(s.batch);
  WorkspaceCutter cutter(workspace);
  void* hidden = cutter.cut<char>(rows * static_cast<std::size_t>(s.hidden) * size);
  void* logits = cutter.cut<char>(rows * static_cast<std::size_t>(s.classes) * size);
  float* losses = cutter.cut<float>(4 * rows);
  auto* log_sum_exp = cutter.cut<LogSumExp<float>>(sizeof(LogSumExp<float>) * rows);
  auto* correct = cutter.cut<std::uint8_t>(rows);
  char* rest = cutter.cut<char>(0);
  const Workspace scratch{rest, needed - static_cast<std::size_t>(rest - static_cast<char*>(workspace.data))};

  matmul(exec, hidden_product(s), dtype, x, weights.w1, {.data = hidden, .dtype = dtype}, scratch);
  bias_forward(exec, s.batch, s.hidden, dtype, hidden, weights.b1, hidden);
  activation_forward(exec, Activation::relu, 0.0f, s.batch * s.hidden, dtype, hidden, hidden);
  matmul(exec, logits_product(s), dtype, hidden, weights.w2, {.data = logits, .dtype = dtype}, scratch);
  bias_forward(exec, s.batch, s.classes, dtype, logits, weights.b2, logits);
  const SoftmaxCrossEntropyShape shape{s.batch, s.classes, s.smoothing};
  softmax_cross_entropy_forward(exec, shape, dtype, logits, loss.labels, loss.divisor,
                                {losses, log_sum_exp, loss.loss, correct, loss.ring, loss.slot});
  if (loss.upstream == nullptr) return;
  softmax_cross_entropy_grad(exec, shape, dtype,
                             {.logits = logits,
                              .labels = loss.labels,
                              .log_sum_exp = log_sum_exp,
                              .upstream = loss.upstream,
                              .divisor = loss.divisor},
                             logits);
  float* dw2 = saved.partials;
  float* db2 = dw2 + s.classes * s.hidden;
  float* db1 = db2 + s.classes;
  matmul(exec, dw2_product(s), dtype, logits, hidden, {.data = dw2, .dtype = DType::float32}, scratch);
  bias_grad(exec, s.batch, s.classes, dtype, logits, db2, false, scratch);
  matmul(exec, dhidden_product(s), dtype, logits, weights.w2, {.data = saved.dhidden, .dtype = dtype}, scratch);
  activation_grad(exec, Activation::relu, 0.0f, s.batch * s.hidden, dtype, hidden, saved.dhidden, saved.dhidden);
  bias_grad(exec, s.batch, s.hidden, dtype, saved.dhidden, db1, false, scratch);
}

void classifier_head_backward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x,
                              const void* w1, const ClassifierHeadSaved& saved, const ClassifierHeadGradients& to,
                              Workspace workspace) {
  if (to.dx != nullptr)
    matmul(exec, dx_product(s), dtype, saved.dhidden, w1, {.data = to.dx, .dtype = dtype}, workspace);
  if (to.w1.data != nullptr)
    matmul(exec, dw1_product(s), dtype, saved.dhidden, x,
           {.data = to.w1.data, .dtype = DType::float32, .accumulate = to.w1.accumulate}, workspace);
  const float* part = saved.partials;
  add_up(part, s.classes * s.hidden, to.w2);
  add_up(part + s.classes * s.hidden, s.classes, to.b2);
  add_up(part + s.classes * s.hidden + s.classes, s.hidden, to.b1);
}

}  // namespace bantam::kernels::cpu

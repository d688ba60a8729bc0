// Sizes of the fused head.
#include "bantam/kernels/head/classifier_head.h"

#include "bantam/kernels/elementwise/bias.h"
#include "bantam/kernels/head/classifier_head_rules.h"

namespace bantam::kernels {
namespace {

/// The most scratch bytes that any product or sum of the composed forward needs; they run one after another.
std::size_t composed_scratch(const ClassifierHeadShape& s, DType dtype) {
  std::size_t most = std::max(bias_grad_workspace_bytes(s.batch, s.hidden, DeviceKind::cpu),
                              bias_grad_workspace_bytes(s.batch, s.classes, DeviceKind::cpu));
  for (const MatmulShape& product : {hidden_product(s), logits_product(s), dhidden_product(s)})
    most = std::max(most, matmul_workspace_bytes(product, dtype, dtype, DeviceKind::cpu));
  return std::max(most, matmul_workspace_bytes(dw2_product(s), dtype, DType::float32, DeviceKind::cpu));
}

}  // namespace

bool classifier_head_supports(const ClassifierHeadShape& s, DType dtype) {
  if (dtype != DType::float32 && dtype != DType::float16 && dtype != DType::bfloat16) return false;
  const auto lanes = static_cast<std::int64_t>(16 / size_of(dtype));
  return s.inputs > 0 && s.hidden > 0 && s.hidden <= 128 && s.classes > 0 && s.classes <= 64 && s.inputs % lanes == 0 &&
         s.hidden % lanes == 0;
}

std::size_t classifier_head_workspace_bytes(const ClassifierHeadShape& s, DType dtype, DeviceKind target) {
  if (target == DeviceKind::cuda) {
    const HiddenSplit split = hidden_split(s, dtype);
    return aligned_bytes(4 * split.splits * s.batch * s.hidden) + aligned_bytes(16 * loss_blocks(s));
  }
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return aligned_bytes(size * s.batch * s.hidden) + aligned_bytes(size * s.batch * s.classes) +
         aligned_bytes(4 * s.batch) + aligned_bytes(static_cast<std::int64_t>(sizeof(LogSumExp<float>)) * s.batch) +
         aligned_bytes(s.batch) + composed_scratch(s, dtype);
}

std::size_t classifier_head_backward_workspace_bytes(const ClassifierHeadShape& s, DType dtype, DeviceKind target) {
  if (target == DeviceKind::cuda && own_backward(s, dtype)) return 0;
  return std::max(matmul_workspace_bytes(dx_product(s), dtype, dtype, target),
                  matmul_workspace_bytes(dw1_product(s), dtype, DType::float32, target));
}

std::int64_t classifier_head_partials(const ClassifierHeadShape& s, DeviceKind target) {
  return small_gradients(s) * (target == DeviceKind::cuda ? loss_blocks(s) : 1);
}

}  // namespace bantam::kernels

// Workspace of the losses.
#include "bantam/kernels/loss/loss_parts.h"

namespace bantam::kernels {

std::size_t class_loss_workspace_bytes(const ClassLossShape& s) {
  const std::int64_t counts = counts_labels_first(s) ? s.batch * static_cast<std::int64_t>(sizeof(std::int32_t)) : 0;
  return LossSumsLayout{s.batch, loss_parts(s)}.bytes() + aligned_bytes(counts);
}

std::size_t value_loss_workspace_bytes(const ValueLossShape& s) {
  return LossSumsLayout{s.batch, loss_parts(s)}.bytes();
}

std::size_t dice_loss_workspace_bytes(const DiceLossShape& s) {
  const auto aligned = [](std::size_t bytes) { return aligned_bytes(static_cast<std::int64_t>(bytes)); };
  return LossSumsLayout{s.batch, 1}.bytes() + aligned(dice_count_bytes(s)) + aligned(dice_part_bytes(s)) +
         aligned(dice_gradient_bytes(s));
}

}  // namespace bantam::kernels

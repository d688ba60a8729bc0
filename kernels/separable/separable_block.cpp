// The separable block: which shapes it supports, its scratch memory, codes, work and traffic.
#include "bantam/kernels/separable/separable_block.h"

#include <algorithm>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/kernels/separable/separable_block_plan.h"
#include "bantam/kernels/separable/separable_block_rules.h"

namespace bantam::kernels {

bool separable_block_supported(const SeparableBlockShape& s, DType dtype, DeviceKind target) {
  const bool known = dtype == DType::float32 || is_half(dtype);
  const bool pool = s.pool == 1 || s.pool == 2;
  const bool in = (s.in_channels >= 1 && s.in_channels <= 4) ||
                  (s.in_channels >= 8 && s.in_channels <= 64 && s.in_channels % 8 == 0);
  const bool out = s.out_channels >= 8 && s.out_channels <= 128 && s.out_channels % 8 == 0;
  const auto [least, most] = std::minmax({s.pad_top, s.pad_bottom, s.pad_left, s.pad_right});
  if (!known || !pool || !in || !out || least < 0 || most > 2) return false;
  if (s.batch < 0 || s.in_h < 1 || s.in_w < 1 || s.conv_h() < s.pool || s.conv_w() < s.pool) return false;
  return target == DeviceKind::cpu || (cuda::separable_block_fits(s) && separable_backward_fits(s, dtype));
}

void check_separable_block(const SeparableBlockShape& s, DType dtype, DeviceKind target) {
  if (!is_half(dtype) && dtype != DType::float32)
    throw DTypeError(fmt::format("separable_block: supports float32, float16 and bfloat16, got {}", to_string(dtype)));
  if (separable_block_supported(s, dtype, target)) return;
  throw ShapeError(fmt::format("separable_block: {}x{}x{} to {} channels with pooling {} is not a shape it supports",
                               s.in_h, s.in_w, s.in_channels, s.out_channels, s.pool));
}

std::size_t separable_block_workspace_bytes(const SeparableBlockShape& s, DType dtype, SeparableBlockPass pass,
                                            DeviceKind target) {
  const bool backward = pass == SeparableBlockPass::backward;
  if (target == DeviceKind::cuda) return backward ? cuda::separable_block_backward_workspace_rule(s, dtype) : 0;
  return cpu::SeparableBlockPlan(s, dtype, pass).workspace_bytes();
}

std::int64_t separable_block_code_bytes(const SeparableBlockShape& s) {
  if (s.pool == 2) return s.y_elements() / 2;
  return s.relu ? s.y_elements() / 8 : 0;
}

}  // namespace bantam::kernels

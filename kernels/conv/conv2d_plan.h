// How a CPU convolution is cut into parts, and its workspace: by shape and type only, without asking oneDNN.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/matmul/matmul_plan.h"

namespace bantam::kernels::cpu {

/// The batch is cut into blocks of images (one library call each), and blocks into parts (one after another on a
/// thread). Workspace: widened weights, packed weights or partial sums of dw, then a slot for each part.
struct Conv2dPlan {
  std::int64_t block = 1;  ///< images in a library call; the last has fewer
  std::int64_t blocks = 0;
  std::int64_t blocks_per_part = 1;
  std::int64_t parts = 0;
  std::size_t widened_bytes = 0;  ///< float weights, where x is of a half type (not for grad_weight)
  std::size_t packed_bytes = 0;   ///< one set of weights in oneDNN's order: more than this is not eligible
  std::int64_t packed_sets = 1;   ///< grad_weight: a partial sum each part, one to add from where needed, one spare
  std::size_t scratch_bytes = 0;  ///< of a part: oneDNN's scratchpad (more is not eligible), or patches of our own path
  std::size_t x_bytes = 0, y_bytes = 0;  ///< of a part: images widened to float

  bool adds_blocks() const { return blocks_per_part > 1; }
  std::size_t slot_bytes() const { return scratch_bytes + x_bytes + y_bytes; }
  std::size_t workspace_bytes() const {
    return widened_bytes + static_cast<std::size_t>(packed_sets) * packed_bytes +
           static_cast<std::size_t>(parts) * slot_bytes();
  }
};

/// Bytes of float weights when channels are padded to whole vectors of 16, the widest that oneDNN packs.
inline std::size_t packed_weight_bytes(const Conv2dShape& s) {
  const auto padded = [](std::int64_t channels) { return ceil_div(channels, 16) * 16; };
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  const std::int64_t pairs = in == 1 && out == 1 ? padded(s.groups) : s.groups * padded(in) * padded(out);
  return aligned_bytes(pairs * s.kernel_h * s.kernel_w * 4);
}

/// At most 32 parts, of at least about 2 million operations and (where the batch allows 4 parts) 128 pixels, so that
/// weights are read for some work; fewer where partial sums or widened images would pass about 48 MiB, but 2 where
/// there are 2 images.
inline Conv2dPlan plan_conv2d(const Conv2dShape& s, DType dtype, Conv2dPass pass) {
  constexpr std::int64_t kMaxParts = 32, kMinOperations = 2'000'000, kMinPixels = 128, kScratch = 256 << 10;
  constexpr std::int64_t kBudget = 48 << 20, kWidenedBlock = 1 << 20;
  Conv2dPlan plan;
  const std::int64_t pixels = std::max<std::int64_t>(1, s.out_h() * s.out_w());
  const std::int64_t x_image = s.in_h * s.in_w * s.in_channels * 4,
                     y_image = s.out_h() * s.out_w() * s.out_channels * 4;
  plan.packed_bytes = packed_weight_bytes(s);
  plan.scratch_bytes =
      aligned_bytes(std::max<std::int64_t>(kScratch, s.kernel_h * s.kernel_w * (s.in_channels / s.groups) * 4));
  std::int64_t wanted = std::clamp<std::int64_t>(conv2d_flops(s) / kMinOperations, 1, kMaxParts);
  if (pass == Conv2dPass::grad_weight) {  // half types may need two sets of weights a part
    const std::int64_t sets_bytes = static_cast<std::int64_t>(plan.packed_bytes) * (is_half(dtype) ? 2 : 1);
    wanted = std::min(wanted, std::max<std::int64_t>(2, kBudget / sets_bytes));
  }
  if (is_half(dtype)) wanted = std::min(wanted, std::max<std::int64_t>(2, kBudget / (kScratch + x_image + y_image)));
  const std::int64_t enough = std::min(ceil_div(kMinPixels, pixels), std::max<std::int64_t>(1, ceil_div(s.batch, 4)));
  const std::int64_t images = std::max(ceil_div(s.batch, wanted), enough);
  plan.block = is_half(dtype) ? std::clamp<std::int64_t>(kWidenedBlock / (x_image + y_image), 1, images) : images;
  plan.blocks = ceil_div(s.batch, plan.block);
  plan.blocks_per_part = ceil_div(images, plan.block);
  plan.parts = ceil_div(plan.blocks, plan.blocks_per_part);
  if (pass == Conv2dPass::grad_weight) plan.packed_sets = plan.parts * (plan.adds_blocks() ? 2 : 1) + 1;
  if (is_half(dtype)) {
    if (pass != Conv2dPass::grad_weight) plan.widened_bytes = aligned_bytes(s.w_elements() * 4);
    plan.x_bytes = aligned_bytes(plan.block * x_image);
    plan.y_bytes = aligned_bytes(plan.block * y_image);
  }
  return plan;
}

}  // namespace bantam::kernels::cpu

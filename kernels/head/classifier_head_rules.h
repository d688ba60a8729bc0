// How the fused head is cut on CUDA and on the CPU: by shapes only, so that sizes are known without a device and the
// bits never change.
#pragma once

#include <algorithm>
#include <cstdint>

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/head/classifier_head.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam::kernels {

/// CUDA: x·w1ᵀ in tiles of `rows` by 64, the sum cut into `splits` of `depth` (split-K).
struct HiddenSplit {
  std::int64_t rows = 0, tiles = 0, depth = 0, splits = 0;
};
inline constexpr std::int64_t kHiddenTile = 64;

/// Blocks of neighbouring splits that add up their sums before one of them is written, where the device can (9.0 on).
inline constexpr std::int64_t kSplitsTogether = 8;

/// One block for each multiprocessor of a large GPU, two in float32, which multiplies longer than it reads; no more
/// splits than are quickly added up.
constexpr HiddenSplit hidden_split(const ClassifierHeadShape& s, DType dtype) {
  constexpr std::int64_t kMostSplits = 85, kAligned = 64;
  const std::int64_t blocks = (dtype == DType::float32 ? 2 : 1) * kReferenceMultiprocessors;
  HiddenSplit split;
  split.rows = s.batch <= 16 ? 16 : s.batch <= 256 ? 64 : 128;
  split.tiles = (s.batch + split.rows - 1) / split.rows * ((s.hidden + kHiddenTile - 1) / kHiddenTile);
  const std::int64_t wanted = std::clamp<std::int64_t>(blocks / std::max<std::int64_t>(split.tiles, 1), 1, kMostSplits);
  split.depth = ((s.inputs + wanted - 1) / wanted + kAligned - 1) / kAligned * kAligned;
  split.splits = (s.inputs + split.depth - 1) / split.depth;
  return split;
}

/// CUDA: a warp of the loss kernel has a lane for every two units up to 64, every four up to 128, and computes 16
/// classes or 64; its arrays in shared memory are as wide.
inline constexpr std::int64_t kLossWarps = 16;
constexpr std::int64_t loss_units(const ClassifierHeadShape& s) { return s.hidden <= 64 ? 64 : 128; }
constexpr std::int64_t loss_classes(const ClassifierHeadShape& s) { return s.classes <= 16 ? 16 : 64; }
/// CUDA: floats of shared memory that the loss kernel needs for `rows` samples a block.
constexpr std::int64_t loss_block_floats(const ClassifierHeadShape& s, std::int64_t rows) {
  return (loss_classes(s) + 2 * rows) * loss_units(s) + rows * loss_classes(s);
}

/// CUDA: samples of a block of the loss kernel: one or two a warp, within 47 KiB of shared memory.
constexpr std::int64_t loss_rows(const ClassifierHeadShape& s) {
  constexpr std::int64_t kFloats = 47 * 1024 / 4, kManyBlocks = 128;
  std::int64_t rows = s.batch <= kLossWarps * kManyBlocks ? kLossWarps : 2 * kLossWarps;
  while (loss_block_floats(s, rows) > kFloats) rows /= 2;
  return rows;
}
constexpr std::int64_t loss_blocks(const ClassifierHeadShape& s) { return (s.batch + loss_rows(s) - 1) / loss_rows(s); }

/// Elements of one part of the small gradients: dw2 (classes, hidden), db2 (classes), db1 (hidden).
constexpr std::int64_t small_gradients(const ClassifierHeadShape& s) {
  return s.classes * s.hidden + s.classes + s.hidden;
}

/// CUDA: whether the backward is one kernel of our own: up to the batch from which a library's GEMMs are faster.
constexpr bool own_backward(const ClassifierHeadShape& s, DType dtype) {
  return s.batch <= (dtype == DType::float32 ? 64 : 128);
}

/// The GEMMs of which the head is composed.
constexpr MatmulShape hidden_product(const ClassifierHeadShape& s) {
  return {.m = s.batch, .n = s.hidden, .k = s.inputs, .transpose_b = true};
}
constexpr MatmulShape logits_product(const ClassifierHeadShape& s) {
  return {.m = s.batch, .n = s.classes, .k = s.hidden, .transpose_b = true};
}
constexpr MatmulShape dw2_product(const ClassifierHeadShape& s) {
  return {.m = s.classes, .n = s.hidden, .k = s.batch, .transpose_a = true};
}
constexpr MatmulShape dhidden_product(const ClassifierHeadShape& s) {
  return {.m = s.batch, .n = s.hidden, .k = s.classes};
}
constexpr MatmulShape dw1_product(const ClassifierHeadShape& s) {
  return {.m = s.hidden, .n = s.inputs, .k = s.batch, .transpose_a = true};
}
constexpr MatmulShape dx_product(const ClassifierHeadShape& s) { return {.m = s.batch, .n = s.inputs, .k = s.hidden}; }

}  // namespace bantam::kernels

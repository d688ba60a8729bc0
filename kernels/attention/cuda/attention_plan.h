// Launches of the attention kernels for the half types, by shape and by the shared memory of the device.
#pragma once

#include <algorithm>
#include <type_traits>

#include "bantam/kernels/attention/attention.h"
#include "bantam/kernels/attention/cuda/attention_mma.cuh"

namespace bantam::kernels::cuda {

/// Calls run(std::integral_constant<int, n>) with the head size that kernels are compiled for, zeros included.
template <class Run>
void with_padded_size(std::int64_t size, const Run& run) {
  if (size <= 32) return run(std::integral_constant<int, 32>{});
  if (size <= 64) return run(std::integral_constant<int, 64>{});
  if (size <= 96) return run(std::integral_constant<int, 96>{});
  run(std::integral_constant<int, 128>{});
}

/// Whether code for this architecture has kernels of T, a half type, by tensor cores.
template <class T>
bool runs_mma(int code_architecture) {
  return std::is_same_v<T, __half> || code_architecture >= 800;
}

/// Whether all rows of heads may be read and written 16 bytes at a time; else 8 bytes.
template <class T, class... Pointers>
bool rows_are_wide(const AttentionShape& shape, const Pointers*... tensors) {
  return shape.size % 8 == 0 && packs_aligned<std::uint16_t, 8>(tensors...);
}

/// Blocks of up to `warps` warps, `warp_rows` rows of their own a warp, as equal as can be; and a ring of chunks of
/// `chunk_rows` other rows, up to `most_stages` of them, where bytes_of(warps, ring rows) are within the `limit` of a
/// block's shared memory; else of half as many warps.
template <class BytesOf>
RingPlan ring_plan(std::int64_t limit, std::int64_t token_count, int warps, int warp_rows, int chunk_rows,
                   int most_stages, const BytesOf& bytes_of) {
  const int tokens = static_cast<int>(token_count), warp_tiles = (tokens + warp_rows - 1) / warp_rows;
  const int chunks = (tokens + chunk_rows - 1) / chunk_rows, padded = (tokens + 15) / 16 * 16;
  RingPlan plan;
  for (const int most_warps : {warps, warps / 2}) {
    plan.tiles = (warp_tiles + most_warps - 1) / most_warps;
    plan.warps = (warp_tiles + plan.tiles - 1) / plan.tiles;
    // More stages than three only where they are all chunks, so that none is waited for twice.
    for (plan.stages = chunks <= most_stages ? std::max(chunks, 2) : std::min(most_stages, 3); plan.stages >= 2;
         --plan.stages) {
      plan.rows = std::min(plan.stages * chunk_rows, padded);
      plan.bytes = bytes_of(plan.warps, plan.rows);
      if (plan.bytes <= limit) return plan;
    }
  }
  throw DeviceError("attention: a thread block needs " + std::to_string(plan.bytes) +
                    " bytes of shared memory; this device has " + std::to_string(limit));
}

}  // namespace bantam::kernels::cuda

// Parts of persistent wgmma kernels: places in a ring of stages, turns of warpgroups, a warpgroup's GEMM of one tile,
// and tiles of 64 rows in shared memory as tensor copies write and read them.
#pragma once

#include "bantam/kernels/common/cuda/mma/warpgroup_mma.cuh"

namespace bantam::kernels::cuda {

/// A stage of the ring, and whether it is an even or an odd round.
struct RingPlace {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ void next(int by, int stages) {
    for (stage += by; stage >= stages; stage -= stages) parity ^= 1;
  }
};

/// Which of two warpgroups may multiply, where they alternate.
struct Turns {
  int group;
  std::uint32_t parity = group == 0;  ///< the first warpgroup begins without waiting
};

/// Stages are multiplied as they are.
struct NoPrologue {
  template <class Cut>
  __device__ void apply(const Cut&, std::uint32_t, int) const {}
};

/// A warpgroup's GEMM of one tile: its stages, each after `prologue`, times the weights in shared memory; releases each
/// stage as soon as it is read. `Shared` has the barriers and addresses, `cut` the counts of depths and stages. w is
/// stored (n, k), or (k, n) where kTransposeB is 1.
template <class T, int kTransposeB = 0, int kSums, class Cut, class Shared, class Prologue>
__device__ inline void multiply_tile(float (&sums)[kSums], const Cut& cut, const Shared& shared,
                                     const Prologue& prologue, RingPlace& from, Turns& turns) {
  using Tile = typename Shared::Tile;
  constexpr std::uint64_t kNextOfB = kTransposeB ? kNextSixteenRows : kNextSixteen;
  const bool releases = threadIdx.x % 32 == 0;
  if (cut.in_turn) {
    shared.turn_of(turns.group).wait(turns.parity);
    turns.parity ^= 1;
  }
  int before = 0;
  for (int d = 0; d < cut.depths; ++d, from.next(1, cut.stages)) {
    const std::uint32_t stage = shared.x + from.stage * Tile::kStageBytes;
    shared.full(from.stage).wait(from.parity);
    prologue.apply(cut, stage, d);
    const std::uint64_t a = operand_at(stage);
    const std::uint32_t weights = shared.weights + d * Tile::kWeightBytes;
    const std::uint64_t b = kTransposeB ? columns_at(weights) : operand_at(weights);
    begin_products();
#pragma unroll
    for (int k = 0; k < Tile::kDepth / 16; ++k)
      WarpgroupMma<T, 2 * kSums, 0, kTransposeB>::run(sums, a + k * kNextSixteen, b + k * kNextOfB, d > 0 || k > 0);
    commit_products();
    if (d > 0) {
      wait_for_products<1>();
      if (releases) shared.empty(before).arrive();
    }
    before = from.stage;
  }
  if (releases && cut.in_turn) shared.turn_of((turns.group + 1) % Tile::kWarpgroups).arrive();
  wait_for_products<0>();
  products_done(sums);
  if (releases) shared.empty(before).arrive();
}

/// The offset of columns [c, c + 8) of a row in boxes of 64 rows and 64 columns of 16-bit elements, side by side.
__device__ inline std::uint32_t place_in_boxes(int row, int c) {
  return static_cast<std::uint32_t>(c / 64 * 8192 + row * 128 + (c / 8 % 8 ^ row % 8) * 16);
}

__device__ inline float4 load_shared_float4(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
  return v;
}

__device__ inline std::uint32_t load_shared_word(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
/// Eight 16-bit elements.
__device__ inline void load_shared_words(std::uint32_t (&v)[4], std::uint32_t address) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address)
               : "memory");
}
__device__ inline void store_shared_words(std::uint32_t address, const std::uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

}  // namespace bantam::kernels::cuda

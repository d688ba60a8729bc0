// Work of the update: the arena's slots, once in each of its two passes.
#include "bantam/kernels/common/work.h"

#include <algorithm>

#include "bantam/kernels/update/muon.h"
#include "bantam/kernels/update/update.h"

namespace bantam::kernels::work {
namespace {

std::int64_t elements_of(const NarrowGradients& narrow) {
  std::int64_t weight_blocks = 0;
  for (std::int32_t i = 0; i < narrow.count; ++i) weight_blocks += narrow.ranges[i].end - narrow.ranges[i].begin;
  return weight_blocks * kWeightBlockSize;
}

/// The gradients as they lie there: float32, or narrow.
std::int64_t gradients(const UpdateArena& arena) {
  const std::int64_t narrow = elements_of(arena.narrow);
  return 4 * (arena.weight_blocks * kWeightBlockSize - narrow) + bytes_of(narrow, arena.compute_dtype);
}

/// Bytes of one access to all weights: float32 masters, and halves where those are stored alone.
std::int64_t weights(const UpdateArena& arena) {
  const std::int64_t elements = arena.weight_blocks * kWeightBlockSize, halves = std::min(elements, arena.first_master);
  return 4 * (elements - halves) + bytes_of(halves, arena.compute_dtype);
}

/// Bytes of copies beside the masters.
std::int64_t copies(const UpdateArena& arena) {
  const std::int64_t elements = arena.weight_blocks * kWeightBlockSize;
  return unless_null(arena.compute, bytes_of(elements - std::min(elements, arena.first_master), arena.compute_dtype));
}

/// The bytes of one access to weights of matrices, which have masters all or none.
std::int64_t matrix_weights(const UpdateArena& arena, std::int64_t elements) {
  return arena.keeps_masters ? 4 * elements : bytes_of(elements, arena.compute_dtype);
}

/// Parts are read, sums written, and read before where they accumulate.
std::int64_t sums(const PartialSums& partial) {
  std::int64_t bytes = 0;
  for (std::int32_t i = 0; i < partial.count; ++i) {
    const PartialSums::Array& array = partial.arrays[i];
    bytes += 4 * static_cast<std::int64_t>(array.elements) * (array.parts + 1 + (array.accumulate ? 1 : 0));
  }
  return bytes;
}

}  // namespace

void add_up_parts(const Exec& exec, const PartialSums& partial) {
  note(exec, "add_up_parts", {.bytes = sums(partial)});
}

void widen_gradients(const Exec& exec, float*, const NarrowGradients& narrow, DType dtype) {
  const std::int64_t elements = elements_of(narrow);
  note(exec, "widen_gradients", {.bytes = bytes_of(elements, dtype) + 4 * elements});
}

void begin_update(const Exec& exec, const UpdateArena& arena, const PartialSums& partial, UpdateControl*, Workspace) {
  note(exec, "begin_update",
       {.bytes = gradients(arena) + sums(partial) + 2 * static_cast<std::int64_t>(sizeof(UpdateControl)) +
                 unless_null(arena.rows, static_cast<std::int64_t>(sizeof(UpdateRow)))});
}

void apply_update(const Exec& exec, UpdateKind kind, const UpdateArena& arena, const UpdateBuffers& buffers,
                  const UpdateControl*) {
  const std::int64_t elements = arena.weight_blocks * kWeightBlockSize, slot = 4 * elements;
  const UpdateRuleFacts& rule = facts_of(kind);
  const std::int64_t accesses = rule.by_norm ? 3 : 2;  // weights and slots are read by both passes
  std::int64_t bytes = accesses * weights(arena) + gradients(arena);
  for (int i = 0; i < rule.slots; ++i) bytes += unless_null(arena.slots[i], accesses * slot);
  note(exec, "apply_update",
       {.bytes = bytes + copies(arena) + 2 * 4 * buffers.elements, .passes = rule.by_norm ? 2 : 1});
}

void publish_weights(const Exec& exec, const UpdateArena& arena, const UpdateBuffers& buffers, const UpdateControl*) {
  const std::int64_t read = arena.compute == nullptr ? 0 : weights(arena);
  note(exec, "publish_weights", {.bytes = read + copies(arena) + 2 * 4 * buffers.elements});
}

void clip_gradients(const Exec& exec, const UpdateArena& arena, const UpdateControl*, float*) {
  note(exec, "clip_gradients", {.bytes = 2 * 4 * arena.weight_blocks * kWeightBlockSize});
}

void muon_momentum(const Exec& exec, const UpdateArena& arena, bool, const MuonNormalization& normalization,
                   const UpdateControl*) {
  const std::int64_t elements = arena.chunks.weight_blocks * kWeightBlockSize;
  note(exec, "muon_momentum",
       {.bytes = 4 * 4 * elements + (normalization.every > 0 ? matrix_weights(arena, elements) : 0)});
}

void muon_normalize(const Exec& exec, const UpdateArena&, const MuonMatrices& matrices, DType dtype, void*) {
  const std::int64_t elements = matrices.count * matrices.elements;
  note(exec, "muon_normalize", {.bytes = 4 * elements + bytes_of(elements, dtype)});
}

void muon_polynomial(const Exec& exec, const MuonSquares& squares, const NewtonSchulz&, DType dtype, const void*,
                     const void*, void*) {
  note(exec, "muon_polynomial", {.bytes = 3 * bytes_of(squares.count * squares.n * squares.n, dtype)});
}

void muon_apply(const Exec& exec, const UpdateArena& arena, const MuonMatrices& matrices, const MuonNormalization&,
                DType dtype, const void*, const UpdateControl*) {
  const std::int64_t elements = matrices.count * matrices.elements;
  note(exec, "muon_apply",
       {.bytes = 2 * matrix_weights(arena, elements) + bytes_of(elements, dtype) +
                 (arena.keeps_masters ? unless_null(arena.compute, bytes_of(elements, arena.compute_dtype)) : 0)});
}

}  // namespace bantam::kernels::work

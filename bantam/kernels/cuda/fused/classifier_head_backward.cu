// The fused head backward, one kernel of three kinds of blocks that touch different memory: the sums of the small
// parameters' parts, dw1 = dhiddenᵀ·x (a block a slab of the inputs, over the whole batch), and dx = dhidden·w1.
#include "bantam/kernels/classifier_head_rules.h"
#include "bantam/kernels/cuda/check.h"
#include "bantam/kernels/cuda/fused/tile_products.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kSlab = 64;          // inputs a block of dw1 or dx takes
constexpr int kOutputsOfSum = 16;  // small gradients that a block adds up, by kThreads / 16 runs of parts each
constexpr int kRunsOfSum = kThreads / kOutputsOfSum;

/// How many blocks of each kind, in their order in the grid; longest first but for the sums, which are short and few.
struct Roles {
  int sums = 0, slabs = 0;         // dw1 has one block a slab
  int dw1 = 0, dx = 0;             // 0: not wanted
  int tiles = 0, chunk_tiles = 0;  // of the batch: in all, and those of one block of dx
};

template <class T>
struct BackwardOperands {
  const T* x;        // (batch, inputs)
  const T* w1;       // (hidden, inputs)
  const T* dhidden;  // (batch, hidden)
  const float* parts;
  int part_count;
  T* dx;
  ParameterTarget dw1, db1, dw2, db2;
};

/// Tiles in shared memory for up to 64·kUnitTiles hidden units.
template <class T, int kUnitTiles>
struct BackwardTiles {
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr int kUnits = 64 * kUnitTiles, kRows = kFloat ? 32 / kUnitTiles : 64;
  static constexpr int kStages = kUnitTiles == 1 ? 3 : 2;
  using Samples = SharedTile<T, kRows, kSlab>;
  using Hidden = SharedTile<T, kRows, kUnits>;
  using Weights = SharedTile<T, kUnits, kSlab>;
  static constexpr int kWeightStageBytes = Hidden::kBytes + Samples::kBytes;
  static constexpr int kInputBytes = Weights::kBytes + kStages * Hidden::kBytes + (kFloat ? 0 : Samples::kBytes);
  static constexpr int kBytes = kStages * kWeightStageBytes > kInputBytes ? kStages* kWeightStageBytes : kInputBytes;
  static_assert(kBytes <= 64 * 1024, "what every device has");
};

__device__ inline void put(float* to, bool accumulate, float2 pair) {
  auto* at = reinterpret_cast<float2*>(to);
  if (accumulate) {
    const float2 before = *at;
    pair.x += before.x;
    pair.y += before.y;
  }
  *at = pair;
}

/// Which output a sum's index means, in the order of a part: dw2, db2, db1.
__device__ inline float* small_target(const ClassifierHeadShape& s, const ParameterTarget& dw2,
                                      const ParameterTarget& db2, const ParameterTarget& db1, std::int64_t i,
                                      bool& accumulate) {
  const ParameterTarget* target = &dw2;
  if (i >= s.classes * s.hidden) {
    i -= s.classes * s.hidden;
    target = &db2;
    if (i >= s.classes) {
      i -= s.classes;
      target = &db1;
    }
  }
  accumulate = target->accumulate;
  return target->data != nullptr ? target->data + i : nullptr;
}

/// Parts are added in kRunsOfSum consecutive runs, and the runs in order.
template <class T>
__device__ void add_small_gradients(const ClassifierHeadShape& s, const BackwardOperands<T>& in, int block) {
  __shared__ float runs[kRunsOfSum][kOutputsOfSum];
  const std::int64_t count = small_gradients(s);
  const int lane = static_cast<int>(threadIdx.x) % kOutputsOfSum, run = static_cast<int>(threadIdx.x) / kOutputsOfSum;
  const std::int64_t i = static_cast<std::int64_t>(block) * kOutputsOfSum + lane;
  const int each = (in.part_count + kRunsOfSum - 1) / kRunsOfSum, begin = run * each;
  const int end = min(begin + each, in.part_count);
  float sum = 0.0f;
  if (i < count) {
#pragma unroll 16
    for (int part = begin; part < end; ++part) sum += in.parts[part * count + i];
  }
  runs[run][lane] = sum;
  __syncthreads();
  if (run != 0 || i >= count) return;
  for (int r = 1; r < kRunsOfSum; ++r) sum += runs[r][lane];
  bool accumulate = false;
  float* to = small_target(s, in.dw2, in.db2, in.db1, i, accumulate);
  if (to != nullptr) *to = accumulate ? *to + sum : sum;
}

/// A block's sums of dw1, units by kSlab inputs.
template <class T, int kUnitTiles>
struct WeightSums {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  static constexpr int kUnits = Tiles::kUnits / kWarps;  // of a warp
  WarpSums<T, kUnits, kSlab> sums;
  __device__ static int unit() { return static_cast<int>(threadIdx.x) / 32 * kUnits; }
  __device__ void add(const T* dhidden, const T* x, int rows) {
#pragma unroll
    for (int k = 0; k < Tiles::kRows; k += 16) {
      if (k >= rows) break;
      sums.template add<16, true, true>(dhidden + k * Tiles::Hidden::kStride + unit(), Tiles::Hidden::kStride,
                                        x + k * Tiles::Samples::kStride, Tiles::Samples::kStride);
    }
  }
  template <class Store>
  __device__ void for_pairs(const Store& store) const {
    sums.for_pairs([&](int r, int c, float2 pair) { store(unit() + r, c, pair); });
  }
};

template <int kUnitTiles>
struct WeightSums<float, kUnitTiles> {
  using Tiles = BackwardTiles<float, kUnitTiles>;
  static constexpr int kQuads = kSlab / 4, kUnits = Tiles::kUnits / (kThreads / kQuads);  // of a thread
  ThreadRowSums<kUnits> sums;
  __device__ static int unit() { return static_cast<int>(threadIdx.x) / kQuads * kUnits; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % kQuads * 4; }
  __device__ void add(const float* dhidden, const float* x, int) {
    sums.template add_transposed<Tiles::kRows>(dhidden + unit(), Tiles::Hidden::kStride, x + column(),
                                               Tiles::Samples::kStride);
  }
  template <class Store>
  __device__ void for_pairs(const Store& store) const {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      store(unit() + i, column(), float2{sums.v[i].x, sums.v[i].y});
      store(unit() + i, column() + 2, float2{sums.v[i].z, sums.v[i].w});
    }
  }
};

/// dw1 of one slab: tiles of the batch in order.
template <class T, int kUnitTiles>
__device__ void make_weight_gradient(const ClassifierHeadShape& s, const BackwardOperands<T>& in, int tiles, int slab,
                                     char* shared) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  const std::int64_t column0 = static_cast<std::int64_t>(slab) * kSlab;
  const auto dhidden = [&](int tile) {
    return reinterpret_cast<T*>(shared + tile % Tiles::kStages * Tiles::kWeightStageBytes);
  };
  const auto samples = [&](int tile) { return dhidden(tile) + Tiles::Hidden::kBytes / sizeof(T); };
  const auto load = [&](int tile) {
    if (tile < tiles) {
      const std::int64_t row = static_cast<std::int64_t>(tile) * Tiles::kRows;
      Tiles::Hidden::template load<kThreads>(dhidden(tile), in.dhidden, s.batch, s.hidden, row, 0);
      Tiles::Samples::template load<kThreads>(samples(tile), in.x, s.batch, s.inputs, row, column0);
    }
    commit_copies();
  };
  WeightSums<T, kUnitTiles> sums;
  for (int tile = 0; tile < Tiles::kStages - 1; ++tile) load(tile);
  for (int tile = 0; tile < tiles; ++tile) {
    wait_for_groups<Tiles::kStages - 2>();
    __syncthreads();
    load(tile + Tiles::kStages - 1);
    sums.add(dhidden(tile), samples(tile), static_cast<int>(s.batch - static_cast<std::int64_t>(tile) * Tiles::kRows));
  }
  sums.for_pairs([&](int unit, int column, float2 pair) {
    if (unit < s.hidden && column0 + column < s.inputs)
      put(in.dw1.data + unit * s.inputs + column0 + column, in.dw1.accumulate, pair);
  });
}

/// One tile of dx, kRows samples by kSlab inputs: the products, then rows of whole 16 bytes to memory.
template <class T, int kUnitTiles>
__device__ void make_input_tile(const ClassifierHeadShape& s, const T* dhidden, const T* weights, T* staged, T* dx,
                                std::int64_t row0, std::int64_t column0) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  WarpSums<T, 16, kSlab> sums;
  sums.template add<Tiles::kUnits, false, true>(dhidden + warp * 16 * Tiles::Hidden::kStride, Tiles::Hidden::kStride,
                                                weights, Tiles::Weights::kStride);
  T* mine = staged + warp * 16 * Tiles::Samples::kStride;
  __syncwarp();  // what was staged before has been stored
  sums.for_pairs([&](int r, int c, float2 pair) {
    mine[r * Tiles::Samples::kStride + c] = from_float<T>(pair.x);
    mine[r * Tiles::Samples::kStride + c + 1] = from_float<T>(pair.y);
  });
  __syncwarp();
  constexpr int kChunks = Tiles::Samples::kChunks, kLanes = Tiles::Samples::kLanes;
#pragma unroll
  for (int i = lane; i < 16 * kChunks; i += 32) {
    const int r = i / kChunks, c = i % kChunks * kLanes;
    const std::int64_t row = row0 + warp * 16 + r;
    if (row < s.batch && column0 + c < s.inputs)
      *reinterpret_cast<uint4*>(dx + row * s.inputs + column0 + c) =
          *reinterpret_cast<const uint4*>(mine + r * Tiles::Samples::kStride + c);
  }
}

template <int kUnitTiles>
__device__ void make_input_tile(const ClassifierHeadShape& s, const float* dhidden, const float* weights, float*,
                                float* dx, std::int64_t row0, std::int64_t column0) {
  using Tiles = BackwardTiles<float, kUnitTiles>;
  constexpr int kQuads = kSlab / 4, kRowThreads = kThreads / kQuads, kRows = Tiles::kRows / kRowThreads;
  const int row = static_cast<int>(threadIdx.x) / kQuads, column = static_cast<int>(threadIdx.x) % kQuads * 4;
  ThreadRowSums<kRows> sums;
  sums.template add<Tiles::kUnits, kRowThreads>(dhidden + row * Tiles::Hidden::kStride, Tiles::Hidden::kStride,
                                                weights + column, Tiles::Weights::kStride);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const std::int64_t to = row0 + row + i * kRowThreads;
    if (to < s.batch && column0 + column < s.inputs)
      *reinterpret_cast<float4*>(dx + to * s.inputs + column0 + column) = sums.v[i];
  }
}

/// dx of one slab and some tiles of the batch.
template <class T, int kUnitTiles>
__device__ void make_input_gradient(const ClassifierHeadShape& s, const BackwardOperands<T>& in, const Roles& roles,
                                    int block, char* shared) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  const std::int64_t column0 = static_cast<std::int64_t>(block % roles.slabs) * kSlab;
  const int first = block / roles.slabs * roles.chunk_tiles, end = min(first + roles.chunk_tiles, roles.tiles);
  T* weights = reinterpret_cast<T*>(shared);
  char* stages = shared + Tiles::Weights::kBytes;
  T* staged = reinterpret_cast<T*>(stages + Tiles::kStages * Tiles::Hidden::kBytes);
  const auto dhidden = [&](int tile) {
    return reinterpret_cast<T*>(stages + tile % Tiles::kStages * Tiles::Hidden::kBytes);
  };
  const auto load = [&](int tile) {
    if (tile < end)
      Tiles::Hidden::template load<kThreads>(dhidden(tile), in.dhidden, s.batch, s.hidden,
                                             static_cast<std::int64_t>(tile) * Tiles::kRows, 0);
    commit_copies();
  };
  Tiles::Weights::template load<kThreads>(weights, in.w1, s.hidden, s.inputs, 0, column0);
  for (int tile = first; tile < first + Tiles::kStages - 1; ++tile) load(tile);
  for (int tile = first; tile < end; ++tile) {
    wait_for_groups<Tiles::kStages - 2>();
    __syncthreads();
    load(tile + Tiles::kStages - 1);
    const std::int64_t row0 = static_cast<std::int64_t>(tile) * Tiles::kRows;
    if constexpr (Tiles::kFloat) {
      make_input_tile<kUnitTiles>(s, dhidden(tile), weights, staged, in.dx, row0, column0);
    } else {
      make_input_tile<T, kUnitTiles>(s, dhidden(tile), weights, staged, in.dx, row0, column0);
    }
  }
}

template <class T, int kUnitTiles>
__global__ void __launch_bounds__(kThreads)
    classifier_backward_kernel(ClassifierHeadShape s, Roles roles, BackwardOperands<T> in) {
  extern __shared__ __align__(128) char shared[];
  const int block = static_cast<int>(blockIdx.x);
  if (block < roles.sums) {
    add_small_gradients(s, in, block);
  } else if (block < roles.sums + roles.dw1) {
    make_weight_gradient<T, kUnitTiles>(s, in, roles.tiles, block - roles.sums, shared);
  } else {
    make_input_gradient<T, kUnitTiles>(s, in, roles, block - roles.sums - roles.dw1, shared);
  }
}

Roles roles_of(const ClassifierHeadShape& s, int tile_rows, const ClassifierHeadGradients& to) {
  constexpr std::int64_t kDxBlocks = 528, kMostChunkTiles = 8;
  Roles roles;
  roles.sums = static_cast<int>((small_gradients(s) + kOutputsOfSum - 1) / kOutputsOfSum);
  roles.slabs = static_cast<int>((s.inputs + kSlab - 1) / kSlab);
  roles.tiles = static_cast<int>((s.batch + tile_rows - 1) / tile_rows);
  roles.dw1 = to.w1.data != nullptr ? roles.slabs : 0;
  const std::int64_t all = static_cast<std::int64_t>(roles.slabs) * roles.tiles;
  roles.chunk_tiles = static_cast<int>(std::clamp<std::int64_t>(all / kDxBlocks, 1, kMostChunkTiles));
  roles.dx = to.dx != nullptr ? roles.slabs * ((roles.tiles + roles.chunk_tiles - 1) / roles.chunk_tiles) : 0;
  return roles;
}

template <class T, int kUnitTiles>
void launch(const Exec& exec, const ClassifierHeadShape& s, const void* x, const void* w1,
            const ClassifierHeadSaved& saved, const ClassifierHeadGradients& to) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  const BackwardOperands<T> operands{static_cast<const T*>(x),
                                     static_cast<const T*>(w1),
                                     static_cast<const T*>(saved.dhidden),
                                     saved.partials,
                                     static_cast<int>(loss_blocks(s)),
                                     static_cast<T*>(to.dx),
                                     to.w1,
                                     to.b1,
                                     to.w2,
                                     to.b2};
  const Roles roles = roles_of(s, Tiles::kRows, to);
  const auto kernel = classifier_backward_kernel<T, kUnitTiles>;
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Tiles::kBytes),
             "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(roles.sums + roles.dw1 + roles.dx), kThreads, Tiles::kBytes, stream_of(exec)>>>(
      s, roles, operands);
  check_launch("classifier_backward_kernel");
}

}  // namespace

void classifier_head_backward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x,
                              const void* w1, const ClassifierHeadSaved& saved, const ClassifierHeadGradients& to,
                              Workspace) {
  if (!classifier_head_takes(s, dtype)) throw Error("classifier_head: no kernel takes this shape and type");
  if (s.batch <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    (s.hidden <= 64 ? launch<T, 1> : launch<T, 2>)(exec, s, x, w1, saved, to);
  });
}

}  // namespace bantam::kernels::cuda

// The fused head backward. Small batches: one kernel of three kinds of blocks that touch different memory, the sums of
// the small parameters' parts, dw1 = dhiddenᵀ·x and dx = dhidden·w1 by slabs of the inputs. Larger ones: the sums by
// the same kernel, the two products by cuBLASLt, which is faster from about 100 samples on.
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

/// How many blocks of each kind, in their order in the grid; 0: not wanted.
struct Roles {
  int sums = 0, dw1 = 0, dx = 0;
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

/// Tiles in shared memory for up to 64·kUnitTiles hidden units and the whole of a small batch.
template <class T, int kUnitTiles>
struct BackwardTiles {
  static constexpr int kUnits = 64 * kUnitTiles, kRows = static_cast<int>(kSmallBatch);
  using Samples = SharedTile<T, kRows, kSlab>;
  using Hidden = SharedTile<T, kRows, kUnits>;
  using Weights = SharedTile<T, kUnits, kSlab>;
  static constexpr int kBytes = Hidden::kBytes + Weights::kBytes + Samples::kBytes;  ///< dw1 needs no weights
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
  __device__ void add(const float* dhidden, const float* x, int rows) {
#pragma unroll
    for (int k = 0; k < Tiles::kRows; k += 16) {
      if (k >= rows) break;
      sums.template add_transposed<16>(dhidden + k * Tiles::Hidden::kStride + unit(), Tiles::Hidden::kStride,
                                       x + k * Tiles::Samples::kStride + column(), Tiles::Samples::kStride);
    }
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

/// dw1 of one slab.
template <class T, int kUnitTiles>
__device__ void make_weight_gradient(const ClassifierHeadShape& s, const BackwardOperands<T>& in, int slab, T* shared) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  const std::int64_t column0 = static_cast<std::int64_t>(slab) * kSlab;
  T* samples = shared + Tiles::Hidden::kBytes / sizeof(T);
  Tiles::Samples::template load<kThreads>(samples, in.x, s.batch, s.inputs, 0, column0);
  Tiles::Hidden::template load<kThreads>(shared, in.dhidden, s.batch, s.hidden, 0, 0);
  commit_copies();
  wait_for_groups<0>();
  __syncthreads();
  WeightSums<T, kUnitTiles> sums;
  sums.add(shared, samples, static_cast<int>(s.batch));
  sums.for_pairs([&](int unit, int column, float2 pair) {
    if (unit < s.hidden && column0 + column < s.inputs)
      put(in.dw1.data + unit * s.inputs + column0 + column, in.dw1.accumulate, pair);
  });
}

/// A slab of dx: the products, then rows of whole 16 bytes to memory. Each warp takes 16 samples by half the slab.
template <class T, int kUnitTiles>
__device__ void multiply_inputs(const ClassifierHeadShape& s, const T* dhidden, const T* weights, T* staged, T* dx,
                                std::int64_t column0) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  constexpr int kStride = Tiles::Samples::kStride, kHalf = kSlab / 2, kLanes = Tiles::Samples::kLanes;
  static_assert(Tiles::kRows == 32 && kWarps == 4);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = warp / 2 * 16, half = warp % 2 * kHalf;
  if (row0 >= s.batch) return;
  WarpSums<T, 16, kHalf> sums;
  sums.template add<Tiles::kUnits, false, true>(dhidden + row0 * Tiles::Hidden::kStride, Tiles::Hidden::kStride,
                                                weights + half, Tiles::Weights::kStride);
  T* mine = staged + row0 * kStride + half;
  sums.for_pairs([&](int r, int c, float2 pair) {
    mine[r * kStride + c] = from_float<T>(pair.x);
    mine[r * kStride + c + 1] = from_float<T>(pair.y);
  });
  __syncwarp();
  constexpr int kChunks = kHalf / kLanes;
#pragma unroll
  for (int i = lane; i < 16 * kChunks; i += 32) {
    const int r = i / kChunks, c = i % kChunks * kLanes;
    const std::int64_t column = column0 + half + c;
    if (row0 + r < s.batch && column < s.inputs)
      *reinterpret_cast<uint4*>(dx + (row0 + r) * s.inputs + column) =
          *reinterpret_cast<const uint4*>(mine + r * kStride + c);
  }
}

template <int kUnitTiles>
__device__ void multiply_inputs(const ClassifierHeadShape& s, const float* dhidden, const float* weights, float*,
                                float* dx, std::int64_t column0) {
  using Tiles = BackwardTiles<float, kUnitTiles>;
  constexpr int kQuads = kSlab / 4, kRowThreads = kThreads / kQuads, kRows = Tiles::kRows / kRowThreads;
  const int row = static_cast<int>(threadIdx.x) / kQuads, column = static_cast<int>(threadIdx.x) % kQuads * 4;
  ThreadRowSums<kRows> sums;
  sums.template add<Tiles::kUnits, kRowThreads>(dhidden + row * Tiles::Hidden::kStride, Tiles::Hidden::kStride,
                                                weights + column, Tiles::Weights::kStride);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int to = row + i * kRowThreads;
    if (to < s.batch && column0 + column < s.inputs)
      *reinterpret_cast<float4*>(dx + to * s.inputs + column0 + column) = sums.v[i];
  }
}

template <class T, int kUnitTiles>
__device__ void make_input_gradient(const ClassifierHeadShape& s, const BackwardOperands<T>& in, int slab, T* shared) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  const std::int64_t column0 = static_cast<std::int64_t>(slab) * kSlab;
  T* weights = shared + Tiles::Hidden::kBytes / sizeof(T);
  T* staged = weights + Tiles::Weights::kBytes / sizeof(T);
  Tiles::Weights::template load<kThreads>(weights, in.w1, s.hidden, s.inputs, 0, column0);
  Tiles::Hidden::template load<kThreads>(shared, in.dhidden, s.batch, s.hidden, 0, 0);
  commit_copies();
  wait_for_groups<0>();
  __syncthreads();
  if constexpr (sizeof(T) == 4) {
    multiply_inputs<kUnitTiles>(s, shared, weights, staged, in.dx, column0);
  } else {
    multiply_inputs<T, kUnitTiles>(s, shared, weights, staged, in.dx, column0);
  }
}

template <class T, int kUnitTiles>
__global__ void __launch_bounds__(kThreads)
    classifier_backward_kernel(ClassifierHeadShape s, Roles roles, BackwardOperands<T> in) {
  extern __shared__ __align__(128) char shared[];
  T* tiles = reinterpret_cast<T*>(shared);
  const int block = static_cast<int>(blockIdx.x);
  if (block < roles.sums) {
    add_small_gradients(s, in, block);
  } else if (block < roles.sums + roles.dw1) {
    make_weight_gradient<T, kUnitTiles>(s, in, block - roles.sums, tiles);
  } else {
    make_input_gradient<T, kUnitTiles>(s, in, block - roles.sums - roles.dw1, tiles);
  }
}

Roles roles_of(const ClassifierHeadShape& s, const ClassifierHeadGradients& to) {
  const int slabs = static_cast<int>((s.inputs + kSlab - 1) / kSlab);
  Roles roles{.sums = static_cast<int>((small_gradients(s) + kOutputsOfSum - 1) / kOutputsOfSum)};
  if (s.batch > kSmallBatch) return roles;
  if (to.w1.data != nullptr) roles.dw1 = slabs;
  if (to.dx != nullptr) roles.dx = slabs;
  return roles;
}

template <class T, int kUnitTiles>
void launch(const Exec& exec, const ClassifierHeadShape& s, const void* x, const void* w1,
            const ClassifierHeadSaved& saved, const ClassifierHeadGradients& to) {
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
  const Roles roles = roles_of(s, to);
  const auto kernel = classifier_backward_kernel<T, kUnitTiles>;
  const int bytes = roles.dw1 + roles.dx > 0 ? BackwardTiles<T, kUnitTiles>::kBytes : 0;
  if (bytes > 48 * 1024)
    check_cuda(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(roles.sums + roles.dw1 + roles.dx), kThreads, static_cast<std::size_t>(bytes),
           stream_of(exec)>>>(s, roles, operands);
  check_launch("classifier_backward_kernel");
}

}  // namespace

void classifier_head_backward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x,
                              const void* w1, const ClassifierHeadSaved& saved, const ClassifierHeadGradients& to,
                              Workspace workspace) {
  if (!classifier_head_takes(s, dtype)) throw Error("classifier_head: no kernel takes this shape and type");
  if (s.batch <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    (s.hidden <= 64 ? launch<T, 1> : launch<T, 2>)(exec, s, x, w1, saved, to);
  });
  if (s.batch <= kSmallBatch) return;
  if (to.w1.data != nullptr)
    matmul(exec, dw1_product(s), dtype, saved.dhidden, x, DType::float32, to.w1.data, to.w1.accumulate, workspace);
  if (to.dx != nullptr) matmul(exec, dx_product(s), dtype, saved.dhidden, w1, dtype, to.dx, false, workspace);
}

}  // namespace bantam::kernels::cuda

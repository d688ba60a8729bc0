// The fused head backward. Batches up to kMostOwnBatch: one kernel, whose blocks take a slab of the inputs each and
// make dw1 = dhiddenᵀ·x and dx = dhidden·w1 of it, beside a few that add up the small parameters' parts. Larger ones:
// the sums by the same kernel, the two products by cuBLASLt.
#include "bantam/kernels/classifier_head_rules.h"
#include "bantam/kernels/cuda/fused/classifier_head_launch.cuh"
#include "bantam/kernels/cuda/fused/half_pair.cuh"
#include "bantam/kernels/cuda/fused/tile_products.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kSlab = 64;      // inputs a block takes
constexpr int kFewParts = 16;  // that one thread adds up

/// How many blocks add up parts, and how many slabs follow.
struct Roles {
  int sums = 0, slabs = 0;
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

/// Tiles in shared memory for up to 64·kUnitTiles hidden units: the slab's weights, and a few stages of kRows samples.
template <class T, int kUnitTiles>
struct BackwardTiles {
  static constexpr int kUnits = 64 * kUnitTiles, kRows = 32;
  using Samples = SharedTile<T, kRows, kSlab>;
  using Hidden = SharedTile<T, kRows, kUnits>;
  using Weights = SharedTile<T, kUnits, kSlab>;
  static constexpr int kStagedBytes = sizeof(T) == 2 ? Samples::kBytes : 0;  ///< of dx, on its way to memory
  static constexpr int kFixedBytes = Weights::kBytes + kStagedBytes, kStageBytes = Samples::kBytes + Hidden::kBytes;
  static constexpr int kMostBytes = 64 * 1024;  ///< what every device has
  static constexpr int kStages = std::min((kMostBytes - kFixedBytes) / kStageBytes, 4);
  static_assert(kStages >= 1);

  static int steps(std::int64_t batch) { return static_cast<int>((batch + kRows - 1) / kRows); }
  static int bytes(std::int64_t batch) { return kFixedBytes + std::min(steps(batch), kStages) * kStageBytes; }

  __device__ static T* weights(char* shared) { return reinterpret_cast<T*>(shared); }
  __device__ static T* staged(char* shared) { return reinterpret_cast<T*>(shared + Weights::kBytes); }
  __device__ static T* samples(char* shared, int step) {
    return reinterpret_cast<T*>(shared + kFixedBytes + step % kStages * kStageBytes);
  }
  __device__ static T* hidden(char* shared, int step) {
    return reinterpret_cast<T*>(shared + kFixedBytes + step % kStages * kStageBytes + Samples::kBytes);
  }
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

/// Adds or stores the sum of index i in the order of a part: dw2, db2, db1.
template <class T>
__device__ void put_small_gradient(const ClassifierHeadShape& s, const BackwardOperands<T>& in, std::int64_t i,
                                   float sum) {
  const auto put_to = [&](const ParameterTarget& target, std::int64_t at) {
    if (target.data != nullptr) target.data[at] = target.accumulate ? target.data[at] + sum : sum;
  };
  const std::int64_t first_db2 = s.classes * s.hidden, first_db1 = first_db2 + s.classes;
  if (i < first_db2) {
    put_to(in.dw2, i);
  } else if (i < first_db1) {
    put_to(in.db2, i - first_db2);
  } else {
    put_to(in.db1, i - first_db1);
  }
}

/// Threads that share one sum: each takes a run of neighbouring parts.
__host__ __device__ constexpr int runs_of(int parts) { return parts <= kFewParts ? 1 : 8; }

/// Parts are added in consecutive runs, and the runs in order.
template <class T>
__device__ void add_small_gradients(const ClassifierHeadShape& s, const BackwardOperands<T>& in, int block) {
  constexpr int kTogether = 16;  // loads under way
  __shared__ float totals[kThreads];
  const std::int64_t count = small_gradients(s);
  const int runs = runs_of(in.part_count), outputs = kThreads / runs;
  const int lane = static_cast<int>(threadIdx.x) % outputs, run = static_cast<int>(threadIdx.x) / outputs;
  const std::int64_t i = static_cast<std::int64_t>(block) * outputs + lane;
  const int each = (in.part_count + runs - 1) / runs, begin = run * each, end = min(begin + each, in.part_count);
  float sum = 0.0f;
  for (int first = begin; first < end && i < count; first += kTogether) {
    float parts[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) parts[k] = first + k < end ? in.parts[(first + k) * count + i] : 0.0f;
#pragma unroll
    for (int k = 0; k < kTogether; ++k) sum += parts[k];
  }
  if (runs > 1) {
    totals[threadIdx.x] = sum;
    __syncthreads();
    if (run != 0) return;
    for (int r = 1; r < runs; ++r) sum += totals[r * outputs + lane];
  }
  if (i < count) put_small_gradient(s, in, i, sum);
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

/// kSamples rows of dx: the products, then whole 16 bytes to memory. A warp takes 16 of the slab's columns.
template <class T, int kUnitTiles, int kSamples>
__device__ void multiply_rows(const ClassifierHeadShape& s, const T* dhidden, const T* weights, T* staged, T* dx,
                              std::int64_t row0, std::int64_t column0) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  constexpr int kStride = Tiles::Samples::kStride, kColumns = 16, kLanes = Tiles::Samples::kLanes;
  static_assert(kWarps * kColumns == kSlab);
  const int column = static_cast<int>(threadIdx.x) / 32 * kColumns, lane = static_cast<int>(threadIdx.x) % 32;
  WarpSums<T, kSamples, kColumns> sums;
  sums.template add<Tiles::kUnits, false, true>(dhidden, Tiles::Hidden::kStride, weights + column,
                                                Tiles::Weights::kStride);
  T* mine = staged + column;
  __syncwarp();  // what the warp staged before is on its way
  sums.for_pairs([&](int r, int c, float2 pair) {
    *reinterpret_cast<typename HalfPair<T>::Vector*>(mine + r * kStride + c) = HalfPair<T>::pack(pair.x, pair.y);
  });
  __syncwarp();
  constexpr int kChunks = kColumns / kLanes;
#pragma unroll
  for (int i = lane; i < kSamples * kChunks; i += 32) {
    const int r = i / kChunks, c = i % kChunks * kLanes;
    const std::int64_t to = column0 + column + c;
    if (row0 + r < s.batch && to < s.inputs)
      *reinterpret_cast<uint4*>(dx + (row0 + r) * s.inputs + to) =
          *reinterpret_cast<const uint4*>(mine + r * kStride + c);
  }
}

/// A tile of dx.
template <class T, int kUnitTiles>
struct InputProduct {
  __device__ static void make(const ClassifierHeadShape& s, const T* dhidden, const T* weights, T* staged, T* dx,
                              std::int64_t row0, std::int64_t column0) {
    if (s.batch - row0 > 16) {
      multiply_rows<T, kUnitTiles, 32>(s, dhidden, weights, staged, dx, row0, column0);
    } else {
      multiply_rows<T, kUnitTiles, 16>(s, dhidden, weights, staged, dx, row0, column0);
    }
  }
};

template <int kUnitTiles>
struct InputProduct<float, kUnitTiles> {
  __device__ static void make(const ClassifierHeadShape& s, const float* dhidden, const float* weights, float*,
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
};

/// dw1 and dx of one slab, where wanted. The weights, which the kernel before (classifier_loss at the latest) does not
/// write, are on their way before it has ended.
template <class T, int kUnitTiles>
__device__ void make_slab(const ClassifierHeadShape& s, const BackwardOperands<T>& in, int slab, char* shared) {
  using Tiles = BackwardTiles<T, kUnitTiles>;
  const std::int64_t column0 = static_cast<std::int64_t>(slab) * kSlab;
  const int steps = static_cast<int>((s.batch + Tiles::kRows - 1) / Tiles::kRows);
  T* weights = Tiles::weights(shared);
  const auto load = [&](int step) {
    if (step < steps) {
      const std::int64_t row0 = static_cast<std::int64_t>(step) * Tiles::kRows;
      Tiles::Hidden::template load<kThreads>(Tiles::hidden(shared, step), in.dhidden, s.batch, s.hidden, row0, 0);
      if (in.dw1.data != nullptr)
        Tiles::Samples::template load<kThreads>(Tiles::samples(shared, step), in.x, s.batch, s.inputs, row0, column0);
    }
    commit_copies();  // an empty group keeps the count
  };
  if (in.dx != nullptr) Tiles::Weights::template load<kThreads>(weights, in.w1, s.hidden, s.inputs, 0, column0);
  wait_for_kernel_before();
  let_next_kernel_start();
#pragma unroll
  for (int step = 0; step < Tiles::kStages; ++step) load(step);
  WeightSums<T, kUnitTiles> sums;
  for (int step = 0; step < steps; ++step) {
    const std::int64_t row0 = static_cast<std::int64_t>(step) * Tiles::kRows;
    const T* dhidden = Tiles::hidden(shared, step);
    wait_for_groups<Tiles::kStages - 1>();
    __syncthreads();
    if (in.dw1.data != nullptr) sums.add(dhidden, Tiles::samples(shared, step), static_cast<int>(s.batch - row0));
    if (in.dx != nullptr)
      InputProduct<T, kUnitTiles>::make(s, dhidden, weights, Tiles::staged(shared), in.dx, row0, column0);
    if (step + Tiles::kStages < steps) __syncthreads();  // all have read what the next load writes over
    load(step + Tiles::kStages);
  }
  if (in.dw1.data == nullptr) return;
  sums.for_pairs([&](int unit, int column, float2 pair) {
    if (unit < s.hidden && column0 + column < s.inputs)
      put(in.dw1.data + unit * s.inputs + column0 + column, in.dw1.accumulate, pair);
  });
}

template <class T, int kUnitTiles>
__global__ void __launch_bounds__(kThreads)
    classifier_backward_kernel(ClassifierHeadShape s, Roles roles, BackwardOperands<T> in) {
  extern __shared__ __align__(128) char shared[];
  const int block = static_cast<int>(blockIdx.x);
  if (block < roles.sums) {
    wait_for_kernel_before();
    let_next_kernel_start();
    add_small_gradients(s, in, block);
  } else {
    make_slab<T, kUnitTiles>(s, in, block - roles.sums, shared);
  }
}

Roles roles_of(const ClassifierHeadShape& s, DType dtype, const ClassifierHeadGradients& to) {
  const std::int64_t outputs = kThreads / runs_of(static_cast<int>(loss_blocks(s)));
  Roles roles{.sums = static_cast<int>((small_gradients(s) + outputs - 1) / outputs)};
  if (own_backward(s, dtype) && (to.w1.data != nullptr || to.dx != nullptr))
    roles.slabs = static_cast<int>((s.inputs + kSlab - 1) / kSlab);
  return roles;
}

template <class T, int kUnitTiles>
void launch(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x, const void* w1,
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
  const Roles roles = roles_of(s, dtype, to);
  const HeadLaunch how{.grid = dim3(static_cast<unsigned>(roles.sums + roles.slabs)),
                       .threads = kThreads,
                       .shared_bytes = roles.slabs > 0 ? BackwardTiles<T, kUnitTiles>::bytes(s.batch) : 0,
                       .early = true};
  launch_head_kernel(exec, classifier_backward_kernel<T, kUnitTiles>, how, s, roles, operands);
}

}  // namespace

void classifier_head_backward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x,
                              const void* w1, const ClassifierHeadSaved& saved, const ClassifierHeadGradients& to,
                              Workspace workspace) {
  if (!classifier_head_takes(s, dtype)) throw Error("classifier_head: no kernel takes this shape and type");
  if (s.batch <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    (s.hidden <= 64 ? launch<T, 1> : launch<T, 2>)(exec, s, dtype, x, w1, saved, to);
  });
  if (own_backward(s, dtype)) return;
  if (to.w1.data != nullptr)
    matmul(exec, dw1_product(s), dtype, saved.dhidden, x, DType::float32, to.w1.data, to.w1.accumulate, workspace);
  if (to.dx != nullptr) matmul(exec, dx_product(s), dtype, saved.dhidden, w1, dtype, to.dx, false, workspace);
}

}  // namespace bantam::kernels::cuda

// The fused head backward. For batches where own_backward is true: one kernel, whose blocks compute dw1 and dx of a
// slab of the inputs each, beside a few that add up the small parameters' parts. Larger ones: the sums by the same
// kernel, the two products by cuBLASLt.
#include "bantam/kernels/head/classifier_head_rules.h"
#include "bantam/kernels/head/cuda/classifier_head_launch.cuh"
#include "bantam/kernels/head/cuda/classifier_head_slab.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = kSlabThreads;
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

/// Threads that share one sum: each adds a run of neighbouring parts.
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

/// dw1 and dx of one slab, where wanted. The weights are on their way before the kernel before has ended: the forward,
/// which reads them too, lies between it and their last update.
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
  if (!classifier_head_supports(s, dtype)) throw Error("classifier_head: no kernel supports this shape and type");
  if (s.batch <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    (s.hidden <= 64 ? launch<T, 1> : launch<T, 2>)(exec, s, dtype, x, w1, saved, to);
  });
  if (own_backward(s, dtype)) return;
  if (to.w1.data != nullptr)
    matmul(exec, dw1_product(s), dtype, saved.dhidden, x,
           {.data = to.w1.data, .dtype = DType::float32, .accumulate = to.w1.accumulate}, workspace);
  if (to.dx != nullptr)
    matmul(exec, dx_product(s), dtype, saved.dhidden, w1, {.data = to.dx, .dtype = dtype}, workspace);
}

}  // namespace bantam::kernels::cuda

// Counts and sums of metrics on CUDA: whole numbers by atomic additions, whose order does not matter, in shared memory
// first where they fit; errors of values part by part, in a fixed order.
#include <algorithm>
#include <climits>
#include <cmath>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/metric/metric_counts.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kRowsOfBlock = kThreads / kWarp;
constexpr std::int64_t kMostBlocks = 1024;
constexpr std::int64_t kMostShared = 4096;  // counts of a block
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline double* sums_of(const MetricTarget& to) {
  return to.ring + static_cast<std::int64_t>(to.slot != nullptr ? *to.slot : 0) * to.count;
}

/// Counts of a block: in shared memory, added to the sums at its end, or straight to the sums where there are many.
class Counter {
 public:
  __device__ Counter(const MetricTarget& to, unsigned* shared)
      : sums_(sums_of(to)), shared_(to.count <= kMostShared ? shared : nullptr), count_(static_cast<int>(to.count)) {
    if (shared_ == nullptr) return;
    for (int i = threadIdx.x; i < count_; i += kThreads) shared_[i] = 0;
    __syncthreads();
  }
  __device__ void add(std::int64_t i) {
    if (shared_ != nullptr)
      atomicAdd(shared_ + i, 1u);
    else
      atomicAdd(sums_ + i, 1.0);
  }
  /// By all threads of the block.
  __device__ void finish() {
    if (shared_ == nullptr) return;
    __syncthreads();
    for (int i = threadIdx.x; i < count_; i += kThreads)
      if (shared_[i] != 0) atomicAdd(sums_ + i, static_cast<double>(shared_[i]));
  }

 private:
  double* sums_;
  unsigned* shared_;
  int count_;
};

__device__ inline bool is_counted(std::int32_t label, std::int64_t classes, std::int32_t ignored) {
  return label >= 0 && label < classes && label != ignored;
}

/// The first class with the largest output, for all lanes of the warp; 0 where all are NaN.
template <class T>
__device__ int predicted_class(const T* row, int classes) {
  float top = -INFINITY;
  int best = INT_MAX;
  for (int c = static_cast<int>(threadIdx.x) % kWarp; c < classes; c += kWarp) {
    const float value = to_float(row[c]);
    if (value > top || (best == INT_MAX && value == top)) {
      top = value;
      best = c;
    }
  }
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, top, step);
    const int c = __shfl_xor_sync(kAllLanes, best, step);
    if (other > top || (other == top && c < best)) {
      top = other;
      best = c;
    }
  }
  return best == INT_MAX ? 0 : best;
}

/// Whether fewer than k outputs come before the label's, for all lanes of the warp.
template <class T>
__device__ bool among_largest(const T* row, int classes, int label, std::int64_t k) {
  const float own = to_float(row[label]);
  int before = 0;
  for (int c = static_cast<int>(threadIdx.x) % kWarp; c < classes; c += kWarp) {
    const float value = to_float(row[c]);
    before += value > own || (value == own && c < label) ? 1 : 0;
  }
  for (int step = kWarp / 2; step > 0; step /= 2) before += __shfl_xor_sync(kAllLanes, before, step);
  return before < k && !isnan(own);
}

/// A warp a row; its first lane counts.
template <class T>
__device__ void count_row(const LabelCountShape& s, const T* row, std::int32_t label, Counter& counter) {
  const bool counts = threadIdx.x % kWarp == 0;
  const int classes = static_cast<int>(s.classes);
  if (s.kind == LabelCount::top_k) {
    const bool hit = among_largest(row, classes, label, s.k);
    if (counts && hit) counter.add(0);
    if (counts) counter.add(1);
    return;
  }
  const int predicted = predicted_class(row, classes);
  if (!counts) return;
  if (s.kind == LabelCount::confusion) return counter.add(static_cast<std::int64_t>(label) * s.classes + predicted);
  if (predicted == label) return counter.add(label);
  counter.add(s.classes + predicted);
  counter.add(2 * s.classes + label);
}

__device__ inline std::int64_t first_row() {
  return static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kWarp;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    label_counts_kernel(LabelCountShape s, const T* output, const std::int32_t* labels, MetricTarget to) {
  extern __shared__ unsigned shared[];
  Counter counter(to, shared);
  for (std::int64_t n = first_row(); n < s.rows; n += static_cast<std::int64_t>(gridDim.x) * kRowsOfBlock)
    if (is_counted(labels[n], s.classes, s.ignored)) count_row(s, output + n * s.classes, labels[n], counter);
  counter.finish();
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    target_counts_kernel(TargetCountShape s, const T* output, const float* targets, MetricTarget to) {
  extern __shared__ unsigned shared[];
  Counter counter(to, shared);
  const std::int64_t elements = s.rows * s.classes, step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) {
    const bool predicted = to_float(output[i]) >= s.cut, present = targets[i] >= 0.5f;
    if (predicted || present) counter.add((predicted && present ? 0 : predicted ? 1 : 2) * s.classes + i % s.classes);
  }
  counter.finish();
}

__device__ inline std::int64_t bin_of(float score, std::int32_t bins) {
  if (!(score > 0)) return 0;
  const auto bin = static_cast<std::int32_t>(score * static_cast<float>(bins));
  return bin < bins ? bin : bins - 1;
}

/// A warp a row.
template <class T>
__device__ void count_softmax(const ScoreShape& s, const T* row, std::int32_t label, Counter& counter) {
  float top = -INFINITY, sum = 0;
  const int lane = threadIdx.x % kWarp;
  for (std::int64_t c = lane; c < s.classes; c += kWarp) top = fmaxf(top, to_float(row[c]));
  for (int step = kWarp / 2; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(kAllLanes, top, step));
  for (std::int64_t c = lane; c < s.classes; c += kWarp) sum += expf(to_float(row[c]) - top);
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  for (std::int64_t c = lane; c < s.classes; c += kWarp)
    counter.add((2 * c + (c == label ? 1 : 0)) * s.bins + bin_of(expf(to_float(row[c]) - top) / sum, s.bins));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_histograms_kernel(ScoreShape s, const T* output, const std::int32_t* labels, MetricTarget to) {
  extern __shared__ unsigned shared[];
  Counter counter(to, shared);
  for (std::int64_t n = first_row(); n < s.rows; n += static_cast<std::int64_t>(gridDim.x) * kRowsOfBlock)
    if (is_counted(labels[n], s.classes, s.ignored)) count_softmax(s, output + n * s.classes, labels[n], counter);
  counter.finish();
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sigmoid_histograms_kernel(ScoreShape s, const T* output, const float* targets, MetricTarget to) {
  extern __shared__ unsigned shared[];
  Counter counter(to, shared);
  const std::int64_t elements = s.rows * s.classes, step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < elements; i += step) {
    const float score = 1.0f / (1.0f + expf(-to_float(output[i])));
    counter.add((2 * (i % s.classes) + (targets[i] >= 0.5f ? 1 : 0)) * s.bins + bin_of(score, s.bins));
  }
  counter.finish();
}

/// The sum over the block's threads, for thread 0, in a fixed order.
__device__ double block_sum(double value, double* shared) {
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0)
    for (int warp = 0; warp < kRowsOfBlock; ++warp) sum += shared[warp];
  __syncthreads();
  return sum;
}

/// A block a column of a part: partial (parts, kErrorSums, columns).
template <class T>
__global__ void __launch_bounds__(kThreads)
    error_parts_kernel(ErrorShape s, std::int64_t parts, const T* output, const float* targets, double* partial) {
  __shared__ double shared[kRowsOfBlock];
  const std::int64_t part = blockIdx.x / s.columns, c = blockIdx.x % s.columns;
  const std::int64_t begin = part * s.rows / parts, end = (part + 1) * s.rows / parts;
  double sums[kErrorSums] = {};
  for (std::int64_t n = begin + threadIdx.x; n < end; n += kThreads) {
    const double t = targets[n * s.columns + c];
    const double error = static_cast<double>(to_float(output[n * s.columns + c])) - t;
    sums[0] += error * error;
    sums[1] += fabs(error);
    sums[2] += t;
    sums[3] += t * t;
  }
  for (int k = 0; k < kErrorSums; ++k) {
    const double sum = block_sum(sums[k], shared);
    if (threadIdx.x == 0) partial[(part * kErrorSums + k) * s.columns + c] = sum;
  }
}

__global__ void __launch_bounds__(kThreads)
    add_error_parts_kernel(ErrorShape s, std::int64_t parts, const double* partial, MetricTarget to) {
  const std::int64_t width = kErrorSums * s.columns, i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  double* const sums = sums_of(to);
  if (i == width) sums[width] += static_cast<double>(s.rows);
  if (i >= width) return;
  double sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) sum += partial[part * width + i];
  sums[i] += sum;
}

std::size_t shared_bytes(const MetricTarget& to) {
  return to.count <= kMostShared ? static_cast<std::size_t>(to.count) * sizeof(unsigned) : 0;
}

unsigned blocks_for(std::int64_t work, std::int64_t of_block) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((work + of_block - 1) / of_block, 1, kMostBlocks));
}

}  // namespace

void label_counts(const Exec& exec, const LabelCountShape& s, DType dtype, const void* output,
                  const std::int32_t* labels, const MetricTarget& to) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    label_counts_kernel<<<blocks_for(s.rows, kRowsOfBlock), kThreads, shared_bytes(to), stream_of(exec)>>>(
        s, static_cast<const T*>(output), labels, to);
    check_launch("label_counts_kernel");
  });
}

void target_counts(const Exec& exec, const TargetCountShape& s, DType dtype, const void* output, const float* targets,
                   const MetricTarget& to) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    target_counts_kernel<<<blocks_for(s.rows * s.classes, kThreads), kThreads, shared_bytes(to), stream_of(exec)>>>(
        s, static_cast<const T*>(output), targets, to);
    check_launch("target_counts_kernel");
  });
}

void score_histograms(const Exec& exec, const ScoreShape& s, DType dtype, const void* output, const ScoreTruth& truth,
                      const MetricTarget& to) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* const values = static_cast<const T*>(output);
    if (truth.labels != nullptr)
      softmax_histograms_kernel<<<blocks_for(s.rows, kRowsOfBlock), kThreads, shared_bytes(to), stream_of(exec)>>>(
          s, values, truth.labels, to);
    else
      sigmoid_histograms_kernel<<<blocks_for(s.rows * s.classes, kThreads), kThreads, shared_bytes(to),
                                  stream_of(exec)>>>(s, values, truth.targets, to);
    check_launch("score_histograms");
  });
}

void error_sums(const Exec& exec, const ErrorShape& s, DType dtype, const void* output, const float* targets,
                const MetricTarget& to, Workspace workspace) {
  const std::int64_t parts = error_parts(s);
  auto* const partial = static_cast<double*>(workspace.data);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    error_parts_kernel<<<static_cast<unsigned>(parts * s.columns), kThreads, 0, stream_of(exec)>>>(
        s, parts, static_cast<const T*>(output), targets, partial);
    check_launch("error_parts_kernel");
  });
  const std::int64_t sums = kErrorSums * s.columns + 1;
  add_error_parts_kernel<<<static_cast<unsigned>((sums + kThreads - 1) / kThreads), kThreads, 0, stream_of(exec)>>>(
      s, parts, partial, to);
  check_launch("add_error_parts_kernel");
}

}  // namespace bantam::kernels::cuda

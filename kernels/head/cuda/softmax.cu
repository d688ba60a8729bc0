// Softmax on CUDA: a row is read by neighbouring lanes of a warp, few for short rows, or by a block where it is long.
// Elements that are read twice are in the caches the second time.
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/head/softmax.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;
/// Elements from which on a row gets a block.
constexpr std::int64_t kLongRow = 2048;
/// Packs of a short row that a lane reads at least, before the row gets more lanes.
constexpr std::int64_t kPacksOfLane = 2;

/// The threads that share a row: `lanes` of a warp (a power of two), or all of the block.
struct RowTeam {
  int lanes;

  __device__ int size() const { return lanes; }
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % lanes; }

  /// Combines a value of each thread of the team; all threads of the block call it together, and get the same.
  template <class Combine>
  __device__ float all(float value, float* shared, Combine combine) const {
    for (int step = min(lanes, 32) / 2; step > 0; step /= 2)
      value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
    if (lanes <= 32) return value;
    __syncthreads();  // the values before were read
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < kThreads / 32; ++warp) value = combine(value, shared[warp]);
    return value;
  }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// y of rows whose `columns` are packs of N. A team without a row goes along with the last one, and writes nothing.
template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    softmax_forward_kernel(std::int64_t rows, std::int64_t columns, RowTeam team, const T* x, T* y) {
  __shared__ float shared[kThreads / 32];
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / team.size();
  const std::int64_t base = min(row, rows - 1) * columns, first = team.rank() * N, step = team.size() * N;
  float v[N], top = -INFINITY, sum = 0;
  for (std::int64_t c = first; c < columns; c += step) {
    unpack<N>(x + base + c, v);
#pragma unroll
    for (int n = 0; n < N; ++n) top = fmaxf(top, v[n]);
  }
  top = team.all(top, shared, Largest{});
  for (std::int64_t c = first; c < columns; c += step) {
    unpack<N>(x + base + c, v);
#pragma unroll
    for (int n = 0; n < N; ++n) sum += expf(v[n] - top);
  }
  const float inverse = 1.0f / team.all(sum, shared, Sum{});
  if (row >= rows) return;
  for (std::int64_t c = first; c < columns; c += step) {
    unpack<N>(x + base + c, v);
#pragma unroll
    for (int n = 0; n < N; ++n) v[n] = expf(v[n] - top) * inverse;
    repack<N>(v, y + base + c);
  }
}

template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    softmax_grad_kernel(std::int64_t rows, std::int64_t columns, RowTeam team, const T* y, const T* dy, T* dx) {
  __shared__ float shared[kThreads / 32];
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / team.size();
  const std::int64_t base = min(row, rows - 1) * columns, first = team.rank() * N, step = team.size() * N;
  float v[N], g[N], sum = 0;
  for (std::int64_t c = first; c < columns; c += step) {
    unpack<N>(y + base + c, v);
    unpack<N>(dy + base + c, g);
#pragma unroll
    for (int n = 0; n < N; ++n) sum = fmaf(v[n], g[n], sum);
  }
  sum = team.all(sum, shared, Sum{});
  if (row >= rows) return;
  for (std::int64_t c = first; c < columns; c += step) {
    unpack<N>(y + base + c, v);
    unpack<N>(dy + base + c, g);
#pragma unroll
    for (int n = 0; n < N; ++n) g[n] = v[n] * (g[n] - sum);
    repack<N>(g, dx + base + c);
  }
}

RowTeam team_for(std::int64_t columns, std::int64_t pack) {
  if (columns >= kLongRow) return {kThreads};
  int lanes = 1;
  while (lanes < 32 && lanes * kPacksOfLane * pack < columns) lanes *= 2;
  return {lanes};
}

/// Calls call(tag, std::integral_constant<int, N>, team, blocks): packs of 16 bytes where rows and addresses allow it.
template <class Call, class... Pointers>
void launch_rows(std::int64_t rows, std::int64_t columns, DType dtype, Call&& call, const Pointers*... addresses) {
  if (rows <= 0 || columns <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int kPack = kVectorLanes<T>;
    const bool packed = columns % kPack == 0 && packs_aligned<T, kPack>(addresses...);
    const RowTeam team = team_for(columns, packed ? kPack : 1);
    const auto blocks = static_cast<unsigned>((rows * team.lanes + kThreads - 1) / kThreads);
    if (packed)
      call(tag, std::integral_constant<int, kPack>{}, team, blocks);
    else
      call(tag, std::integral_constant<int, 1>{}, team, blocks);
  });
}

}  // namespace

void softmax_forward(const Exec& exec, std::int64_t rows, std::int64_t columns, DType dtype, const void* x, void* y) {
  launch_rows(
      rows, columns, dtype,
      [&](auto tag, auto n, RowTeam team, unsigned blocks) {
        using T = typename decltype(tag)::type;
        softmax_forward_kernel<decltype(n)::value><<<blocks, kThreads, 0, stream_of(exec)>>>(
            rows, columns, team, static_cast<const T*>(x), static_cast<T*>(y));
        check_launch("softmax_forward_kernel");
      },
      x, y);
}

void softmax_grad(const Exec& exec, std::int64_t rows, std::int64_t columns, DType dtype, const void* y, const void* dy,
                  void* dx) {
  launch_rows(
      rows, columns, dtype,
      [&](auto tag, auto n, RowTeam team, unsigned blocks) {
        using T = typename decltype(tag)::type;
        softmax_grad_kernel<decltype(n)::value><<<blocks, kThreads, 0, stream_of(exec)>>>(
            rows, columns, team, static_cast<const T*>(y), static_cast<const T*>(dy), static_cast<T*>(dx));
        check_launch("softmax_grad_kernel");
      },
      y, dy, dx);
}

}  // namespace bantam::kernels::cuda

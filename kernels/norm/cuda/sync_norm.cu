// Batch norm over the batches of several ranks on CUDA.
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/norm_statistics.cuh"
#include "bantam/kernels/norm/sync_norm.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void pack_moments_kernel(std::int64_t channels, double rows, const float* mean, const float* variance,
                                    double* message) {
  if (grid_thread() == 0) message[0] = rows;
  for (std::int64_t c = grid_thread(); c < channels; c += grid_threads()) {
    const double m = mean[c];
    message[1 + c] = rows * m;
    message[1 + channels + c] = rows * (variance[c] + m * m);
  }
}

__global__ void unpack_moments_kernel(std::int64_t channels, const double* message, FinishStatistics finish,
                                      float* inv_rows) {
  const double rows = message[0];
  if (grid_thread() == 0) *inv_rows = static_cast<float>(1.0 / rows);
  for (std::int64_t c = grid_thread(); c < channels; c += grid_threads()) {
    const double mean = message[1 + c] / rows;
    const double variance = fmax(message[1 + channels + c] / rows - mean * mean, 0.0);
    Moments<double, 1> moments;
    moments.mean[0] = mean;
    moments.m2[0] = variance * rows;
    moments.count = rows;
    finish(c, finish.begin(c), 0.0f, moments);
  }
}

__global__ void divide_kernel(std::int64_t count, const float* inv_rows, float* sums) {
  for (std::int64_t i = grid_thread(); i < count; i += grid_threads()) sums[i] *= *inv_rows;
}

}  // namespace

void pack_moments(const Exec& exec, std::int64_t channels, std::int64_t rows, const float* mean, const float* variance,
                  double* message) {
  pack_moments_kernel<<<stride_blocks(std::max<std::int64_t>(channels, 1), kThreads), kThreads, 0, stream_of(exec)>>>(
      channels, static_cast<double>(rows), mean, variance, message);
  check_launch("pack_moments");
}

void unpack_moments(const Exec& exec, std::int64_t channels, const double* message, const StatisticsOutput& statistics,
                    float* inv_rows) {
  const FinishStatistics finish = FinishStatistics::of(statistics);
  unpack_moments_kernel<<<stride_blocks(std::max<std::int64_t>(channels, 1), kThreads), kThreads, 0, stream_of(exec)>>>(
      channels, message, finish, inv_rows);
  check_launch("unpack_moments");
}

void sync_norm_input_gradient(const Exec& exec, const BatchNormShape& shape, DType dtype, const NormOperand& norm,
                              const void* dy, const float* inv_rows, float* sums, void* dx) {
  if (shape.rows <= 0 || shape.channels <= 0) return;
  divide_kernel<<<stride_blocks(2 * shape.channels, kThreads), kThreads, 0, stream_of(exec)>>>(2 * shape.channels,
                                                                                               inv_rows, sums);
  check_launch("sync_norm_input_gradient");
  const AffineSource source{norm.affine.scale, norm.affine.shift, norm.mean, norm.inv_std};
  const auto run = [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    const T *in = static_cast<const T*>(norm.x), *g = static_cast<const T*>(dy);
    with_pack<T>(
        [&](auto n) {
          const InputGradient<T, decltype(f)> map{in, g, source, f, sums, shape.channels, 1.0f, static_cast<T*>(dx)};
          map_rows<decltype(n)::value, false>(exec, shape.rows, shape.channels, map);
        },
        shape.channels, in, g, dx);
  };
  dispatch_floating(dtype, [&](auto tag) { with_activation(norm.affine.activation, [&](auto f) { run(tag, f); }); });
}

}  // namespace bantam::kernels::cuda

// Batch norm keeps these of a channel's moments: mean, inverse deviation, and the running statistics they move.
#pragma once

#include "bantam/kernels/common/cuda/reduce/moments.cuh"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels::cuda {

/// Turns a channel's moments, relative to an origin, into saved and running statistics.
struct FinishStatistics {
  float epsilon;
  RunningUpdate update;
  float* running_mean;
  float* running_variance;
  float* saved_mean;
  float* saved_inv_std;

  __host__ __device__ static FinishStatistics of(const StatisticsOutput& out) {
    return {out.epsilon, out.update, out.running_mean, out.running_variance, out.mean, out.inv_std};
  }
  __device__ static float moved(float running, double batch, double rate) {
    return static_cast<float>((1.0 - rate) * running + rate * batch);
  }
  /// The running statistics of a channel, read ahead so that nothing waits for them when its moments are there.
  struct Running {
    float mean, variance;
  };
  __device__ Running begin(std::int64_t c) const {
    return {running_mean ? running_mean[c] : 0.0f, running_variance ? running_variance[c] : 0.0f};
  }
  __device__ void operator()(std::int64_t c, const Running& running, float origin,
                             const Moments<double, 1>& moments) const {
    const double mean = origin + moments.mean[0], variance = moments.m2[0] / moments.count;
    saved_mean[c] = static_cast<float>(mean);
    saved_inv_std[c] = static_cast<float>(rsqrt(variance + epsilon));
    const double rate = running_part(update);
    if (running_mean) running_mean[c] = moved(running.mean, mean, rate);
    const bool unbiased = update.unbiased && moments.count > 1;
    const double entering = unbiased ? moments.m2[0] / (moments.count - 1) : variance;
    if (running_variance) running_variance[c] = moved(running.variance, entering, rate);
  }
};

}  // namespace bantam::kernels::cuda

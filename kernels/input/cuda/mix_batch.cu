// Mixed pairs on CUDA: a thread reads and writes the same values of both images of a pair; multiplications and the
// addition round apart, as on the CPU.
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/input/mix_batch.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kValues = 4;  // a thread

__device__ inline float blend(float share, float own, float other) {
  return __fadd_rn(__fmul_rn(share, own), __fmul_rn(1.0f - share, other));
}

__device__ inline bool has_window(const SampleMix& mix) { return mix.top < mix.bottom && mix.left < mix.right; }
__device__ inline bool changes(const SampleMix& mix) { return has_window(mix) || mix.share != 1.0f; }

struct Pixel {
  int row, column;
};

__device__ inline float mixed(const SampleMix& mix, const Pixel& at, float own, float other) {
  if (has_window(mix))
    return at.row >= mix.top && at.row < mix.bottom && at.column >= mix.left && at.column < mix.right ? other : own;
  return mix.share == 1.0f ? own : blend(mix.share, own, other);
}

/// Pairs go over blockIdx.y, groups of four values over blockIdx.x.
template <class T>
__global__ void mix_images_kernel(MixShape s, bool aligned, const SampleMix* mixes, T* images) {
  const std::int64_t total = s.height * s.width * s.channels;
  for (std::int64_t b = blockIdx.y; b < s.batch / 2; b += gridDim.y) {
    const std::int64_t partner = s.batch - 1 - b;
    const SampleMix upper = mixes[b], lower = mixes[partner];
    if (!changes(upper) && !changes(lower)) continue;
    for (std::int64_t first = grid_thread() * kValues; first < total; first += grid_threads() * kValues) {
      T *a = images + b * total + first, *z = images + partner * total + first;
      const int valid = total - first < kValues ? static_cast<int>(total - first) : kValues;
      float x[kValues] = {}, y[kValues] = {};
      if (aligned) {
        unpack<kValues>(a, x);
        unpack<kValues>(z, y);
      } else {
        for (int k = 0; k < valid; ++k) x[k] = to_float(a[k]), y[k] = to_float(z[k]);
      }
#pragma unroll
      for (int k = 0; k < kValues; ++k) {
        const std::int64_t pixel = (first + k) / s.channels;
        const Pixel at{static_cast<int>(pixel / s.width), static_cast<int>(pixel % s.width)};
        const float own = x[k], other = y[k];
        x[k] = mixed(upper, at, own, other);
        y[k] = mixed(lower, at, other, own);
      }
      if (aligned) {
        repack<kValues>(x, a);
        repack<kValues>(y, z);
      } else {
        for (int k = 0; k < valid; ++k) a[k] = from_float<T>(x[k]), z[k] = from_float<T>(y[k]);
      }
    }
  }
}

/// A sample of a pair: its share of its own target, and the labels of both.
struct Pairing {
  float share;
  std::int32_t label, partner;
};

__device__ inline float target_of(const TargetMixShape& s, const Pairing& pair, std::int64_t c) {
  const auto outside = [&](std::int32_t label) { return label < 0 || label >= s.classes; };
  if (outside(pair.label) || (pair.share != 1.0f && outside(pair.partner))) return __int_as_float(0x7fc00000);
  const float q = (c == pair.label ? pair.share : 0.0f) + (c == pair.partner ? 1.0f - pair.share : 0.0f);
  if (s.smoothing == 0.0f) return q;
  return __fadd_rn(__fdiv_rn(s.smoothing, static_cast<float>(s.classes)), __fmul_rn(1.0f - s.smoothing, q));
}

/// A block a pair: labels are written once all of its threads have read them.
__global__ void mix_targets_kernel(TargetMixShape s, const SampleMix* mixes, std::int32_t* labels, float* targets) {
  for (std::int64_t b = blockIdx.x; b < (s.batch + 1) / 2; b += gridDim.x) {
    const std::int64_t partner = s.batch - 1 - b;
    const bool pair = mixes != nullptr && partner != b;
    const float upper = pair ? mixes[b].share : 1.0f, lower = pair ? mixes[partner].share : 1.0f;
    const std::int32_t own = labels != nullptr ? labels[b] : 0, other = labels != nullptr ? labels[partner] : 0;
    float *first = targets + b * s.classes, *second = targets + partner * s.classes;
    for (std::int64_t c = threadIdx.x; c < s.classes; c += blockDim.x) {
      if (s.from_labels) {
        first[c] = target_of(s, {upper, own, other}, c);
        second[c] = target_of(s, {lower, other, own}, c);
      } else {
        const float x = first[c], y = second[c];
        if (upper != 1.0f) first[c] = blend(upper, x, y);
        if (lower != 1.0f) second[c] = blend(lower, y, x);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0 && labels != nullptr) {
      if (upper < 0.5f) labels[b] = other;
      if (lower < 0.5f) labels[partner] = own;
    }
  }
}

}  // namespace

void mix_images(const Exec& exec, const MixShape& shape, const SampleMix* mixes, DType dtype, void* images) {
  const std::int64_t total = shape.height * shape.width * shape.channels, pairs = shape.batch / 2;
  if (pairs <= 0 || total <= 0) return;
  const dim3 blocks(stride_blocks((total + kValues - 1) / kValues),
                    static_cast<unsigned>(std::min<std::int64_t>(pairs, 65535)));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool aligned = total % kValues == 0 && packs_aligned<T, kValues>(static_cast<T*>(images));
    mix_images_kernel<<<blocks, kMapThreads, 0, stream_of(exec)>>>(shape, aligned, mixes, static_cast<T*>(images));
    check_launch("mix_images_kernel");
  });
}

void mix_targets(const Exec& exec, const TargetMixShape& shape, const SampleMix* mixes, std::int32_t* labels,
                 float* targets) {
  constexpr int kThreads = 128;
  if (shape.batch <= 0) return;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((shape.batch + 1) / 2, 65535));
  mix_targets_kernel<<<blocks, kThreads, 0, stream_of(exec)>>>(shape, mixes, labels, targets);
  check_launch("mix_targets_kernel");
}

}  // namespace bantam::kernels::cuda

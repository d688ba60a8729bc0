// Patches of images on a GPU as rows of a matrix, so that any convolution becomes GEMMs. Values are moved,
// not changed.
#pragma once

#include <algorithm>
#include <cstdint>

#include <cuda_runtime.h>

#include "bantam/kernels/common/cuda/check.h"

namespace bantam::kernels::cuda {

/// A gather: row p of the result belongs to pixel p of a (batch, to_h, to_w) grid; it holds, for each tap (a, b), a run
/// of channels of the source pixel that the tap meets, or zeros. The source is (batch, from_h, from_w, from_channels).
/// forward taps: i = row · stride - pad + a · dilation. backward taps, where grid row = i · stride - pad + a ·
/// dilation: i.
struct PatchGeometry {
  int to_h, to_w, from_h, from_w;
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  bool backward;
  std::int64_t from_stride;   ///< words between source pixels
  std::int64_t from_channel;  ///< first word of the group's channels in a pixel
  std::int64_t run;           ///< words of the group's channels
};

/// The source coordinate that a tap meets, or -1.
__device__ inline int tap_source(int at, int tap, int stride, int pad, int dilation, int size, bool backward) {
  if (!backward) {
    const int i = at * stride - pad + tap * dilation;
    return i >= 0 && i < size ? i : -1;
  }
  const int scaled = at + pad - tap * dilation;
  if (scaled < 0 || scaled % stride != 0) return -1;
  const int i = scaled / stride;
  return i < size ? i : -1;
}

/// A thread moves a Word: 16 or 8 bytes where the runs allow, else one element's bits.
template <class Word>
__global__ void __launch_bounds__(256) gather_patches(const Word* __restrict__ from, Word* __restrict__ to,
                                                      PatchGeometry g, std::int64_t first, std::int64_t words) {
  const std::int64_t row_words = g.run * g.kernel_h * g.kernel_w;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < words; at += step) {
    const std::int64_t pixel = first + at / row_words;
    const std::int64_t in_row = at % row_words;
    const int tap = static_cast<int>(in_row / g.run);
    const std::int64_t image = pixel / (static_cast<std::int64_t>(g.to_h) * g.to_w);
    const int in_image = static_cast<int>(pixel % (static_cast<std::int64_t>(g.to_h) * g.to_w));
    const int i =
        tap_source(in_image / g.to_w, tap / g.kernel_w, g.stride_h, g.pad_h, g.dilation_h, g.from_h, g.backward);
    const int j =
        tap_source(in_image % g.to_w, tap % g.kernel_w, g.stride_w, g.pad_w, g.dilation_w, g.from_w, g.backward);
    Word value{};
    if (i >= 0 && j >= 0) {
      value = from[((image * g.from_h + i) * g.from_w + j) * g.from_stride + g.from_channel + in_row % g.run];
    }
    to[at] = value;
  }
}

/// Gathers `pixels` rows from `first` on; `g` counts elements of `element_bytes` (2 or 4) bytes.
inline void launch_gather_patches(const Exec& exec, const void* from, void* to, PatchGeometry g, std::int64_t first,
                                  std::int64_t pixels, std::int64_t element_bytes) {
  const auto fits = [&](std::int64_t bytes) {
    const auto whole = [=](std::int64_t elements) { return elements * element_bytes % bytes == 0; };
    const auto aligned = [=](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; };
    return whole(g.run) && whole(g.from_stride) && whole(g.from_channel) && aligned(from) && aligned(to);
  };
  const std::int64_t word_bytes = fits(16) ? 16 : fits(8) ? 8 : element_bytes, wide = word_bytes / element_bytes;
  g.run /= wide;
  g.from_stride /= wide;
  g.from_channel /= wide;
  constexpr int kThreads = 256;
  constexpr std::int64_t kMostBlocks = 1 << 16;
  const std::int64_t words = pixels * g.run * g.kernel_h * g.kernel_w;
  const auto blocks = static_cast<unsigned>(std::min((words + kThreads - 1) / kThreads, kMostBlocks));
  const auto launch = [&](auto word) {
    using Word = decltype(word);
    gather_patches<<<blocks, kThreads, 0, stream_of(exec)>>>(static_cast<const Word*>(from), static_cast<Word*>(to), g,
                                                             first, words);
  };
  if (word_bytes == 16) {
    launch(uint4{});
  } else if (word_bytes == 8) {
    launch(uint2{});
  } else if (element_bytes == 4) {
    launch(std::uint32_t{});
  } else {
    launch(std::uint16_t{});
  }
  check_launch("gather_patches");
}

}  // namespace bantam::kernels::cuda

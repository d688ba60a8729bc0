// Dropout on CUDA: a thread draws the four words of one Philox counter, eight threads make a mask word.
#include "bantam/kernels/contracts/elementwise/dropout.h"
#include "bantam/kernels/cuda/device/vectorized.cuh"

namespace bantam::kernels::cuda {
namespace {

constexpr int kQuad = 4;         // elements of one Philox counter
constexpr int kQuadsOfWord = 8;  // 32 bits of a mask word

/// y = x·factor where the element's bit is set, 0 elsewhere, for the `valid` first elements of a quad.
template <class T>
__device__ void apply_quad(unsigned bits, int valid, bool aligned, float factor, const T* x, T* y) {
  if (aligned && valid == kQuad) {
    float values[kQuad];
    unpack<kQuad>(x, values);
#pragma unroll
    for (int k = 0; k < kQuad; ++k) values[k] = (bits >> k) & 1u ? values[k] * factor : 0.0f;
    repack<kQuad>(values, y);
    return;
  }
  for (int k = 0; k < valid; ++k) y[k] = from_float<T>((bits >> k) & 1u ? to_float(x[k]) * factor : 0.0f);
}

__device__ inline int valid_elements(std::int64_t sample_elements, std::int64_t first) {
  const std::int64_t left = sample_elements - first;
  return left >= kQuad ? kQuad : left > 0 ? static_cast<int>(left) : 0;
}

/// Rows go over blockIdx.y, quads of a row over blockIdx.x. A row has a whole number of mask words, and strides are
/// multiples of eight, so the eight threads of a word always run together.
template <class T>
__global__ void dropout_forward_kernel(DropoutShape shape, float factor, bool aligned, const std::int64_t* update,
                                       const T* x, T* y, std::uint32_t* mask) {
  const std::int64_t row_words = (shape.sample_elements + 31) / 32, row_quads = row_words * kQuadsOfWord;
  const std::uint64_t t = static_cast<std::uint64_t>(*update);
  for (std::int64_t s = blockIdx.y; s < shape.samples; s += gridDim.y) {
    for (std::int64_t q = grid_thread(); q < row_quads; q += grid_threads()) {
      const PhiloxWords random =
          philox(shape.key, {{static_cast<std::uint32_t>(q), static_cast<std::uint32_t>(shape.first_sample + s),
                              static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(t >> 32)}});
      const int valid = valid_elements(shape.sample_elements, q * kQuad);
      unsigned bits = 0;
#pragma unroll
      for (int k = 0; k < kQuad; ++k) bits |= (k < valid && uniform01(random.v[k]) >= shape.rate ? 1u : 0u) << k;
      unsigned word = bits << (kQuad * (threadIdx.x % kQuadsOfWord));
      const unsigned together = 0xffu << (threadIdx.x & 24u);
      for (int step = 1; step < kQuadsOfWord; step *= 2) word |= __shfl_xor_sync(together, word, step);
      if (threadIdx.x % kQuadsOfWord == 0) mask[s * row_words + q / kQuadsOfWord] = word;
      const std::int64_t at = s * shape.sample_elements + q * kQuad;
      apply_quad(bits, valid, aligned, factor, x + at, y + at);
    }
  }
}

template <class T>
__global__ void dropout_grad_kernel(DropoutShape shape, float factor, bool aligned, const std::uint32_t* mask,
                                    const T* dy, T* dx) {
  const std::int64_t row_words = (shape.sample_elements + 31) / 32;
  const std::int64_t row_quads = (shape.sample_elements + kQuad - 1) / kQuad;
  for (std::int64_t s = blockIdx.y; s < shape.samples; s += gridDim.y) {
    for (std::int64_t q = grid_thread(); q < row_quads; q += grid_threads()) {
      const std::uint32_t word = mask[s * row_words + q / kQuadsOfWord];
      const unsigned bits = word >> (kQuad * static_cast<unsigned>(q % kQuadsOfWord));
      const std::int64_t at = s * shape.sample_elements + q * kQuad;
      apply_quad(bits, valid_elements(shape.sample_elements, q * kQuad), aligned, factor, dy + at, dx + at);
    }
  }
}

/// Short rows get small blocks, a multiple of a warp.
struct RowGrid {
  dim3 blocks;
  int threads;
  explicit RowGrid(const DropoutShape& shape) {
    const std::int64_t quads = (shape.sample_elements + 31) / 32 * kQuadsOfWord;
    threads = static_cast<int>(std::min<std::int64_t>((quads + 31) / 32 * 32, kMapThreads));
    blocks = dim3(stride_blocks(quads, threads), static_cast<unsigned>(std::min<std::int64_t>(shape.samples, 65535)));
  }
};

}  // namespace

void dropout_forward(const Exec& exec, const DropoutShape& shape, DType dtype, const std::int64_t* update,
                     const void* x, void* y, std::uint32_t* mask) {
  if (shape.samples <= 0 || shape.sample_elements <= 0) return;
  const RowGrid grid(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool aligned = shape.sample_elements % kQuad == 0 && packs_aligned<T, kQuad>(x, y);
    dropout_forward_kernel<<<grid.blocks, grid.threads, 0, stream_of(exec)>>>(
        shape, 1.0f / (1.0f - shape.rate), aligned, update, static_cast<const T*>(x), static_cast<T*>(y), mask);
    check_launch("dropout_forward_kernel");
  });
}

void dropout_grad(const Exec& exec, const DropoutShape& shape, DType dtype, const std::uint32_t* mask, const void* dy,
                  void* dx) {
  if (shape.samples <= 0 || shape.sample_elements <= 0) return;
  const RowGrid grid(shape);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const bool aligned = shape.sample_elements % kQuad == 0 && packs_aligned<T, kQuad>(dy, dx);
    dropout_grad_kernel<<<grid.blocks, grid.threads, 0, stream_of(exec)>>>(
        shape, 1.0f / (1.0f - shape.rate), aligned, mask, static_cast<const T*>(dy), static_cast<T*>(dx));
    check_launch("dropout_grad_kernel");
  });
}

}  // namespace bantam::kernels::cuda

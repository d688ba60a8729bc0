// Dropout on CUDA. Of elements, a thread draws the four words of one Philox counter, and eight threads make a mask
// word; of channels and of samples, each thread draws what it needs once and walks over positions.
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/elementwise/dropout.h"

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

/// The words of random numbers [4·quad, 4·quad + 4) of sample s.
__device__ inline PhiloxWords quad_words(const DropoutShape& shape, std::int64_t quad, std::int64_t s,
                                         std::int64_t update) {
  const auto t = static_cast<std::uint64_t>(update);
  return philox(shape.key, {{static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(shape.first_sample + s),
                             static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(t >> 32)}});
}

/// Rows go over blockIdx.y, quads of a row over blockIdx.x. A row has a whole number of mask words, and strides are
/// multiples of eight, so the eight threads of a word always run together.
template <class T>
__global__ void dropout_forward_kernel(DropoutShape shape, float factor, bool aligned, const std::int64_t* update,
                                       const T* x, T* y, std::uint32_t* mask) {
  const std::int64_t row_words = (shape.sample_elements + 31) / 32, row_quads = row_words * kQuadsOfWord;
  for (std::int64_t s = blockIdx.y; s < shape.samples; s += gridDim.y) {
    for (std::int64_t q = grid_thread(); q < row_quads; q += grid_threads()) {
      const PhiloxWords random = quad_words(shape, q, s, *update);
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

/// One random number a sample: a thread's packs of it share the number. kDraw: drawn here, and written to the mask.
template <int N, bool kDraw, class T>
__global__ void __launch_bounds__(kMapThreads)
    drop_samples_kernel(DropoutShape shape, float factor, const std::int64_t* update, const T* x, T* y,
                        std::uint32_t* mask) {
  const std::int64_t packs = shape.sample_elements / N;
  for (std::int64_t s = blockIdx.y; s < shape.samples; s += gridDim.y) {
    unsigned kept;
    if constexpr (kDraw) {
      kept = uniform01(quad_words(shape, 0, s, *update).v[0]) >= shape.rate ? 1u : 0u;
      if (grid_thread() == 0) mask[s] = kept;
    } else {
      kept = mask[s];
    }
    for (std::int64_t i = grid_thread(); i < packs; i += grid_threads()) {
      const std::int64_t at = s * shape.sample_elements + i * N;
      float values[N] = {};
      if (kept != 0) {
        unpack<N>(x + at, values);
#pragma unroll
        for (int n = 0; n < N; ++n) values[n] *= factor;
      }
      repack<N>(values, y + at);
    }
  }
}

/// Kept bits of random numbers [4·quad, 4·quad + 4) of sample s.
__device__ inline unsigned quad_bits(const DropoutShape& shape, std::int64_t quad, std::int64_t s,
                                     std::int64_t update) {
  const PhiloxWords random = quad_words(shape, quad, s, update);
  unsigned bits = 0;
#pragma unroll
  for (int k = 0; k < kQuad; ++k) bits |= (uniform01(random.v[k]) >= shape.rate ? 1u : 0u) << k;
  return bits;
}

/// Draws the keep bits of numbers [d, d + N), d a multiple of N.
template <int N>
__device__ unsigned draw_bits(const DropoutShape& shape, std::int64_t d, std::int64_t s, std::int64_t update) {
  if constexpr (N < kQuad) {
    return quad_bits(shape, d / kQuad, s, update) >> (d % kQuad) & ((1u << N) - 1u);
  } else {
    unsigned bits = 0;
#pragma unroll
    for (int quad = 0; quad < N / kQuad; ++quad)
      bits |= quad_bits(shape, d / kQuad + quad, s, update) << (quad * kQuad);
    return bits;
  }
}

/// A sample's mask word that begins with number `first`.
__device__ inline unsigned draw_word(const DropoutShape& shape, std::int64_t first, std::int64_t s,
                                     std::int64_t update) {
  unsigned word = 0;
  for (int quad = 0; quad < kQuadsOfWord; ++quad)
    word |= quad_bits(shape, first / kQuad + quad, s, update) << (quad * kQuad);
  const std::int64_t left = shape.draws - first;
  return left >= 32 ? word : word & ((1u << left) - 1u);
}

/// One random number a channel and sample: blockIdx.x and threadIdx.x count packs of channels, blockIdx.y and
/// threadIdx.y positions, blockIdx.z samples. kDraw: drawn here; threads at a sample's first position write the mask.
template <int N, bool kDraw, class T>
__global__ void __launch_bounds__(kTileThreads)
    drop_channels_kernel(DropoutShape shape, float factor, const std::int64_t* update, const T* x, T* y,
                         std::uint32_t* mask) {
  const std::int64_t channels = shape.draws, positions = shape.sample_elements / channels;
  const std::int64_t words = (channels + 31) / 32;
  const std::int64_t c = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (c >= channels) return;
  for (std::int64_t s = blockIdx.z; s < shape.samples; s += gridDim.z) {
    unsigned bits;
    if constexpr (kDraw) {
      bits = draw_bits<N>(shape, c, s, *update);
      if (blockIdx.y == 0 && threadIdx.y == 0 && c % 32 == 0)
        mask[s * words + c / 32] = draw_word(shape, c, s, *update);
    } else {
      bits = mask[s * words + c / 32] >> (c % 32);
    }
    const std::int64_t step = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
    for (std::int64_t p = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; p < positions; p += step) {
      const std::int64_t at = s * shape.sample_elements + p * channels + c;
      float values[N];
      unpack<N>(x + at, values);
#pragma unroll
      for (int n = 0; n < N; ++n) values[n] = (bits >> n) & 1u ? values[n] * factor : 0.0f;
      repack<N>(values, y + at);
    }
  }
}

/// Positions of a thread of drop_channels_kernel, about: enough that what it draws is paid rarely.
constexpr std::int64_t kPositionsOfThread = 8;

template <bool kDraw, class T>
void drop_channels(const Exec& exec, const DropoutShape& shape, const std::int64_t* update, const T* x, T* y,
                   std::uint32_t* mask) {
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        const dim3 block = tile_block(shape.draws / N);
        const std::int64_t positions = shape.sample_elements / shape.draws;
        const auto tiles = blocks_for(positions, kPositionsOfThread * block.y);
        const dim3 grid(blocks_for(shape.draws / N, block.x), std::min(tiles, static_cast<unsigned>(kMaxGridY)),
                        static_cast<unsigned>(std::min(shape.samples, kMaxGridY)));
        drop_channels_kernel<N, kDraw>
            <<<grid, block, 0, stream_of(exec)>>>(shape, 1.0f / (1.0f - shape.rate), update, x, y, mask);
        check_launch("drop_channels_kernel");
      },
      shape.draws, x, y);
}

template <bool kDraw, class T>
void drop_samples(const Exec& exec, const DropoutShape& shape, const std::int64_t* update, const T* x, T* y,
                  std::uint32_t* mask) {
  with_pack<T>(
      [&](auto n) {
        constexpr int N = decltype(n)::value;
        const std::int64_t packs = shape.sample_elements / N;
        const dim3 grid(stride_blocks((packs + kPositionsOfThread - 1) / kPositionsOfThread),
                        static_cast<unsigned>(std::min(shape.samples, kMaxGridY)));
        drop_samples_kernel<N, kDraw>
            <<<grid, kMapThreads, 0, stream_of(exec)>>>(shape, 1.0f / (1.0f - shape.rate), update, x, y, mask);
        check_launch("drop_samples_kernel");
      },
      shape.sample_elements, x, y);
}

template <bool kDraw, class T>
void drop_elements(const Exec& exec, const DropoutShape& shape, const std::int64_t* update, const T* x, T* y,
                   std::uint32_t* mask) {
  const RowGrid grid(shape);
  const float factor = 1.0f / (1.0f - shape.rate);
  const bool aligned = shape.sample_elements % kQuad == 0 && packs_aligned<T, kQuad>(x, y);
  if constexpr (kDraw)
    dropout_forward_kernel<<<grid.blocks, grid.threads, 0, stream_of(exec)>>>(shape, factor, aligned, update, x, y,
                                                                              mask);
  else
    dropout_grad_kernel<<<grid.blocks, grid.threads, 0, stream_of(exec)>>>(shape, factor, aligned, mask, x, y);
  check_launch(kDraw ? "dropout_forward_kernel" : "dropout_grad_kernel");
}

/// y = x/(1 - rate) where kept. kDraw: the mask is drawn and written, else read.
template <bool kDraw>
void drop(const Exec& exec, const DropoutShape& shape, DType dtype, const std::int64_t* update, const void* x, void* y,
          std::uint32_t* mask) {
  if (shape.samples <= 0 || shape.sample_elements <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (shape.row_draws() == shape.sample_elements) return drop_elements<kDraw>(exec, shape, update, from, to, mask);
    if (shape.draws == 1) return drop_samples<kDraw>(exec, shape, update, from, to, mask);
    drop_channels<kDraw>(exec, shape, update, from, to, mask);
  });
}

}  // namespace

void dropout_forward(const Exec& exec, const DropoutShape& shape, DType dtype, const std::int64_t* update,
                     const void* x, void* y, std::uint32_t* mask) {
  drop<true>(exec, shape, dtype, update, x, y, mask);
}

void dropout_grad(const Exec& exec, const DropoutShape& shape, DType dtype, const std::uint32_t* mask, const void* dy,
                  void* dx) {
  drop<false>(exec, shape, dtype, nullptr, dy, dx, const_cast<std::uint32_t*>(mask));  // which is only read
}

}  // namespace bantam::kernels::cuda

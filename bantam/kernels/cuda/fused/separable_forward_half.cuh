// The separable block's forward pass in half types: both convolutions on tensor cores, operands in registers.
//
// A warp computes two tiles of 16 pixels (rows of a product) by 32 output channels at a time. With pooling, tile i
// holds row i of the windows of 8 outputs, the left pixels first, so that one lane has a window's four values. The lane
// with t = lane % 4 ends up with channels 8t to 8t + 7 of the 32, by a permutation of the weights' columns, and stores
// them as 16 bytes.
#pragma once

#include "bantam/kernels/cuda/early_launch.cuh"
#include "bantam/kernels/cuda/fused/half_pair.cuh"
#include "bantam/kernels/cuda/fused/separable_tiles.cuh"
#include "bantam/kernels/cuda/fused/warp_mma.cuh"

namespace bantam::kernels::cuda {

/// Where the parts of a half kernel's shared memory lie, in bytes; sizes of a tile in elements.
struct HalfLayout {
  int groups;        ///< of 32 output channels
  int chunks;        ///< of 8 input channels
  int pixel_stride;  ///< elements between pixels of a tile
  int row_stride;    ///< elements between its rows; even
  int shifted;       ///< folded: elements between the tile and its copy, which is shifted by one element
  int piece;         ///< folded: elements that are copied at a time, 1, 2 or 4
  int depthwise_at, bias_at, tile_at, bytes;
};

/// The first operand's registers of a warp: two tiles of 16 pixels by 16·kSteps values.
template <int kSteps>
using PixelOperand = std::uint32_t[2][kSteps][4];

/// kFolded: the number of input channels where both weights are multiplied first (1 to 4), or 0.
template <class T, int kFolded, int kSteps, int kPool>
struct SeparableForwardHalf {
  using Pair = HalfPair<T>;
  using Operand = PixelOperand<kSteps>;
  /// Products of 32 channels: tile, eight channels' columns, register.
  using Sums = float[2][4][4];
  static constexpr int kPositions = kPool == 2 ? 8 : 32;  ///< outputs of a warp at a time

  /// Folded: the 3x3 patch times products of both weights. A row of the patch is contiguous in x: 3·channels elements,
  /// taken as pairs, the last half empty where they are odd in number. Pairs of patches that begin at an odd element
  /// are read from the shifted copy.
  static constexpr int kRowPairs = (3 * kFolded + 1) / 2;

  /// The product of both weights for element `half` of a patch's pair and output channel o; 0 past the patch's end.
  __device__ static float folded_weight(const T* depthwise, const T* pointwise, int pair, int half, int o) {
    constexpr int kRow = 3 * kFolded;
    const int row = pair / kRowPairs, element = pair % kRowPairs * 2 + half;
    if (row > 2 || element >= kRow) return 0.0f;
    return to_float(depthwise[row * kRow + element]) * to_float(pointwise[o * kFolded + element % kFolded]);
  }

  /// This thread's element of a vector of the product's second operand, as the lanes hold it: for each group of 32
  /// channels and step of 16 values, four tiles of 8 columns, two registers each, so two vectors of 16 bytes a lane.
  /// Column n of tile j is channel 8·(n / 2) + 2j + n % 2 of the group.
  __device__ static std::uint32_t weight_at(const SeparableTiles& t, const T* depthwise, const T* pointwise, int group,
                                            int step, int vector) {
    const int in_vector = static_cast<int>(threadIdx.x % 4), lane = static_cast<int>(threadIdx.x / 4), n = lane / 4;
    const int o = 8 * (n / 2) + in_vector / 2 * 2 + n % 2 + group * 32 + vector * 4;
    const int pair = in_vector % 2 * 4 + lane % 4 + step * 8;
    if (o >= t.out_channels) return 0;
    if constexpr (kFolded > 0) {
      return bits_of(
          Pair::pack(folded_weight(depthwise, pointwise, pair, 0, o), folded_weight(depthwise, pointwise, pair, 1, o)));
    } else {
      if (2 * pair >= t.channels) return 0;
      return __ldg(reinterpret_cast<const unsigned int*>(pointwise + o * t.channels + 2 * pair));
    }
  }

  /// This thread's element of a vector of the depthwise weights as diagonal matrices (8 channels by 8), one register a
  /// tap: the second operands of nine products that are a depthwise convolution of 8 channels. Twelve registers a lane
  /// in three vectors, the last three registers empty.
  __device__ static std::uint32_t diagonal_at(const SeparableTiles& t, const T* depthwise, int chunk, int vector) {
    const int lane = static_cast<int>(threadIdx.x / 4), n = lane / 4, k = lane % 4 * 2;
    const int tap = vector * 4 + static_cast<int>(threadIdx.x % 4);
    if (tap >= 9 || n / 2 * 2 != k) return 0;
    const std::uint32_t weight =
        __ldg(reinterpret_cast<const unsigned short*>(depthwise + tap * t.channels + chunk * 8 + n));
    return n != k ? weight << 16 : weight;
  }

  /// Weights and bias to shared memory: a thread has an element of each vector. The loads of two groups and four chunks
  /// are under way together.
  __device__ static void load_weights(const SeparableTiles& t, const HalfLayout& at, const T* depthwise,
                                      const T* pointwise, const T* bias, char* shared) {
    static_assert(kForwardThreads == 128, "a vector of 16 bytes a lane");
    constexpr int kGroups = 2, kVectors = kGroups * kSteps * 2, kChunks = kFolded > 0 ? 0 : 4;
    const int thread = static_cast<int>(threadIdx.x);
    T own_bias = from_float<T>(0.0f);
    if (t.bias != 0 && thread < t.out_channels) own_bias = bias[thread];
#pragma unroll 1
    for (int group = 0, chunk = 0; group < at.groups || chunk < at.chunks; group += kGroups, chunk += kChunks) {
      std::uint32_t weights[kVectors], diagonals[kChunks * 3 + 1];
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        weights[k] = weight_at(t, depthwise, pointwise, group + k / 2 / kSteps, k / 2 % kSteps, k % 2);
#pragma unroll
      for (int k = 0; k < kChunks * 3; ++k)
        diagonals[k] = chunk + k / 3 < at.chunks ? diagonal_at(t, depthwise, chunk + k / 3, k % 3) : 0;
      auto* to = reinterpret_cast<std::uint32_t*>(shared) + group * kSteps * 256 + thread;
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (group + k / 2 / kSteps < at.groups) to[k * kForwardThreads] = weights[k];
      to = reinterpret_cast<std::uint32_t*>(shared + at.depthwise_at) + chunk * 384 + thread;
#pragma unroll
      for (int k = 0; k < kChunks * 3; ++k)
        if (chunk + k / 3 < at.chunks) to[k * kForwardThreads] = diagonals[k];
    }
    if (thread < at.groups * 32) reinterpret_cast<T*>(shared + at.bias_at)[thread] = own_bias;
  }

  /// Input rows of a unit to shared memory, 8 channels at a time; complete after wait_for_copies.
  __device__ static void fill_chunks(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                     const T* x, T* tile) {
    const int in_row = t.in_w * at.chunks;
    const T* image = x + unit.image * t.in_h * t.in_w * t.channels;
    for (int i = static_cast<int>(threadIdx.x); i < unit.in_rows * in_row; i += kForwardThreads) {
      const Divided row = t.by_row.divide(static_cast<std::uint32_t>(i));
      const Divided column = t.by_pixel.divide(row.remainder);
      T* to = tile + static_cast<int>(row.quotient) * at.row_stride +
              (static_cast<int>(column.quotient) + t.pad_left) * at.pixel_stride +
              static_cast<int>(column.remainder) * 8;
      const int h = unit.first_in + static_cast<int>(row.quotient);
      if (h >= 0 && h < t.in_h) {
        copy_async<16>(to, image + (h * in_row + static_cast<int>(row.remainder)) * 8);
      } else {
        *reinterpret_cast<uint4*>(to) = uint4{};
      }
    }
  }

  /// Input rows of a unit to the tile and its shifted copy, kPiece elements at a time.
  template <int kPiece>
  __device__ static void fill_pieces(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                     const T* x, T* tile) {
    constexpr int kWords = (kPiece + 1) / 2;
    const int elements = t.in_w * kFolded, in_row = elements / kPiece;
    const T* image = x + unit.image * t.in_h * elements;
    const bool odd = t.pad_left * kFolded % 2 != 0;  // then it is the copy that has whole registers
    T* whole = tile + (odd ? at.shifted + 1 : 0);
    T* split = tile + (odd ? 0 : at.shifted + 1);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < unit.in_rows * in_row; i += kForwardThreads) {
      const Divided row = t.by_row.divide(static_cast<std::uint32_t>(i));
      const int h = unit.first_in + static_cast<int>(row.quotient), column = static_cast<int>(row.remainder) * kPiece;
      const int to = static_cast<int>(row.quotient) * at.row_stride + t.pad_left * kFolded + column;
      const bool inside = h >= 0 && h < t.in_h;
      union {
        std::uint32_t words[kWords];
        uint2 both;
        T v[2 * kWords];
      } piece{};
      const T* from = image + h * elements + column;
      if constexpr (kPiece == 4) {
        if (inside) piece.both = __ldg(reinterpret_cast<const uint2*>(from));
      } else if constexpr (kPiece == 2) {
        if (inside) piece.words[0] = __ldg(reinterpret_cast<const unsigned int*>(from));
      } else {
        if (inside) piece.v[0] = *from;
      }
      if constexpr (kPiece == 1) {
        tile[to] = piece.v[0];
        tile[at.shifted + 1 + to] = piece.v[0];
      } else {
#pragma unroll
        for (int k = 0; k < kWords; ++k) *reinterpret_cast<std::uint32_t*>(whole + to + 2 * k) = piece.words[k];
        split[to] = piece.v[0];
        if constexpr (kPiece == 4)
          *reinterpret_cast<std::uint32_t*>(split + to + 1) = __funnelshift_r(piece.words[0], piece.words[1], 16);
        split[to + kPiece - 1] = piece.v[kPiece - 1];
      }
    }
  }

  __device__ static void fill(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit, const T* x,
                              T* tile) {
    if constexpr (kFolded == 0) {
      fill_chunks(t, at, unit, x, tile);
    } else if (at.piece == 4) {
      fill_pieces<4>(t, at, unit, x, tile);
    } else if (at.piece == 2) {
      fill_pieces<2>(t, at, unit, x, tile);
    } else {
      fill_pieces<1>(t, at, unit, x, tile);
    }
  }

  /// The element of the tile where the patch of row `row` (of 16) of product tile i begins. Outputs past the unit's end
  /// repeat the last.
  __device__ static int patch_at(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit, int first,
                                 int i, int row) {
    const int position = min(kPool == 2 ? first + row % 8 : first + 16 * i + row, unit.positions - 1);
    const Divided p = t.by_out_w.divide(static_cast<std::uint32_t>(position));
    const int y = static_cast<int>(p.quotient) * kPool + (kPool == 2 ? i : 0);
    const int x = static_cast<int>(p.remainder) * kPool + (kPool == 2 ? row / 8 : 0);
    return y * at.row_stride + x * at.pixel_stride;
  }

  /// Folded: bytes from a patch's beginning to this lane's pairs of it. Past the patch's end: any, as the weight is 0.
  __device__ static void pair_offsets(const HalfLayout& at, int (&offset)[2 * kSteps]) {
#pragma unroll
    for (int k = 0; k < 2 * kSteps; ++k) {
      const int pair = k * 4 + static_cast<int>(threadIdx.x % 4);
      offset[k] = pair < 3 * kRowPairs ? (pair / kRowPairs * at.row_stride + pair % kRowPairs * 2) * 2 : 0;
    }
  }

  __device__ static void gather_patches(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                        const T* tile, const int (&offset)[2 * kSteps], int first, Operand& a) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int start = patch_at(t, at, unit, first, i, lane / 4 + 8 * half);
        const bool odd = kPool == 2 ? half * kFolded % 2 != 0 : start % 2 != 0;
        const char* patch = reinterpret_cast<const char*>(tile) + (start + (odd ? at.shifted + 1 : 0)) * 2;
#pragma unroll
        for (int k = 0; k < 2 * kSteps; ++k)
          a[i][k / 2][k % 2 * 2 + half] = *reinterpret_cast<const std::uint32_t*>(patch + offset[k]);
      }
    }
  }

  /// The depthwise output of the warp's pixels, rounded to T: nine diagonal products a chunk of 8 channels, two taps at
  /// a time. Its sums lie as the next product takes its first operand.
  __device__ static void convolve_depthwise(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                            const T* tile, const uint4* diagonals, int first, Operand& a) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    std::uint32_t tap_bytes[5], pixel[2];
#pragma unroll
    for (int p = 0; p < 5; ++p) {
      const int tap = min(2 * p + lane / 16, 8);
      tap_bytes[p] = static_cast<std::uint32_t>((tap / 3 * at.row_stride + tap % 3 * at.pixel_stride) * 2);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) pixel[i] = shared_address(tile + patch_at(t, at, unit, first, i, lane % 16));
#pragma unroll
    for (int chunk = 0; chunk < 2 * kSteps; ++chunk) {
      if (chunk >= at.chunks) {
#pragma unroll
        for (int i = 0; i < 2; ++i) a[i][chunk / 2][chunk % 2 * 2] = a[i][chunk / 2][chunk % 2 * 2 + 1] = 0;
        continue;
      }
      uint4 taps[3];
#pragma unroll
      for (int v = 0; v < 3; ++v) taps[v] = diagonals[(chunk * 3 + v) * 32 + lane];
      const std::uint32_t weights[5][2] = {{taps[0].x, taps[0].y},
                                           {taps[0].z, taps[0].w},
                                           {taps[1].x, taps[1].y},
                                           {taps[1].z, taps[1].w},
                                           {taps[2].x, 0}};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sums[4] = {};
#pragma unroll
        for (int p = 0; p < 5; ++p) {
          std::uint32_t pixels[4];
          load_matrices(pixels, pixel[i] + tap_bytes[p] + static_cast<std::uint32_t>(chunk * 16));
          WarpMma<T>::multiply_add(sums, pixels, weights[p]);
        }
        a[i][chunk / 2][chunk % 2 * 2] = bits_of(Pair::pack(sums[0], sums[1]));
        a[i][chunk / 2][chunk % 2 * 2 + 1] = bits_of(Pair::pack(sums[2], sums[3]));
      }
    }
  }

  /// The pointwise product for 32 output channels.
  __device__ static void multiply_group(const uint4* weights, const Operand& a, Sums& sums) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4 b0 = weights[step * 64 + lane], b1 = weights[step * 64 + 32 + lane];
      const std::uint32_t b[4][2] = {{b0.x, b0.y}, {b0.z, b0.w}, {b1.x, b1.y}, {b1.z, b1.w}};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (step == 0) sums[i][j][0] = sums[i][j][1] = sums[i][j][2] = sums[i][j][3] = 0.0f;
          WarpMma<T>::multiply_add(sums[i][j], a[i][step], b[j]);
        }
      }
    }
  }

  /// Eight channels of one output, and their codes.
  struct Output {
    std::uint32_t y[4], codes;
  };

  /// Without pooling: a bit an element.
  __device__ static Output finish_pixel(const float (&sums)[4][4], int half, const std::uint32_t (&bias)[4],
                                        bool relu) {
    Output out;
    std::uint32_t open = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      auto v = Pair::add(Pair::pack(sums[j][2 * half], sums[j][2 * half + 1]), Pair::of(bias[j]));
      if (relu) {
        open |= mask_greater(v, Pair::of(0)) & (1u << 2 * j | 1u << (2 * j + 17));
        v = max_of(v, Pair::of(0));
      }
      out.y[j] = bits_of(v);
    }
    out.codes = (open | open >> 16) & 0xffu;
    return out;
  }

  /// With pooling: the window's maximum, and four bits an element. Of a pair's code, the low half belongs to the first
  /// channel: x ^ 5 and y ^ 3 spell the winner's place as one bit of four, x set for the right column, y for the lower
  /// row. The bias moves all four alike and is added to the maximum.
  __device__ static Output finish_window(const Sums& sums, const std::uint32_t (&bias)[4], bool relu) {
    Output out;
    std::uint32_t code[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto p0 = Pair::pack(sums[0][j][0], sums[0][j][1]), p1 = Pair::pack(sums[0][j][2], sums[0][j][3]);
      const auto p2 = Pair::pack(sums[1][j][0], sums[1][j][1]), p3 = Pair::pack(sums[1][j][2], sums[1][j][3]);
      const auto above = max_of(p0, p1), below = max_of(p2, p3);
      auto best = Pair::add(max_of(above, below), Pair::of(bias[j]));
      const std::uint32_t down = mask_greater(below, above);
      const std::uint32_t right = (down & mask_greater(p3, p2)) | (~down & mask_greater(p1, p0));
      code[j] = (right ^ 0x50005u) & (down ^ 0x30003u) & 0xf000fu;
      if (relu) {
        code[j] &= mask_greater(best, Pair::of(0));
        best = max_of(best, Pair::of(0));
      }
      out.y[j] = bits_of(best);
    }
    const std::uint32_t left = code[0] | code[1] << 8, right = code[2] | code[3] << 8;
    out.codes = __byte_perm(left, right, 0x5410) | __byte_perm(left, right, 0x7632) << 4;
    return out;
  }

  __device__ static void store(const Output& out, std::int64_t element, T* y, std::uint8_t* codes) {
    *reinterpret_cast<uint4*>(y + element) = uint4{out.y[0], out.y[1], out.y[2], out.y[3]};
    if (codes == nullptr) return;
    if constexpr (kPool == 2) {
      *reinterpret_cast<std::uint32_t*>(codes + element / 2) = out.codes;
    } else {
      codes[element / 8] = static_cast<std::uint8_t>(out.codes);
    }
  }

  /// Stores 32 channels of the warp's outputs, of which this lane has those from `channel` on.
  __device__ static void finish(const SeparableTiles& t, const SeparableUnit& unit, int first, int channel,
                                const T* bias_values, const Sums& sums, T* y, std::uint8_t* codes) {
    if (channel >= t.out_channels) return;
    const uint4 words = *reinterpret_cast<const uint4*>(bias_values + channel);
    const std::uint32_t bias[4] = {words.x, words.y, words.z, words.w};
    const int row = static_cast<int>(threadIdx.x % 32) / 4;
#pragma unroll
    for (int k = 0; k < kPositions / 8; ++k) {
      const int position = first + 8 * k + row;
      if (position >= unit.positions) return;
      const std::int64_t element = (unit.first_position + position) * t.out_channels + channel;
      if constexpr (kPool == 2) {
        store(finish_window(sums, bias, t.relu != 0), element, y, codes);
      } else {
        store(finish_pixel(sums[k / 2], k % 2, bias, t.relu != 0), element, y, codes);
      }
    }
  }

  /// All outputs of the unit in `tile`.
  __device__ static void compute(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                 const char* shared, T* y, std::uint8_t* codes) {
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const auto* weights = reinterpret_cast<const uint4*>(shared);
    const auto* bias = reinterpret_cast<const T*>(shared + at.bias_at);
    const auto* tile = reinterpret_cast<const T*>(shared + at.tile_at);
    int offset[2 * kSteps];
    if constexpr (kFolded > 0) pair_offsets(at, offset);
    for (int first = warp * kPositions; first < unit.positions; first += kForwardWarps * kPositions) {
      Operand a;
      if constexpr (kFolded > 0) {
        gather_patches(t, at, unit, tile, offset, first, a);
      } else {
        convolve_depthwise(t, at, unit, tile, reinterpret_cast<const uint4*>(shared + at.depthwise_at), first, a);
      }
      for (int group = 0; group < at.groups; ++group) {
        Sums sums;
        multiply_group(weights + group * kSteps * 64, a, sums);
        finish(t, unit, first, group * 32 + lane % 4 * 8, bias, sums, y, codes);
      }
    }
  }

  __device__ static void run(const SeparableTiles& t, const HalfLayout& at, const T* x, const T* depthwise,
                             const T* pointwise, const T* bias, T* y, std::uint8_t* codes) {
    extern __shared__ __align__(128) char shared[];
    T* tile = reinterpret_cast<T*>(shared + at.tile_at);
    // The frame of padding, and what lies behind a row's end, stays zero throughout.
    for (int i = at.tile_at / 16 + static_cast<int>(threadIdx.x); t.framed != 0 && i < at.bytes / 16;
         i += kForwardThreads)
      reinterpret_cast<uint4*>(shared)[i] = uint4{};
    wait_for_kernel_before();
    for (int index = static_cast<int>(blockIdx.x); index < t.units; index += static_cast<int>(gridDim.x)) {
      const SeparableUnit unit = unit_at<kPool>(t, index);
      if (index + static_cast<int>(gridDim.x) >= t.units) let_next_kernel_start();  // this block's last unit
      __syncthreads();             // everyone has done with the tile that was here
      fill(t, at, unit, x, tile);  // the first comes together with the weights
      if (index == static_cast<int>(blockIdx.x)) load_weights(t, at, depthwise, pointwise, bias, shared);
      wait_for_copies();
      __syncthreads();
      compute(t, at, unit, shared, y, codes);
    }
  }
};

}  // namespace bantam::kernels::cuda

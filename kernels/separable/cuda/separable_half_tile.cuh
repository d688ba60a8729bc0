// The separable block's half forward keeps in shared memory both weights, as the lanes of its products hold them,
// and the input rows of a unit.
#pragma once

#include "bantam/kernels/common/cuda/mma/half_pair.cuh"
#include "bantam/kernels/common/cuda/mma/warp_mma.cuh"
#include "bantam/kernels/separable/cuda/separable_tiles.cuh"

namespace bantam::kernels::cuda {

/// Where the parts of a half kernel's shared memory lie, in bytes; sizes of a tile in elements.
struct HalfLayout {
  int groups;        ///< of 32 output channels
  int chunks;        ///< of 8 input channels
  int pixel_stride;  ///< elements between pixels of a tile
  int row_stride;    ///< elements between its rows; even
  int shifted;       ///< folded: elements between the tile and its copy, which is shifted by one element
  int vector;        ///< folded: elements that are copied at a time, 1, 2 or 4
  int depthwise_at, bias_at, tile_at, bytes;
};

/// kFolded: the number of input channels where both weights are multiplied first (1 to 4), or 0. kSteps: the depth of
/// the pointwise GEMM divided by 16.
template <class T, int kFolded, int kSteps>
struct SeparableHalfTile {
  using Pair = HalfPair<T>;

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

  /// Input rows of a unit to the tile and its shifted copy, kVector elements at a time.
  template <int kVector>
  __device__ static void fill_vectors(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit,
                                      const T* x, T* tile) {
    constexpr int kWords = (kVector + 1) / 2;
    const int elements = t.in_w * kFolded, in_row = elements / kVector;
    const T* image = x + unit.image * t.in_h * elements;
    const bool odd = t.pad_left * kFolded % 2 != 0;  // then it is the copy that has whole registers
    T* whole = tile + (odd ? at.shifted + 1 : 0);
    T* split = tile + (odd ? 0 : at.shifted + 1);
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < unit.in_rows * in_row; i += kForwardThreads) {
      const Divided row = t.by_row.divide(static_cast<std::uint32_t>(i));
      const int h = unit.first_in + static_cast<int>(row.quotient), column = static_cast<int>(row.remainder) * kVector;
      const int to = static_cast<int>(row.quotient) * at.row_stride + t.pad_left * kFolded + column;
      const bool inside = h >= 0 && h < t.in_h;
      union {
        std::uint32_t words[kWords];
        uint2 both;
        T v[2 * kWords];
      } loaded{};
      const T* from = image + h * elements + column;
      if constexpr (kVector == 4) {
        if (inside) loaded.both = __ldg(reinterpret_cast<const uint2*>(from));
      } else if constexpr (kVector == 2) {
        if (inside) loaded.words[0] = __ldg(reinterpret_cast<const unsigned int*>(from));
      } else {
        if (inside) loaded.v[0] = *from;
      }
      if constexpr (kVector == 1) {
        tile[to] = loaded.v[0];
        tile[at.shifted + 1 + to] = loaded.v[0];
      } else {
#pragma unroll
        for (int k = 0; k < kWords; ++k) *reinterpret_cast<std::uint32_t*>(whole + to + 2 * k) = loaded.words[k];
        split[to] = loaded.v[0];
        if constexpr (kVector == 4)
          *reinterpret_cast<std::uint32_t*>(split + to + 1) = __funnelshift_r(loaded.words[0], loaded.words[1], 16);
        split[to + kVector - 1] = loaded.v[kVector - 1];
      }
    }
  }

  __device__ static void fill(const SeparableTiles& t, const HalfLayout& at, const SeparableUnit& unit, const T* x,
                              T* tile) {
    if constexpr (kFolded == 0) {
      fill_chunks(t, at, unit, x, tile);
    } else if (at.vector == 4) {
      fill_vectors<4>(t, at, unit, x, tile);
    } else if (at.vector == 2) {
      fill_vectors<2>(t, at, unit, x, tile);
    } else {
      fill_vectors<1>(t, at, unit, x, tile);
    }
  }
};

}  // namespace bantam::kernels::cuda

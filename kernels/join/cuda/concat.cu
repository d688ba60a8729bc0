// Concat and its gradient on CUDA: a thread keeps a few columns, finds once whose they are, and walks down rows.
#include "bantam/kernels/common/cuda/reduce/row_tiles.cuh"
#include "bantam/kernels/join/concat.h"

namespace bantam::kernels::cuda {
namespace {

/// Whose a column is: the last array that begins at it or before it.
__device__ inline int array_of(const JoinShape& s, std::int64_t column) {
  int low = 0, high = s.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (s.begin[middle] <= column)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/// N columns of a thread in row 0, and the elements from one row to the next.
template <class T>
struct Columns {
  const T* from;
  const T* other;   // null: none; rows as in `from`
  const T* addend;  // null: none; rows as in `to`
  T* to;            // null: nobody wants them
  std::int64_t from_step, to_step;
};

/// Narrow arrays to their columns of the wide one.
template <class T>
struct Gather {
  ConcatInputs inputs;
  T* y;

  __device__ Columns<T> at(const JoinShape& s, int i, std::int64_t column) const {
    return {static_cast<const T*>(inputs.data[i]) + column - s.begin[i],
            nullptr,
            nullptr,
            y + column,
            s.width(i),
            s.channels};
  }
};

/// And back.
template <class T>
struct Scatter {
  const T *x, *other;
  SplitOutputs outputs;

  __device__ Columns<T> at(const JoinShape& s, int i, std::int64_t column) const {
    if (outputs.data[i] == nullptr) return {};
    const std::int64_t c = column - s.begin[i];
    const T* addend = static_cast<const T*>(outputs.addend[i]);
    return {x + column,
            other != nullptr ? other + column : nullptr,
            addend != nullptr ? addend + c : nullptr,
            static_cast<T*>(outputs.data[i]) + c,
            s.channels,
            s.width(i)};
  }
};

template <int N, class T>
__device__ inline Pack<T, N> sum_of(const Pack<T, N>& a, const Pack<T, N>& b) {
  float sum[N], more[N];
  unpack<N>(a, sum);
  unpack<N>(b, more);
  Pack<T, N> result;
#pragma unroll
  for (int n = 0; n < N; ++n) result.v[n] = from_float<T>(sum[n] + more[n]);
  return result;
}

/// A block does `rounds` tiles of kRowsAtOnce·blockDim.y rows.
template <class T, int N, class Move>
__global__ void __launch_bounds__(kTileThreads)
    join_kernel(const __grid_constant__ JoinShape s, std::int64_t rounds, const __grid_constant__ Move move) {
  const std::int64_t column = s.begin[0] + (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (column >= s.begin[s.count]) return;
  const Columns<T> at = move.at(s, array_of(s, column), column);
  if (at.to == nullptr) return;
  const std::int64_t tile = std::int64_t{kRowsAtOnce} * blockDim.y, last = s.rows - 1;
  const std::int64_t first = blockIdx.y * rounds * tile, end = min(s.rows, first + rounds * tile);
  for (std::int64_t r = first + threadIdx.y; r < end; r += tile) {
    Pack<T, N> moved[kRowsAtOnce], other[kRowsAtOnce], addend[kRowsAtOnce];
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const std::int64_t row = min(r + k * static_cast<std::int64_t>(blockDim.y), last);
      moved[k] = load_pack<N>(at.from + row * at.from_step);
      if (at.other != nullptr) other[k] = load_pack<N>(at.other + row * at.from_step);
      if (at.addend != nullptr) addend[k] = load_pack<N>(at.addend + row * at.to_step);
    }
#pragma unroll
    for (int k = 0; k < kRowsAtOnce; ++k) {
      const std::int64_t row = r + k * static_cast<std::int64_t>(blockDim.y);
      if (row >= s.rows) break;
      if (at.other != nullptr) moved[k] = sum_of<N>(moved[k], other[k]);
      if (at.addend != nullptr) moved[k] = sum_of<N>(moved[k], addend[k]);
      *reinterpret_cast<Pack<T, N>*>(at.to + row * at.to_step) = moved[k];
    }
  }
}

/// The largest N of 16 bytes of T, 4 and 1 of which every array has whole packs, at aligned addresses.
template <class T, class Call>
void with_join_pack(const JoinShape& s, const SplitInput& wide, const void* const* narrow, const void* const* addends,
                    Call&& call) {
  const auto fits = [&](auto n) {
    constexpr int kCount = decltype(n)::value;
    bool whole = s.channels % kCount == 0 && packs_aligned<T, kCount>(wide.x, wide.other);
    for (int i = 0; i < s.count; ++i)
      whole = whole && s.begin[i] % kCount == 0 && s.begin[i + 1] % kCount == 0 &&
              packs_aligned<T, kCount>(narrow[i], addends != nullptr ? addends[i] : nullptr);
    return whole;
  };
  constexpr int kMost = kVectorLanes<T>;
  if (fits(std::integral_constant<int, kMost>{})) return call(std::integral_constant<int, kMost>{});
  if (fits(std::integral_constant<int, 4>{})) return call(std::integral_constant<int, 4>{});
  call(std::integral_constant<int, 1>{});
}

template <class T, int N, class Move>
void launch(const Exec& exec, const JoinShape& s, const Move& move) {
  const std::int64_t packs = (s.begin[s.count] - s.begin[0]) / N;
  if (s.rows <= 0 || packs <= 0) return;
  const dim3 block = tile_block(packs);
  const unsigned columns = blocks_for(packs, block.x);
  const std::int64_t most = std::clamp<std::int64_t>(kMapBlocks / columns, 1, kMaxGridY);
  const std::int64_t tiles = blocks_for(s.rows, std::int64_t{kRowsAtOnce} * block.y);
  const std::int64_t rounds = blocks_for(tiles, most);
  join_kernel<T, N><<<dim3(columns, blocks_for(tiles, rounds)), block, 0, stream_of(exec)>>>(s, rounds, move);
  check_launch("join_kernel");
}

}  // namespace

void concat(const Exec& exec, const JoinShape& s, DType dtype, const ConcatInputs& inputs, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_join_pack<T>(s, {y}, inputs.data, nullptr, [&](auto n) {
      launch<T, decltype(n)::value>(exec, s, Gather<T>{inputs, static_cast<T*>(y)});
    });
  });
}

void split(const Exec& exec, const JoinShape& s, DType dtype, const SplitInput& input, const SplitOutputs& outputs) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_join_pack<T>(s, input, outputs.data, outputs.addend, [&](auto n) {
      launch<T, decltype(n)::value>(
          exec, s, Scatter<T>{static_cast<const T*>(input.x), static_cast<const T*>(input.other), outputs});
    });
  });
}

}  // namespace bantam::kernels::cuda

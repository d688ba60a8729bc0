// Concat and its gradient on the CPU: rows in parallel, whole parts of a row at once.
#include "bantam/kernels/join/concat.h"

#include <algorithm>
#include <cstring>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/cpu/float8.h"

namespace bantam::kernels::cpu {
namespace {

std::int64_t rows_at_once(const JoinShape& s) {
  return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, s.begin[s.count] - s.begin[0]));
}

template <class T>
void add_row(const T* x, const T* addend, T* to, std::int64_t width) {
  for (std::int64_t c = 0; c < width; c += kLanes) {
    const std::int64_t lanes = std::min(kLanes, width - c);
    store_lanes(to + c, lanes, load_lanes(x + c, lanes) + load_lanes(addend + c, lanes));
  }
}

/// A part's row of x, plus the other's, plus the addend's; `other` and `addend` may be null.
template <class T>
void split_row(const T* x, const T* other, const T* addend, T* to, std::int64_t width) {
  constexpr std::int64_t kBlock = 512;
  if (other == nullptr && addend == nullptr)
    std::memcpy(static_cast<void*>(to), x, static_cast<std::size_t>(width) * sizeof(T));
  else if (other == nullptr || addend == nullptr)
    add_row(x, other != nullptr ? other : addend, to, width);
  else
    for (std::int64_t c = 0; c < width; c += kBlock) {
      T sum[kBlock];  // `to` may be the addend
      const std::int64_t count = std::min(kBlock, width - c);
      add_row(x + c, other + c, sum, count);
      add_row(sum, addend + c, to + c, count);
    }
}

}  // namespace

void concat(const Exec& exec, const JoinShape& s, DType dtype, const ConcatInputs& inputs, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(s.rows, rows_at_once(s), exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        for (int i = 0; i < s.count; ++i)
          std::memcpy(static_cast<void*>(static_cast<T*>(y) + r * s.channels + s.begin[i]),
                      static_cast<const T*>(inputs.data[i]) + r * s.width(i),
                      static_cast<std::size_t>(s.width(i)) * sizeof(T));
    });
  });
}

void split(const Exec& exec, const JoinShape& s, DType dtype, const SplitInput& input, const SplitOutputs& outputs) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(s.rows, rows_at_once(s), exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r)
        for (int i = 0; i < s.count; ++i) {
          if (outputs.data[i] == nullptr) continue;
          const std::int64_t width = s.width(i), at = r * width, from = r * s.channels + s.begin[i];
          const T *other = static_cast<const T*>(input.other), *addend = static_cast<const T*>(outputs.addend[i]);
          split_row(static_cast<const T*>(input.x) + from, other != nullptr ? other + from : nullptr,
                    addend != nullptr ? addend + at : nullptr, static_cast<T*>(outputs.data[i]) + at, width);
        }
    });
  });
}

}  // namespace bantam::kernels::cpu

// Masked activations on the CPU: eight elements make a byte of the mask.
#include "bantam/kernels/elementwise/masked_activation.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kElementsOfPart = 32768;  // a multiple of eight: no byte of the mask has two writers

/// Calls step(offset, lanes) for every eight elements, in parallel.
template <class Step>
void for_each_eight(const Exec& exec, std::int64_t count, Step&& step) {
  parallel_ranges(count, kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) step(i, kLanes);
    if (i < end) step(i, end - i);
  });
}

}  // namespace

void masked_activation_forward(const Exec& exec, ActivationFunction f, std::int64_t count, DType dtype, const void* a,
                               const void* b, void* y, std::uint8_t* mask) {
  const Piecewise8 apply{PiecewiseLinear::of(f)};
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *left = static_cast<const T*>(a), *right = static_cast<const T*>(b);
    T* to = static_cast<T*>(y);
    for_each_eight(exec, count, [=](std::int64_t i, std::int64_t lanes) {
      Float8 x = load_lanes(left + i, lanes);
      if (right) x += load_lanes(right + i, lanes);
      const unsigned valid = (1u << lanes) - 1u;
      if (mask) mask[i / kLanes] = static_cast<std::uint8_t>(to_bits(apply.rises(x)) & valid);
      store_lanes(to + i, lanes, apply(x));
    });
  });
}

void masked_activation_grad(const Exec& exec, ActivationFunction f, std::int64_t count, DType dtype,
                            const std::uint8_t* mask, const void* dy, void* dx) {
  const Float8 below = broadcast8(PiecewiseLinear::of(f).below);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(dy);
    T* to = static_cast<T*>(dx);
    for_each_eight(exec, count, [=](std::int64_t i, std::int64_t lanes) {
      const Float8 slope = from_bits(mask[i / kLanes]) ? broadcast8(1.0f) : below;
      store_lanes(to + i, lanes, load_lanes(from + i, lanes) * slope);
    });
  });
}

}  // namespace bantam::kernels::cpu

// Softmax on the CPU: rows in parallel; half types are read twice rather than widened to memory.

// Changes no value, only exception flags, which nobody reads; with it GCC vectorises selects.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "bantam/kernels/head/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/common/cpu/vector_math.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kElementsOfPart = 32768;

Float8 exp8(Float8 x) {
  float values[kLanes];
  store8(values, x);
#pragma omp simd
  for (std::int64_t i = 0; i < kLanes; ++i) values[i] = exp_bounded(values[i]);
  return load8(values);
}

/// Calls step(at, lanes) for a row's elements, eight at a time.
template <class Step>
[[gnu::always_inline]] inline void for_lanes(std::int64_t columns, Step&& step) {
  std::int64_t at = 0;
  for (; at + kLanes <= columns; at += kLanes) step(at, kLanes);
  if (at < columns) step(at, columns - at);
}

/// Σ of the first `lanes`, in lane order.
float sum_lanes(Float8 v, std::int64_t lanes = kLanes) {
  float sum = 0;
  for (std::int64_t i = 0; i < lanes; ++i) sum += v[i];
  return sum;
}

template <class T>
float top_of(const T* x, std::int64_t columns) {
  Float8 top = broadcast8(-std::numeric_limits<float>::infinity());
  float last = top[0];
  for_lanes(columns, [&](std::int64_t at, std::int64_t lanes) {
    const Float8 v = load_lanes(x + at, lanes);
    if (lanes == kLanes)
      top = v > top ? v : top;
    else
      for (std::int64_t i = 0; i < lanes; ++i) last = std::max(last, v[i]);
  });
  for (std::int64_t i = 0; i < kLanes; ++i) last = std::max(last, top[i]);
  return last;
}

template <class T>
void forward_row(const T* x, std::int64_t columns, T* y) {
  const Float8 top = broadcast8(top_of(x, columns));
  Float8 sums = {};
  float last = 0;
  for_lanes(columns, [&](std::int64_t at, std::int64_t lanes) {
    const Float8 e = exp8(load_lanes(x + at, lanes) - top);
    if (lanes == kLanes)
      sums += e;
    else
      last = sum_lanes(e, lanes);
  });
  const float inverse = 1.0f / (sum_lanes(sums) + last);
  for_lanes(columns, [&](std::int64_t at, std::int64_t lanes) {
    store_lanes(y + at, lanes, exp8(load_lanes(x + at, lanes) - top) * inverse);
  });
}

template <class T>
void grad_row(const T* y, const T* dy, std::int64_t columns, T* dx) {
  Float8 sums = {};  // lanes past the end are zeros
  for_lanes(columns, [&](std::int64_t at, std::int64_t lanes) {
    sums += load_lanes(y + at, lanes) * load_lanes(dy + at, lanes);
  });
  const float sum = sum_lanes(sums);
  for_lanes(columns, [&](std::int64_t at, std::int64_t lanes) {
    store_lanes(dx + at, lanes, load_lanes(y + at, lanes) * (load_lanes(dy + at, lanes) - sum));
  });
}

/// Calls work(tag, offset) for each row, with its type.
template <class Work>
void for_rows(const Exec& exec, std::int64_t rows, std::int64_t columns, DType dtype, Work&& work) {
  if (columns <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    const std::int64_t grain = std::max<std::int64_t>(1, kElementsOfPart / columns);
    parallel_ranges(rows, grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) work(tag, r * columns);
    });
  });
}

}  // namespace

void softmax_forward(const Exec& exec, std::int64_t rows, std::int64_t columns, DType dtype, const void* x, void* y) {
  for_rows(exec, rows, columns, dtype, [&](auto tag, std::int64_t at) {
    using T = typename decltype(tag)::type;
    forward_row(static_cast<const T*>(x) + at, columns, static_cast<T*>(y) + at);
  });
}

void softmax_grad(const Exec& exec, std::int64_t rows, std::int64_t columns, DType dtype, const void* y, const void* dy,
                  void* dx) {
  for_rows(exec, rows, columns, dtype, [&](auto tag, std::int64_t at) {
    using T = typename decltype(tag)::type;
    grad_row(static_cast<const T*>(y) + at, static_cast<const T*>(dy) + at, columns, static_cast<T*>(dx) + at);
  });
}

}  // namespace bantam::kernels::cpu

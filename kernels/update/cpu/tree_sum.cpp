// Sums of a tree over replicas on the CPU: blocks that stay in the first-level cache, so that the result may lie on a
// term.
#include "bantam/kernels/update/tree_sum.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = 1024, kGrain = 16 * kBlock;

template <class T>
void add_block(const TreeTerms& terms, T factor, T* out, std::int64_t begin, std::int64_t count) {
  T sum[kBlock];
  std::copy_n(static_cast<const T*>(terms.terms[0]) + begin, count, sum);
  for (int term = 1; term < terms.count; ++term) {
    const T* const x = static_cast<const T*>(terms.terms[term]) + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) sum[i] = x[i] + sum[i];
  }
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) out[begin + i] = factor * sum[i];
}

template <class T>
void add(const Exec& exec, std::int64_t elements, const TreeTerms& terms, T factor, T* out) {
  parallel_ranges(elements, kGrain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kBlock) add_block(terms, factor, out, begin, std::min(kBlock, end - begin));
  });
}

/// float16 rounds each term and each sum; a block of these is exact in float32, so `out` may be of either type.
template <class Out>
void add_narrow_block(const TreeTerms& terms, Out* out, std::int64_t begin, std::int64_t count) {
  float sum[kBlock], term[kBlock];
  Half rounded[kBlock];
  const auto round = [&](const float* from, float* to) {
    narrow(from, rounded, count);
    widen(rounded, to, count);
  };
  round(static_cast<const float*>(terms.terms[0]) + begin, sum);
  for (int i = 1; i < terms.count; ++i) {
    round(static_cast<const float*>(terms.terms[i]) + begin, term);
#pragma omp simd
    for (std::int64_t k = 0; k < count; ++k) term[k] += sum[k];
    round(term, sum);
  }
  narrow(sum, out + begin, count);
}

}  // namespace

void tree_sum(const Exec& exec, DType dtype, std::int64_t elements, const TreeTerms& terms, double factor, void* out) {
  check_tree_sum(dtype, terms);
  if (dtype == DType::float32)
    add(exec, elements, terms, static_cast<float>(factor), static_cast<float*>(out));
  else
    add(exec, elements, terms, factor, static_cast<double*>(out));
}

void narrow_tree_sum(const Exec& exec, std::int64_t elements, const TreeTerms& terms, DType to, void* out) {
  check_narrow_tree_sum(terms, to);
  dispatch_floating(to, [&](auto tag) {
    using Out = typename decltype(tag)::type;
    parallel_ranges(elements, kGrain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; begin += kBlock)
        add_narrow_block(terms, static_cast<Out*>(out), begin, std::min(kBlock, end - begin));
    });
  });
}

void store_at_slot(const Exec&, std::int64_t count, const double* sums, const std::int32_t* slot, double* ring) {
  std::copy_n(sums, count, ring + *slot * count);
}

}  // namespace bantam::kernels::cpu

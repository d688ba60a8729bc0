// Sums of a tree over replicas on CUDA: all terms of 16 bytes are loaded before the first is added, so that the pass
// takes what its bytes take.
#include "bantam/kernels/common/cuda/early_launch.cuh"
#include "bantam/kernels/common/cuda/vectorized.cuh"
#include "bantam/kernels/update/tree_sum.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// 16 bytes past the first-level cache, as kernels that start early read.
template <class T>
__device__ Pack<T, kVectorLanes<T>> load_pack(const void* values, std::int64_t at) {
  const uint4 bits = __ldcg(static_cast<const uint4*>(values) + at);
  Pack<T, kVectorLanes<T>> pack;
  memcpy(&pack, &bits, sizeof(bits));
  return pack;
}

/// kTerms: room for so many, of which terms.count are there.
template <class T, int kTerms>
__device__ void add_pack(const TreeTerms& terms, T factor, T* out, std::int64_t at) {
  constexpr int kLanes = kVectorLanes<T>;
  Pack<T, kLanes> x[kTerms];
#pragma unroll
  for (int term = 0; term < kTerms; ++term)
    if (term < terms.count) x[term] = load_pack<T>(terms.terms[term], at);
#pragma unroll
  for (int term = 1; term < kTerms; ++term) {
    if (term < terms.count) {
#pragma unroll
      for (int k = 0; k < kLanes; ++k) x[0].v[k] = x[term].v[k] + x[0].v[k];
    }
  }
#pragma unroll
  for (int k = 0; k < kLanes; ++k) x[0].v[k] = factor * x[0].v[k];
  reinterpret_cast<Pack<T, kLanes>*>(out)[at] = x[0];
}

/// The elements after the last whole pack.
template <class T>
__device__ void add_rest(const TreeTerms& terms, T factor, T* out, std::int64_t i) {
  T sum = __ldcg(static_cast<const T*>(terms.terms[0]) + i);
  for (int term = 1; term < terms.count; ++term) sum = __ldcg(static_cast<const T*>(terms.terms[term]) + i) + sum;
  out[i] = factor * sum;
}

template <class T, int kTerms>
__global__ void __launch_bounds__(kThreads) tree_sum_kernel(std::int64_t elements, TreeTerms terms, T factor, T* out) {
  wait_then_let_next_start();
  const std::int64_t packs = elements / kVectorLanes<T>;
  for (std::int64_t at = grid_thread(); at < packs; at += grid_threads()) add_pack<T, kTerms>(terms, factor, out, at);
  const std::int64_t rest = packs * kVectorLanes<T> + grid_thread();
  if (rest < elements) add_rest(terms, factor, out, rest);
}

template <class T, int kTerms>
void launch(const Exec& exec, std::int64_t elements, const TreeTerms& terms, double factor, void* out) {
  const unsigned blocks = stride_blocks((elements + kVectorLanes<T> - 1) / kVectorLanes<T>, kThreads);
  launch_early(exec, tree_sum_kernel<T, kTerms>, dim3(blocks), dim3(kThreads), elements, terms, static_cast<T>(factor),
               static_cast<T*>(out));
}

template <class T>
void launch(const Exec& exec, std::int64_t elements, const TreeTerms& terms, double factor, void* out) {
  if (terms.count <= 4) return launch<T, 4>(exec, elements, terms, factor, out);
  launch<T, TreeTerms::kMost>(exec, elements, terms, factor, out);
}

/// Four elements: 16 bytes of each term, of which each, and each sum, is rounded to float16.
template <class Out>
__global__ void __launch_bounds__(kThreads) narrow_tree_sum_kernel(std::int64_t elements, TreeTerms terms, Out* out) {
  constexpr int kLanes = kVectorLanes<float>;
  wait_then_let_next_start();
  const std::int64_t packs = elements / kLanes;
  for (std::int64_t at = grid_thread(); at < packs; at += grid_threads()) {
    Pack<float, kLanes> x[TreeTerms::kMost];
#pragma unroll
    for (int term = 0; term < TreeTerms::kMost; ++term)
      if (term < terms.count) x[term] = load_pack<float>(terms.terms[term], at);
    Pack<Out, kLanes> root;
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      __half sum = __float2half_rn(x[0].v[k]);
#pragma unroll
      for (int term = 1; term < TreeTerms::kMost; ++term)
        if (term < terms.count) sum = __hadd_rn(__float2half_rn(x[term].v[k]), sum);
      root.v[k] = from_float<Out>(__half2float(sum));
    }
    reinterpret_cast<Pack<Out, kLanes>*>(out)[at] = root;
  }
  const std::int64_t rest = packs * kLanes + grid_thread();
  if (rest >= elements) return;
  __half sum = __float2half_rn(__ldcg(static_cast<const float*>(terms.terms[0]) + rest));
  for (int term = 1; term < terms.count; ++term)
    sum = __hadd_rn(__float2half_rn(__ldcg(static_cast<const float*>(terms.terms[term]) + rest)), sum);
  out[rest] = from_float<Out>(__half2float(sum));
}

__global__ void store_at_slot_kernel(std::int64_t count, const double* sums, const std::int32_t* slot, double* ring) {
  wait_then_let_next_start();
  const std::int64_t first = __ldcg(slot) * count;
  for (std::int64_t i = grid_thread(); i < count; i += grid_threads()) ring[first + i] = __ldcg(sums + i);
}

}  // namespace

void tree_sum(const Exec& exec, DType dtype, std::int64_t elements, const TreeTerms& terms, double factor, void* out) {
  check_tree_sum(dtype, terms);
  if (elements <= 0) return;
  if (dtype == DType::float32)
    launch<float>(exec, elements, terms, factor, out);
  else
    launch<double>(exec, elements, terms, factor, out);
}

void narrow_tree_sum(const Exec& exec, std::int64_t elements, const TreeTerms& terms, DType to, void* out) {
  check_narrow_tree_sum(terms, to);
  if (elements <= 0) return;
  const unsigned blocks = stride_blocks((elements + kVectorLanes<float> - 1) / kVectorLanes<float>, kThreads);
  if (to == DType::float16)
    launch_early(exec, narrow_tree_sum_kernel<__half>, dim3(blocks), dim3(kThreads), elements, terms,
                 static_cast<__half*>(out));
  else
    launch_early(exec, narrow_tree_sum_kernel<float>, dim3(blocks), dim3(kThreads), elements, terms,
                 static_cast<float*>(out));
}

void store_at_slot(const Exec& exec, std::int64_t count, const double* sums, const std::int32_t* slot, double* ring) {
  if (count <= 0) return;
  launch_early(exec, store_at_slot_kernel, dim3(stride_blocks(count, kThreads)), dim3(kThreads), count, sums, slot,
               ring);
}

}  // namespace bantam::kernels::cuda

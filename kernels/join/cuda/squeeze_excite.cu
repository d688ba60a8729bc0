// Squeeze-and-excitation's gate on CUDA: one kernel forward; backward one for the samples and one for the weights.
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"
#include "bantam/kernels/join/cuda/sample_products.cuh"
#include "bantam/kernels/join/squeeze_excite.h"
#include "bantam/kernels/join/squeeze_excite_plan.h"

namespace bantam::kernels::cuda {
namespace {

/// An activation chosen as the kernel runs: the branch is the same for all threads, and there are few values.
struct AnyActivation {
  ActivationFunction f;

  __device__ float operator()(float x) const {
    return is_piecewise(f.kind) ? PiecewiseLinear::of(f)(x) : is_hard() ? hard()(x) : Smooth{f.kind, f.slope}(x);
  }
  __device__ float derivative(float x) const {
    return is_piecewise(f.kind) ? PiecewiseLinear::of(f).derivative(x)
           : is_hard()          ? hard().derivative(x)
                                : Smooth{f.kind, f.slope}.derivative(x);
  }

 private:
  __device__ bool is_hard() const { return f.kind == Activation::hard_swish || f.kind == Activation::hard_sigmoid; }
  __device__ Hard hard() const { return {f.kind == Activation::hard_swish}; }
};

struct Extents {
  std::int64_t samples, channels, units;
  int at_once;  // samples of a block
};

/// Rows of a (samples, width) array that are a block's.
struct BlockRows {
  std::int64_t first;
  int count;

  template <class V>
  __device__ V* of(V* array, std::int64_t width) const {
    return array + first * width;
  }
};

__device__ inline BlockRows block_rows(const Extents& e) {
  const std::int64_t first = std::int64_t{blockIdx.x} * e.at_once;
  return {first, static_cast<int>(min(std::int64_t{e.at_once}, e.samples - first))};
}

template <class T>
struct ForwardWork {
  const float* mean;
  const T *reduce, *reduce_bias, *expand, *expand_bias;
  SqueezeExciteValues to;
  AnyActivation activation, gate;
};

/// `values` and f of them, in place of the sums that a thread block wrote: each by one thread.
__device__ inline void activate_rows(const AnyActivation& f, const float* values, float* to, std::int64_t count) {
  for (std::int64_t i = threadIdx.x; i < count; i += kProductThreads) to[i] = f(values[i]);
}

template <class T, int N>
__global__ void __launch_bounds__(kProductThreads) gate_kernel(Extents e, const __grid_constant__ ForwardWork<T> work) {
  __shared__ ProductScratch scratch;
  const BlockRows rows = block_rows(e);
  float *reduced = rows.of(work.to.reduced, e.units), *hidden = rows.of(work.to.hidden, e.units);
  float *expanded = rows.of(work.to.expanded, e.channels), *factor = rows.of(work.to.factor, e.channels);
  row_products<T, N>(scratch, {work.reduce, e.units, e.channels}, work.reduce_bias, rows.of(work.mean, e.channels),
                     reduced, rows.count);
  activate_rows(work.activation, reduced, hidden, rows.count * e.units);
  __syncthreads();
  row_products<T, N>(scratch, {work.expand, e.channels, e.units}, work.expand_bias, hidden, expanded, rows.count);
  activate_rows(work.gate, expanded, factor, rows.count * e.channels);
}

template <class T>
struct BackwardWork {
  SqueezeExciteInputs inputs;
  const T *reduce, *expand;
  float *dexpanded, *dreduced, *dx_offset;
  AnyActivation activation, gate;
  float share;  // 1 / positions
};

template <class T, int N>
__global__ void __launch_bounds__(kProductThreads)
    gate_grad_kernel(Extents e, const __grid_constant__ BackwardWork<T> work) {
  __shared__ ProductScratch scratch;
  const BlockRows rows = block_rows(e);
  float *dexpanded = rows.of(work.dexpanded, e.channels), *dreduced = rows.of(work.dreduced, e.units);
  const float *expanded = rows.of(work.inputs.expanded, e.channels), *reduced = rows.of(work.inputs.reduced, e.units);
  const float* dfactor = rows.of(work.inputs.dfactor, e.channels);
  for (std::int64_t i = threadIdx.x; i < rows.count * e.channels; i += kProductThreads)
    dexpanded[i] = dfactor[i] * work.gate.derivative(expanded[i]);
  __syncthreads();
  column_products<T, N>(scratch, {work.expand, e.channels, e.units}, dexpanded, rows.count,
                        [&](int s, std::int64_t u, float dh) {
                          dreduced[s * e.units + u] = dh * work.activation.derivative(reduced[s * e.units + u]);
                        });
  __syncthreads();
  float* dx_offset = rows.of(work.dx_offset, e.channels);
  column_products<T, N>(scratch, {work.reduce, e.units, e.channels}, dreduced, rows.count,
                        [&](int s, std::int64_t c, float dm) { dx_offset[s * e.channels + c] = dm * work.share; });
}

/// Samples of a block: enough blocks to fill the reference GPU first, then fewer reads of the weights.
Extents extents(const SqueezeExciteShape& s) {
  const std::int64_t each = (s.samples + kReferenceMultiprocessors - 1) / kReferenceMultiprocessors;
  return {s.samples, s.channels, s.units, static_cast<int>(std::min<std::int64_t>(each, kMostSamples))};
}

/// Calls call(std::integral_constant<int, N>): N values of a row of weights at once, 4 or 1.
template <class T, class Call>
void with_weight_pack(const SqueezeExciteShape& s, const SqueezeExciteWeights& weights, Call&& call) {
  const bool packs = s.channels % 4 == 0 && s.units % 4 == 0 && packs_aligned<T, 4>(weights.reduce, weights.expand);
  if (packs) return call(std::integral_constant<int, 4>{});
  call(std::integral_constant<int, 1>{});
}

}  // namespace

void squeeze_excite_forward(const Exec& exec, const SqueezeExciteShape& s, const float* mean,
                            const SqueezeExciteWeights& weights, const SqueezeExciteValues& to) {
  if (s.samples <= 0) return;
  const Extents e = extents(s);
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const ForwardWork<T> work{mean,
                              static_cast<const T*>(weights.reduce),
                              static_cast<const T*>(weights.reduce_bias),
                              static_cast<const T*>(weights.expand),
                              static_cast<const T*>(weights.expand_bias),
                              to,
                              {s.activation},
                              {s.gate}};
    with_weight_pack<T>(s, weights, [&](auto n) {
      gate_kernel<T, decltype(n)::value>
          <<<blocks_for(s.samples, e.at_once), kProductThreads, 0, stream_of(exec)>>>(e, work);
      check_launch("gate_kernel");
    });
  });
}

void squeeze_excite_grad(const Exec& exec, const SqueezeExciteShape& s, const SqueezeExciteInputs& inputs,
                         const SqueezeExciteGradients& to, Workspace workspace) {
  require_workspace(workspace, squeeze_excite_workspace_bytes(s), "squeeze_excite_grad");
  const SqueezeExciteScratch scratch(s, workspace);
  const Extents e = extents(s);
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(s.positions, 1));
  if (s.samples > 0)
    dispatch_floating(s.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const BackwardWork<T> work{inputs,
                                 static_cast<const T*>(inputs.weights.reduce),
                                 static_cast<const T*>(inputs.weights.expand),
                                 scratch.dexpanded,
                                 scratch.dreduced,
                                 to.dx_offset,
                                 {s.activation},
                                 {s.gate},
                                 share};
      with_weight_pack<T>(s, inputs.weights, [&](auto n) {
        gate_grad_kernel<T, decltype(n)::value>
            <<<blocks_for(s.samples, e.at_once), kProductThreads, 0, stream_of(exec)>>>(e, work);
        check_launch("gate_grad_kernel");
      });
    });
  sum_outer_products(exec, s.samples,
                     {scratch.dexpanded, inputs.hidden, s.channels, s.units, to.expand, to.expand_bias},
                     {scratch.dreduced, inputs.mean, s.units, s.channels, to.reduce, to.reduce_bias});
}

}  // namespace bantam::kernels::cuda

// Squeeze-and-excitation's gate on the CPU: samples in parallel, then rows of the weights' gradients.
#include "bantam/kernels/join/squeeze_excite.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/join/squeeze_excite_plan.h"

namespace bantam::kernels::cpu {
namespace {

/// Σ w[i]·v[i], in an order that depends on `n` alone.
template <class T>
float dot(const T* w, const float* v, std::int64_t n) {
  Float8 sum[2] = {};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t lanes = std::min(kLanes, n - i);
    sum[i / kLanes % 2] += load_lanes(w + i, lanes) * load_lanes(v + i, lanes);
  }
  float total = 0;
  const Float8 both = sum[0] + sum[1];
  for (int lane = 0; lane < kLanes; ++lane) total += both[lane];
  return total;
}

/// y[0..n) += factor·w[0..n).
template <class T>
void add_times(float factor, const T* w, float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t lanes = std::min(kLanes, n - i);
    store_lanes(y + i, lanes, load_lanes(y + i, lanes) + factor * load_lanes(w + i, lanes));
  }
}

/// y = f(x).
void apply(const ActivationFunction& f, const float* x, float* y, std::int64_t n) {
  with_activation8<float>(f, [&](auto f8) {
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, n - i);
      store_lanes(y + i, lanes, f8(load_lanes(x + i, lanes)));
    }
  });
}

/// dx = dy·f'(x); dx may be dy.
void apply_derivative(const ActivationFunction& f, const float* x, const float* dy, float* dx, std::int64_t n) {
  with_activation8<float>(f, [&](auto f8) {
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, n - i);
      store_lanes(dx + i, lanes, load_lanes(dy + i, lanes) * f8.derivative(load_lanes(x + i, lanes)));
    }
  });
}

/// Samples of a part of the work.
std::int64_t samples_at_once(const SqueezeExciteShape& s) {
  return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, s.channels * s.units));
}

/// y[r] = w[r, ·]·x + b[r].
template <class T>
void dense(const T* w, const T* b, const float* x, float* y, std::int64_t rows, std::int64_t depth) {
  for (std::int64_t r = 0; r < rows; ++r) y[r] = dot(w + r * depth, x, depth) + static_cast<float>(b[r]);
}

/// dx[k] = Σ_r dy[r]·w[r, k].
template <class T>
void dense_grad(const T* w, const float* dy, float* dx, std::int64_t rows, std::int64_t depth) {
  std::fill(dx, dx + depth, 0.0f);
  for (std::int64_t r = 0; r < rows; ++r) add_times(dy[r], w + r * depth, dx, depth);
}

/// dw[r, k] = Σ_n dy[n, r]·x[n, k] and db[r] = Σ_n dy[n, r] for one row.
struct WeightRow {
  std::int64_t samples, rows, depth;
  const float *dy, *x;

  void write(std::int64_t r, const ParameterTarget& dw, const ParameterTarget& db) const {
    constexpr std::int64_t kChunk = 256;
    if (db.data != nullptr) {
      float sum = 0;
      for (std::int64_t n = 0; n < samples; ++n) sum += dy[n * rows + r];
      db.data[r] = db.accumulate ? db.data[r] + sum : sum;
    }
    for (std::int64_t k = 0; dw.data != nullptr && k < depth; k += kChunk) {
      const std::int64_t chunk = std::min(kChunk, depth - k);
      float sums[kChunk] = {};
      for (std::int64_t n = 0; n < samples; ++n) add_times(dy[n * rows + r], x + n * depth + k, sums, chunk);
      float* to = dw.data + r * depth + k;
      for (std::int64_t i = 0; i < chunk; ++i) to[i] = dw.accumulate ? to[i] + sums[i] : sums[i];
    }
  }
};

void weight_gradients(const Exec& exec, const WeightRow& row, const ParameterTarget& dw, const ParameterTarget& db) {
  const std::int64_t grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, row.samples * row.depth));
  parallel_ranges(row.rows, grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row.write(r, dw, db);
  });
}

}  // namespace

void squeeze_excite_forward(const Exec& exec, const SqueezeExciteShape& s, const float* mean,
                            const SqueezeExciteWeights& weights, const SqueezeExciteValues& to) {
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(s.samples, samples_at_once(s), exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        float *reduced = to.reduced + n * s.units, *hidden = to.hidden + n * s.units;
        float *expanded = to.expanded + n * s.channels, *factor = to.factor + n * s.channels;
        dense(static_cast<const T*>(weights.reduce), static_cast<const T*>(weights.reduce_bias), mean + n * s.channels,
              reduced, s.units, s.channels);
        apply(s.activation, reduced, hidden, s.units);
        dense(static_cast<const T*>(weights.expand), static_cast<const T*>(weights.expand_bias), hidden, expanded,
              s.channels, s.units);
        apply(s.gate, expanded, factor, s.channels);
      }
    });
  });
}

void squeeze_excite_grad(const Exec& exec, const SqueezeExciteShape& s, const SqueezeExciteInputs& inputs,
                         const SqueezeExciteGradients& to, Workspace workspace) {
  require_workspace(workspace, squeeze_excite_workspace_bytes(s), "squeeze_excite_grad");
  const SqueezeExciteScratch scratch(s, workspace);
  const float share = 1.0f / static_cast<float>(std::max<std::int64_t>(s.positions, 1));
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(s.samples, samples_at_once(s), exec.threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) {
        float *dexpanded = scratch.dexpanded + n * s.channels, *dreduced = scratch.dreduced + n * s.units;
        float* offset = to.dx_offset + n * s.channels;
        apply_derivative(s.gate, inputs.expanded + n * s.channels, inputs.dfactor + n * s.channels, dexpanded,
                         s.channels);
        dense_grad(static_cast<const T*>(inputs.weights.expand), dexpanded, dreduced, s.channels, s.units);
        apply_derivative(s.activation, inputs.reduced + n * s.units, dreduced, dreduced, s.units);
        dense_grad(static_cast<const T*>(inputs.weights.reduce), dreduced, offset, s.units, s.channels);
        for (std::int64_t c = 0; c < s.channels; ++c) offset[c] *= share;
      }
    });
  });
  weight_gradients(exec, {s.samples, s.channels, s.units, scratch.dexpanded, inputs.hidden}, to.expand, to.expand_bias);
  weight_gradients(exec, {s.samples, s.units, s.channels, scratch.dreduced, inputs.mean}, to.reduce, to.reduce_bias);
}

}  // namespace bantam::kernels::cpu

// Expanding convolutions by algebra on the CPU: the same steps as on CUDA, so that one test body runs on every device.
// No pattern of fusion chooses them here (engine/fusion/expand_sum.cpp).
#include "bantam/kernels/expand/expand.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/expand/expand_origin.h"
#include "bantam/kernels/expand/expand_parts.h"

namespace bantam::kernels::cpu {
namespace {

float at_or(const float* values, std::int64_t c, float otherwise) { return values != nullptr ? values[c] : otherwise; }
/// z of a norm's input, rounded as the pass over rows and backward must agree about its sign.
float z_of(const NormOperand& x, std::int64_t c, float value) {
  return std::fma(value - x.mean[c], x.inv_std[c] * at_or(x.affine.scale, c, 1.0f), at_or(x.affine.shift, c, 0.0f));
}
void store(float& to, float value, bool accumulate) { to = accumulate ? to + value : value; }

/// channel(c) for every channel, in parallel.
template <class Channel>
void for_channels(const Exec& exec, std::int64_t channels, const Channel& channel) {
  parallel_ranges(channels, 8, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) channel(c);
  });
}

/// 2^e such that v·2^e is in [2^(bits - 1), 2^bits); 1 for 0 and for what is not finite.
float scale_to(float v, int bits) {
  if (!(v > 0.0f) || !std::isfinite(v)) return 1.0f;
  int exponent = 0;
  (void)std::frexp(v, &exponent);
  return std::ldexp(1.0f, std::clamp(bits - exponent, -120, 120));
}

}  // namespace

void expand_centre(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& x, void* centred,
                   const ExpandMoments& moments, Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cpu), "expand_centre");
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = static_cast<const T*>(x.x);
    T* const to = static_cast<T*>(centred);
    for_channels(exec, s.in, [&](std::int64_t c) {
      const float origin = expand_origin(at_or(x.affine.scale, c, 1.0f), at_or(x.affine.shift, c, 0.0f));
      double sum = 0;
      for (std::int64_t at = c; at < s.rows * s.in; at += s.in) {
        const float z = z_of(x, c, from[at]);
        to[at] = T((z < 0.0f ? 0.0f : z) - origin);
        sum += static_cast<double>(static_cast<float>(to[at]));
      }
      if (moments.mean != nullptr) moments.mean[c] = static_cast<float>(sum / static_cast<double>(s.rows));
    });
  });
  if (moments.mean == nullptr) return;
  matmul(exec, expand_gram_product(s), dtype, centred, centred, {.data = moments.covariance}, workspace);
  for (std::int64_t i = 0; i < s.in * s.in; ++i)
    moments.covariance[i] =
        std::fma(-moments.mean[i / s.in], moments.mean[i % s.in], moments.covariance[i] / static_cast<float>(s.rows));
}

void expand_statistics(const Exec& exec, const ExpandShape& s, DType dtype, const void* w, const ExpandMoments& moments,
                       const BatchNormAffine& before, const StatisticsOutput& statistics, float* products,
                       Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cpu), "expand_statistics");
  const ExpandStatisticsScratch scratch(s, DeviceKind::cpu);
  WorkspaceCutter cutter(workspace);
  float* const weights = cutter.cut<float>(scratch.weights);
  cast(exec, s.out * s.in, dtype, w, DType::float32, weights);
  matmul(exec, expand_statistics_product(s), DType::float32, weights, moments.covariance, {.data = products},
         {cutter.cut<char>(scratch.product), scratch.product});
  const double rate = running_part(statistics.update), rows = static_cast<double>(s.rows);
  for (std::int64_t o = 0; o < s.out; ++o) {
    double mean = 0, moved = 0, variance = 0;
    for (std::int64_t c = 0; c < s.in; ++c) {
      const double v = weights[o * s.in + c];
      mean += v * moments.mean[c];
      moved += v * expand_origin(at_or(before.scale, c, 1.0f), at_or(before.shift, c, 0.0f));
      variance += v * products[o * s.in + c];
    }
    variance = std::max(variance, 0.0);
    statistics.mean[o] = static_cast<float>(mean);
    statistics.inv_std[o] = static_cast<float>(1.0 / std::sqrt(variance + statistics.epsilon));
    const auto move = [&](float* running, double batch) {
      if (running != nullptr) running[o] = static_cast<float>((1.0 - rate) * running[o] + rate * batch);
    };
    move(statistics.running_mean, mean + moved);
    move(statistics.running_variance, variance * (statistics.update.unbiased && s.rows > 1 ? rows / (rows - 1) : 1.0));
  }
}

void expand_sum(const Exec& exec, const ExpandShape& s, DType dtype, const NormOperand& product, const void* w,
                const NormOperand& residual, void* y, std::uint8_t* mask, Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cpu), "expand_sum");
  WorkspaceCutter cutter(workspace);
  NormOperand chunk = product, right = residual;
  char* const wide = cutter.cut<char>(expand_chunk_bytes(s, dtype));
  const std::size_t rest = expand_sum_workspace_bytes(s, dtype, DeviceKind::cpu) - expand_chunk_bytes(s, dtype);
  const Workspace scratch{cutter.cut<char>(rest), rest};
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  for (std::int64_t first = 0; first < s.rows; first += expand_chunk_rows(s)) {
    const std::int64_t rows = std::min(expand_chunk_rows(s), s.rows - first);
    matmul(exec, expand_chunk_product(s, rows), dtype, static_cast<const char*>(product.x) + first * s.in * size, w,
           {.data = wide, .dtype = dtype}, scratch);
    chunk.x = wide;
    right.x = static_cast<const char*>(residual.x) + first * s.out * size;
    batch_norm_add(exec, {Activation::relu}, {rows, s.out}, dtype, chunk, right,
                   static_cast<char*>(y) + first * s.out * size, mask != nullptr ? mask + first * s.out / 8 : nullptr);
  }
}

void sum_gradient_totals(const Exec& exec, const BatchNormShape& shape, DType dtype, const SumGradient& gradient,
                         void* dz, float* sums, Workspace) {
  const std::int64_t count = shape.rows * shape.channels;
  const void* sum = gradient.dy;
  if (gradient.other != nullptr) {
    add(exec, count, dtype, gradient.dy, gradient.other, dz);
    sum = dz;
  }
  if (gradient.mask != nullptr)
    masked_activation_grad(exec, gradient.f, count, dtype, gradient.mask, sum, dz);
  else if (sum != dz)
    std::memcpy(dz, sum, static_cast<std::size_t>(count) * size_of(dtype));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = static_cast<const T*>(dz);
    for_channels(exec, shape.channels, [&](std::int64_t c) {
      double total = 0;
      for (std::int64_t at = c; at < count; at += shape.channels)
        total += static_cast<double>(static_cast<float>(from[at]));
      sums[c] = static_cast<float>(total);
    });
  });
}

void expand_backward(const Exec& exec, const ExpandShape& s, DType dtype, const ExpandInputs& in,
                     const ExpandGradients& to, Workspace workspace) {
  require_workspace(workspace, expand_workspace_bytes(s, dtype, DeviceKind::cpu), "expand_backward");
  const ExpandBackwardScratch scratch(s, dtype, DeviceKind::cpu);
  WorkspaceCutter cutter(workspace);
  float* const p = cutter.cut<float>(scratch.p);
  float* const weights = cutter.cut<float>(scratch.weights);
  float* const weighted = cutter.cut<float>(scratch.weighted);
  float* const slope = cutter.cut<float>(scratch.slope);
  float* const row = cutter.cut<float>(scratch.row);
  char* const stacked = cutter.cut<char>(scratch.stacked);
  const Workspace rest{cutter.cut<char>(scratch.rest), scratch.rest};
  const auto rows = static_cast<float>(s.rows);
  matmul(exec, pointwise_grad_weight_product(s), dtype, in.dz, in.product.x, {.data = p}, rest);
  cast(exec, s.out * s.in, dtype, in.w, DType::float32, weights);
  const auto factor = [&](std::int64_t o) { return at_or(in.product.affine.scale, o, 1.0f) * in.product.inv_std[o]; };
  float most = 0;
  for (std::int64_t o = 0; o < s.out; ++o) most = std::max(most, std::abs(factor(o)));
  const float rho = 1.0f / scale_to(most, 0);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T *const narrow_slope = reinterpret_cast<T*>(stacked), *const narrow_weights = narrow_slope + s.in * s.in;
    double bound = 0;
    for (std::int64_t o = 0; o < s.out; ++o) {
      const float sum = in.dz_sums[o], r = in.product.inv_std[o], k = factor(o);
      const float *const t = in.products + o * s.in, *const w = weights + o * s.in;
      double product = 0;
      float widest = 0;
      for (std::int64_t c = 0; c < s.in; ++c) {
        p[o * s.in + c] = std::fma(-sum, in.moments.mean[c], p[o * s.in + c]);
        product += static_cast<double>(w[c]) * p[o * s.in + c];
        widest = std::max(widest, std::abs(w[c]));
      }
      const auto dscale = static_cast<float>(product * r);
      const float along = dscale * r, by = k * along / rows;
      bound += static_cast<double>(std::abs(by)) * widest * widest;
      if (to.dscale != nullptr) store(to.dscale[o], dscale, to.accumulate_after);
      if (to.dshift != nullptr) store(to.dshift[o], sum, to.accumulate_after);
      for (std::int64_t c = 0; c < s.in; ++c) {
        const std::int64_t at = o * s.in + c;
        if (to.dw != nullptr) store(to.dw[at], k * std::fma(-along, t[c], p[at]), to.accumulate_w);
        weighted[at] = by * w[c];
        narrow_weights[at] = T(k / rho * w[c]);
      }
    }
    matmul(exec, expand_slope_product(s), DType::float32, weighted, weights, {.data = slope}, rest);
    const float by = scale_to(static_cast<float>(bound), 15), back = 1.0f / by;
    for (std::int64_t i = 0; i < s.in * s.in; ++i) narrow_slope[i] = T(-slope[i] * by);
    for (std::int64_t c = 0; c < s.in; ++c) {
      double sum = 0;
      for (std::int64_t i = 0; i < s.in; ++i)
        sum -= static_cast<double>(in.moments.mean[i]) * back * static_cast<float>(narrow_slope[i * s.in + c]);
      for (std::int64_t o = 0; o < s.out; ++o)
        sum -= static_cast<double>(in.dz_sums[o] / rows) * rho * static_cast<float>(narrow_weights[o * s.in + c]);
      row[c] = static_cast<float>(sum);
    }
    // da, then what relu' leaves of it.
    WorkspaceCutter floats(rest);
    const std::size_t da_bytes = aligned_bytes(4 * s.rows * s.in);
    float *const wide = floats.cut<float>(da_bytes), *const along = floats.cut<float>(da_bytes);
    const std::size_t left = scratch.rest - 2 * da_bytes;
    const Workspace products{floats.cut<char>(left), left};
    matmul(exec, expand_reduce_product(s, s.rows, s.out), dtype, in.dz, narrow_weights, {.data = wide}, products);
    matmul(exec, expand_reduce_product(s, s.rows, s.in), dtype, in.product.x, narrow_slope, {.data = along}, products);
    const T* const x = static_cast<const T*>(in.x.x);
    T* const dz = static_cast<T*>(to.dz_before);
    for_channels(exec, s.in, [&](std::int64_t c) {
      double sum = 0, product = 0;
      for (std::int64_t at = c; at < s.rows * s.in; at += s.in) {
        const float value = x[at], da = std::fma(along[at], back, wide[at] * rho) + row[c];
        dz[at] = T(z_of(in.x, c, value) > 0.0f ? da : 0.0f);
        const double rounded = static_cast<float>(dz[at]);
        sum += rounded;
        product += rounded * (value - in.x.mean[c]);
      }
      const auto shift = static_cast<float>(sum), scale = static_cast<float>(product * in.x.inv_std[c]);
      if (to.totals != nullptr) to.totals[c] = shift, to.totals[s.in + c] = scale;
      if (to.dshift_before != nullptr) store(to.dshift_before[c], shift, to.accumulate_before);
      if (to.dscale_before != nullptr) store(to.dscale_before[c], scale, to.accumulate_before);
    });
  });
}

}  // namespace bantam::kernels::cpu

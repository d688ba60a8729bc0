// Depthwise convolution between batch norms on the CPU: rows of what it reads are normalised into a ring that stays in
// cache, and no tensor between the norms is written except the convolution's result.
#include "bantam/kernels/depthwise/norm_depthwise.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/depthwise/cpu/norm_depthwise_ring.h"
#include "bantam/kernels/depthwise/cpu/norm_depthwise_targets.h"
#include "bantam/kernels/norm/cpu/batch_norm_passes.h"

namespace bantam::kernels::cpu {
namespace {

/// A norm's vectors from channel c on.
template <class T>
NormVectors vectors_of(const Saved<T>& saved, ActivationFunction f, std::int64_t c) {
  NormVectors vectors{saved.mean + c, saved.inv_std + c, saved.factor + c, saved.shift + c};
  if (f.kind == Activation::relu6) vectors.top = PiecewiseLinear::of(f).top;
  return vectors;
}

/// One call of forward; partial moments are (row parts, 3, channels).
template <class T>
struct Forward {
  const DepthwiseConv2dShape& s;
  const NormDepthwisePlan& plan;
  RowFunctions<T> run;
  Saved<T> before;
  ActivationFunction activation;
  const T* w;
  T* y;
  float* partials;

  void part(std::int64_t index, std::int64_t c, std::int64_t count, float* memory) const {
    const Ring ring(plan, run.lanes, memory);
    float* origin = partials + index * kMomentFloats * s.channels + c;
    std::int64_t seen = 0;
    for_each_task(plan, index, [&](std::int64_t n, std::int64_t begin, std::int64_t end) {
      std::int64_t next = std::max<std::int64_t>(0, begin * s.stride_h - s.pad_top);  // the first row not in the ring
      for (std::int64_t o = begin; o < end; ++o) {
        const std::int64_t first = o * s.stride_h - s.pad_top;
        for (; next <= std::min(first + 2, s.in_h - 1); ++next) normalise(n, next, c, count, ring);
        ConvolveRow<T> row{.block = ring.block(),
                           .w = w + c,
                           .y = y + (n * s.out_h() + o) * s.out_w() * s.channels + c,
                           .columns = s.out_w(),
                           .channels = s.channels,
                           .count = count,
                           .origin = origin,
                           .mean = origin + s.channels,
                           .squares = origin + 2 * s.channels,
                           .seen = seen,
                           .ahead = o + 1 < end ? s.out_w() * s.channels : 0};
        for (std::int64_t r = 0; r < 3; ++r) row.rows[r] = ring.row_or_zeros(first + r, s.in_h, 0);
        run.convolve(row);
        seen += s.out_w();
      }
    });
  }

  void normalise(std::int64_t n, std::int64_t row, std::int64_t c, std::int64_t count, const Ring& ring) const {
    const T* x = before.x + (n * s.in_h + row) * s.in_w * s.channels + c;
    run.normalise(
        {x, s.in_w, s.channels, count, vectors_of(before, activation, c), {ring.row(row, s.pad_left), ring.block()}});
  }

  /// Merges the row parts' moments in their order.
  void write(const StatisticsOutput& statistics) const {
    double counts[kMaxRowParts] = {};  // positions of y that each has summed up
    for (std::int64_t part = 0; part < plan.row_parts; ++part) {
      for_each_task(plan, part, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
        counts[part] += static_cast<double>((end - begin) * s.out_w());
      });
    }
    for (std::int64_t c = 0; c < s.channels; ++c)
      write_statistics(statistics, norm_after(s).rows, c, moments(counts, c));
  }

  Moments moments(const double* counts, std::int64_t c) const {
    double mean = 0, squares = 0, seen = 0;
    for (std::int64_t part = 0; part < plan.row_parts; ++part) {
      const float* partial = partials + part * kMomentFloats * s.channels + c;
      const double count = counts[part], delta = static_cast<double>(partial[0]) + partial[s.channels] - mean;
      mean += delta * count / (seen + count);
      squares += partial[2 * s.channels] + delta * delta * seen * count / (seen + count);
      seen += count;
    }
    return {mean, squares / seen};
  }
};

/// The pass of backward that computes the gradient of the second norm's input, and from it dz of the first norm's
/// output, the weights' nine sums and the first norm's two; partial sums are (row parts, 11, channels).
template <class T>
struct Backward {
  const DepthwiseConv2dShape& s;
  const NormDepthwisePlan& plan;
  RowFunctions<T> run;
  Saved<T> before, after;
  ActivationFunction activation_before, activation_after;
  const float* per_row;  // (2, channels): of the second norm
  const T* w;
  const T* dy;
  T* dz;
  float* partials;

  void part(std::int64_t index, std::int64_t c, std::int64_t count, float* memory) const {
    const Ring ring(plan, run.lanes, memory);
    float* sums = partials + index * kBackwardSums * s.channels + c;
    for (std::int64_t k = 0; k < kBackwardSums; ++k) std::fill_n(sums + k * s.channels, count, 0.0f);
    for_each_task(plan, index, [&](std::int64_t n, std::int64_t begin, std::int64_t end) {
      std::int64_t next = std::max<std::int64_t>(0, (begin + s.pad_top) / s.stride_h - 2);  // the first not in the ring
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t last = std::min((row + s.pad_top) / s.stride_h, s.out_h() - 1);
        for (; next <= last; ++next) gradient(n, next, c, count, ring);
        input_row(n, row, end, c, count, ring, sums);
      }
    });
  }

  void gradient(std::int64_t n, std::int64_t row, std::int64_t c, std::int64_t count, const Ring& ring) const {
    const std::int64_t at = (n * s.out_h() + row) * s.out_w() * s.channels + c;
    NormVectors norm = vectors_of(after, activation_after, c);
    norm.per_row[0] = per_row + c, norm.per_row[1] = per_row + s.channels + c;
    run.gradient(
        {after.x + at, dy + at, s.out_w(), s.channels, count, norm, {ring.row(row, kGradientMargin), ring.block()}});
  }

  /// Rows of weights k that meet a row of x: those with row + pad_top - k a multiple of the stride.
  void input_row(std::int64_t n, std::int64_t row, std::int64_t end, std::int64_t c, std::int64_t count,
                 const Ring& ring, float* sums) const {
    const std::int64_t at = (n * s.in_h + row) * s.in_w * s.channels + c, padded = row + s.pad_top;
    BackwardRow<T> in{.block = ring.block(),
                      .x = before.x + at,
                      .dz = dz + at,
                      .columns = s.in_w,
                      .pad_left = s.pad_left,
                      .channels = s.channels,
                      .count = count,
                      .ahead = row + 1 < end ? s.in_w * s.channels : 0,
                      .norm = vectors_of(before, activation_before, c),
                      .dshift = sums + 9 * s.channels,
                      .dscale = sums + 10 * s.channels};
    std::size_t met = 0;
    for (std::int64_t k = padded % s.stride_h; k < 3; k += s.stride_h, ++met) {
      in.gradients[met] = ring.row_or_zeros((padded - k) / s.stride_h, s.out_h(), kGradientMargin);
      in.w[met] = w + k * 3 * s.channels + c;
      in.dw[met] = sums + k * 3 * s.channels;
    }
    run.backward[met](in);
  }
};

/// dw, and the first norm's totals (2, channels), from the partial sums.
void add_sums(const Exec& exec, const DepthwiseConv2dShape& s, const NormDepthwisePlan& plan, const float* partials,
              const NormDepthwiseGradients& gradients, float* sums) {
  add_parts(partials, plan.row_parts, kBackwardSums * s.channels, sums, false, exec.threads);
  for (std::int64_t i = 0; gradients.dw != nullptr && i < 9 * s.channels; ++i)
    gradients.dw[i] = sums[i] + (gradients.accumulate ? gradients.dw[i] : 0.0f);
}

}  // namespace

void norm_depthwise_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const NormOperand& x,
                            const void* w, void* y, const StatisticsOutput& statistics, Workspace workspace) {
  if (s.y_elements() <= 0) return;
  require_workspace(workspace, norm_depthwise_workspace_bytes(s, dtype, DeviceKind::cpu), "norm_depthwise_forward");
  const NormDepthwisePlan plan = plan_norm_forward(s);
  float* room = static_cast<float*>(workspace.data);  // (2, channels)
  float* partials = room + 2 * s.channels;
  float* outside = partials + plan.row_parts * kMomentFloats * s.channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Forward<T> forward{s,
                             plan,
                             fastest_row_functions<T>(s),
                             saved_of<T>(x, s.channels, room),
                             x.affine.activation,
                             static_cast<const T*>(w),
                             static_cast<T*>(y),
                             partials};
    for_each_part(exec, plan, s.channels, outside,
                  [&](std::int64_t index, std::int64_t c, std::int64_t count, float* memory) {
                    forward.part(index, c, count, memory);
                  });
    forward.write(statistics);
  });
}

void norm_depthwise_backward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype,
                             const NormDepthwiseInputs& in, const NormDepthwiseGradients& gradients,
                             Workspace workspace) {
  if (s.y_elements() <= 0) {
    if (gradients.dw != nullptr && !gradients.accumulate) std::fill_n(gradients.dw, s.w_elements(), 0.0f);
    return;
  }
  require_workspace(workspace, norm_depthwise_workspace_bytes(s, dtype, DeviceKind::cpu), "norm_depthwise_backward");
  const NormDepthwisePlan plan = plan_norm_backward(s);
  const std::int64_t channels = s.channels;
  float* room = static_cast<float*>(workspace.data);  // (4, channels): both norms' factor and shift
  float* totals = room + 4 * channels;                // (2, channels): of the second norm
  float* sums = totals + 2 * channels;                // (11, channels)
  float* partials = sums + kBackwardSums * channels;  // the passes share it, one after another
  float* outside = partials + plan.row_parts * kBackwardSums * channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Saved<T> before = saved_of<T>(in.x, channels, room), after = saved_of<T>(in.y, channels, room + 2 * channels);
    T* dx = static_cast<T*>(gradients.dx);
    with_activation8<T>(in.y.affine.activation, [&](auto f) {
      gradient_sums(exec, norm_after(s), after, static_cast<const T*>(in.dy), f, partials, totals);
    });
    store_gradients(totals, channels, gradients.after);
    for (std::int64_t i = 0; i < 2 * channels; ++i) totals[i] *= 1.0f / static_cast<float>(norm_after(s).rows);
    const Backward<T> backward{s,
                               plan,
                               fastest_row_functions<T>(s),
                               before,
                               after,
                               in.x.affine.activation,
                               in.y.affine.activation,
                               totals,
                               static_cast<const T*>(in.w),
                               static_cast<const T*>(in.dy),
                               dx,
                               partials};
    for_each_part(exec, plan, channels, outside,
                  [&](std::int64_t index, std::int64_t c, std::int64_t count, float* memory) {
                    backward.part(index, c, count, memory);
                  });
    add_sums(exec, s, plan, partials, gradients, sums);
    float* totals_before = sums + 9 * channels;
    store_gradients(totals_before, channels, gradients.before);
    if (gradients.totals != nullptr) {
      std::copy_n(totals_before, 2 * channels, gradients.totals);
      return;
    }
    with_activation8<T>(in.x.affine.activation,
                        [&](auto f) { input_gradient(exec, norm_before(s), before, dx, f, totals_before, dx); });
  });
}

}  // namespace bantam::kernels::cpu

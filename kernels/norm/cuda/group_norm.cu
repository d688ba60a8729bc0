// Group normalisation on CUDA: moments of each channel of a sample, merged to those of groups, then one pass that
// normalises; backward the same way. Groups that are rows of memory have kernels of their own (row_norm.cuh).
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/norm/cuda/row_norm.h"
#include "bantam/kernels/norm/cuda/sample_norm.cuh"
#include "bantam/kernels/norm/group_norm.h"

namespace bantam::kernels::cuda {
namespace {

SampleAffine sample_affine(const GroupNormShape& shape, const NormOperand& norm) {
  return {SampleRows(shape), norm.affine.scale, norm.affine.shift, norm.mean, norm.inv_std};
}

template <class T, int N>
void sample_statistics(const Exec& exec, const SampleRows& rows, const T* x, const GroupNormOutput& to,
                       float* partials) {
  const auto [grid, block] = sample_grid<N>(rows);
  sample_moments_kernel<T, N><<<grid, block, 0, stream_of(exec)>>>(x, rows, partials);
  check_launch("sample_moments_kernel");
  const GroupThreads threads(rows);
  group_statistics_kernel<<<threads.blocks(rows), kMapThreads, 0, stream_of(exec)>>>(
      x, rows, DealtRows{rows.positions, block.y * kMomentRows, rows.parts}, partials, threads, to);
  check_launch("group_statistics_kernel");
}

/// y = f(z) of all samples.
void normalise_samples(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm, void* y) {
  const SampleAffine affine = sample_affine(shape, norm);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_activation(norm.affine.activation, [&](auto f) {
      const NormaliseSamples<T, decltype(f)> map(static_cast<const T*>(norm.x), affine, f, static_cast<T*>(y));
      with_pack<T>([&](auto n) { map_samples<decltype(n)::value>(exec, affine.rows, map); }, shape.channels, norm.x, y);
    });
  });
}

/// The operands of a backward pass over samples.
template <class T, class Function>
struct SampleGradient {
  const T *x, *dy, *addend;
  SampleAffine affine;
  Function f;
  NormGradients to;
  float* workspace;

  template <int N>
  void run(const Exec& exec) const {
    const SampleRows& rows = affine.rows;
    float* means = workspace;                                      // (samples, groups, 2)
    float* partials = workspace + rows.samples * 2 * rows.groups;  // (samples, parts, 2, channels)
    const auto [grid, block] = sample_grid<N>(rows);
    sample_sums_kernel<T, N><<<grid, block, 0, stream_of(exec)>>>(x, dy, affine, f, partials);
    check_launch("sample_sums_kernel");
    if (to.dscale != nullptr || to.dshift != nullptr)
      add_parts(exec, partials, rows.samples * rows.parts, 2 * rows.channels,
                WriteVectors{to.dscale, to.dshift, rows.channels, to.accumulate});
    if (to.dx == nullptr) return;
    const GroupThreads threads(rows);
    group_means_kernel<<<threads.blocks(rows), kMapThreads, 0, stream_of(exec)>>>(rows, affine.scale, partials, threads,
                                                                                  means);
    check_launch("group_means_kernel");
    map_samples<N>(exec, rows,
                   SampleInputGradient<T, Function>(x, dy, affine, f, means, addend, static_cast<T*>(to.dx)));
  }
};

}  // namespace

void group_norm_forward(const Exec& exec, const GroupNormShape& shape, DType dtype, const void* x,
                        const BatchNormAffine& affine, float epsilon, void* y, float* mean, float* inv_std,
                        Workspace workspace) {
  if (shape.elements() <= 0) return;
  require_workspace(workspace, group_norm_workspace_bytes(shape, dtype, DeviceKind::cuda), "group_norm_forward");
  const NormOperand norm{x, affine, mean, inv_std};
  const GroupNormOutput to{y, mean, inv_std, epsilon};
  if (is_row_norm(shape)) return row_norm_forward(exec, shape, dtype, norm, to);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_pack<T>(
        [&](auto n) {
          sample_statistics<T, decltype(n)::value>(exec, SampleRows(shape), static_cast<const T*>(x), to,
                                                   static_cast<float*>(workspace.data));
        },
        shape.channels, x);
  });
  if (y != nullptr) normalise_samples(exec, shape, dtype, norm, y);
}

void group_norm_apply(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm, void* y) {
  if (shape.elements() <= 0) return;
  if (is_row_norm(shape)) return row_norm_forward(exec, shape, dtype, norm, {.y = y});
  normalise_samples(exec, shape, dtype, norm, y);
}

void group_norm_backward(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm,
                         const void* dy, const void* addend, const NormGradients& to, Workspace workspace) {
  if (shape.elements() <= 0) {
    for (float* sum : {to.dscale, to.dshift})
      if (sum != nullptr && !to.accumulate) fill(exec, shape.channels, DType::float32, 0.0f, sum);
    return;
  }
  require_workspace(workspace, group_norm_workspace_bytes(shape, dtype, DeviceKind::cuda), "group_norm_backward");
  float* scratch = static_cast<float*>(workspace.data);
  if (is_row_norm(shape)) return row_norm_backward(exec, shape, dtype, norm, dy, addend, to, scratch);
  const auto run = [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    const SampleGradient<T, decltype(f)> gradient{static_cast<const T*>(norm.x),
                                                  static_cast<const T*>(dy),
                                                  static_cast<const T*>(addend),
                                                  sample_affine(shape, norm),
                                                  f,
                                                  to,
                                                  scratch};
    with_pack<T>([&](auto n) { gradient.template run<decltype(n)::value>(exec); }, shape.channels, norm.x, dy, addend,
                 to.dx);
  };
  dispatch_floating(dtype, [&](auto tag) { with_activation(norm.affine.activation, [&](auto f) { run(tag, f); }); });
}

}  // namespace bantam::kernels::cuda

// Launches of the norms of rows of memory: how many threads a row has, and how many values each of them.
#include "bantam/kernels/elementwise/cuda/activation_math.cuh"
#include "bantam/kernels/norm/cuda/row_norm.cuh"
#include "bantam/kernels/norm/group_norm_parts.h"

namespace bantam::kernels::cuda {
namespace {

/// Values of a thread, and the threads of a row.
struct RowLayout {
  int values = 0, lanes = 0;
};

/// That of `options` with the fewest places for no value; of equals the first.
template <int kOptions>
RowLayout row_layout(std::int64_t width, const int (&options)[kOptions]) {
  RowLayout best;
  for (const int values : options) {
    int lanes = 1;
    while (lanes * values < width) lanes *= 2;
    if (lanes > kRowThreads) continue;
    if (best.lanes == 0 || lanes * values < best.lanes * best.values) best = {values, lanes};
  }
  return best;
}

template <int kValue>
using Constant = std::integral_constant<int, kValue>;

/// Calls call(N, packs, lanes) for vectors of 16 bytes.
template <class T, class Call>
void with_vectors(std::int64_t width, Call&& call) {
  constexpr int N = kVectorLanes<T>;
  const RowLayout layout = row_layout(width, {16, 24, 32});
  switch (layout.values) {
    case 16:
      return call(Constant<N>{}, Constant<16 / N>{}, layout.lanes);
    case 24:
      return call(Constant<N>{}, Constant<24 / N>{}, layout.lanes);
    default:
      return call(Constant<N>{}, Constant<32 / N>{}, layout.lanes);
  }
}

/// The same for single values.
template <class Call>
void with_scalars(std::int64_t width, Call&& call) {
  const RowLayout layout = row_layout(width, {8, 32});
  if (layout.values == 8) return call(Constant<1>{}, Constant<8>{}, layout.lanes);
  call(Constant<1>{}, Constant<32>{}, layout.lanes);
}

/// Calls call(f, N, packs, lanes). A norm with an activation, which no layer norm has, reads single values.
template <class T, class Call, class... Pointers>
void with_layout(const GroupNormShape& shape, ActivationFunction activation, Call&& call,
                 const Pointers*... addresses) {
  const std::int64_t width = shape.group_channels();
  if (activation.kind == Activation::none) {
    const auto plain = [&](auto n, auto packs, int lanes) { call(Identity{}, n, packs, lanes); };
    const bool vectors = width % kVectorLanes<T> == 0 && packs_aligned<T, kVectorLanes<T>>(addresses...);
    if (vectors) return with_vectors<T>(width, plain);
    return with_scalars(width, plain);
  }
  with_activation(activation, [&](auto f) {
    with_scalars(width, [&](auto n, auto packs, int lanes) { call(f, n, packs, lanes); });
  });
}

template <class T>
RowOperand<T> row_operand(const NormOperand& norm) {
  return {static_cast<const T*>(norm.x), norm.affine.scale, norm.affine.shift, norm.mean, norm.inv_std};
}

RowsOfThreads rows_of(const GroupNormShape& shape, int lanes) {
  return {shape.samples, static_cast<int>(shape.groups), static_cast<int>(shape.group_channels()), lanes};
}

/// Writes a channel's dshift and dscale.
struct FinishVectors {
  float *dscale, *dshift;
  bool accumulate;

  struct Begun {
    float dscale, dshift;
  };
  __device__ Begun begin(std::int64_t c) const {
    return {accumulate && dscale ? dscale[c] : 0.0f, accumulate && dshift ? dshift[c] : 0.0f};
  }
  __device__ void operator()(std::int64_t c, const Begun& begun, const double (&sums)[2]) const {
    if (dshift) dshift[c] = begun.dshift + static_cast<float>(sums[0]);
    if (dscale) dscale[c] = begun.dscale + static_cast<float>(sums[1]);
  }
};

}  // namespace

void row_norm_forward(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm,
                      const GroupNormOutput& to) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_layout<T>(
        shape, norm.affine.activation,
        [&](auto f, auto n, auto packs, int lanes) {
          const RowsOfThreads rows = rows_of(shape, lanes);
          const unsigned blocks = blocks_for(shape.samples * shape.groups, rows.tile());
          row_norm_kernel<T, decltype(n)::value, decltype(packs)::value>
              <<<blocks, kRowThreads, 0, stream_of(exec)>>>(rows, row_operand<T>(norm), f, to);
          check_launch("row_norm_kernel");
        },
        norm.x, to.y);
  });
}

void row_norm_backward(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm,
                       const void* dy, const void* addend, const NormGradients& to, float* partials) {
  const bool sums = to.dscale != nullptr || to.dshift != nullptr;
  unsigned parts = 0;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_layout<T>(
        shape, norm.affine.activation,
        [&](auto f, auto n, auto packs, int lanes) {
          const RowsOfThreads rows = rows_of(shape, lanes);
          parts = std::min(blocks_for(shape.samples, rows.tile()), static_cast<unsigned>(most_row_parts(shape)));
          row_gradient_kernel<T, decltype(n)::value, decltype(packs)::value>
              <<<dim3(parts, static_cast<unsigned>(shape.groups)), kRowThreads, 0, stream_of(exec)>>>(
                  rows, row_operand<T>(norm), static_cast<const T*>(dy), static_cast<const T*>(addend), f,
                  static_cast<T*>(to.dx), sums ? partials : nullptr);
          check_launch("row_gradient_kernel");
        },
        norm.x, dy, addend, to.dx);
  });
  if (sums)
    merge_parts<2>(exec, partials, parts, shape.channels,
                   TotalSums<2, FinishVectors>{{to.dscale, to.dshift, to.accumulate}});
}

}  // namespace bantam::kernels::cuda

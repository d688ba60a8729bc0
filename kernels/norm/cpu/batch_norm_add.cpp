// The sum over batch norms on the CPU: eight elements make a byte of the mask. Backward, one pass after another.
#include "bantam/kernels/norm/batch_norm_add.h"

#include <cstring>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/norm/cpu/affine8.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kElementsOfPart = 32768;  // a multiple of eight: no byte of the mask has two writers
constexpr int kValues = 6;                       // a channel's mean, factor and shift, for each operand

/// Writes mean, factor and shift of an operand's channel to values[0..3); without a norm 0, 1, 0, which change nothing.
void fill_channel(const NormOperand& operand, std::int64_t c, float* values) {
  values[0] = operand.normalised() ? operand.mean[c] : 0.0f;
  values[1] = operand.normalised() ? operand.inv_std[c] * scale_of(operand.affine, c) : 1.0f;
  values[2] = operand.normalised() ? shift_of(operand.affine, c) : 0.0f;
}

template <class T>
[[gnu::always_inline]] inline Float8 rounded(Float8 v) {
  if constexpr (sizeof(T) == sizeof(float)) return v;
  T values[kLanes];
  store8(values, v);
  return load8(values);
}

/// The sum of up to eight elements at `at`, activated, from what their channels have (p, kValues of eight lanes).
template <class T>
struct Sum {
  const T *a, *b;
  bool b_normalised;
  Piecewise8 f;
  T* y;
  std::uint8_t* mask;

  [[gnu::always_inline]] void operator()(std::int64_t at, std::int64_t lanes, const Float8* p) const {
    Float8 right = load_lanes(b + at, lanes);
    if (b_normalised) right = rounded<T>(linear(right, p[3], p[4], p[5]));
    const Float8 x = rounded<T>(linear(load_lanes(a + at, lanes), p[0], p[1], p[2])) + right;
    const unsigned valid = (1u << lanes) - 1u;
    if (mask) mask[at / kLanes] = static_cast<std::uint8_t>(to_bits(f.rises(x)) & valid);
    store_lanes(y + at, lanes, f(x));
  }
};

/// Rows that do not begin with a byte of the mask: eight elements at a time across their ends.
template <class Step>
void map_flat(const Exec& exec, const BatchNormShape& shape, const NormOperand& a, const NormOperand& b,
              const Step& step) {
  const std::int64_t count = shape.rows * shape.channels;
  parallel_ranges(count, kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += kLanes) {
      const std::int64_t lanes = std::min(kLanes, end - i);
      Float8 p[kValues] = {};
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        float values[kValues];
        fill_channel(a, (i + lane) % shape.channels, values);
        fill_channel(b, (i + lane) % shape.channels, values + kValues / 2);
        for (int k = 0; k < kValues; ++k) p[k][lane] = values[k];
      }
      step(i, lanes, p);
    }
  });
}

}  // namespace

void batch_norm_add(const Exec& exec, ActivationFunction f, const BatchNormShape& shape, DType dtype,
                    const NormOperand& a, const NormOperand& b, void* y, std::uint8_t* mask) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Sum<T> sum{static_cast<const T*>(a.x), static_cast<const T*>(b.x), b.normalised(),
                     {PiecewiseLinear::of(f)},   static_cast<T*>(y),         mask};
    if (shape.channels % kLanes != 0) return map_flat(exec, shape, a, b, sum);
    map_channels<kValues>(
        shape.rows, shape.channels, exec.threads,
        [&](std::int64_t c, float* values) {
          fill_channel(a, c, values);
          fill_channel(b, c, values + kValues / 2);
        },
        [=](std::int64_t at, std::int64_t lanes, const Float8* p) { sum(at, lanes, p); });
  });
}

void batch_norm_add_grad(const Exec& exec, const BatchNormShape& shape, DType dtype, const SumGradient& gradient,
                         const NormOperand& norm, void* dz, const NormGradients& to, Workspace workspace) {
  const std::int64_t count = shape.rows * shape.channels;
  const void* sum = gradient.dy;
  if (gradient.other) {
    add(exec, count, dtype, gradient.dy, gradient.other, dz);
    sum = dz;
  }
  if (gradient.mask) {
    masked_activation_grad(exec, gradient.f, count, dtype, gradient.mask, sum, dz);
  } else if (sum != dz) {
    std::memcpy(dz, sum, static_cast<std::size_t>(count) * size_of(dtype));
  }
  batch_norm_backward_training(exec, shape, dtype, norm, dz, to, workspace);
}

}  // namespace bantam::kernels::cpu

// Bias and activation in one pass on the CPU: blocks of a kilobyte or four on the stack, which the bias, the activation
// and the bias' gradient pass over.
#include "bantam/kernels/elementwise/bias_activation.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/cpu/float8.h"
#include "bantam/kernels/common/partial_sums.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/elementwise/cpu/activation_blocks.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"
#include "bantam/kernels/elementwise/piecewise.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kBlock = 1024;
constexpr std::int64_t kElementsOfPart = 32768;  // a multiple of eight: no byte of the mask has two writers

/// Calls run(first, n, channel) for the runs of `count` neighbouring elements that lie in one row each; `first` counts
/// from 0, and the element at `at` is of channel at mod channels.
template <class Run>
void for_row_runs(std::int64_t at, std::int64_t count, std::int64_t channels, Run&& run) {
  std::int64_t c = at % channels;
  for (std::int64_t first = 0; first < count;) {
    const std::int64_t n = std::min(count - first, channels - c);
    run(first, n, c);
    first += n;
    c = 0;
  }
}

template <class T>
void add_bias(const T* b, std::int64_t at, std::int64_t count, std::int64_t channels, float* values) {
  for_row_runs(at, count, channels, [&](std::int64_t first, std::int64_t n, std::int64_t c) {
    for (std::int64_t i = 0; i < n; ++i) values[first + i] += static_cast<float>(b[c + i]);
  });
}

/// Values become f of them, and `mask` gets their bits where it is not null; the first is a byte's first.
void piecewise_values(const Piecewise8& f, float* values, std::int64_t count, std::uint8_t* mask) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const std::int64_t lanes = std::min(kLanes, count - i);
    const Float8 x = load_lanes(values + i, lanes);
    const unsigned valid = (1u << lanes) - 1u;
    if (mask != nullptr) mask[i / kLanes] = static_cast<std::uint8_t>(to_bits(f.rises(x)) & valid);
    store_lanes(values + i, lanes, f(x));
  }
}

/// dy becomes dy·f' by bits from `at` on.
void piecewise_slopes(float below, const std::uint8_t* mask, std::int64_t at, std::int64_t count, float* dy) {
  std::int64_t i = 0;
  if (at % kLanes == 0)
    for (; i + kLanes <= count; i += kLanes)
      store8(dy + i, load8(dy + i) * (from_bits(mask[(at + i) / kLanes]) ? broadcast8(1.0f) : broadcast8(below)));
  for (; i < count; ++i) dy[i] *= (mask[(at + i) / kLanes] >> ((at + i) % kLanes) & 1) != 0 ? 1.0f : below;
}

/// Operands of one type.
template <class T>
struct Operands {
  const T *dy, *x, *b, *y;
  const std::uint8_t* mask;
  T* dx;
};

/// dx of elements [at, at + count), count at most kBlock; in float32 in `g`, too.
template <class T>
void gradient_block(ActivationFunction f, std::int64_t channels, const Operands<T>& in, std::int64_t at,
                    std::int64_t count, float* g) {
  widen(in.dy + at, g, count);
  if (is_piecewise(f.kind) && in.mask != nullptr) {
    piecewise_slopes(PiecewiseLinear::of(f).below, in.mask, at, count, g);
  } else {
    float saved[kBlock];
    const bool reads_input = activation_grad_reads_input(f.kind);
    widen((reads_input ? in.x : in.y) + at, saved, count);
    if (reads_input) add_bias(in.b, at, count, channels, saved);
    activation_slopes(f.kind, f.slope, saved, g, g, count);
  }
  narrow(g, in.dx + at, count);
}

/// The rows' dx, and their sums.
template <class T>
void gradient_rows(ActivationFunction f, std::int64_t channels, const Operands<T>& in, std::int64_t begin,
                   std::int64_t end, double* sums) {
  std::fill(sums, sums + channels, 0.0);
  for (std::int64_t at = begin * channels; at < end * channels; at += kBlock) {
    float g[kBlock];
    const std::int64_t count = std::min(kBlock, end * channels - at);
    gradient_block(f, channels, in, at, count, g);
    for_row_runs(at, count, channels, [&](std::int64_t first, std::int64_t n, std::int64_t c) {
      for (std::int64_t i = 0; i < n; ++i) sums[c + i] += static_cast<double>(g[first + i]);
    });
  }
}

/// Calls work(at, count, values) with x + b of elements [at, at + count), count at most kBlock; out's are what it
/// leaves in values.
template <class T, class Work>
void map_biased(const Exec& exec, const BiasShape& shape, const void* x, const void* b, void* out, Work work) {
  const T *from = static_cast<const T*>(x), *bias = static_cast<const T*>(b);
  T* to = static_cast<T*>(out);
  parallel_ranges(shape.elements(), kElementsOfPart, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; at += kBlock) {
      float values[kBlock];
      const std::int64_t count = std::min(kBlock, end - at);
      widen(from + at, values, count);
      add_bias(bias, at, count, shape.channels, values);
      work(at, count, values);
      narrow(values, to + at, count);
    }
  });
}

}  // namespace

void bias_activation_forward(const Exec& exec, ActivationFunction f, const BiasShape& shape, DType dtype, const void* x,
                             const void* b, void* y, std::uint8_t* mask) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map_biased<T>(exec, shape, x, b, y, [&](std::int64_t at, std::int64_t count, float* values) {
      if (is_piecewise(f.kind))
        piecewise_values({PiecewiseLinear::of(f)}, values, count, mask != nullptr ? mask + at / kLanes : nullptr);
      else
        activation_values(f.kind, f.slope, values, values, count);
    });
  });
}

void bias_activation_slopes(const Exec& exec, ActivationFunction f, const BiasShape& shape, DType dtype, const void* x,
                            const void* b, void* d) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map_biased<T>(exec, shape, x, b, d, [&](std::int64_t, std::int64_t count, float* values) {
      float slopes[kBlock];
      std::fill_n(slopes, count, 1.0f);
      activation_slopes(f.kind, f.slope, values, slopes, slopes, count);
      std::copy_n(slopes, count, values);
    });
  });
}

void bias_activation_grad(const Exec& exec, ActivationFunction f, const BiasShape& shape, DType dtype,
                          const BiasActivationGradInputs& in, const BiasActivationGradients& to, Workspace workspace) {
  require_workspace(workspace, bias_activation_grad_workspace_bytes(shape, DeviceKind::cpu), "bias_activation_grad");
  const std::int64_t channels = shape.channels, parts = sum_parts(shape.rows, channels, DeviceKind::cpu);
  double* partials = static_cast<double*>(workspace.data);  // (parts, channels)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Operands<T> operands{.dy = static_cast<const T*>(in.dy),
                               .x = static_cast<const T*>(in.x),
                               .b = static_cast<const T*>(in.b),
                               .y = static_cast<const T*>(in.y),
                               .mask = in.mask,
                               .dx = static_cast<T*>(to.dx)};
    if (shape.elements() > 0)
      parallel_parts(parts, exec.threads, [&](std::int64_t part) {
        gradient_rows(f, channels, operands, part_begin(shape.rows, parts, part),
                      part_begin(shape.rows, parts, part + 1), partials + part * channels);
      });
  });
  for (std::int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    if (shape.rows > 0)
      for (std::int64_t part = 0; part < parts; ++part) sum += partials[part * channels + c];
    to.db[c] = static_cast<float>(sum) + (to.accumulate ? to.db[c] : 0.0f);
  }
}

}  // namespace bantam::kernels::cpu

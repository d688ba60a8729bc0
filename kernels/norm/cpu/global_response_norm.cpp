// Global response normalisation on the CPU: squares and products are summed a channel at a time; a sample stays in
// cache from its sums to its output where it is one part.
#include "bantam/kernels/norm/global_response_norm.h"

#include <cmath>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/norm/cpu/batch_norm_passes.h"
#include "bantam/kernels/norm/cpu/sample_parts.h"

namespace bantam::kernels::cpu {
namespace {

/// The operand of a call, a sample at a time.
template <class T>
struct Response {
  SampleParts cut;
  ResponseOperand operand;

  std::int64_t positions() const { return cut.shape.positions; }
  std::int64_t channels() const { return cut.shape.channels; }
  const T* x(std::int64_t sample) const { return static_cast<const T*>(operand.x) + cut.offset(sample); }
  /// N of a channel.
  float response(std::int64_t sample, std::int64_t c) const {
    return operand.norm[sample * channels() + c] * operand.inverse[sample];
  }
  /// The factor of x in y, and of dy in dx.
  float factor(std::int64_t sample, std::int64_t c) const { return operand.scale[c] * response(sample, c) + 1.0f; }

  /// y = x·(γ·N + 1) + β of one part of a sample. One function for all callers: which products and sums a compiler
  /// makes one rounding of may differ from copy to copy.
  [[gnu::noinline]] void apply(std::int64_t sample, std::int64_t part, T* y) const {
    const RowBlock rows = cut.positions(part);
    const T* from = x(sample) + rows.begin * channels();
    T* to = y + cut.offset(sample) + rows.begin * channels();
    map_channels<2>(
        rows.end - rows.begin, channels(), 1,
        [&](std::int64_t c, float* p) {
          p[0] = factor(sample, c);
          p[1] = operand.shift[c];
        },
        [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
          store_lanes(to + at, lanes, load_lanes(from + at, lanes) * p[0] + p[1]);
        });
  }
};

/// Forward: partial sums of a sample are (parts, channels). y may be null.
template <class T>
void forward(const Exec& exec, const Response<T>& response, const ResponseStatistics& to, T* y, float* workspace) {
  const std::int64_t channels = response.channels(), parts = response.cut.parts;
  const auto partials = [=](std::int64_t sample, std::int64_t part) {
    return workspace + (sample * parts + part) * channels;
  };
  response.cut.run(
      exec,
      [&](std::int64_t sample, std::int64_t part) {
        const std::int64_t elements = response.positions() * channels;
        const T* x = response.x(sample);
        float* sums = partials(sample, part);
        std::fill(sums, sums + channels, 0.0f);
        sum_columns<1>(response.cut.positions(part), channels, &sums,
                       [=](std::int64_t at, std::int64_t, std::int64_t lanes, Float8* sum) {
                         const Float8 v = load_lanes(x + at, lanes, elements - at);
                         sum[0] += v * v;
                       });
      },
      [&](std::int64_t sample) {
        float* norm = to.norm + sample * channels;
        double total = 0;
        for (std::int64_t c = 0; c < channels; ++c) {
          double squares = 0;
          for (std::int64_t part = 0; part < parts; ++part) squares += partials(sample, part)[c];
          norm[c] = static_cast<float>(std::sqrt(squares));
          total += norm[c];
        }
        to.inverse[sample] = static_cast<float>(1.0 / (total / static_cast<double>(channels) + to.epsilon));
      },
      [&](std::int64_t sample, std::int64_t part) {
        if (y != nullptr) response.apply(sample, part, y);
      });
}

/// Backward. Workspace: the sums Σ dy and Σ dy·x of a sample's parts (samples, parts, 2, channels), the factors of x in
/// dx (samples, channels), and each sample's share in dshift and dscale (samples, 2, channels).
template <class T>
struct ResponseGradient {
  Response<T> response;
  const T* dy;
  T* dx;
  float* workspace;

  std::int64_t channels() const { return response.channels(); }
  std::int64_t samples() const { return response.cut.shape.samples; }
  float* partials(std::int64_t sample, std::int64_t part) const {
    return workspace + (sample * response.cut.parts + part) * 2 * channels();
  }
  float* slopes(std::int64_t sample) const { return partials(samples(), 0) + sample * channels(); }
  float* shares(std::int64_t sample) const { return slopes(samples()) + sample * 2 * channels(); }

  void add_part(std::int64_t sample, std::int64_t part) const {
    const std::int64_t elements = response.positions() * channels();
    const T *x = response.x(sample), *g = dy + response.cut.offset(sample);
    float* sums[2] = {partials(sample, part), partials(sample, part) + channels()};
    std::fill(sums[0], sums[0] + 2 * channels(), 0.0f);
    sum_columns<2>(response.cut.positions(part), channels(), sums,
                   [=](std::int64_t at, std::int64_t, std::int64_t lanes, Float8* sum) {
                     const Float8 d = load_lanes(g + at, lanes, elements - at);
                     sum[0] += d;
                     sum[1] += d * load_lanes(x + at, lanes, elements - at);
                   });
  }

  /// The sample's shares, and its slopes dG/G, 0 where G is.
  void finish_sums(std::int64_t sample) const {
    const ResponseOperand& operand = response.operand;
    float *slope = slopes(sample), *shift = shares(sample), *scale = shift + channels();
    double mean = 0;  // of dN·N
    for (std::int64_t c = 0; c < channels(); ++c) {
      double sum = 0, products = 0;
      for (std::int64_t part = 0; part < response.cut.parts; ++part) {
        sum += partials(sample, part)[c];
        products += partials(sample, part)[channels() + c];
      }
      shift[c] = static_cast<float>(sum);
      scale[c] = static_cast<float>(products * response.response(sample, c));
      slope[c] = static_cast<float>(products * operand.scale[c]);  // dN
      mean += products * operand.scale[c] * response.response(sample, c);
    }
    mean /= static_cast<double>(channels());
    for (std::int64_t c = 0; c < channels(); ++c) {
      const float norm = operand.norm[sample * channels() + c];
      slope[c] = norm > 0 ? static_cast<float>(operand.inverse[sample] * (slope[c] - mean) / norm) : 0.0f;
    }
  }

  /// dx = dy·(γ·N + 1) + x·slope.
  void input_part(std::int64_t sample, std::int64_t part) const {
    const RowBlock rows = response.cut.positions(part);
    const std::int64_t first = rows.begin * channels(), offset = response.cut.offset(sample) + first;
    const T *x = response.x(sample) + first, *g = dy + offset;
    T* to = dx + offset;
    map_channels<2>(
        rows.end - rows.begin, channels(), 1,
        [&](std::int64_t c, float* p) {
          p[0] = response.factor(sample, c);
          p[1] = slopes(sample)[c];
        },
        [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
          store_lanes(to + at, lanes, load_lanes(g + at, lanes) * p[0] + load_lanes(x + at, lanes) * p[1]);
        });
  }
};

}  // namespace

void global_response_forward(const Exec& exec, const GroupNormShape& shape, DType dtype, const ResponseOperand& operand,
                             const ResponseStatistics& to, void* y, Workspace workspace) {
  if (shape.elements() <= 0) return;
  require_workspace(workspace, global_response_workspace_bytes(shape, DeviceKind::cpu), "global_response_forward");
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    ResponseOperand written = operand;
    written.norm = to.norm;
    written.inverse = to.inverse;
    forward<T>(exec, {SampleParts(shape), written}, to, static_cast<T*>(y), static_cast<float*>(workspace.data));
  });
}

void global_response_apply(const Exec& exec, const GroupNormShape& shape, DType dtype, const ResponseOperand& operand,
                           void* y) {
  if (shape.elements() <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Response<T> response{SampleParts(shape), operand};
    const std::int64_t parts = response.cut.parts;
    parallel_parts(shape.samples * parts, exec.threads,
                   [&](std::int64_t item) { response.apply(item / parts, item % parts, static_cast<T*>(y)); });
  });
}

void global_response_backward(const Exec& exec, const GroupNormShape& shape, DType dtype,
                              const ResponseOperand& operand, const void* dy, const NormGradients& to,
                              Workspace workspace) {
  if (shape.elements() <= 0) {
    for (float* sum : {to.dscale, to.dshift})
      if (sum != nullptr && !to.accumulate) std::fill(sum, sum + shape.channels, 0.0f);
    return;
  }
  require_workspace(workspace, global_response_workspace_bytes(shape, DeviceKind::cpu), "global_response_backward");
  float* sums = static_cast<float*>(workspace.data);  // (2, channels)
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const SampleParts cut(shape);
    const ResponseGradient<T> gradient{
        {cut, operand}, static_cast<const T*>(dy), static_cast<T*>(to.dx), sums + 2 * shape.channels};
    cut.run(
        exec, [&](std::int64_t sample, std::int64_t part) { gradient.add_part(sample, part); },
        [&](std::int64_t sample) { gradient.finish_sums(sample); },
        [&](std::int64_t sample, std::int64_t part) {
          if (gradient.dx != nullptr) gradient.input_part(sample, part);
        });
    add_parts(gradient.shares(0), shape.samples, 2 * shape.channels, sums, false, exec.threads);
  });
  store_gradients(sums, shape.channels, {to.dscale, to.dshift, to.accumulate});
}

}  // namespace bantam::kernels::cpu

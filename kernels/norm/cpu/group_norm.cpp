// Group normalisation on the CPU: channels' moments, merged to those of groups; a sample stays in cache from its
// moments to its output where it is one part. Groups that are rows of memory have loops of their own (row_norm.h).
#include "bantam/kernels/norm/group_norm.h"

#include <cmath>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/norm/cpu/batch_norm_passes.h"
#include "bantam/kernels/norm/cpu/channel_moments.h"
#include "bantam/kernels/norm/cpu/row_norm.h"
#include "bantam/kernels/norm/cpu/sample_parts.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kRowValues = 32768;  ///< values of the rows that a thread does at a time, about

/// Runs range(first row, end) over the rows of a norm over rows of memory.
template <class Range>
void for_rows(const Exec& exec, const GroupNormShape& shape, Range&& range) {
  const std::int64_t grain = std::max<std::int64_t>(1, kRowValues / shape.group_channels());
  parallel_ranges(shape.samples * shape.groups, grain, exec.threads, range);
}

/// Where forward writes a call's statistics (samples, groups).
struct GroupStatistics {
  float* mean;
  float* inv_std;
  float epsilon;
};

/// A norm over images: several positions a sample.
template <class T>
struct ImageNorm {
  SampleParts cut;
  NormOperand norm;

  const GroupNormShape& shape() const { return cut.shape; }
  const T* x(std::int64_t sample) const { return static_cast<const T*>(norm.x) + cut.offset(sample); }
  float mean(std::int64_t sample, std::int64_t c) const {
    return norm.mean[sample * shape().groups + c / shape().group_channels()];
  }
  float inv_std(std::int64_t sample, std::int64_t c) const {
    return norm.inv_std[sample * shape().groups + c / shape().group_channels()];
  }

  /// y = f(z) of one part of a sample.
  void normalise(std::int64_t sample, std::int64_t part, T* y) const {
    with_activation8<T>(norm.affine.activation, [&](auto f) { normalise_by(f, sample, part, y); });
  }
  /// One function for all callers, as RowNorm::normalise_by.
  template <class Function>
  [[gnu::noinline]] void normalise_by(Function f, std::int64_t sample, std::int64_t part, T* y) const {
    const RowBlock rows = cut.positions(part);
    const T* from = x(sample) + rows.begin * shape().channels;
    T* to = y + cut.offset(sample) + rows.begin * shape().channels;
    map_channels<3>(
        rows.end - rows.begin, shape().channels, 1,
        [&](std::int64_t c, float* p) {
          p[0] = mean(sample, c);
          p[1] = inv_std(sample, c) * scale_of(norm.affine, c);
          p[2] = shift_of(norm.affine, c);
        },
        [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
          store_lanes(to + at, lanes, f(linear(load_lanes(from + at, lanes), p[0], p[1], p[2])));
        });
  }
};

/// The moments of a group from those of its channels' parts, in order: `partials` (parts, 2, channels) are relative to
/// `origin` (channels).
Moments group_moments(const SampleParts& cut, const float* partials, const float* origin, std::int64_t group) {
  const std::int64_t channels = cut.shape.channels, width = cut.shape.group_channels();
  double mean = 0, m2 = 0, seen = 0;
  for (std::int64_t part = 0; part < cut.parts; ++part) {
    const RowBlock rows = cut.positions(part);
    const auto count = static_cast<double>(rows.end - rows.begin);
    const float* moments = partials + part * 2 * channels;
    for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
      const double delta = static_cast<double>(origin[c]) + moments[c] - mean;
      mean += delta * count / (seen + count);
      m2 += moments[channels + c] + delta * delta * seen * count / (seen + count);
      seen += count;
    }
  }
  return {mean, m2 / seen};
}

/// Forward over images; y may be null.
template <class T>
void image_forward(const Exec& exec, const ImageNorm<T>& image, const GroupStatistics& statistics, T* y,
                   float* workspace) {
  const SampleParts& cut = image.cut;
  const GroupNormShape& shape = cut.shape;
  // A sample's first row, to which moments are relative, then (parts, 2, channels) moments.
  const std::int64_t channels = shape.channels, each = (1 + 2 * cut.parts) * channels;
  parallel_parts(shape.samples, exec.threads,
                 [&](std::int64_t sample) { widen(image.x(sample), workspace + sample * each, channels); });
  cut.run(
      exec,
      [&](std::int64_t sample, std::int64_t part) {
        const float* origin = workspace + sample * each;
        float* mean = workspace + sample * each + (1 + 2 * part) * channels;
        part_moments(Samples<T>{image.x(sample), origin, {shape.positions, channels}}, cut.positions(part), mean,
                     mean + channels);
      },
      [&](std::int64_t sample) {
        const float* origin = workspace + sample * each;
        for (std::int64_t g = 0; g < shape.groups; ++g) {
          const Moments moments = group_moments(cut, origin + channels, origin, g);
          const std::int64_t at = sample * shape.groups + g;
          statistics.mean[at] = static_cast<float>(moments.mean);
          statistics.inv_std[at] = static_cast<float>(1.0 / std::sqrt(moments.variance + statistics.epsilon));
        }
      },
      [&](std::int64_t sample, std::int64_t part) {
        if (y != nullptr) image.normalise(sample, part, y);
      });
}

/// Backward over images. Workspace of a sample: its norm's values a channel, the sums Σ dz and Σ dz·x̂ of its parts, and
/// their totals.
template <class T>
struct ImageGradient {
  ImageNorm<T> image;
  const T* dy;
  const T* addend;  // or null
  T* dx;
  float* workspace;

  std::int64_t channels() const { return image.shape().channels; }
  float* values(std::int64_t sample) const { return workspace + sample * (4 + 2 * image.cut.parts) * channels(); }
  float* partials(std::int64_t sample, std::int64_t part) const { return values(sample) + (4 + 2 * part) * channels(); }
  /// (samples, 2, channels)
  float* totals(std::int64_t sample) const { return values(image.shape().samples) + sample * 2 * channels(); }

  /// mean, inv_std, factor and shift a channel.
  void expand(std::int64_t sample) const {
    float* to = values(sample);
    for (std::int64_t c = 0; c < channels(); ++c) {
      to[c] = image.mean(sample, c);
      to[channels() + c] = image.inv_std(sample, c);
      to[2 * channels() + c] = to[channels() + c] * scale_of(image.norm.affine, c);
      to[3 * channels() + c] = shift_of(image.norm.affine, c);
    }
  }

  void add_part(std::int64_t sample, std::int64_t part) const {
    with_activation8<T>(image.norm.affine.activation, [&](auto f) { add_part_by(f, sample, part); });
  }
  template <class Function>
  [[gnu::noinline]] void add_part_by(Function f, std::int64_t sample, std::int64_t part) const {
    const std::int64_t elements = image.shape().positions * channels(), stride = channels();
    const T *x = image.x(sample), *g = dy + image.cut.offset(sample);
    const float* kept = values(sample);
    float* sums[2] = {partials(sample, part), partials(sample, part) + stride};
    std::fill(sums[0], sums[0] + 2 * stride, 0.0f);
    sum_columns<2>(
        image.cut.positions(part), stride, sums, [=](std::int64_t at, std::int64_t c, std::int64_t lanes, Float8* sum) {
          const Float8 v = load_lanes(x + at, lanes, elements - at), mean = load_lanes(kept + c, lanes);
          const Float8 z =
              linear(v, mean, load_lanes(kept + 2 * stride + c, lanes), load_lanes(kept + 3 * stride + c, lanes));
          const Float8 dz = load_lanes(g + at, lanes, elements - at) * f.derivative(z);
          sum[0] += dz;
          sum[1] += dz * ((v - mean) * load_lanes(kept + stride + c, lanes));
        });
  }

  /// The sample's totals; and in place of the first part's sums, the means over a group of w and of w·x̂, w = scale·dz.
  void finish_sums(std::int64_t sample) const {
    const std::int64_t width = image.shape().group_channels();
    add_parts(partials(sample, 0), image.cut.parts, 2 * channels(), totals(sample), false, 1);
    const float *shift = totals(sample), *scale = shift + channels();
    const auto count = static_cast<double>(width * image.shape().positions);
    for (std::int64_t first = 0; first < channels(); first += width) {
      double sum = 0, products = 0;
      for (std::int64_t c = first; c < first + width; ++c) {
        sum += static_cast<double>(scale_of(image.norm.affine, c)) * shift[c];
        products += static_cast<double>(scale_of(image.norm.affine, c)) * scale[c];
      }
      float* means = partials(sample, 0);
      std::fill(means + first, means + first + width, static_cast<float>(sum / count));
      std::fill(means + channels() + first, means + channels() + first + width, static_cast<float>(products / count));
    }
  }

  /// dx = inv_std·(w - mean(w) - x̂·mean(w·x̂)) + addend.
  void input_part(std::int64_t sample, std::int64_t part) const {
    with_activation8<T>(image.norm.affine.activation, [&](auto f) { input_part_by(f, sample, part); });
  }
  template <class Function>
  [[gnu::noinline]] void input_part_by(Function f, std::int64_t sample, std::int64_t part) const {
    const RowBlock rows = image.cut.positions(part);
    const std::int64_t first = rows.begin * channels();
    const T *x = image.x(sample) + first, *g = dy + image.cut.offset(sample) + first;
    const T* more = addend != nullptr ? addend + image.cut.offset(sample) + first : nullptr;
    T* to = dx + image.cut.offset(sample) + first;
    const float *kept = values(sample), *means = partials(sample, 0);
    map_channels<6>(
        rows.end - rows.begin, channels(), 1,
        [&](std::int64_t c, float* p) {
          for (int k = 0; k < 4; ++k) p[k] = kept[k * channels() + c];
          p[4] = means[c];
          p[5] = means[channels() + c];
        },
        [=](std::int64_t at, std::int64_t lanes, const Float8* p) {
          const Float8 v = load_lanes(x + at, lanes);
          const Float8 dz = load_lanes(g + at, lanes) * f.derivative(linear(v, p[0], p[2], p[3]));
          Float8 gradient = p[2] * dz - p[1] * (p[4] + ((v - p[0]) * p[1]) * p[5]);
          if (more != nullptr) gradient += load_lanes(more + at, lanes);
          store_lanes(to + at, lanes, gradient);
        });
  }
};

/// dx, and the sums of all samples to `sums` (2, channels).
template <class T>
void image_backward(const Exec& exec, const ImageGradient<T>& gradient, float* sums) {
  const SampleParts& cut = gradient.image.cut;
  parallel_parts(cut.shape.samples, exec.threads, [&](std::int64_t sample) { gradient.expand(sample); });
  cut.run(
      exec, [&](std::int64_t sample, std::int64_t part) { gradient.add_part(sample, part); },
      [&](std::int64_t sample) { gradient.finish_sums(sample); },
      [&](std::int64_t sample, std::int64_t part) {
        if (gradient.dx != nullptr) gradient.input_part(sample, part);
      });
  add_parts(gradient.totals(0), cut.shape.samples, 2 * cut.shape.channels, sums, false, exec.threads);
}

/// dx of a norm over rows, and the sums of all samples to `sums` (2, channels).
template <class T>
void row_backward(const Exec& exec, const RowNormGradient<T>& gradient, float* sums, float* workspace) {
  const GroupNormShape& shape = gradient.norm.shape;
  const std::int64_t parts = sum_parts(shape.samples, shape.channels, DeviceKind::cpu), count = 2 * shape.channels;
  float* blocks = workspace + parts * count;
  parallel_parts(parts, exec.threads, [&](std::int64_t part) {
    row_gradients(gradient, {part_begin(shape.samples, parts, part), part_begin(shape.samples, parts, part + 1)},
                  workspace + part * count, blocks + part * count);
  });
  add_parts(workspace, parts, count, sums, false, exec.threads);
}

}  // namespace

void group_norm_forward(const Exec& exec, const GroupNormShape& shape, DType dtype, const void* x,
                        const BatchNormAffine& affine, float epsilon, void* y, float* mean, float* inv_std,
                        Workspace workspace) {
  if (shape.elements() <= 0) return;
  require_workspace(workspace, group_norm_workspace_bytes(shape, dtype, DeviceKind::cpu), "group_norm_forward");
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = static_cast<T*>(y);
    if (shape.positions > 1)
      return image_forward<T>(exec, {SampleParts(shape), {x, affine, mean, inv_std}}, {mean, inv_std, epsilon}, to,
                              static_cast<float*>(workspace.data));
    const RowNorm<T> norm{shape, static_cast<const T*>(x), affine};
    for_rows(exec, shape, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        row_statistics(norm.x + row * norm.width(), norm.width(), epsilon, mean[row], inv_std[row]);
        if (to != nullptr) norm.normalise(row, mean[row], inv_std[row], to);
      }
    });
  });
}

void group_norm_apply(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm, void* y) {
  if (shape.elements() <= 0) return;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = static_cast<T*>(y);
    if (shape.positions > 1) {
      const ImageNorm<T> image{SampleParts(shape), norm};
      return parallel_parts(shape.samples * image.cut.parts, exec.threads, [&](std::int64_t item) {
        image.normalise(item / image.cut.parts, item % image.cut.parts, to);
      });
    }
    const RowNorm<T> rows{shape, static_cast<const T*>(norm.x), norm.affine};
    for_rows(exec, shape, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) rows.normalise(row, norm.mean[row], norm.inv_std[row], to);
    });
  });
}

void group_norm_backward(const Exec& exec, const GroupNormShape& shape, DType dtype, const NormOperand& norm,
                         const void* dy, const void* addend, const NormGradients& to, Workspace workspace) {
  if (shape.elements() <= 0) {
    for (float* sum : {to.dscale, to.dshift})
      if (sum != nullptr && !to.accumulate) std::fill(sum, sum + shape.channels, 0.0f);
    return;
  }
  require_workspace(workspace, group_norm_workspace_bytes(shape, dtype, DeviceKind::cpu), "group_norm_backward");
  float* sums = static_cast<float*>(workspace.data);  // (2, channels)
  float* rest = sums + 2 * shape.channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *g = static_cast<const T*>(dy), *more = static_cast<const T*>(addend);
    T* dx = static_cast<T*>(to.dx);
    if (shape.positions > 1)
      return image_backward(exec, ImageGradient<T>{{SampleParts(shape), norm}, g, more, dx, rest}, sums);
    const RowNorm<T> rows{shape, static_cast<const T*>(norm.x), norm.affine};
    row_backward(exec, RowNormGradient<T>{rows, norm.mean, norm.inv_std, g, more, dx}, sums, rest);
  });
  store_gradients(sums, shape.channels, {to.dscale, to.dshift, to.accumulate});
}

}  // namespace bantam::kernels::cpu

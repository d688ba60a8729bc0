// Resizing on the CPU: rows in parallel, eight channels at a time; gradients gather.
#include "bantam/kernels/image/resize2d.h"

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/image/cpu/image_rows.h"

namespace bantam::kernels::cpu {
namespace {

/// Calls run(h, w) with the axes of the shape's mode.
template <class Run>
void with_axes(const Resize2dShape& s, Run&& run) {
  if (s.mode == ResizeMode::nearest) return run(nearest_axis(s.in_h, s.out_h), nearest_axis(s.in_w, s.out_w));
  const bool align = s.mode == ResizeMode::bilinear_align_corners;
  run(bilinear_axis(s.in_h, s.out_h, align), bilinear_axis(s.in_w, s.out_w, align));
}

template <class T>
void blend_rows(const Exec& exec, const Resize2dShape& s, const BilinearAxis& h, const BilinearAxis& w, const T* x,
                T* y) {
  const std::int64_t channels = s.channels;
  for_image_rows(s.batch, s.out_h, s.out_w * channels, exec.threads, [&](std::int64_t n, std::int32_t row) {
    const Blend rows = h.blend(row);
    const T* top = x + (n * s.in_h + rows.low) * s.in_w * channels;
    const T* bottom = x + (n * s.in_h + rows.high) * s.in_w * channels;
    T* to = y + (n * s.out_h + row) * s.out_w * channels;
    for (std::int32_t column = 0; column < s.out_w; ++column, to += channels) {
      const Blend columns = w.blend(column);
      const std::int64_t low = columns.low * channels, high = columns.high * channels;
      for (std::int64_t c = 0; c < channels; c += kLanes) {
        const std::int64_t lanes = std::min(kLanes, channels - c);
        const auto across = [&](const T* line) __attribute__((always_inline)) {
          return load_lanes(line + low + c, lanes) * (1.0f - columns.weight) +
                 load_lanes(line + high + c, lanes) * columns.weight;
        };
        store_lanes(to + c, lanes, across(top) * (1.0f - rows.weight) + across(bottom) * rows.weight);
      }
    }
  });
}

}  // namespace

void resize2d_forward(const Exec& exec, const Resize2dShape& s, DType dtype, const void* x, void* y) {
  if (s.mode == ResizeMode::nearest) {
    copy_sources(exec, {s.batch, s.channels}, nearest_axis(s.in_h, s.out_h), nearest_axis(s.in_w, s.out_w),
                 static_cast<std::int64_t>(size_of(dtype)), x, y);
    return;
  }
  const bool align = s.mode == ResizeMode::bilinear_align_corners;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    blend_rows(exec, s, bilinear_axis(s.in_h, s.out_h, align), bilinear_axis(s.in_w, s.out_w, align),
               static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void resize2d_grad_input(const Exec& exec, const Resize2dShape& s, DType dtype, const void* dy, void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_axes(s, [&](const auto& h, const auto& w) {
      sum_readers(exec, {s.batch, s.channels}, h, w, static_cast<const T*>(dy), static_cast<T*>(dx));
    });
  });
}

}  // namespace bantam::kernels::cpu

// Patches of one image, a bounded number of output pixels at a time, and their products with the weights of each group.
#include "bantam/kernels/conv/cpu/patches.h"

#include <algorithm>

#include "bantam/kernels/matmul/cpu/gemm.h"

namespace bantam::kernels::cpu {
namespace {

/// Calls `pixel_tap(patch_offset, image_offset)` for each tap of output pixel `pixel`: offsets of runs of a group's
/// input channels in the patch and in the image; image_offset is -1 in the padding.
template <class Tap>
void for_each_tap(const Conv2dShape& s, std::int64_t pixel, Tap&& tap) {
  const std::int64_t channels = s.in_channels / s.groups;
  const std::int64_t row = pixel / s.out_w() * s.stride_h - s.pad_top,
                     column = pixel % s.out_w() * s.stride_w - s.pad_left;
  std::int64_t at = 0;
  for (std::int64_t a = 0; a < s.kernel_h; ++a) {
    const std::int64_t i = row + a * s.dilation_h;
    for (std::int64_t b = 0; b < s.kernel_w; ++b, at += channels) {
      const std::int64_t j = column + b * s.dilation_w;
      const bool inside = i >= 0 && i < s.in_h && j >= 0 && j < s.in_w;
      tap(at, inside ? (i * s.in_w + j) * s.in_channels : -1);
    }
  }
}

void gather(const Conv2dShape& s, std::int64_t first, std::int64_t pixels, const float* x_group, float* patches) {
  const std::int64_t channels = s.in_channels / s.groups, length = s.kernel_h * s.kernel_w * channels;
  for (std::int64_t p = 0; p < pixels; ++p) {
    float* patch = patches + p * length;
    for_each_tap(s, first + p, [&](std::int64_t at, std::int64_t from) {
      if (from < 0) {
        std::fill_n(patch + at, channels, 0.0f);
      } else {
        std::copy_n(x_group + from, channels, patch + at);
      }
    });
  }
}

void scatter_add(const Conv2dShape& s, std::int64_t first, std::int64_t pixels, const float* patches, float* dx_group) {
  const std::int64_t channels = s.in_channels / s.groups, length = s.kernel_h * s.kernel_w * channels;
  for (std::int64_t p = 0; p < pixels; ++p) {
    const float* patch = patches + p * length;
    for_each_tap(s, first + p, [&](std::int64_t at, std::int64_t to) {
      if (to < 0) return;
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) dx_group[to + c] += patch[at + c];
    });
  }
}

/// Calls `body(group, first, pixels)` over the output pixels of an image, as many at a time as the buffer holds patches
/// of.
template <class Body>
void for_each_chunk(const Conv2dShape& s, PatchBuffer buffer, Body&& body) {
  const std::int64_t length = s.kernel_h * s.kernel_w * (s.in_channels / s.groups), total = s.out_h() * s.out_w();
  const std::int64_t chunk = std::max<std::int64_t>(1, buffer.floats / length);
  for (std::int64_t group = 0; group < s.groups; ++group) {
    for (std::int64_t first = 0; first < total; first += chunk) body(group, first, std::min(chunk, total - first));
  }
}

/// Sizes of one group: input channels, output channels, length of a patch.
struct Group {
  explicit Group(const Conv2dShape& s)
      : in(s.in_channels / s.groups), out(s.out_channels / s.groups), length(s.kernel_h * s.kernel_w * in) {}
  std::int64_t in, out, length;
};

}  // namespace

void patches_forward(const Conv2dShape& s, const float* x, const float* w, float* y, PatchBuffer buffer) {
  const Group g(s);
  for_each_chunk(s, buffer, [&](std::int64_t group, std::int64_t first, std::int64_t pixels) {
    gather(s, first, pixels, x + group * g.in, buffer.data);
    gemm({pixels, g.out, g.length}, {buffer.data, g.length, false}, {w + group * g.out * g.length, g.length, true},
         y + first * s.out_channels + group * g.out, s.out_channels, false);
  });
}

void patches_grad_input(const Conv2dShape& s, const float* dy, const float* w, float* dx, PatchBuffer buffer) {
  const Group g(s);
  std::fill_n(dx, s.in_h * s.in_w * s.in_channels, 0.0f);
  for_each_chunk(s, buffer, [&](std::int64_t group, std::int64_t first, std::int64_t pixels) {
    gemm({pixels, g.length, g.out}, {dy + first * s.out_channels + group * g.out, s.out_channels, false},
         {w + group * g.out * g.length, g.length, false}, buffer.data, g.length, false);
    scatter_add(s, first, pixels, buffer.data, dx + group * g.in);
  });
}

void patches_grad_weight(const Conv2dShape& s, const float* x, const float* dy, float* dw, bool accumulate,
                         PatchBuffer buffer) {
  const Group g(s);
  for_each_chunk(s, buffer, [&](std::int64_t group, std::int64_t first, std::int64_t pixels) {
    gather(s, first, pixels, x + group * g.in, buffer.data);
    gemm({g.out, g.length, pixels}, {dy + first * s.out_channels + group * g.out, s.out_channels, true},
         {buffer.data, g.length, false}, dw + group * g.out * g.length, g.length, accumulate || first > 0);
  });
}

}  // namespace bantam::kernels::cpu

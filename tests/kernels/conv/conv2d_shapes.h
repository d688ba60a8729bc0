// Test support: the convolutions that every backend is tried on.
#pragma once

#include <string>
#include <vector>

#include "bantam/kernels/conv/conv2d.h"

namespace bantam::testing {

using kernels::Conv2dPass;
using kernels::Conv2dShape;

inline Conv2dShape with_padding(Conv2dShape s, std::int64_t top, std::int64_t bottom, std::int64_t left,
                                std::int64_t right) {
  s.pad_top = top, s.pad_bottom = bottom, s.pad_left = left, s.pad_right = right;
  return s;
}

inline Conv2dShape base(std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out, std::int64_t kernel,
                        std::int64_t stride = 1) {
  return {.batch = batch,
          .in_h = size,
          .in_w = size,
          .in_channels = in,
          .out_channels = out,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride_h = stride,
          .stride_w = stride};
}

inline std::vector<Conv2dShape> shapes() {
  std::vector<Conv2dShape> all;
  all.push_back(base(2, 5, 3, 4, 3));                              // valid
  all.push_back(with_padding(base(3, 16, 3, 32, 3), 1, 1, 1, 1));  // same; first layer
  all.push_back(with_padding(base(4, 12, 16, 24, 3), 1, 1, 1, 1));
  all.push_back(with_padding(base(3, 10, 8, 8, 3, 2), 0, 1, 0, 1));  // Keras' same at stride 2
  all.push_back(with_padding(base(1, 9, 5, 7, 3, 2), 1, 1, 1, 1));   // batch 1, odd channels
  all.push_back(with_padding(base(2, 11, 17, 19, 5, 2), 1, 2, 2, 1));
  all.push_back(with_padding(base(2, 13, 3, 9, 7, 2), 3, 3, 3, 3));
  all.push_back(base(3, 8, 12, 6, 1, 2));  // 1x1 with stride
  all.push_back(base(2, 10, 4, 5, 3, 3));
  all.push_back(base(5, 7, 33, 20, 1));                           // a matrix product
  all.push_back(with_padding(base(2, 6, 9, 10, 1), 1, 1, 1, 1));  // 1x1 with padding
  all.push_back(base(2, 6, 8, 8, 2, 2));                          // even kernel
  all.push_back(base(3, 20, 3, 16, 4, 4));                        // ConvNeXt's stem: patches
  all.push_back(base(4, 10, 1, 7, 5, 5));                         // patches of an odd row
  Conv2dShape patches = base(2, 35, 3, 24, 16, 16);               // a vision transformer's, rows left over
  patches.in_w = 48;
  all.push_back(patches);
  Conv2dShape dilated = with_padding(base(2, 12, 8, 16, 3), 2, 2, 2, 2);
  dilated.dilation_h = dilated.dilation_w = 2;
  all.push_back(dilated);
  Conv2dShape grouped = with_padding(base(2, 8, 12, 8, 3), 1, 1, 1, 1);
  grouped.groups = 4;
  all.push_back(grouped);
  grouped = with_padding(base(3, 9, 32, 32, 3, 2), 0, 1, 1, 1);
  grouped.groups = 2;
  all.push_back(grouped);
  grouped = base(2, 6, 6, 12, 3);  // one input channel a group
  grouped.groups = 6;
  all.push_back(grouped);
  Conv2dShape oblong = with_padding(base(2, 9, 6, 10, 3), 0, 1, 2, 0);
  oblong.in_w = 14, oblong.kernel_w = 5, oblong.stride_w = 2, oblong.dilation_h = 2, oblong.dilation_w = 1;
  all.push_back(oblong);
  return all;
}

/// First layers: few input channels and output channels in eights, which GPUs have kernels of their own for. Sizes that
/// are no multiple of a tile, several groups of output channels, every stride and kernel parity.
inline std::vector<Conv2dShape> image_shapes() {
  std::vector<Conv2dShape> all = {
      with_padding(base(3, 37, 3, 64, 7, 2), 3, 3, 3, 3),  // ResNet's
      with_padding(base(2, 33, 3, 32, 3, 2), 0, 1, 0, 1),  // MobileNet's, Keras' padding
      with_padding(base(5, 20, 3, 64, 3), 1, 1, 1, 1),     // CIFAR's
      base(3, 19, 3, 24, 2),                               // whitening patches
      with_padding(base(2, 21, 1, 40, 5), 2, 2, 2, 2),     // grey, two groups of channels
      with_padding(base(2, 18, 4, 136, 7), 3, 3, 3, 3),    // four channels, stride 1, three groups
      with_padding(base(1, 16, 2, 8, 1, 2), 1, 0, 1, 0),   // one tap
  };
  Conv2dShape oblong = with_padding(base(2, 23, 3, 72, 4), 1, 2, 0, 3);
  oblong.in_w = 50, oblong.kernel_w = 6, oblong.stride_h = 2;
  all.push_back(oblong);
  oblong.kernel_h = 7, oblong.kernel_w = 3, oblong.stride_h = 1, oblong.stride_w = 2;
  all.push_back(oblong);
  return all;
}

inline std::string describe(const Conv2dShape& s, DType dtype, Conv2dPass pass) {
  std::string text(to_string(dtype));
  text += pass == Conv2dPass::forward ? " forward" : pass == Conv2dPass::grad_input ? " grad_input" : " grad_weight";
  for (const std::int64_t v :
       {s.batch, s.in_h, s.in_w, s.in_channels, s.out_channels, s.kernel_h, s.kernel_w, s.stride_h, s.stride_w,
        s.pad_top, s.pad_bottom, s.pad_left, s.pad_right, s.dilation_h, s.groups}) {
    text += " " + std::to_string(v);
  }
  return text;
}

/// Enough work that the batch is cut in many parts, with a shorter last block.
inline std::vector<Conv2dShape> large_shapes() {
  Conv2dShape grouped = with_padding(base(7, 28, 64, 64, 3), 1, 1, 1, 1);
  grouped.groups = 8;
  return {with_padding(base(35, 32, 3, 32, 3), 1, 1, 1, 1), with_padding(base(13, 32, 32, 64, 3, 2), 0, 1, 0, 1),
          base(5, 56, 128, 64, 1, 2), base(6, 28, 64, 96, 1), grouped};
}

}  // namespace bantam::testing

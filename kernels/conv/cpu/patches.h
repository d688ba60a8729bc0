// Convolution of one image by patches (im2col) and single-threaded products: for shapes without a fast oneDNN kernel.
#pragma once

#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cpu {

/// Room for patches: at least one row of kernel_h · kernel_w · in_channels/groups floats.
struct PatchBuffer {
  float* data = nullptr;
  std::int64_t floats = 0;
};

/// y of one image.
void patches_forward(const Conv2dShape& shape, const float* x, const float* w, float* y, PatchBuffer buffer);
/// dx of one image, overwritten.
void patches_grad_input(const Conv2dShape& shape, const float* dy, const float* w, float* dx, PatchBuffer buffer);
/// dw of one image, in the contract's order; added where `accumulate`.
void patches_grad_weight(const Conv2dShape& shape, const float* x, const float* dy, float* dw, bool accumulate,
                         PatchBuffer buffer);

}  // namespace bantam::kernels::cpu

// Convolutions by blocks of images: a library's kernels, or patches, one thread a block.
#pragma once

#include "bantam/kernels/common/cpu/conv_library.h"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cpu {

/// A convolution that is neither a matrix product nor empty. Workspace of plan_conv2d.
struct BlockConv2d {
  Conv2dShape shape;
  DType dtype = DType::float32;
  const LibraryConv2d* kernels = nullptr;  ///< of the pass; null: patches
};

/// As the contract's calls.
void block_conv2d_forward(const Exec& exec, const BlockConv2d& conv, const void* x, const void* w, void* y,
                          Workspace workspace);
void block_conv2d_grad_input(const Exec& exec, const BlockConv2d& conv, const void* dy, const void* w, void* dx,
                             Workspace workspace);
void block_conv2d_grad_weight(const Exec& exec, const BlockConv2d& conv, const void* x, const void* dy,
                              const Conv2dWeightGradient& to, Workspace workspace);

}  // namespace bantam::kernels::cpu

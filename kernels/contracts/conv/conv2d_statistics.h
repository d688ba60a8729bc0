// A convolution that gives the batch's statistics of its output too, for the batch norm that reads it: where a kernel
// can take them of what it writes, the pass that would read the output once more for them is gone.
#pragma once

#include "bantam/kernels/contracts/conv/conv2d.h"
#include "bantam/kernels/contracts/norm/statistics_output.h"

namespace bantam::kernels {

/// Whether a CUDA kernel takes the statistics of what it writes, whatever the batch. Others make a pass of their own
/// over y, which gains nothing over the norm's.
bool conv2d_writes_statistics(const Conv2dShape& shape, DType dtype);

/// Scratch bytes; shape, dtype and target only.
std::size_t conv2d_statistics_workspace_bytes(const Conv2dShape& shape, DType dtype, DeviceKind target);

/// y as conv2d_forward says, and the statistics of y's channels, as numerically safe as batch_norm_forward_training's
/// (a mean that is large beside the deviation costs no digits). Nothing aliases. Deterministic, but the bits of y and
/// of the statistics may be others than those of the two ops one after another.
using Conv2dForwardStatistics = void(const Exec&, const Conv2dShape&, DType dtype, const void* x, const void* w,
                                     void* y, const StatisticsOutput& statistics, Workspace);

namespace cpu {
Conv2dForwardStatistics conv2d_forward_statistics;
}  // namespace cpu
namespace cuda {
Conv2dForwardStatistics conv2d_forward_statistics;
}  // namespace cuda
namespace meta {
Conv2dForwardStatistics conv2d_forward_statistics;
}  // namespace meta

}  // namespace bantam::kernels

// Batch statistics computed by the convolution that writes the norm's input: where its kernel can add them up as it
// writes, no further pass reads the output for them.
#pragma once

#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/statistics_output.h"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels {

/// Whether a CUDA kernel computes the statistics as it writes y, for any batch. Other kernels compute them in a further
/// pass over y, which is no faster than the norm's own.
bool conv2d_writes_statistics(const Conv2dShape& shape, DType dtype);

/// Scratch bytes; shape, dtype and target only.
std::size_t conv2d_statistics_workspace_bytes(const Conv2dShape& shape, DType dtype, DeviceKind target);

/// y as conv2d_forward says, and the statistics of y's channels, as numerically safe as batch_norm_forward_training's
/// (a mean that is large beside the deviation costs no digits). Nothing aliases. Deterministic, but the bits of y and
/// of the statistics may be others than those of the two ops one after another.
using Conv2dForwardStatistics = void(const Exec&, const Conv2dShape&, DType dtype, const void* x, const void* w,
                                     void* y, const StatisticsOutput& statistics, Workspace);

BANTAM_DECLARE_KERNEL(Conv2dForwardStatistics, conv2d_forward_statistics);

}  // namespace bantam::kernels

// The statistics of a tensor by a pass over it, where the kernel that wrote it did not compute them.
#pragma once

#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::kernels {

/// Those of y (rows, channels), by a backend's `norm`, as `output` asks; nothing where it wants none. Workspace:
/// batch_norm_workspace_bytes.
inline void statistics_pass(BatchNormForwardTraining& norm, const Exec& exec, const BatchNormShape& shape, DType dtype,
                            const void* y, const StatisticsOutput& output, Workspace workspace) {
  if (!output.wanted()) return;
  norm(exec, shape, dtype, y, {}, nullptr, output, workspace);
}

}  // namespace bantam::kernels

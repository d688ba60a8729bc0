// Convolution with statistics on the CPU: the convolution, then a pass for the statistics.
#include "bantam/kernels/conv/conv2d_statistics.h"

#include "bantam/kernels/conv/conv2d_statistics_parts.h"
#include "bantam/kernels/norm/statistics_pass.h"

namespace bantam::kernels::cpu {

void conv2d_forward_statistics(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                               void* y, const StatisticsOutput& statistics, Workspace workspace) {
  conv2d_forward(exec, shape, dtype, x, w, y, workspace);
  statistics_pass(batch_norm_forward_training, exec, output_rows(shape), dtype, y, statistics, workspace);
}

}  // namespace bantam::kernels::cpu

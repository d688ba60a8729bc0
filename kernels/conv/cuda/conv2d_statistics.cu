// Convolutions with statistics on a GPU: computed by the kernel that writes the output where that supports it, else in
// a pass after it.
#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/conv/conv2d_statistics.h"
#include "bantam/kernels/conv/conv2d_statistics_parts.h"
#include "bantam/kernels/conv/cuda/small_channels.h"
#include "bantam/kernels/conv/cuda/warpgroup_conv3x3.h"
#include "bantam/kernels/norm/statistics_pass.h"
#include "bantam/kernels/pointwise/cuda/pointwise_products.h"
#include "bantam/kernels/pointwise/cuda/warpgroup_product.h"

namespace bantam::kernels::cuda {
namespace {

/// An image convolution whose blocks compute moments of their output.
bool image_statistics(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                      const StatisticsOutput& statistics, Workspace workspace) {
  if (!is_image_convolution(shape, dtype)) return false;
  if (!statistics.wanted()) return image_conv2d_forward(exec, shape, dtype, x, w, y, nullptr);
  const PartMoments parts = PartMoments::at(workspace.data, image_parts(shape), shape.out_channels);
  if (!image_conv2d_forward(exec, shape, dtype, x, w, y, &parts)) return false;
  merge_part_moments(exec, parts, statistics);
  return true;
}

/// A 1x1 convolution whose warpgroups do.
bool warpgroup_statistics(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                          void* y, const StatisticsOutput& statistics, Workspace workspace) {
  const WarpgroupProduct product = warpgroup_product_of(shape, dtype);
  if (product.rows == 0) return false;
  const PartMoments parts =
      statistics.wanted() ? PartMoments::at(workspace.data, product.parts(), product.out) : PartMoments{};
  if (!warpgroup_product(exec, product, dtype, {.x = x}, w, y, parts)) return false;
  if (statistics.wanted()) merge_part_moments(exec, parts, statistics);
  return true;
}

/// A 3x3 convolution whose warpgroups do.
bool conv3x3_statistics(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                        const StatisticsOutput& statistics, Workspace workspace) {
  const WarpgroupConv3x3 problem = conv3x3_with_moments(shape, dtype);
  if (problem.batch == 0) return false;
  const PartMoments parts =
      statistics.wanted() ? PartMoments::at(workspace.data, problem.parts(), problem.out) : PartMoments{};
  if (!warpgroup_conv3x3(exec, problem, dtype, x, w, y, parts)) return false;
  if (statistics.wanted()) merge_part_moments(exec, parts, statistics);
  return true;
}

/// A pointwise convolution whose blocks do.
bool pointwise_statistics(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                          void* y, const StatisticsOutput& statistics, Workspace workspace) {
  const PointwiseShape product = pointwise_with_moments(shape, dtype);
  if (product.rows == 0) return false;
  const PartMoments parts = PartMoments::at(workspace.data, pointwise_parts(product), product.out);
  if (!pointwise_forward(exec, product, dtype, {.x = x}, w, y, parts)) return false;
  if (statistics.wanted()) merge_part_moments(exec, parts, statistics);
  return true;
}

}  // namespace

void conv2d_forward_statistics(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w,
                               void* y, const StatisticsOutput& statistics, Workspace workspace) {
  check_conv2d_type(dtype);
  require_workspace(workspace, conv2d_statistics_workspace_bytes(shape, dtype, DeviceKind::cuda),
                    "conv2d_forward_statistics");
  if (shape.y_elements() == 0) return;
  if (image_statistics(exec, shape, dtype, x, w, y, statistics, workspace)) return;
  if (warpgroup_statistics(exec, shape, dtype, x, w, y, statistics, workspace)) return;
  if (conv3x3_statistics(exec, shape, dtype, x, w, y, statistics, workspace)) return;
  if (pointwise_statistics(exec, shape, dtype, x, w, y, statistics, workspace)) return;
  conv2d_forward(exec, shape, dtype, x, w, y, workspace);
  statistics_pass(batch_norm_forward_training, exec, output_rows(shape), dtype, y, statistics, workspace);
}

}  // namespace bantam::kernels::cuda

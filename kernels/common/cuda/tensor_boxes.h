// Tensor maps: how tensor copies (TMA) of compute capability 9.0 find the boxes of a tensor.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/exec.h"

namespace bantam::kernels::cuda {

/// A tensor (d, a, b, c) of 16-bit elements, the last in a row, and the box of it that is copied at a time, of 64 c.
/// Elements outside the tensor are read as 0, and not written.
struct TensorBoxes {
  const void* data = nullptr;
  std::int64_t a = 1, b = 0, c = 0;
  std::int64_t a_stride = 0, b_stride = 0;  ///< elements
  std::int64_t box_a = 1, box_b = 0;
  std::int64_t d = 1, d_stride = 0, box_d = 1;  ///< of rank 4 only

  /// Boxes of `rows` rows of a matrix.
  static TensorBoxes of_matrix(const void* data, std::int64_t rows, std::int64_t columns, std::int64_t box_rows = 64) {
    return {.data = data, .b = rows, .c = columns, .b_stride = columns, .box_b = box_rows};
  }
  /// False where the driver refuses it.
  bool describe(DType dtype, int rank, CUtensorMap& map) const;
};

/// Whether kernels compiled for 90a alone run: on compute capability 9.0 and no other, where the rest of the build does
/// not run older code, and with a driver that makes tensor maps.
bool has_warpgroups(const Exec& exec);

}  // namespace bantam::kernels::cuda

// One float32 matrix product on one thread: the building block of matmul and of convolution by patches.
#pragma once

#include <cstdint>

namespace bantam::kernels::cpu {

/// A matrix in memory: element (i, j) is data[i · stride + j], or data[j · stride + i] where `transposed`.
struct MatrixView {
  const float* data = nullptr;
  std::int64_t stride = 0;
  bool transposed = false;

  /// The view whose element (0, 0) is this one's (row, column).
  MatrixView at(std::int64_t row, std::int64_t column) const {
    return {data + (transposed ? column * stride + row : row * stride + column), stride, transposed};
  }
};

/// The sizes of a product: C (m, n), the sum over k.
struct GemmSize {
  std::int64_t m = 0, n = 0, k = 0;
};

/// Added to a product: a value for each column, and a matrix like C with rows `residual_stride` apart. Either may be
/// null.
struct GemmAddends {
  const float* bias = nullptr;
  const float* residual = nullptr;  ///< null where the product accumulates
  std::int64_t residual_stride = 0;
};

/// C = A·B + bias + residual, or C += A·B + bias where `accumulate`; C has rows `c_stride` apart. The residual is not
/// C. Runs on the calling thread only.
void gemm(const GemmSize& size, MatrixView a, MatrixView b, float* c, std::int64_t c_stride, bool accumulate,
          const GemmAddends& addends = {});

}  // namespace bantam::kernels::cpu

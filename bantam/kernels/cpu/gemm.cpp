// Eigen's matrix product, kept to one thread: its multi-threaded sums would depend on the number of threads.
#define EIGEN_DONT_PARALLELIZE
#include "bantam/kernels/cpu/gemm.h"

#include <Eigen/Core>

namespace bantam::kernels::cpu {
namespace {

template <int kOrder>
using ConstMap = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, kOrder>, Eigen::Unaligned,
                            Eigen::OuterStride<>>;
using OutMap = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, Eigen::Unaligned,
                          Eigen::OuterStride<>>;

template <int kOrderA, int kOrderB>
void product(const GemmSize& size, MatrixView a, MatrixView b, OutMap& out, bool accumulate) {
  const ConstMap<kOrderA> left(a.data, size.m, size.k, Eigen::OuterStride<>(a.stride));
  const ConstMap<kOrderB> right(b.data, size.k, size.n, Eigen::OuterStride<>(b.stride));
  if (accumulate) {
    out.noalias() += left * right;
  } else {
    out.noalias() = left * right;
  }
}

}  // namespace

void gemm(const GemmSize& size, MatrixView a, MatrixView b, float* c, std::int64_t c_stride, bool accumulate) {
  if (size.m == 0 || size.n == 0) return;
  OutMap out(c, size.m, size.n, Eigen::OuterStride<>(c_stride));
  if (size.k == 0) {
    if (!accumulate) out.setZero();
    return;
  }
  // A transposed row-major matrix is a column-major one.
  if (!a.transposed && !b.transposed) product<Eigen::RowMajor, Eigen::RowMajor>(size, a, b, out, accumulate);
  if (!a.transposed && b.transposed) product<Eigen::RowMajor, Eigen::ColMajor>(size, a, b, out, accumulate);
  if (a.transposed && !b.transposed) product<Eigen::ColMajor, Eigen::RowMajor>(size, a, b, out, accumulate);
  if (a.transposed && b.transposed) product<Eigen::ColMajor, Eigen::ColMajor>(size, a, b, out, accumulate);
}

}  // namespace bantam::kernels::cpu

// Tensor maps by the driver.
#include "bantam/kernels/common/cuda/tensor_boxes.h"

#include <array>

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/memory/cuda/driver_entry.h"

namespace bantam::kernels::cuda {
namespace {

using EncodeTensor = PFN_cuTensorMapEncodeTiled_v12000;

/// The driver's call; null where it has none.
EncodeTensor encode_tensor() {
  static const EncodeTensor call = [] {
    EncodeTensor found = nullptr;
    cuda_backend::find_driver_entry("cuTensorMapEncodeTiled", 12000, found);
    return found;
  }();
  return call;
}

}  // namespace

bool TensorBoxes::describe(DType dtype, int rank, CUtensorMap& map) const {
  const auto type = dtype == DType::float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const auto size = [](std::int64_t value) { return static_cast<cuuint64_t>(value); };
  const auto box_of = [](std::int64_t value) { return static_cast<cuuint32_t>(value); };
  const std::array<cuuint64_t, 4> sizes{size(c), size(b), size(a), size(d)};
  const std::array<cuuint64_t, 3> strides{size(2 * b_stride), size(2 * a_stride), size(2 * d_stride)};
  const std::array<cuuint32_t, 4> box{64, box_of(box_b), box_of(box_a), box_of(box_d)};
  const std::array<cuuint32_t, 4> every{1, 1, 1, 1};
  return encode_tensor()(&map, type, static_cast<cuuint32_t>(rank), const_cast<void*>(data), sizes.data(),
                         strides.data(), box.data(), every.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                         CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool has_warpgroups(const Exec& exec) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, exec.device.index), "cudaDeviceGetAttribute");
    return value;
  };
  return Libraries::of(exec).code_architecture() >= 900 && attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         attribute(cudaDevAttrComputeCapabilityMinor) == 0 && encode_tensor() != nullptr;
}

}  // namespace bantam::kernels::cuda

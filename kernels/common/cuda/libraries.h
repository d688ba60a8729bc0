// The CUDA backend keeps these between calls: cuBLASLt and cuDNN of one device, each loaded when first used, the
// counters of kernels that finish what their blocks began, and what kernels are allowed.
#pragma once

#include <memory>
#include <mutex>

#include "bantam/kernels/common/cuda/block_counters.h"
#include "bantam/kernels/common/cuda/cublaslt.h"
#include "bantam/kernels/common/cuda/cudnn_conv2d.h"
#include "bantam/kernels/common/cuda/kernel_limits.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels::cuda {

/// Libraries of one CUDA device for one Runtime. Making it loads nothing. Thread-safe.
class Libraries final : public DeviceLibraries {
 public:
  explicit Libraries(Device device) : device_(device), block_counters_(device), kernel_limits_(device) {}
  ~Libraries() override;
  void load(const std::function<void(const char*)>& loaded) override;

  /// The CUDA libraries of a call; throws DeviceError where the caller gave none.
  static Libraries& of(const Exec& exec);

  /// Throws DeviceError where the library is missing.
  CublasLt& cublaslt();
  /// Null where the library is missing: convolutions then use our own kernels.
  Cudnn* cudnn();
  /// The algorithms of cuBLASLt and cuDNN: choices that the caller restored, and those made here.
  AlgorithmChoices& algorithms() { return algorithms_; }
  /// The architecture of the code that runs on the device (code_architecture.h): 900 for 9.0.
  int code_architecture();
  /// The device's limits for kernels.
  KernelLimits& kernel_limits() { return kernel_limits_; }
  /// Counters for kernels of `stream` (block_counters.h).
  unsigned* block_counters(Stream stream) { return block_counters_.of(stream); }

 private:
  Device device_;
  BlockCounters block_counters_;
  KernelLimits kernel_limits_;
  std::mutex guard_;
  AlgorithmChoices algorithms_;  // before its users
  std::unique_ptr<CublasLt> cublaslt_;
  std::unique_ptr<Cudnn> cudnn_;
  bool cudnn_missing_ = false;
  int code_architecture_ = 0;  ///< 0: not asked yet
};

/// Throws DeviceError where the device does not exist.
std::unique_ptr<DeviceLibraries> make_libraries(Device device);

}  // namespace bantam::kernels::cuda

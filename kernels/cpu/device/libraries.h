// What the CPU backend keeps between calls: oneDNN's engine, and its convolution kernels by shape.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "bantam/kernels/contracts/dispatch.h"
#include "bantam/kernels/cpu/device/onednn_conv2d.h"
#include "bantam/kernels/tiling/conv/conv2d_plan.h"

namespace bantam::kernels::cpu {

/// oneDNN's kernels for one convolution pass: for full blocks, for the last one, and between weight orders.
struct ConvKernels {
  std::unique_ptr<OneDnnConv2d> block;
  std::unique_ptr<OneDnnConv2d> last;  ///< where the last block is shorter
  std::unique_ptr<WeightReorder>
      reorder;  ///< plain to packed; grad_weight: packed to plain. Null where they are the same
};

/// Libraries of the CPU for one Runtime. Made cheaply: oneDNN's engine starts with the first convolution. Thread-safe.
class Libraries final : public DeviceLibraries {
 public:
  /// The CPU libraries of a call; throws DeviceError where the caller gave none.
  static Libraries& of(const Exec& exec);

  /// Null where oneDNN has no eligible kernel; our own kernels then run. Valid as long as this object.
  const ConvKernels* conv2d(const Conv2dShape& shape, Conv2dPass pass, const Conv2dPlan& plan);

 private:
  using Key = std::array<std::int64_t, 17>;
  std::unique_ptr<ConvKernels> make_conv2d(const Conv2dShape& shape, Conv2dPass pass, const Conv2dPlan& plan);

  std::mutex guard_;
  std::optional<dnnl::engine> engine_;
  std::map<Key, std::unique_ptr<ConvKernels>> convolutions_;  ///< null: not eligible
};

}  // namespace bantam::kernels::cpu

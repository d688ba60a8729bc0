// The CPU backend keeps a library's convolution kernels by shape between calls, in builds that have such a library.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "bantam/kernels/common/cpu/conv_library.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels::cpu {

/// Libraries of the CPU for one Runtime. Made cheaply. Thread-safe.
class Libraries final : public DeviceLibraries {
 public:
  /// The CPU libraries of a call; throws DeviceError where the caller gave none.
  static Libraries& of(const Exec& exec);

  /// Null where there is no library, or it has no eligible kernel; our own kernels then run. Valid as long as this
  /// object.
  const LibraryConv2d* conv2d(const Conv2dShape& shape, Conv2dPass pass, const Conv2dPlan& plan);

 private:
  using Key = std::array<std::int64_t, 17>;

  std::mutex guard_;
  std::unique_ptr<ConvLibrary> library_ = make_conv_library();
  std::map<Key, std::unique_ptr<LibraryConv2d>> convolutions_;  ///< null: not eligible
};

}  // namespace bantam::kernels::cpu

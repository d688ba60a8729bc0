// The cache of a library's convolution kernels.
#include "bantam/kernels/common/cpu/libraries.h"

#include "bantam/base/error.h"

namespace bantam::kernels::cpu {

Libraries& Libraries::of(const Exec& exec) {
  auto* libraries = dynamic_cast<Libraries*>(exec.libraries);
  if (libraries == nullptr) throw DeviceError("a convolution on the CPU was called without the CPU's libraries");
  return *libraries;
}

const LibraryConv2d* Libraries::conv2d(const Conv2dShape& s, Conv2dPass pass, const Conv2dPlan& plan) {
  if (library_ == nullptr) return nullptr;
  const Key key{s.batch,        s.in_h,
                s.in_w,         s.in_channels,
                s.out_channels, s.kernel_h,
                s.kernel_w,     s.stride_h,
                s.stride_w,     s.pad_top,
                s.pad_bottom,   s.pad_left,
                s.pad_right,    s.dilation_h * 65536 + s.dilation_w,
                s.groups,       static_cast<std::int64_t>(pass),
                plan.block};
  const std::lock_guard lock(guard_);
  const auto found = convolutions_.find(key);
  if (found != convolutions_.end()) return found->second.get();
  return convolutions_.emplace(key, library_->make(s, pass, plan)).first->second.get();
}

}  // namespace bantam::kernels::cpu

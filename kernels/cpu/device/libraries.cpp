// The cache of oneDNN convolution kernels.
#include "bantam/kernels/cpu/device/libraries.h"

#include "bantam/base/error.h"

namespace bantam::kernels::cpu {

Libraries& Libraries::of(const Exec& exec) {
  auto* libraries = dynamic_cast<Libraries*>(exec.libraries);
  if (libraries == nullptr) throw DeviceError("a CPU kernel that uses oneDNN was called without the CPU's libraries");
  return *libraries;
}

const ConvKernels* Libraries::conv2d(const Conv2dShape& s, Conv2dPass pass, const Conv2dPlan& plan) {
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
  return convolutions_.emplace(key, make_conv2d(s, pass, plan)).first->second.get();
}

std::unique_ptr<ConvKernels> Libraries::make_conv2d(const Conv2dShape& shape, Conv2dPass pass, const Conv2dPlan& plan) {
  if (!engine_) engine_.emplace(dnnl::engine::kind::cpu, 0);
  const OneDnnLimits limits{plan.packed_bytes, plan.scratch_bytes};
  auto kernels = std::make_unique<ConvKernels>();
  Conv2dShape block = shape;
  block.batch = plan.block;
  kernels->block = OneDnnConv2d::make(*engine_, block, pass, limits, nullptr);
  if (!kernels->block) return nullptr;
  const dnnl::memory::desc packed = kernels->block->packed(), plain = plain_weights(shape);
  block.batch = shape.batch % plan.block;
  if (block.batch > 0) {
    kernels->last = OneDnnConv2d::make(*engine_, block, pass, limits, &packed);
    if (!kernels->last) return nullptr;
  }
  if (packed == plain) return kernels;
  try {
    const bool unpack = pass == Conv2dPass::grad_weight;
    kernels->reorder = std::make_unique<WeightReorder>(*engine_, unpack ? packed : plain, unpack ? plain : packed);
  } catch (const dnnl::error&) {
    return nullptr;
  }
  return kernels;
}

}  // namespace bantam::kernels::cpu

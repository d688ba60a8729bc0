// The separable block on the CPU: one image at a time, whose inner tensors stay in the cache, parts of images over
// threads, and partial sums added in part order. The depthwise output is not rounded, whatever the type.
#include "bantam/kernels/separable/separable_block.h"

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/depthwise/cpu/depthwise_weights.h"
#include "bantam/kernels/matmul/cpu/gemm.h"
#include "bantam/kernels/separable/cpu/separable_pool.h"
#include "bantam/kernels/separable/separable_block_plan.h"

namespace bantam::kernels::cpu {
namespace {

/// The weights as floats: where they lie, or widened.
struct Weights {
  const float* depthwise;
  const float* pointwise;
  const float* bias;  ///< null: none
};

template <class T>
Weights as_floats(const SeparableBlockShape& s, const SeparableBlockWeights& w, float* room) {
  if constexpr (std::is_same_v<T, float>) {
    return {static_cast<const T*>(w.depthwise), static_cast<const T*>(w.pointwise), static_cast<const T*>(w.bias)};
  } else {
    float* wide_pointwise = room + s.depthwise_elements();
    float* wide_bias = wide_pointwise + s.pointwise_elements();
    widen(static_cast<const T*>(w.depthwise), room, s.depthwise_elements());
    widen(static_cast<const T*>(w.pointwise), wide_pointwise, s.pointwise_elements());
    if (w.bias != nullptr) widen(static_cast<const T*>(w.bias), wide_bias, s.out_channels);
    return {room, wide_pointwise, w.bias != nullptr ? wide_bias : nullptr};
  }
}

/// The room of one part.
struct Slot {
  Slot(const SeparableBlockPlan& plan, char* slots, std::int64_t part) {
    WorkspaceCutter cutter({slots + static_cast<std::size_t>(part) * plan.slot_bytes(), plan.slot_bytes()});
    image = cutter.cut<float>(plan.image_bytes);
    middle = cutter.cut<float>(plan.middle_bytes);
    sums = cutter.cut<float>(plan.sums_bytes);
    d_middle = cutter.cut<float>(plan.d_middle_bytes);
  }
  float *image, *middle, *sums, *d_middle;
};

/// Partial sums of the gradients; the pointwise one as (in_channels, out_channels).
struct Gradients {
  Gradients(const SeparableBlockShape& s, float* room)
      : depthwise(room), pointwise(room + s.depthwise_elements()), bias(pointwise + s.pointwise_elements()) {}
  float *depthwise, *pointwise, *bias;
};

/// One image as floats, in place or widened into `room`.
template <class T>
const float* image_as_floats(const T* image, float* room, std::int64_t count) {
  if constexpr (std::is_same_v<T, float>) {
    return image;
  } else {
    widen(image, room, count);
    return room;
  }
}

/// The depthwise convolution of one image, or the gradient of its input.
void depthwise_image(const DepthwiseConv2dShape& s, bool transposed, const float* from, const float* w, float* to) {
  run_gather(Gather<float>{rows_of(s, transposed), columns_of(s, transposed), 1, transposed ? s.in_h : s.out_h(),
                           transposed ? s.in_w : s.out_w(), s.channels, s.channels, 1, from, w, to},
             1);
}

/// Gradients of one image, added to `sums`, and dx (null: not wanted).
template <class T>
void backward_image(const SeparableBlockPlan& plan, const Weights& w, const T* x, const T* dy,
                    const std::uint8_t* codes, T* dx, const Slot& slot, const Gradients& sums) {
  const SeparableBlockShape& s = plan.s;
  const DepthwiseConv2dShape depthwise = plan.depthwise();
  const std::int64_t in = s.in_channels, out = s.out_channels, image = s.in_h * s.in_w * in;
  const float* wide_x = image_as_floats(x, slot.image, image);
  float* dz = slot.sums;
  scatter_image(s, dy, codes, dz, s.bias ? sums.bias : nullptr);
  depthwise_image(depthwise, false, wide_x, w.depthwise, slot.middle);
  gemm({in, out, plan.pixels()}, {slot.middle, in, true}, {dz, out, false}, sums.pointwise, out, true);
  gemm({plan.pixels(), in, out}, {dz, out, false}, {w.pointwise, in, false}, slot.d_middle, in, false);
  add_weight_gradient(depthwise, wide_x, slot.d_middle, {0, s.conv_h()}, sums.depthwise);
  if (dx == nullptr) return;
  if constexpr (std::is_same_v<T, float>) {
    depthwise_image(depthwise, true, slot.d_middle, w.depthwise, dx);
  } else {
    depthwise_image(depthwise, true, slot.d_middle, w.depthwise, slot.image);  // x is not read any more
    narrow(slot.image, dx, image);
  }
}

/// to[i] = Σ over parts of partials[at(i)], in part order, after the old value where it accumulates.
template <class At>
void add_up(const SeparableBlockPlan& plan, const float* partials, std::int64_t count, const ParameterTarget& to,
            At&& at) {
  const std::int64_t stride = static_cast<std::int64_t>(plan.partial_bytes / sizeof(float));
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = to.accumulate ? to.data[i] : 0.0f;
    for (std::int64_t part = 0; part < plan.parts; ++part) sum += partials[part * stride + at(i)];
    to.data[i] = sum;
  }
}

}  // namespace

void separable_block_forward(const Exec& exec, const SeparableBlockShape& s, DType dtype, const void* x,
                             const SeparableBlockWeights& weights, void* y, std::uint8_t* codes, Workspace workspace) {
  check_separable_block(s, dtype, DeviceKind::cpu);
  const SeparableBlockPlan plan(s, dtype, SeparableBlockPass::forward);
  require_workspace(workspace, plan.workspace_bytes(), "separable_block_forward");
  WorkspaceCutter cutter(workspace);
  float* room = cutter.cut<float>(plan.weight_bytes);
  char* slots = cutter.cut<char>(0);
  const std::int64_t x_image = s.in_h * s.in_w * s.in_channels, y_image = s.out_h() * s.out_w() * s.out_channels;
  const std::int64_t code_image = s.batch > 0 ? separable_block_code_bytes(s) / s.batch : 0;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Weights w = as_floats<T>(s, weights, room);
    parallel_parts(plan.parts, exec.threads, [&](std::int64_t part) {
      const Slot slot(plan, slots, part);
      for (std::int64_t n = part * plan.images; n < std::min(s.batch, (part + 1) * plan.images); ++n) {
        const float* image = image_as_floats(static_cast<const T*>(x) + n * x_image, slot.image, x_image);
        depthwise_image(plan.depthwise(), false, image, w.depthwise, slot.middle);
        gemm({plan.pixels(), s.out_channels, s.in_channels}, {slot.middle, s.in_channels, false},
             {w.pointwise, s.in_channels, true}, slot.sums, s.out_channels, false);
        finish_image(s, slot.sums, w.bias, static_cast<T*>(y) + n * y_image,
                     codes != nullptr && code_image > 0 ? codes + n * code_image : nullptr);
      }
    });
  });
}

void separable_block_backward(const Exec& exec, const SeparableBlockShape& s, DType dtype,
                              const SeparableBlockInputs& in, const SeparableBlockGradients& to, Workspace workspace) {
  check_separable_block(s, dtype, DeviceKind::cpu);
  const SeparableBlockPlan plan(s, dtype, SeparableBlockPass::backward);
  require_workspace(workspace, plan.workspace_bytes(), "separable_block_backward");
  WorkspaceCutter cutter(workspace);
  float* room = cutter.cut<float>(plan.weight_bytes);
  float* partials = cutter.cut<float>(static_cast<std::size_t>(plan.parts) * plan.partial_bytes);
  char* slots = cutter.cut<char>(0);
  const std::int64_t x_image = s.in_h * s.in_w * s.in_channels, y_image = s.out_h() * s.out_w() * s.out_channels;
  const std::int64_t code_image = s.batch > 0 ? separable_block_code_bytes(s) / s.batch : 0;
  const std::int64_t stride = static_cast<std::int64_t>(plan.partial_bytes / sizeof(float));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Weights w = as_floats<T>(s, {.depthwise = in.weights.depthwise, .pointwise = in.weights.pointwise}, room);
    parallel_parts(plan.parts, exec.threads, [&](std::int64_t part) {
      const Slot slot(plan, slots, part);
      const Gradients sums(s, partials + part * stride);
      std::fill_n(partials + part * stride, stride, 0.0f);
      for (std::int64_t n = part * plan.images; n < std::min(s.batch, (part + 1) * plan.images); ++n) {
        backward_image<T>(plan, w, static_cast<const T*>(in.x) + n * x_image,
                          static_cast<const T*>(in.dy) + n * y_image,
                          code_image > 0 ? in.codes + n * code_image : nullptr,
                          to.dx != nullptr ? static_cast<T*>(to.dx) + n * x_image : nullptr, slot, sums);
      }
    });
  });
  const Gradients first(s, partials);
  const std::int64_t columns = s.in_channels, out = s.out_channels;
  add_up(plan, first.depthwise, s.depthwise_elements(), to.depthwise, [](std::int64_t i) { return i; });
  add_up(plan, first.pointwise, s.pointwise_elements(), to.pointwise,
         [=](std::int64_t i) { return i % columns * out + i / columns; });
  if (to.bias.data != nullptr) add_up(plan, first.bias, out, to.bias, [](std::int64_t i) { return i; });
}

}  // namespace bantam::kernels::cpu

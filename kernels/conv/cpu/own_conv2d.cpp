// Our own convolutions: forward and the gradient to the input over packed weights, the gradient to the weights without;
// half types some images at a time.
#include "bantam/kernels/conv/cpu/own_conv2d.h"

#include <algorithm>
#include <cstring>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/conv/cpu/packed_conv.h"
#include "bantam/kernels/conv/cpu/packed_panels.h"
#include "bantam/kernels/conv/cpu/weight_gradient.h"
#include "bantam/kernels/conv/own_conv2d_plan.h"

namespace bantam::kernels::cpu {
namespace {

constexpr std::int64_t kGrain = 1 << 16;

/// The arrays of a call's workspace.
struct Rooms {
  Rooms(const OwnConv2dPlan& plan, Workspace workspace) {
    require_workspace(workspace, plan.workspace_bytes(), "conv2d");
    WorkspaceCutter cutter(workspace);
    weights = cutter.cut<float>(plan.weights_bytes);
    x = cutter.cut<float>(plan.x_bytes);
    y = cutter.cut<float>(plan.y_bytes);
    packed = cutter.cut<float>(plan.packed_bytes);
    room = {cutter.cut<char>(0), plan.room_bytes};
  }
  float *weights, *x, *y, *packed;
  Workspace room;
};

/// Elements [first, first + count) of an array of the call's type.
struct Elements {
  std::int64_t first = 0, count = 0;
};

/// As floats: in place, or widened into `room`.
const float* as_floats(const Exec& exec, DType dtype, const void* data, Elements range, float* room) {
  const void* at = element(data, dtype, range.first);
  if (dtype == DType::float32) return static_cast<const float*>(at);
  parallel_ranges(range.count, kGrain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    widen(dtype, element(at, dtype, begin), room + begin, end - begin);
  });
  return room;
}

/// Where float results of a range go: in place, or first into `room`, from which `keep` rounds them.
float* results(DType dtype, void* data, Elements range, float* room) {
  return dtype == DType::float32 ? static_cast<float*>(data) + range.first : room;
}
void keep(const Exec& exec, DType dtype, const float* room, void* data, Elements range) {
  if (dtype == DType::float32) return;
  void* at = element(data, dtype, range.first);
  parallel_ranges(range.count, kGrain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    narrow(dtype, room + begin, element(at, dtype, begin), end - begin);
  });
}

/// Calls `body(block, x, y)` for blocks of images: the shape of one, and its elements of x and y.
template <class Body>
void for_each_block(const Conv2dShape& shape, const OwnConv2dPlan& plan, Body&& body) {
  const std::int64_t x_image = shape.x_elements() / shape.batch, y_image = shape.y_elements() / shape.batch;
  for (std::int64_t first = 0; first < shape.batch; first += plan.block) {
    Conv2dShape block = shape;
    block.batch = std::min(plan.block, shape.batch - first);
    body(block, Elements{first * x_image, block.batch * x_image}, Elements{first * y_image, block.batch * y_image});
  }
}

/// Weights of a phase in panels of input channels: of each, its taps from the last to the first, and the filters. w is
/// in the contract's order.
void pack_phase(const Conv2dShape& s, const InputPhase& phase, const float* w, float* to, int threads) {
  const std::int64_t width = panel_kernels().width, depth = phase.h.taps * phase.w.taps * s.out_channels;
  const std::int64_t taps = phase.h.taps * phase.w.taps, filter = s.kernel_h * s.kernel_w * s.in_channels;
  parallel_parts(ceil_div(s.in_channels, width) * taps, threads, [&](std::int64_t part) {
    const std::int64_t c = part / taps * width, tap = part % taps, used = std::min(width, s.in_channels - c);
    const std::int64_t a = phase.h.tap + phase.h.step * (phase.h.taps - 1 - tap / phase.w.taps),
                       b = phase.w.tap + phase.w.step * (phase.w.taps - 1 - tap % phase.w.taps);
    const float* from = w + (a * s.kernel_w + b) * s.in_channels + c;
    float* row = to + c * depth + tap * s.out_channels * used;
    for (std::int64_t o = 0; o < s.out_channels; ++o, from += filter, row += used) {
      std::memcpy(row, from, static_cast<std::size_t>(used) * sizeof(float));
    }
  });
}

/// dx of a phase that no tap reads.
void store_zeros(const Conv2dShape& s, const InputPhase& phase, float* dx, int threads) {
  const std::int64_t row = s.in_w * s.in_channels, image = s.in_h * row;
  parallel_parts(s.batch * phase.h.count, threads, [&](std::int64_t i) {
    float* to = dx + i / phase.h.count * image + i % phase.h.count * s.stride_h * row;
    for (std::int64_t j = 0; j < phase.w.count; ++j)
      std::fill_n(to + j * s.stride_w * s.in_channels, s.in_channels, 0.0f);
  });
}

/// dx of some float images, a phase after the other.
void grad_input(const Exec& exec, const Conv2dShape& s, const float* dy, const float* w, float* dx,
                const Rooms& rooms) {
  for_each_phase(s, [&](const InputPhase& phase) {
    float* const to = dx + (phase.h.first * s.in_w + phase.w.first) * s.in_channels;
    if (phase.is_zero()) {
      store_zeros(s, phase, to, exec.threads);
      return;
    }
    pack_phase(s, phase, w, rooms.packed, exec.threads);
    packed_conv(gradient_window(s, phase), {dy, rooms.packed, {}, to}, exec.threads, rooms.room);
  });
}

}  // namespace

void own_conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                        Workspace workspace) {
  const OwnConv2dPlan plan = plan_own_conv2d(shape, dtype, Conv2dPass::forward);
  const Rooms rooms(plan, workspace);
  const float* weights = as_floats(exec, dtype, w, {0, shape.w_elements()}, rooms.weights);
  pack_panels(weights, shape.out_channels, shape.w_elements() / shape.out_channels, rooms.packed, exec.threads);
  for_each_block(shape, plan, [&](const Conv2dShape& block, Elements in, Elements out) {
    float* const result = results(dtype, y, out, rooms.y);
    const float* const images = as_floats(exec, dtype, x, in, rooms.x);
    packed_conv(forward_window(block), {images, rooms.packed, {}, result}, exec.threads, rooms.room);
    keep(exec, dtype, result, y, out);
  });
}

void own_conv2d_grad_input(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* dy, const void* w,
                           void* dx, Workspace workspace) {
  const OwnConv2dPlan plan = plan_own_conv2d(shape, dtype, Conv2dPass::grad_input);
  const Rooms rooms(plan, workspace);
  const float* weights = as_floats(exec, dtype, w, {0, shape.w_elements()}, rooms.weights);
  for_each_block(shape, plan, [&](const Conv2dShape& block, Elements in, Elements out) {
    float* const result = results(dtype, dx, in, rooms.x);
    grad_input(exec, block, as_floats(exec, dtype, dy, out, rooms.y), weights, result, rooms);
    keep(exec, dtype, result, dx, in);
  });
}

void own_conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                            const Conv2dWeightGradient& to, Workspace workspace) {
  const OwnConv2dPlan plan = plan_own_conv2d(shape, dtype, Conv2dPass::grad_weight);
  const Rooms rooms(plan, workspace);
  bool accumulate = to.accumulate;
  for_each_block(shape, plan, [&](const Conv2dShape& block, Elements in, Elements out) {
    weight_gradient(
        forward_window(block),
        {as_floats(exec, dtype, x, in, rooms.x), as_floats(exec, dtype, dy, out, rooms.y), to.dw, accumulate},
        exec.threads, rooms.room);
    accumulate = true;
  });
}

}  // namespace bantam::kernels::cpu

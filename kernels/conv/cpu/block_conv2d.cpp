// Convolutions by blocks of images over threads: each is one single-threaded call of a library, or patches where it has
// none.
#include "bantam/kernels/conv/cpu/block_conv2d.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/conv/cpu/patches.h"

namespace bantam::kernels::cpu {
namespace {

/// An image tensor of the call, and where its images are widened to, if they are.
struct Images {
  const void* data;
  std::int64_t image;  ///< elements of one
};

/// The facts that all parts of a call share: shape, type, pass, plan and the library's kernels.
struct Call {
  const Exec& exec;
  const Conv2dShape& shape;
  DType dtype;
  Conv2dPass pass;
  Conv2dPlan plan;
  const LibraryConv2d* kernels;  ///< null: patches
};

/// The room of one part.
struct Slot {
  Slot(const Conv2dPlan& plan, char* slots, std::int64_t part)
      : scratch(slots + static_cast<std::size_t>(part) * plan.slot_bytes()),
        x(reinterpret_cast<float*>(scratch + plan.scratch_bytes)),
        y(reinterpret_cast<float*>(scratch + plan.scratch_bytes + plan.x_bytes)),
        patches{reinterpret_cast<float*>(scratch), static_cast<std::int64_t>(plan.scratch_bytes / sizeof(float))} {}
  char* scratch;
  float* x;
  float* y;
  PatchBuffer patches;
};

/// Calls `body(block, first_image, images)` for the blocks of a part.
template <class Body>
void for_each_block(const Call& call, std::int64_t part, Body&& body) {
  const Conv2dPlan& plan = call.plan;
  const std::int64_t end = std::min(plan.blocks, (part + 1) * plan.blocks_per_part);
  for (std::int64_t block = part * plan.blocks_per_part; block < end; ++block) {
    const std::int64_t first = block * plan.block;
    body(block, first, std::min(plan.block, call.shape.batch - first));
  }
}

/// Images as floats: in place, or widened into `room`.
const float* as_floats(const Call& call, Images tensor, std::int64_t first, std::int64_t images, float* room) {
  const void* at = element(tensor.data, call.dtype, first * tensor.image);
  if (call.dtype == DType::float32) return static_cast<const float*>(at);
  widen(call.dtype, at, room, images * tensor.image);
  return room;
}

Images x_images(const Conv2dShape& s, const void* data) { return {data, s.in_h * s.in_w * s.in_channels}; }
Images y_images(const Conv2dShape& s, const void* data) { return {data, s.out_h() * s.out_w() * s.out_channels}; }

Call prepare(const Exec& exec, const BlockConv2d& conv, Conv2dPass pass, Workspace workspace) {
  const Call call{exec, conv.shape, conv.dtype, pass, plan_conv2d(conv.shape, conv.dtype, pass), conv.kernels};
  require_workspace(workspace, call.plan.workspace_bytes(), "conv2d");
  return call;
}

/// Weights as floats in the order that the kernels read.
const float* ready_weights(const Call& call, const void* w, float* widened, float* packed) {
  const std::int64_t count = call.shape.w_elements();
  const float* plain = static_cast<const float*>(w);
  if (call.dtype != DType::float32) {
    constexpr std::int64_t kGrain = 1 << 16;
    parallel_ranges(count, kGrain, call.exec.threads, [&](std::int64_t begin, std::int64_t end) {
      widen(call.dtype, element(w, call.dtype, begin), widened + begin, end - begin);
    });
    plain = widened;
  }
  if (call.kernels == nullptr || !call.kernels->reorders()) return plain;
  call.kernels->reorder(plain, packed, call.exec.threads);
  return packed;
}

/// forward (in = x, out = y) and grad_input (in = dy, out = dx) of some images, in floats.
void convolve(const Call& call, const float* in, const float* w, float* out, std::int64_t images, const Slot& slot) {
  if (call.kernels != nullptr) {
    call.kernels->execute(images, in, w, out, slot.scratch);
    return;
  }
  const std::int64_t x_image = x_images(call.shape, nullptr).image, y_image = y_images(call.shape, nullptr).image;
  for (std::int64_t i = 0; i < images; ++i) {
    if (call.pass == Conv2dPass::forward) {
      patches_forward(call.shape, in + i * x_image, w, out + i * y_image, slot.patches);
    } else {
      patches_grad_input(call.shape, in + i * y_image, w, out + i * x_image, slot.patches);
    }
  }
}

/// forward and grad_input: images in, images out.
void run_images(const Call& call, const void* in_data, const void* w, void* out_data, Workspace workspace) {
  const Conv2dPlan& plan = call.plan;
  const bool forward = call.pass == Conv2dPass::forward;
  const Images in = forward ? x_images(call.shape, in_data) : y_images(call.shape, in_data);
  const Images out = forward ? y_images(call.shape, out_data) : x_images(call.shape, out_data);
  WorkspaceCutter cutter(workspace);
  float* widened = cutter.cut<float>(plan.widened_bytes);
  float* packed = cutter.cut<float>(plan.packed_bytes);
  char* slots = cutter.cut<char>(0);
  const float* weights = ready_weights(call, w, widened, packed);
  parallel_parts(plan.parts, call.exec.threads, [&](std::int64_t part) {
    const Slot slot(plan, slots, part);
    for_each_block(call, part, [&](std::int64_t, std::int64_t first, std::int64_t images) {
      const float* from = as_floats(call, in, first, images, forward ? slot.x : slot.y);
      void* to = element(out_data, call.dtype, first * out.image);
      float* result = forward ? slot.y : slot.x;
      if (call.dtype == DType::float32) result = static_cast<float*>(to);
      convolve(call, from, weights, result, images, slot);
      if (call.dtype != DType::float32) narrow(call.dtype, result, to, images * out.image);
    });
  });
}

void add(float* to, const float* from, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
}

/// The partial dw of one part, in the kernels' order. `extra` holds the blocks after the first until they are added.
void grad_weight_part(const Call& call, Images x, Images dy, float* partial, float* extra, const Slot& slot,
                      std::int64_t part) {
  const std::int64_t floats = static_cast<std::int64_t>(call.plan.packed_bytes / sizeof(float));
  const std::int64_t used =
      call.kernels == nullptr ? call.shape.w_elements() : std::min(floats, call.kernels->packed_floats());
  bool started = false;
  for_each_block(call, part, [&](std::int64_t, std::int64_t first, std::int64_t images) {
    const float* x_block = as_floats(call, x, first, images, slot.x);
    const float* dy_block = as_floats(call, dy, first, images, slot.y);
    if (call.kernels != nullptr) {
      call.kernels->execute(images, x_block, dy_block, started ? extra : partial, slot.scratch);
      if (started) add(partial, extra, 0, used);
    } else {
      for (std::int64_t i = 0; i < images; ++i) {
        patches_grad_weight(call.shape, x_block + i * x.image, dy_block + i * dy.image, partial, started || i > 0,
                            slot.patches);
      }
    }
    started = true;
  });
}

/// Adds the parts' sums in order into the first, brings it to the contract's order, and stores or adds it.
void finish_grad_weight(const Call& call, float* partials, float* spare, float* dw, bool accumulate) {
  constexpr std::int64_t kGrain = 8192;
  const bool reorder = call.kernels != nullptr && call.kernels->reorders();
  const std::int64_t stride = static_cast<std::int64_t>(call.plan.packed_bytes / sizeof(float));
  const std::int64_t count = call.shape.w_elements();
  const std::int64_t summed = reorder ? call.kernels->packed_floats() : count;
  parallel_ranges(summed, kGrain, call.exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = 1; part < call.plan.parts; ++part) add(partials, partials + part * stride, begin, end);
  });
  const float* total = partials;
  if (reorder) {
    call.kernels->reorder(partials, accumulate ? spare : dw, call.exec.threads);
    if (!accumulate) return;
    total = spare;
  }
  parallel_ranges(count, kGrain, call.exec.threads, [&](std::int64_t begin, std::int64_t end) {
    if (accumulate) {
      add(dw, total, begin, end);
    } else {
      std::copy(total + begin, total + end, dw + begin);
    }
  });
}

}  // namespace

void block_conv2d_forward(const Exec& exec, const BlockConv2d& conv, const void* x, const void* w, void* y,
                          Workspace workspace) {
  run_images(prepare(exec, conv, Conv2dPass::forward, workspace), x, w, y, workspace);
}

void block_conv2d_grad_input(const Exec& exec, const BlockConv2d& conv, const void* dy, const void* w, void* dx,
                             Workspace workspace) {
  run_images(prepare(exec, conv, Conv2dPass::grad_input, workspace), dy, w, dx, workspace);
}

void block_conv2d_grad_weight(const Exec& exec, const BlockConv2d& conv, const void* x, const void* dy,
                              const Conv2dWeightGradient& to, Workspace workspace) {
  const Call call = prepare(exec, conv, Conv2dPass::grad_weight, workspace);
  const Conv2dPlan& plan = call.plan;
  WorkspaceCutter cutter(workspace);
  float* partials = cutter.cut<float>(static_cast<std::size_t>(plan.parts) * plan.packed_bytes);
  float* extras = cutter.cut<float>(static_cast<std::size_t>(plan.adds_blocks() ? plan.parts : 0) * plan.packed_bytes);
  float* spare = cutter.cut<float>(plan.packed_bytes);
  char* slots = cutter.cut<char>(0);
  const std::int64_t stride = static_cast<std::int64_t>(plan.packed_bytes / sizeof(float));
  parallel_parts(plan.parts, exec.threads, [&](std::int64_t part) {
    grad_weight_part(call, x_images(conv.shape, x), y_images(conv.shape, dy), partials + part * stride,
                     extras + part * stride, Slot(plan, slots, part), part);
  });
  finish_grad_weight(call, partials, spare, to.dw, to.accumulate);
}

}  // namespace bantam::kernels::cpu

// Convolutions on a GPU: GEMMs for 1×1, own kernels for images, patches and GEMMs for those that cut images into
// patches, own kernels for few channels and for 3x3, else cuDNN, else patches and GEMMs.
#include <algorithm>

#include "bantam/kernels/common/cuda/check.h"
#include "bantam/kernels/common/cuda/gemm.h"
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/common/cuda/numeric.cuh"
#include "bantam/kernels/conv/conv2d.h"
#include "bantam/kernels/conv/conv2d_pointwise.h"
#include "bantam/kernels/conv/cuda/few_channels.h"
#include "bantam/kernels/conv/cuda/im2col.cuh"
#include "bantam/kernels/conv/cuda/small_channels.h"
#include "bantam/kernels/conv/cuda/warpgroup_conv3x3.h"
#include "bantam/kernels/conv/image_patches.h"
#include "bantam/kernels/conv/workspace_rules.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::int64_t count) {
  constexpr std::int64_t kMostBlocks = 1 << 16;  // threads stride over what is left
  return static_cast<unsigned>(std::min((count + kThreads - 1) / kThreads, kMostBlocks));
}

/// dw = half values, or dw += them.
template <class T>
__global__ void __launch_bounds__(kThreads)
    widen_gradient(const T* __restrict__ from, float* __restrict__ dw, std::int64_t count, bool accumulate) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    dw[i] = accumulate ? dw[i] + to_float(from[i]) : to_float(from[i]);
  }
}

/// (groups, out, taps, in) to (groups, taps, out, in): weights as the matrix that maps patches of dy to dx.
template <class T>
__global__ void __launch_bounds__(kThreads)
    turn_weights(const T* __restrict__ from, T* __restrict__ to, std::int64_t out, std::int64_t taps, std::int64_t in,
                 std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t c = i % in, o = i / in % out, tap = i / (in * out) % taps, group = i / (in * out * taps);
    to[i] = from[((group * out + o) * taps + tap) * in + c];
  }
}

/// A workspace cut as the rule says.
struct Scratch {
  Scratch(const Conv2dShape& shape, DType dtype, Conv2dPass pass, Workspace workspace)
      : rule(conv2d_workspace_rule(shape, dtype, pass)) {
    check_conv2d_type(dtype);
    require_workspace(workspace, rule.total(), "conv2d");
    char* at = static_cast<char*>(workspace.data);
    weights = at;
    patches = at + rule.weights_bytes;
    matmul = {at + rule.weights_bytes + rule.patches_bytes, rule.matmul_bytes};
  }
  ConvWorkspace rule;
  void* weights;
  void* patches;
  Workspace matmul;
};

/// Patches of x for forward and grad_weight, or of dy for grad_input, of one group.
PatchGeometry patch_geometry(const Conv2dShape& s, bool backward, std::int64_t group) {
  const auto small = [](std::int64_t value) { return static_cast<int>(value); };
  PatchGeometry g{};
  const int out_h = small(s.out_h()), out_w = small(s.out_w()), in_h = small(s.in_h), in_w = small(s.in_w);
  g.to_h = backward ? in_h : out_h;
  g.to_w = backward ? in_w : out_w;
  g.from_h = backward ? out_h : in_h;
  g.from_w = backward ? out_w : in_w;
  g.kernel_h = small(s.kernel_h), g.kernel_w = small(s.kernel_w);
  g.stride_h = small(s.stride_h), g.stride_w = small(s.stride_w);
  g.pad_h = small(s.pad_top), g.pad_w = small(s.pad_left);
  g.dilation_h = small(s.dilation_h), g.dilation_w = small(s.dilation_w);
  g.backward = backward;
  g.from_stride = backward ? s.out_channels : s.in_channels;
  g.run = g.from_stride / s.groups;
  g.from_channel = group * g.run;
  return g;
}

const void* offset(const void* data, std::int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}
void* offset(void* data, std::int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
}

/// Calls `body(group, first, pixels, length)` for chunks of pixels whose patches fit the workspace, after gathering
/// them.
template <class Body>
void for_each_chunk(const Exec& exec, const Conv2dShape& s, DType dtype, bool backward, const void* from,
                    const Scratch& scratch, Body&& body) {
  const std::int64_t size = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t total = backward ? s.batch * s.in_h * s.in_w : s.batch * s.out_h() * s.out_w();
  const std::int64_t length = s.kernel_h * s.kernel_w * (backward ? s.out_channels : s.in_channels) / s.groups;
  const std::int64_t chunk =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(scratch.rule.patches_bytes) / (length * size));
  for (std::int64_t group = 0; group < s.groups; ++group) {
    const PatchGeometry geometry = patch_geometry(s, backward, group);
    for (std::int64_t first = 0; first < total; first += chunk) {
      const std::int64_t pixels = std::min(chunk, total - first);
      launch_gather_patches(exec, from, scratch.patches, geometry, first, pixels, size);
      body(group, first, pixels, length);
    }
  }
}

/// y chunk = patches of x · wᵀ.
void patches_forward(const Exec& exec, const Conv2dShape& s, DType dtype, const void* x, const void* w, void* y,
                     const Scratch& scratch) {
  const std::int64_t out = s.out_channels / s.groups;
  for_each_chunk(exec, s, dtype, false, x, scratch,
                 [&](std::int64_t group, std::int64_t first, std::int64_t pixels, std::int64_t length) {
                   const GemmProblem problem{.m = pixels,
                                             .n = out,
                                             .k = length,
                                             .transpose_b = true,
                                             .a_stride = length,
                                             .b_stride = length,
                                             .c_stride = s.out_channels,
                                             .dtype = dtype,
                                             .out_dtype = dtype,
                                             .workspace_limit = scratch.matmul.bytes};
                   gemm(exec, problem,
                        {scratch.patches, offset(w, group * out * length, dtype),
                         offset(y, first * s.out_channels + group * out, dtype), false},
                        scratch.matmul);
                 });
}

/// dx chunk = patches of dy · turned weights: a gather, so each dx is one float32 sum, rounded once.
void patches_grad_input(const Exec& exec, const Conv2dShape& s, DType dtype, const void* dy, const void* w, void* dx,
                        const Scratch& scratch) {
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    turn_weights<<<blocks_for(s.w_elements()), kThreads, 0, stream_of(exec)>>>(
        static_cast<const T*>(w), static_cast<T*>(scratch.weights), out, s.kernel_h * s.kernel_w, in, s.w_elements());
    check_launch("turn_weights");
  });
  for_each_chunk(exec, s, dtype, true, dy, scratch,
                 [&](std::int64_t group, std::int64_t first, std::int64_t pixels, std::int64_t length) {
                   const GemmProblem problem{.m = pixels,
                                             .n = in,
                                             .k = length,
                                             .a_stride = length,
                                             .b_stride = in,
                                             .c_stride = s.in_channels,
                                             .dtype = dtype,
                                             .out_dtype = dtype,
                                             .workspace_limit = scratch.matmul.bytes};
                   gemm(exec, problem,
                        {scratch.patches, offset(scratch.weights, group * length * in, dtype),
                         offset(dx, first * s.in_channels + group * in, dtype), false},
                        scratch.matmul);
                 });
}

/// dw += dyᵀ · patches of x, chunk after chunk in float32.
void patches_grad_weight(const Exec& exec, const Conv2dShape& s, DType dtype, const void* x, const void* dy, float* dw,
                         bool accumulate, const Scratch& scratch) {
  const std::int64_t out = s.out_channels / s.groups;
  for_each_chunk(exec, s, dtype, false, x, scratch,
                 [&](std::int64_t group, std::int64_t first, std::int64_t pixels, std::int64_t length) {
                   const GemmProblem problem{.m = out,
                                             .n = length,
                                             .k = pixels,
                                             .transpose_a = true,
                                             .a_stride = s.out_channels,
                                             .b_stride = length,
                                             .c_stride = length,
                                             .dtype = dtype,
                                             .out_dtype = DType::float32,
                                             .workspace_limit = scratch.matmul.bytes};
                   gemm(exec, problem,
                        {offset(dy, first * s.out_channels + group * out, dtype), scratch.patches,
                         dw + group * out * length, accumulate || first > 0},
                        scratch.matmul);
                 });
}

void add_gradient(const Exec& exec, DType dtype, const void* from, float* dw, std::int64_t count, bool accumulate) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    widen_gradient<<<blocks_for(count), kThreads, 0, stream_of(exec)>>>(static_cast<const T*>(from), dw, count,
                                                                        accumulate);
    check_launch("widen_gradient");
  });
}

bool try_cudnn(const Exec& exec, const Conv2dShape& shape, DType dtype, Conv2dPass pass, std::array<const void*, 2> in,
               void* out, const Scratch& scratch) {
  Cudnn* cudnn = Libraries::of(exec).cudnn();
  return cudnn != nullptr &&
         cudnn->convolve(shape, dtype, pass, in, out, {scratch.patches, scratch.rule.patches_bytes}, stream_of(exec));
}

/// y, or as a gradient dx, by the wgmma kernels where they replace cuDNN's.
bool try_warpgroups(const Exec& exec, const Conv2dShape& shape, DType dtype, Conv2dPass pass, const void* x,
                    const void* w, void* y) {
  const WarpgroupConv3x3 problem = preferred_warpgroup_conv3x3(shape, dtype, pass, Conv3x3Use::alone);
  return problem.batch > 0 && warpgroup_conv3x3(exec, problem, dtype, x, w, y, {});
}

bool is_empty(const Conv2dShape& s) { return s.x_elements() == 0 || s.y_elements() == 0; }

}  // namespace

void conv2d_forward(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* w, void* y,
                    Workspace workspace) {
  if (is_pointwise(shape)) {
    matmul(exec, pointwise_matmul(shape, Conv2dPass::forward), dtype, x, w, {.data = y, .dtype = dtype}, workspace);
    return;
  }
  if (is_empty(shape)) return;
  const Scratch scratch(shape, dtype, Conv2dPass::forward, workspace);
  if (is_image_convolution(shape, dtype) && image_conv2d_forward(exec, shape, dtype, x, w, y)) return;
  if (cuts_patches(shape, dtype)) return patches_forward(exec, with_rows_as_pixels(shape), dtype, x, w, y, scratch);
  if (prefers_few_channels_kernel(shape, dtype) && few_channels_conv2d_forward(exec, shape, dtype, x, w, y)) return;
  if (try_warpgroups(exec, shape, dtype, Conv2dPass::forward, x, w, y)) return;
  if (try_cudnn(exec, shape, dtype, Conv2dPass::forward, {x, w}, y, scratch)) return;
  patches_forward(exec, shape, dtype, x, w, y, scratch);
}

void conv2d_grad_input(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* dy, const void* w, void* dx,
                       Workspace workspace) {
  if (is_pointwise(shape)) {
    matmul(exec, pointwise_matmul(shape, Conv2dPass::grad_input), dtype, dy, w, {.data = dx, .dtype = dtype},
           workspace);
    return;
  }
  if (is_empty(shape)) return;
  const Scratch scratch(shape, dtype, Conv2dPass::grad_input, workspace);
  if (try_warpgroups(exec, shape, dtype, Conv2dPass::grad_input, dy, w, dx)) return;
  if (try_cudnn(exec, shape, dtype, Conv2dPass::grad_input, {dy, w}, dx, scratch)) return;
  patches_grad_input(exec, shape, dtype, dy, w, dx, scratch);
}

void conv2d_grad_weight(const Exec& exec, const Conv2dShape& shape, DType dtype, const void* x, const void* dy,
                        const Conv2dWeightGradient& to, Workspace workspace) {
  if (is_pointwise(shape)) {
    matmul(exec, pointwise_matmul(shape, Conv2dPass::grad_weight), dtype, dy, x,
           {.data = to.dw, .dtype = DType::float32, .accumulate = to.accumulate}, workspace);
    return;
  }
  if (is_empty(shape)) {
    if (!to.accumulate) zero_bytes(to.dw, static_cast<std::size_t>(shape.w_elements()) * sizeof(float), exec.stream);
    return;
  }
  const Scratch scratch(shape, dtype, Conv2dPass::grad_weight, workspace);
  if (is_image_convolution(shape, dtype) &&
      image_conv2d_grad_weight(exec, shape, dtype, x, dy, to.dw, to.accumulate, static_cast<float*>(scratch.patches))) {
    return;
  }
  if (cuts_patches(shape, dtype))
    return patches_grad_weight(exec, with_rows_as_pixels(shape), dtype, x, dy, to.dw, to.accumulate, scratch);
  if (prefers_few_channels_kernel(shape, dtype) &&
      few_channels_conv2d_grad_weight(exec, shape, dtype, x, dy, to.dw, to.accumulate,
                                      static_cast<float*>(scratch.patches))) {
    return;
  }
  // cuDNN stores and does not add in the type of x: its result goes through workspace unless it can be stored at
  // once, or may stay narrow.
  const bool stays_narrow = to.narrow != nullptr && !to.accumulate && is_half(dtype);
  const bool direct = stays_narrow || (dtype == DType::float32 && !to.accumulate);
  void* result = direct ? static_cast<void*>(to.dw) : scratch.weights;
  if (!try_cudnn(exec, shape, dtype, Conv2dPass::grad_weight, {x, dy}, result, scratch)) {
    patches_grad_weight(exec, shape, dtype, x, dy, to.dw, to.accumulate, scratch);
  } else if (!direct) {
    add_gradient(exec, dtype, result, to.dw, shape.w_elements(), to.accumulate);
  } else if (stays_narrow) {
    *to.narrow = true;
  }
}

}  // namespace bantam::kernels::cuda

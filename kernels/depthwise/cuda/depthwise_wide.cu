// Launches of the 5x5 and 7x7 depthwise kernels: one instance a kernel size, stride and dtype.
#include "bantam/kernels/depthwise/cuda/depthwise_wide.cuh"
#include "bantam/kernels/depthwise/cuda/depthwise_wide.h"
#include "bantam/kernels/depthwise/cuda/depthwise_wide_grad_weight.cuh"
#include "bantam/kernels/depthwise/depthwise_parts.h"

namespace bantam::kernels::cuda {
namespace {

constexpr StripGoal kWideGoal{.threads = std::int64_t{1} << 17, .least_rows = 7};
constexpr int kSpreadColumns = 5;  ///< columns of dy in a strip

/// Calls call(kernel size, stride) with constants.
template <class Call>
void with_wide_kernel(const DepthwiseConv2dShape& s, Call&& call) {
  using std::integral_constant;
  if (s.kernel_h == 7) return call(integral_constant<int, 7>{}, integral_constant<int, 1>{});
  if (s.stride_h == 1) return call(integral_constant<int, 5>{}, integral_constant<int, 1>{});
  call(integral_constant<int, 5>{}, integral_constant<int, 2>{});
}

}  // namespace

bool fits_wide_kernels(const DepthwiseConv2dShape& s, DType dtype, const void* data, const void* w, const void* out) {
  const auto aligned = [&](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % (kWideChannels * size_of(dtype)) == 0;
  };
  return fits_wide_strips(s) && s.channels % kWideChannels == 0 && aligned(data) && aligned(w) && aligned(out);
}

void wide_forward(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x, const void* w, void* y,
                  bool backwards) {
  const std::int64_t packs = s.channels / kWideChannels;
  const StripCut cut = cut_strips(s.batch, s.out_h(), s.out_w(), kWideColumns, packs, kWideGoal);
  if (cut.tasks == 0 || packs == 0) return;
  const Strips g = strips_of(s, cut);
  const StripGrid grid = strip_grid(packs, cut.tasks, 0, kWideLanes);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_wide_kernel(s, [&](auto kernel, auto stride) {
      depthwise_wide_kernel<T, decltype(kernel)::value, decltype(stride)::value>
          <<<grid.blocks, grid.block, 0, stream_of(exec)>>>(static_cast<const T*>(x), static_cast<const T*>(w),
                                                            static_cast<T*>(y), g, grid, backwards);
      check_launch("depthwise_wide_kernel");
    });
  });
}

void wide_spread(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* dy, const void* w,
                 void* dx) {
  const std::int64_t packs = s.channels / kWideChannels;
  const StripCut cut = cut_strips(s.batch, (s.in_h + s.pad_top + 1) / 2, (s.in_w + s.pad_left + 1) / 2, kSpreadColumns,
                                  packs, kWideGoal);
  if (cut.tasks == 0 || packs == 0) return;
  const Strips g = strips_of(s, cut);
  const StripGrid grid = strip_grid(packs, cut.tasks, 0, kWideLanes);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    depthwise_wide_spread_kernel<T, 5, kSpreadColumns><<<grid.blocks, grid.block, 0, stream_of(exec)>>>(
        static_cast<const T*>(dy), static_cast<const T*>(w), static_cast<T*>(dx), g, grid);
    check_launch("depthwise_wide_spread_kernel");
  });
}

void wide_grad_weight(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x, const void* dy,
                      float* partials, float* dw, bool accumulate) {
  const WriteSum write{dw, accumulate};
  const StripParts parts = wide_grad_weight_strips(s);
  const Strips g = strips_of(s, parts.cut);
  const StripGrid grid = strip_grid(s.channels, parts.cut.tasks, parts.tasks_each);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    with_wide_kernel(s, [&](auto kernel, auto stride) {
      depthwise_wide_grad_weight_kernel<T, decltype(kernel)::value, decltype(stride)::value>
          <<<grid.blocks, grid.block, 0, stream_of(exec)>>>(static_cast<const T*>(x), static_cast<const T*>(dy), g,
                                                            grid, static_cast<std::uint32_t>(parts.tasks_each),
                                                            partials, write);
      check_launch("depthwise_wide_grad_weight_kernel");
    });
  });
  if (parts.parts > 1) add_strip_parts(exec, partials, parts.parts, s.w_elements(), write);
}

}  // namespace bantam::kernels::cuda

// Depthwise convolution for inference on the CPU: the gather, and the epilogue of each row while it is in a cache.
#include "bantam/kernels/contracts/depthwise/depthwise_inference.h"

#include "bantam/kernels/cpu/depthwise/depthwise_weights.h"
#include "bantam/kernels/cpu/device/convert.h"
#include "bantam/kernels/cpu/elementwise/activation_math.h"
#include "bantam/kernels/tiling/depthwise/depthwise_parts.h"

namespace bantam::kernels::cpu {
namespace {

struct Identity8 {
  Float8 operator()(Float8 x) const { return x; }
};

/// The epilogue of rows of (width, channels).
template <class T, class F>
struct RowEpilogue {
  std::int64_t width, channels;
  const T* bias;
  const T* residual;
  T* y;
  F f;

  void operator()(std::int64_t row) const {
    for (std::int64_t position = row * width; position < (row + 1) * width; ++position)
      for (std::int64_t c = 0; c < channels; c += kLanes) {
        const std::int64_t lanes = std::min(kLanes, channels - c), at = position * channels + c;
        Float8 sum = load_lanes(y + at, lanes);
        if (bias != nullptr) sum += load_lanes(bias + c, lanes);
        if (residual != nullptr) sum += load_lanes(residual + at, lanes);
        store_lanes(y + at, lanes, f(sum));
      }
  }
};

}  // namespace

void depthwise_conv2d_inference(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                                const void* w, const Epilogue& epilogue, void* y) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Gather<T> gather{rows_of(s, false),
                           columns_of(s, false),
                           s.batch,
                           s.out_h(),
                           s.out_w(),
                           s.out_channels(),
                           s.channels,
                           s.multiplier,
                           static_cast<const T*>(x),
                           static_cast<const T*>(w),
                           static_cast<T*>(y)};
    const auto run = [&](const auto& f) {
      run_gather(gather, exec.threads,
                 RowEpilogue<T, std::remove_cvref_t<decltype(f)>>{
                     s.out_w(), s.out_channels(), static_cast<const T*>(epilogue.bias),
                     static_cast<const T*>(epilogue.residual), gather.out, f});
    };
    if (epilogue.f.kind == Activation::none) return run(Identity8{});
    with_activation8(epilogue.f, run);
  });
}

}  // namespace bantam::kernels::cpu

// Depthwise convolution for inference on the CPU: 3x3 strips by the widest vectors that the processor has, with bias
// and clamp; else the gather, and the epilogue of each row while it is in a cache.
#include "bantam/kernels/depthwise/depthwise_inference.h"

#include <limits>

#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/common/cpu/instruction_set.h"
#include "bantam/kernels/depthwise/cpu/depthwise_strip.h"
#include "bantam/kernels/depthwise/cpu/depthwise_weights.h"
#include "bantam/kernels/depthwise/depthwise_parts.h"
#include "bantam/kernels/elementwise/cpu/activation_math.h"

namespace bantam::kernels::cpu {
namespace {

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

constexpr int kStripOutputs = 4;

/// The kernels of one instruction set, with the number of channels in its vectors.
struct StripKernels {
  std::int64_t lanes;
  void (*strip[2])(const DepthwiseStrip&);   ///< compute kStripOutputs outputs, by stride - 1
  void (*single[2])(const DepthwiseStrip&);  ///< compute one output, by stride - 1
  void (*edge)(const DepthwiseStrip&);
};

/// BANTAM_STRIP_TARGET(name, vector bytes, attribute)
// NOLINTBEGIN(bugprone-macro-parentheses): a name and an attribute stand alone
#define BANTAM_STRIP_TARGET(Name, Bytes, Attribute)                                                             \
  struct Name {                                                                                                 \
    using Vector = float __attribute__((vector_size(Bytes)));                                                   \
    template <int kStride, int kCount>                                                                          \
    Attribute static void strip(const DepthwiseStrip& s) {                                                      \
      filter_strip<Vector, kStride, kCount>(s);                                                                 \
    }                                                                                                           \
    Attribute static void edge(const DepthwiseStrip& s) { filter_edge<Vector>(s); }                             \
    static StripKernels kernels() {                                                                             \
      return {Bytes / 4, {strip<1, kStripOutputs>, strip<2, kStripOutputs>}, {strip<1, 1>, strip<2, 1>}, edge}; \
    }                                                                                                           \
  }

#if defined(__x86_64__)
BANTAM_STRIP_TARGET(Avx512, 64, [[gnu::target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]]);
BANTAM_STRIP_TARGET(Avx2, 32, [[gnu::target("avx2,fma")]]);
#endif
BANTAM_STRIP_TARGET(Plain, 16, );
#undef BANTAM_STRIP_TARGET
// NOLINTEND(bugprone-macro-parentheses)

/// The widest that divides the channels; no lanes where none does.
StripKernels strip_kernels(std::int64_t channels) {
#if defined(__x86_64__)
  if (has_avx512() && channels % 16 == 0) return Avx512::kernels();
  if (has_avx2() && channels % 8 == 0) return Avx2::kernels();
#endif
  return channels % 4 == 0 ? Plain::kernels() : StripKernels{};
}

/// A call over strips.
class StripCall {
 public:
  StripCall(const DepthwiseConv2dShape& s, const StripKernels& kernels, const float* x, const float* w,
            const Epilogue& epilogue, float* y)
      : s_(s), kernels_(kernels), x_(x), w_(w), bias_(static_cast<const float*>(epilogue.bias)), y_(y) {
    const PiecewiseLinear line = PiecewiseLinear::of(epilogue.f);
    below_ = line.below;
    top_ = line.bounded ? line.top : std::numeric_limits<float>::infinity();
    const std::int64_t last = s.in_w + s.pad_left - 3;  // the last first column of taps, in padded columns
    begin_ = std::clamp<std::int64_t>((s.pad_left + s.stride_w - 1) / s.stride_w, 0, s.out_w());
    end_ = std::clamp<std::int64_t>(last < 0 ? 0 : last / s.stride_w + 1, begin_, s.out_w());
  }

  /// Row `row` of the outputs of all images.
  void run(std::int64_t row) const {
    const std::int64_t image = row / s_.out_h(), top = row % s_.out_h() * s_.stride_h - s_.pad_top;
    const std::int64_t first = std::max<std::int64_t>(0, -top), end = std::min<std::int64_t>(3, s_.in_h - top);
    DepthwiseStrip strip{.x_row = s_.in_w * s_.channels,
                         .rows = std::max<std::int64_t>(0, end - first),
                         .columns = 3,
                         .bias = bias_,
                         .channels = s_.channels,
                         .below = below_,
                         .top = top_};
    const float* x = x_ + (image * s_.in_h + top + first) * strip.x_row;
    const float* w = w_ + first * 3 * s_.channels;
    float* y = y_ + row * s_.out_w() * s_.channels;
    const auto at = [&](std::int64_t column) {
      const std::int64_t left = column * s_.stride_w - s_.pad_left, skipped = std::max<std::int64_t>(0, -left);
      strip.columns = std::clamp<std::int64_t>(s_.in_w - left - skipped, 0, 3 - std::min<std::int64_t>(skipped, 3));
      strip.x = x + (left + skipped) * s_.channels;
      strip.weights = w + skipped * s_.channels;
      strip.y = y + column * s_.channels;
    };
    const auto stride = static_cast<std::size_t>(s_.stride_w - 1);
    for (std::int64_t o = 0; o < begin_; ++o) at(o), kernels_.edge(strip);
    std::int64_t o = begin_;
    for (; o + kStripOutputs <= end_; o += kStripOutputs) at(o), kernels_.strip[stride](strip);
    for (; o < end_; ++o) at(o), kernels_.single[stride](strip);
    for (; o < s_.out_w(); ++o) at(o), kernels_.edge(strip);
  }

 private:
  const DepthwiseConv2dShape& s_;
  const StripKernels& kernels_;
  const float *x_, *w_, *bias_;
  float* y_;
  float below_, top_;
  std::int64_t begin_, end_;  // outputs all of whose columns lie in the image
};

/// False where strips do not apply.
bool run_strips(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x, const void* w,
                const Epilogue& epilogue, void* y) {
  const bool fits = dtype == DType::float32 && s.multiplier == 1 && s.kernel_h == 3 && s.kernel_w == 3 &&
                    s.dilation_h == 1 && s.dilation_w == 1 && s.stride_h == s.stride_w && s.stride_w <= 2 &&
                    epilogue.residual == nullptr && is_piecewise(epilogue.f.kind);
  if (!fits) return false;
  const StripKernels kernels = strip_kernels(s.channels);
  if (kernels.lanes == 0) return false;
  const StripCall call(s, kernels, static_cast<const float*>(x), static_cast<const float*>(w), epilogue,
                       static_cast<float*>(y));
  const std::int64_t grain = std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, s.out_w() * s.channels * 9));
  parallel_ranges(s.batch * s.out_h(), grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) call.run(row);
  });
  return true;
}

}  // namespace

void depthwise_conv2d_inference(const Exec& exec, const DepthwiseConv2dShape& s, DType dtype, const void* x,
                                const void* w, const Epilogue& epilogue, void* y) {
  if (s.y_elements() == 0 || run_strips(exec, s, dtype, x, w, epilogue, y)) return;
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
    with_optional_activation8<T>(epilogue.f, run);
  });
}

}  // namespace bantam::kernels::cpu

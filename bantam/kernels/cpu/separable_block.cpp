// The separable block on the CPU: the plain kernels one after the other, over runs of images that stay in the cache.
#include "bantam/kernels/separable_block.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/cpu/convert.h"
#include "bantam/kernels/cpu/separable_block_plan.h"

namespace bantam::kernels::cpu {
namespace {

/// Images [first, first + count) of the batch.
struct Run {
  std::int64_t first, count;
};

template <class Step>
void for_runs(const SeparableBlockPlan& plan, Step&& step) {
  for (std::int64_t n = 0; n < plan.s.batch; n += plan.images) step(Run{n, std::min(plan.images, plan.s.batch - n)});
}

/// Calls row(n, oh) for every output row of `count` images, in parallel.
template <class Row>
void for_output_rows(const Exec& exec, const SeparableBlockShape& s, std::int64_t count, Row&& row) {
  constexpr std::int64_t kElementsOfPart = 16384;
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsOfPart / (s.out_w() * s.out_channels));
  parallel_ranges(count * s.out_h(), grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r / s.out_h(), r % s.out_h());
  });
}

/// One output position: the pixels it is pooled from, eight channels of which make whole bytes of codes.
template <class T>
struct Window {
  const T* first;         ///< (out_channels) of the upper left pixel, before bias
  std::int64_t row_step;  ///< elements to the pixel below
  std::int64_t pool, channels;
};

/// y and codes of one position.
template <class T>
void finish_position(const Window<T>& w, const T* bias, bool relu, T* y, std::uint8_t* codes) {
  for (std::int64_t o = 0; o < w.channels; ++o) {
    const float shift = bias != nullptr ? static_cast<float>(bias[o]) : 0.0f;
    float best = 0;
    unsigned winner = 1;
    for (std::int64_t place = 0; place < w.pool * w.pool; ++place) {
      // Rounded before values are compared, as on every device.
      const auto value = static_cast<float>(
          static_cast<T>(static_cast<float>(w.first[place / 2 * w.row_step + place % 2 * w.channels + o]) + shift));
      if (place > 0 && !(value > best) && !(value != value && best == best)) continue;
      best = value;
      winner = 1u << place;
    }
    const bool open = !relu || best > 0.0f;
    y[o] = static_cast<T>(relu && best < 0.0f ? 0.0f : best);
    if (codes == nullptr) continue;
    const std::int64_t in_byte = w.pool == 2 ? 2 : 8;
    std::uint8_t& code = codes[o / in_byte];
    if (o % in_byte == 0) code = 0;
    if (open) code = static_cast<std::uint8_t>(code | winner << (o % in_byte * (8 / in_byte)));
  }
}

/// y and codes of `count` images from the pointwise sums.
template <class T>
void finish_images(const Exec& exec, const SeparableBlockShape& s, std::int64_t count, const T* sums, const T* bias,
                   T* y, std::uint8_t* codes) {
  const std::int64_t row_step = s.conv_w() * s.out_channels, per_byte = s.pool == 2 ? 2 : 8;
  for_output_rows(exec, s, count, [&](std::int64_t n, std::int64_t oh) {
    for (std::int64_t ow = 0; ow < s.out_w(); ++ow) {
      const std::int64_t to = ((n * s.out_h() + oh) * s.out_w() + ow) * s.out_channels;
      const T* from = sums + (n * s.conv_h() + oh * s.pool) * row_step + ow * s.pool * s.out_channels;
      finish_position<T>({from, row_step, s.pool, s.out_channels}, bias, s.relu, y + to,
                         codes != nullptr ? codes + to / per_byte : nullptr);
    }
  });
}

/// dz (pixels, out_channels) of `count` images: dy where the code's pixel is, 0 elsewhere.
template <class T>
void scatter_images(const Exec& exec, const SeparableBlockShape& s, std::int64_t count, const T* dy,
                    const std::uint8_t* codes, T* dz) {
  const std::int64_t row_step = s.conv_w() * s.out_channels, bits = s.pool == 2 ? 4 : 1;
  const std::int64_t image = s.conv_h() * row_step;
  if (s.pool == 2)
    parallel_ranges(count, 1, exec.threads, [&](std::int64_t n, std::int64_t) {
      std::fill(dz + n * image, dz + (n + 1) * image, T(0.0f));  // rows and columns that no window covers, too
    });
  for_output_rows(exec, s, count, [&](std::int64_t n, std::int64_t oh) {
    for (std::int64_t i = 0; i < s.out_w() * s.out_channels; ++i) {
      const std::int64_t ow = i / s.out_channels, o = i % s.out_channels;
      const std::int64_t at = (n * s.out_h() + oh) * s.out_w() * s.out_channels + i;
      const unsigned code = codes != nullptr ? codes[at * bits / 8] >> (at * bits % 8) : 1u;
      T* to = dz + n * image + oh * s.pool * row_step + ow * s.pool * s.out_channels + o;
      for (std::int64_t place = 0; place < s.pool * s.pool; ++place)
        to[place / 2 * row_step + place % 2 * s.out_channels] = (code >> place & 1u) != 0 ? dy[at] : T(0.0f);
    }
  });
}

}  // namespace

void separable_block_forward(const Exec& exec, const SeparableBlockShape& s, DType dtype, const void* x,
                             const void* w_depthwise, const void* w_pointwise, const void* bias, void* y,
                             std::uint8_t* codes, Workspace workspace) {
  check_separable_block(s, dtype, DeviceKind::cpu);
  const SeparableBlockPlan plan(s, dtype);
  require_workspace(workspace, plan.forward_bytes(), "separable_block_forward");
  WorkspaceCutter cutter(workspace);
  void* middle = cutter.take<void>(plan.middle_bytes());
  void* sums = cutter.take<void>(plan.sums_bytes());
  const Workspace inner{cutter.take<void>(0), plan.inner_bytes(false)};
  const std::int64_t x_image = s.in_h * s.in_w * s.in_channels, y_image = s.out_h() * s.out_w() * s.out_channels;
  const std::int64_t code_image = s.batch > 0 ? separable_block_code_bytes(s) / s.batch : 0;
  for_runs(plan, [&](Run run) {
    depthwise_conv2d_forward(exec, plan.depthwise(run.count), dtype, element(x, dtype, run.first * x_image),
                             w_depthwise, middle);
    matmul(exec, plan.pointwise(run.count), dtype, middle, w_pointwise, dtype, sums, false, inner);
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      finish_images(exec, s, run.count, static_cast<const T*>(sums), static_cast<const T*>(bias),
                    static_cast<T*>(y) + run.first * y_image,
                    codes != nullptr && code_image > 0 ? codes + run.first * code_image : nullptr);
    });
  });
}

void separable_block_backward(const Exec& exec, const SeparableBlockShape& s, DType dtype, const void* x,
                              const void* w_depthwise, const void* w_pointwise, const void* dy,
                              const std::uint8_t* codes, void* dx, float* d_depthwise, float* d_pointwise,
                              float* d_bias, std::array<bool, 3> accumulate, Workspace workspace) {
  check_separable_block(s, dtype, DeviceKind::cpu);
  const SeparableBlockPlan plan(s, dtype);
  require_workspace(workspace, plan.backward_bytes(), "separable_block_backward");
  WorkspaceCutter cutter(workspace);
  void* middle = cutter.take<void>(plan.middle_bytes());
  void* d_middle = cutter.take<void>(plan.middle_bytes());
  void* dz = cutter.take<void>(plan.sums_bytes());
  const Workspace inner{cutter.take<void>(0), plan.inner_bytes(true)};
  const std::int64_t x_image = s.in_h * s.in_w * s.in_channels, y_image = s.out_h() * s.out_w() * s.out_channels;
  const std::int64_t code_image = s.batch > 0 ? separable_block_code_bytes(s) / s.batch : 0;
  if (s.batch == 0) {
    if (!accumulate[0]) std::fill_n(d_depthwise, s.depthwise_elements(), 0.0f);
    if (!accumulate[1]) std::fill_n(d_pointwise, s.pointwise_elements(), 0.0f);
    if (!accumulate[2] && d_bias != nullptr) std::fill_n(d_bias, s.out_channels, 0.0f);
  }
  for_runs(plan, [&](Run run) {
    const DepthwiseConv2dShape depthwise = plan.depthwise(run.count);
    const void* images = element(x, dtype, run.first * x_image);
    const bool later = run.first > 0;  // sums over runs go to the gradient itself, in order
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      scatter_images(exec, s, run.count, static_cast<const T*>(dy) + run.first * y_image,
                     code_image > 0 ? codes + run.first * code_image : nullptr, static_cast<T*>(dz));
    });
    depthwise_conv2d_forward(exec, depthwise, dtype, images, w_depthwise, middle);
    matmul(exec, plan.pointwise_grad_weight(run.count), dtype, dz, middle, DType::float32, d_pointwise,
           accumulate[1] || later, inner);
    if (d_bias != nullptr)
      bias_grad(exec, plan.pixels(run.count), s.out_channels, dtype, dz, d_bias, accumulate[2] || later, inner);
    matmul(exec, plan.pointwise_grad_input(run.count), dtype, dz, w_pointwise, dtype, d_middle, false, inner);
    depthwise_conv2d_grad_weight(exec, depthwise, dtype, images, d_middle, d_depthwise, accumulate[0] || later, inner);
    if (dx != nullptr)
      depthwise_conv2d_grad_input(exec, depthwise, dtype, d_middle, w_depthwise,
                                  element(dx, dtype, run.first * x_image));
  });
}

}  // namespace bantam::kernels::cpu

// Sums of input gradients by channel, from weights and weight gradients, on the CPU.
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cpu {

void conv2d_input_sums(const Exec&, const Conv2dShape& shape, DType dtype, const void* w, const float* dw, float* sums,
                       bool accumulate) {
  const std::int64_t channels = shape.in_channels;
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* weights = static_cast<const T*>(w);
    for (std::int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::int64_t i = c; i < shape.w_elements(); i += channels)
        sum += static_cast<double>(static_cast<float>(weights[i])) * static_cast<double>(dw[i]);
      sums[c] = static_cast<float>(sum) + (accumulate ? sums[c] : 0.0f);
    }
  });
}

}  // namespace bantam::kernels::cpu

// Work of element-wise kernels: each operand once.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/elementwise/activation.h"
#include "bantam/kernels/elementwise/bias.h"
#include "bantam/kernels/elementwise/bias_activation.h"
#include "bantam/kernels/elementwise/channel_factor.h"
#include "bantam/kernels/elementwise/dropout.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/epilogue.h"
#include "bantam/kernels/elementwise/epilogue_work.h"
#include "bantam/kernels/elementwise/masked_activation.h"

namespace bantam::kernels::work {
namespace {

/// One pass over `tensors` tensors of `count` elements, and so many bytes besides.
KernelWork pass(int tensors, std::int64_t count, DType dtype, std::int64_t besides = 0) {
  return {.bytes = tensors * bytes_of(count, dtype) + besides};
}
std::int64_t mask_bytes(std::int64_t count) { return static_cast<std::int64_t>(activation_mask_bytes(count)); }
std::int64_t mask_bytes(const DropoutShape& s) { return static_cast<std::int64_t>(dropout_mask_bytes(s)); }

}  // namespace

void activation_forward(const Exec& exec, Activation, float, std::int64_t count, DType dtype, const void*, void*) {
  note(exec, "activation_forward", pass(2, count, dtype));
}
void activation_grad(const Exec& exec, Activation, float, std::int64_t count, DType dtype, const void*, const void*,
                     void*) {
  note(exec, "activation_grad", pass(3, count, dtype));
}

void bias_forward(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const void*, const void*,
                  void*) {
  note(exec, "bias_forward", pass(2, rows * channels, dtype, bytes_of(channels, dtype)));
}
void epilogue_forward(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const Epilogue& epilogue,
                      void*) {
  const std::int64_t elements = rows * channels;
  note(exec, "epilogue_forward",
       pass(2, elements, dtype, bytes_of(epilogue_elements(epilogue, elements, channels), dtype)));
}

void bias_grad(const Exec& exec, std::int64_t rows, std::int64_t channels, DType dtype, const void*, float* db,
               bool accumulate, Workspace) {
  KernelWork work = pass(1, rows * channels, dtype, gradient_bytes(db, accumulate, channels));
  work.passes = 2;  // partial sums, and their sum
  note(exec, "bias_grad", work);
}

void bias_activation_forward(const Exec& exec, ActivationFunction, const BiasShape& s, DType dtype, const void*,
                             const void*, void*, std::uint8_t* mask) {
  note(exec, "bias_activation_forward",
       pass(2, s.elements(), dtype, bytes_of(s.channels, dtype) + unless_null(mask, mask_bytes(s.elements()))));
}
void bias_activation_grad(const Exec& exec, ActivationFunction, const BiasShape& s, DType dtype,
                          const BiasActivationGradInputs& in, const BiasActivationGradients& to, Workspace) {
  const bool masked = in.mask != nullptr;
  KernelWork work = pass(masked ? 2 : 3, s.elements(), dtype, gradient_bytes(to.db, to.accumulate, s.channels));
  work.bytes += masked ? mask_bytes(s.elements()) : 0;
  work.passes = 2;  // partial sums, and their sum
  note(exec, "bias_activation_grad", work);
}
void bias_activation_slopes(const Exec& exec, ActivationFunction, const BiasShape& s, DType dtype, const void*,
                            const void*, void*) {
  note(exec, "bias_activation_slopes", pass(2, s.elements(), dtype, bytes_of(s.channels, dtype)));
}

void channel_factor_forward(const Exec& exec, const ChannelFactorShape& s, DType dtype, const void*, const float*,
                            void*) {
  note(exec, "channel_factor_forward", pass(2, s.rows * s.channels, dtype, 4 * s.factors()));
}
void channel_factor_grad(const Exec& exec, const ChannelFactorShape& s, DType dtype, const ChannelFactorGradInputs&,
                         const ChannelFactorGradients& to, Workspace) {
  const std::int64_t factors = 4 * s.factors() + gradient_bytes(to.ds, to.accumulate, s.factors());
  KernelWork work = pass(to.dx != nullptr ? 3 : 2, s.rows * s.channels, dtype, factors);
  if (to.ds != nullptr) work.passes = s.shared ? 3 : 2;  // partial sums, their sums, and the sum of those
  note(exec, "channel_factor_grad", work);
}

void dropout_forward(const Exec& exec, const DropoutShape& s, DType dtype, const std::int64_t*, const void*, void*,
                     std::uint32_t*) {
  note(exec, "dropout_forward", pass(2, s.samples * s.sample_elements, dtype, mask_bytes(s)));
}
void dropout_grad(const Exec& exec, const DropoutShape& s, DType dtype, const std::uint32_t*, const void*, void*) {
  note(exec, "dropout_grad", pass(2, s.samples * s.sample_elements, dtype, mask_bytes(s)));
}

void add(const Exec& exec, std::int64_t count, DType dtype, const void*, const void*, void*) {
  note(exec, "add", pass(3, count, dtype));
}
void scale(const Exec& exec, std::int64_t count, DType dtype, float, const void*, void*) {
  note(exec, "scale", pass(2, count, dtype));
}
void cast(const Exec& exec, std::int64_t count, DType from, const void*, DType to, void*) {
  note(exec, "cast", {.bytes = bytes_of(count, from) + bytes_of(count, to)});
}
void fill(const Exec& exec, std::int64_t count, DType dtype, float, void*) {
  note(exec, "fill", pass(1, count, dtype));
}

void masked_activation_forward(const Exec& exec, ActivationFunction, std::int64_t count, DType dtype, const void*,
                               const void* b, void*, std::uint8_t* mask) {
  note(exec, "masked_activation_forward",
       pass(b != nullptr ? 3 : 2, count, dtype, unless_null(mask, mask_bytes(count))));
}
void masked_activation_grad(const Exec& exec, ActivationFunction, std::int64_t count, DType dtype, const std::uint8_t*,
                            const void*, void*) {
  note(exec, "masked_activation_grad", pass(2, count, dtype, mask_bytes(count)));
}

}  // namespace bantam::kernels::work

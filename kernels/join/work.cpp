// Work of kernels that join and weigh arrays: each operand once.
#include "bantam/kernels/common/work.h"

#include "bantam/kernels/join/channel_scale.h"
#include "bantam/kernels/join/concat.h"
#include "bantam/kernels/join/mean.h"
#include "bantam/kernels/join/multiply.h"
#include "bantam/kernels/join/norm_gate.h"
#include "bantam/kernels/join/squeeze_excite.h"
#include "bantam/kernels/norm/norm_work.h"

namespace bantam::kernels::work {

void concat(const Exec& exec, const JoinShape& s, DType dtype, const ConcatInputs&, void*) {
  note(exec, "concat", {.bytes = 2 * bytes_of(s.rows * (s.begin[s.count] - s.begin[0]), dtype)});
}
void split(const Exec& exec, const JoinShape& s, DType dtype, const SplitInput& input, const SplitOutputs& outputs) {
  KernelWork work;
  for (int i = 0; i < s.count; ++i) {
    if (outputs.data[i] == nullptr) continue;
    const int operands = 2 + (input.other != nullptr ? 1 : 0) + (outputs.addend[i] != nullptr ? 1 : 0);
    work.bytes += operands * bytes_of(s.rows * s.width(i), dtype);
  }
  note(exec, "split", work);
}

void mean_of(const Exec& exec, std::int64_t elements, DType dtype, const MeanInputs& inputs, void*) {
  note(exec, "mean_of", {.bytes = (inputs.count + 1) * bytes_of(elements, dtype)});
}

void multiply(const Exec& exec, std::int64_t count, DType dtype, const void*, const void*, void*) {
  note(exec, "multiply", {.bytes = 3 * bytes_of(count, dtype)});
}
void multiply_grad(const Exec& exec, std::int64_t count, DType dtype, const MultiplyInputs&,
                   const MultiplyGradients& to) {
  const int gradients = (to.da != nullptr ? 1 : 0) + (to.db != nullptr ? 1 : 0);
  note(exec, "multiply_grad", {.bytes = (1 + 2 * gradients) * bytes_of(count, dtype)});
}

void channel_scale_forward(const Exec& exec, const ChannelScaleShape& s, const void*, const void*, const void* offset,
                           void*) {
  note(exec, "channel_scale_forward",
       {.bytes =
            2 * bytes_of(s.elements(), s.dtype) + (offset != nullptr ? 2 : 1) * bytes_of(s.factors(), s.factor_dtype)});
}
void channel_scale_grad(const Exec& exec, const ChannelScaleShape& s, const ChannelScaleInputs&,
                        const ChannelScaleGradients& to, Workspace) {
  const int more = (to.dx != nullptr ? 1 : 0) + (to.dfactor != nullptr ? 1 : 0);  // each with factors read or written
  KernelWork work{.bytes = (1 + more) * bytes_of(s.elements(), s.dtype) + more * bytes_of(s.factors(), s.factor_dtype)};
  if (to.dfactor != nullptr) work.passes = 2;  // partial sums, and their sum
  note(exec, "channel_scale_grad", work);
}

void position_mean(const Exec& exec, const ChannelScaleShape& s, const void*, float*, Workspace) {
  note(exec, "position_mean", {.bytes = bytes_of(s.elements(), s.dtype) + 4 * s.factors(), .passes = 2});
}

void squeeze_excite_forward(const Exec& exec, const SqueezeExciteShape& s, const float*, const SqueezeExciteWeights&,
                            const SqueezeExciteValues&) {
  const std::int64_t weights = s.channels * s.units, vectors = s.channels + s.units;
  note(exec, "squeeze_excite_forward",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(2 * weights + vectors, s.dtype) + 4 * s.samples * (3 * s.channels + 2 * s.units),
        .flops = 4 * s.samples * weights});
}
void squeeze_excite_grad(const Exec& exec, const SqueezeExciteShape& s, const SqueezeExciteInputs&,
                         const SqueezeExciteGradients& to, Workspace) {
  const std::int64_t weights = s.channels * s.units;
  note(exec, "squeeze_excite_grad",
       {.kind = KernelKind::fused,
        .bytes = bytes_of(2 * weights, s.dtype) + 4 * s.samples * (4 * s.channels + 2 * s.units) +
                 gradient_bytes(to.reduce, weights) + gradient_bytes(to.expand, weights) +
                 gradient_bytes(to.reduce_bias, s.units) + gradient_bytes(to.expand_bias, s.channels),
        .flops = 8 * s.samples * weights,
        .passes = 2});
}

void norm_gate_mean(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, float*, Workspace) {
  note(exec, "norm_gate_mean",
       {.bytes = bytes_of(s.elements(), s.dtype) + norm_bytes(x, s.channels) + 4 * s.factors(), .passes = 2});
}
void norm_gate_apply(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, const float*, void*,
                     Workspace) {
  note(exec, "norm_gate_apply",
       {.bytes = 2 * bytes_of(s.elements(), s.dtype) + norm_bytes(x, s.channels) + 4 * s.factors()});
}
void norm_gate_grad_sums(const Exec& exec, const ChannelScaleShape& s, const NormOperand& x, const void*, float*,
                         Workspace) {
  note(exec, "norm_gate_grad_sums",
       {.bytes = 2 * bytes_of(s.elements(), s.dtype) + norm_bytes(x, s.channels) + 4 * kNormGateSums * s.factors(),
        .passes = 2});
}
/// Four sums and two vectors a sample for the totals; then x, dy and dx.
void norm_gate_grad(const Exec& exec, const ChannelScaleShape& s, const NormGateInputs& in, const NormGradients& to,
                    Workspace) {
  const bool written = to.dx != nullptr;
  note(
      exec, "norm_gate_grad",
      {.bytes = 4 * 6 * s.factors() + (written ? 3 * bytes_of(s.elements(), s.dtype) + 4 * 2 * s.factors() : 0) +
                norm_bytes(in.x, s.channels) + vector_bytes(s.channels, to.dscale, to.dshift) * (to.accumulate ? 2 : 1),
       .passes = written ? 2 : 1});
}

}  // namespace bantam::kernels::work

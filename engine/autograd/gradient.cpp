// Deferred gradients, and the tensors that they become.
#include <utility>

#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/elementwise/masked_activation.h"

namespace bantam {
namespace {

Tensor destination(const Context& context, const Tensor& first, const Tensor& second) {
  if (first.sole_owner()) return first;
  if (second.defined() && second.sole_owner()) return second;
  return context.allocate(first.shape(), first.dtype());
}

/// Makes a norm's input gradient in the place of dz.
void make_of_norm(const Context& context, Gradient::Operands& operands) {
  const Gradient::NormInput norm = std::exchange(operands.norm, {});
  const std::int64_t channels = norm.x.shape()[-1];
  const kernels::BatchNormShape shape{.rows = norm.x.elements() / channels, .channels = channels};
  Tensor dx = destination(context, operands.value, {});
  const Scratch scratch = context.scratch(kernels::batch_norm_workspace_bytes(shape, dx.dtype(), context.device.kind));
  BANTAM_KERNEL(context.exec, norm_input_gradient, shape, dx.dtype(), norm.from(operands.value), dx.data(),
                scratch.get());
  operands.value = std::move(dx);
}

/// Puts the tensor in the place of its operands.
void make(const Context& context, Gradient::Operands& operands) {
  if (operands.norm.x.defined()) make_of_norm(context, operands);
  if (operands.other.defined()) {
    Tensor sum = destination(context, operands.value, operands.other);
    BANTAM_KERNEL(context.exec, add, sum.elements(), sum.dtype(), operands.value.data(), operands.other.data(),
                  sum.data());
    operands.value = std::move(sum);
    operands.other = Tensor();
  }
  if (operands.mask.defined()) {
    Tensor masked = destination(context, operands.value, {});
    BANTAM_KERNEL(context.exec, masked_activation_grad, operands.f, masked.elements(), masked.dtype(),
                  operands.mask.as<std::uint8_t>(), operands.value.data(), masked.data());
    operands.value = std::move(masked);
    operands.mask = Tensor();
  }
}

}  // namespace

kernels::NormInputGradient Gradient::NormInput::from(const Tensor& dz) const {
  kernels::NormOperand y = norm.operand(x);
  y.affine = {.scale = y.affine.scale};
  return {.dz = dz.data(), .y = y, .totals = totals.as<float>()};
}

Gradient::Gradient(Tensor value) {
  if (value.defined()) operands_ = std::make_shared<Operands>(Operands{.value = std::move(value)});
}

Gradient::Gradient(Tensor value, Tensor other)
    : operands_(std::make_shared<Operands>(Operands{.value = std::move(value), .other = std::move(other)})) {}

Gradient::Gradient(Tensor dz, NormInput norm)
    : operands_(std::make_shared<Operands>(Operands{.value = std::move(dz), .norm = std::move(norm)})) {}

Gradient Gradient::of_sum(Tensor masked, Tensor sums, Tensor observed) {
  Gradient gradient(std::move(masked));
  gradient.operands_->sums = std::move(sums);
  gradient.operands_->observed = std::move(observed);
  return gradient;
}

bool Gradient::is_deferred() const { return operands_->other.defined() || operands_->mask.defined() || of_norm(); }

bool Gradient::of_norm() const { return operands_->norm.x.defined(); }

const Tensor& Gradient::value() const { return operands_->value; }

Gradient Gradient::masked(const Context& context, Tensor mask, ActivationFunction f) && {
  Gradient result = std::move(*this);
  if (result.shared() || result.operands_->mask.defined() || result.of_norm())
    result = Gradient(std::move(result).tensor(context));
  result.operands_->mask = std::move(mask);
  result.operands_->f = f;
  return result;
}

Tensor Gradient::tensor(const Context& context) && {
  const std::shared_ptr<Operands> operands = std::move(operands_);
  if (operands == nullptr) return {};
  make(context, *operands);
  return operands.use_count() == 1 ? std::move(operands->value) : operands->value;
}

}  // namespace bantam

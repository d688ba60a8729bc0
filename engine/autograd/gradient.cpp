// Gradients in pieces, and the tensor that they make.
#include <utility>

#include "bantam/engine/autograd/gradient_pieces.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/kernels/contracts/elementwise/elementwise.h"
#include "bantam/kernels/contracts/elementwise/masked_activation.h"

namespace bantam {
namespace {

Tensor destination(const Context& context, const Tensor& first, const Tensor& second) {
  if (first.sole_owner()) return first;
  if (second.defined() && second.sole_owner()) return second;
  return context.allocate(first.shape(), first.dtype());
}

/// Makes a norm's input gradient in the place of dz.
void make_of_norm(const Context& context, Gradient::Pieces& pieces) {
  const Gradient::NormInput norm = std::exchange(pieces.norm, {});
  const std::int64_t channels = norm.x.shape()[-1];
  const kernels::BatchNormShape shape{.rows = norm.x.elements() / channels, .channels = channels};
  Tensor dx = destination(context, pieces.value, {});
  const Scratch scratch = context.scratch(kernels::batch_norm_workspace_bytes(shape, dx.dtype(), context.device.kind));
  BANTAM_KERNEL(context.exec, norm_input_gradient, shape, dx.dtype(), norm.from(pieces.value), dx.data(),
                scratch.get());
  pieces.value = std::move(dx);
}

/// Puts the tensor in the place of its pieces.
void make(const Context& context, Gradient::Pieces& pieces) {
  if (pieces.norm.x.defined()) make_of_norm(context, pieces);
  if (pieces.other.defined()) {
    Tensor sum = destination(context, pieces.value, pieces.other);
    BANTAM_KERNEL(context.exec, add, sum.elements(), sum.dtype(), pieces.value.data(), pieces.other.data(), sum.data());
    pieces.value = std::move(sum);
    pieces.other = Tensor();
  }
  if (pieces.mask.defined()) {
    Tensor masked = destination(context, pieces.value, {});
    BANTAM_KERNEL(context.exec, masked_activation_grad, pieces.f, masked.elements(), masked.dtype(),
                  pieces.mask.as<std::uint8_t>(), pieces.value.data(), masked.data());
    pieces.value = std::move(masked);
    pieces.mask = Tensor();
  }
}

}  // namespace

kernels::NormInputGradient Gradient::NormInput::from(const Tensor& dz) const {
  kernels::NormOperand y = norm.operand(x);
  y.affine = {.scale = y.affine.scale};
  return {.dz = dz.data(), .y = y, .totals = totals.as<float>()};
}

Gradient::Gradient(Tensor value) {
  if (value.defined()) pieces_ = std::make_shared<Pieces>(Pieces{std::move(value), {}, {}, {}, {}});
}

Gradient::Gradient(Tensor value, Tensor other)
    : pieces_(std::make_shared<Pieces>(Pieces{std::move(value), std::move(other), {}, {}, {}})) {}

Gradient::Gradient(Tensor dz, NormInput norm)
    : pieces_(std::make_shared<Pieces>(Pieces{std::move(dz), {}, {}, {}, std::move(norm)})) {}

bool Gradient::in_pieces() const { return pieces_->other.defined() || pieces_->mask.defined() || of_norm(); }

bool Gradient::of_norm() const { return pieces_->norm.x.defined(); }

const Tensor& Gradient::value() const { return pieces_->value; }

Gradient Gradient::masked(const Context& context, Tensor mask, ActivationFunction f) && {
  Gradient result = std::move(*this);
  if (result.shared() || result.pieces_->mask.defined() || result.of_norm())
    result = Gradient(std::move(result).tensor(context));
  result.pieces_->mask = std::move(mask);
  result.pieces_->f = f;
  return result;
}

Tensor Gradient::tensor(const Context& context) && {
  const std::shared_ptr<Pieces> pieces = std::move(pieces_);
  if (pieces == nullptr) return {};
  make(context, *pieces);
  return pieces.use_count() == 1 ? std::move(pieces->value) : pieces->value;
}

}  // namespace bantam

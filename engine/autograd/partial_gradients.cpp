// Which gradients stay partial or narrow until the update, adding them up and widening them.
#include "bantam/engine/autograd/partial_gradients.h"

#include <algorithm>
#include <utility>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/kernels/update/update.h"

namespace bantam {
namespace {

std::int64_t first_weight_block(const Parameter& parameter) { return parameter.offset() / kernels::kWeightBlockSize; }

}  // namespace

bool PartialGradients::accepts(const Context& context, std::size_t bytes, std::size_t arrays) const {
  return allowed_ && context.device.kind == DeviceKind::cuda && bytes_ + bytes <= kMostBytes &&
         parameters_.size() + arrays <= static_cast<std::size_t>(kernels::PartialSums::kMost);
}

void PartialGradients::keep(const Context& context, std::initializer_list<const Parameter*> parameters, Tensor parts) {
  exec_ = context.exec;
  bytes_ += parts.bytes();
  parameters_.insert(parameters_.end(), parameters);
  parts_.push_back(std::move(parts));
}

bool PartialGradients::hold(const Parameter& parameter) const {
  return std::ranges::find(parameters_, &parameter) != parameters_.end();
}

void PartialGradients::add_up() {
  if (sums_.count > 0) BANTAM_KERNEL(exec_, add_up_parts, sums_);
  drop();
}

void PartialGradients::drop() {
  sums_ = {};
  parameters_.clear();
  parts_.clear();
  bytes_ = 0;
}

bool PartialGradients::accepts_narrow(const Context& context, const Tensor& weight) const {
  return context.device.kind == DeviceKind::cuda && weight.parameter() != nullptr && is_half(weight.dtype()) &&
         weight.elements() > 0 && weight.elements() % kernels::kWeightBlockSize == 0 &&
         narrow_.count < kernels::NarrowGradients::kMost;
}

void PartialGradients::keep_narrow(const Context& context, const Parameter& parameter) {
  exec_ = context.exec;
  const std::int64_t begin = first_weight_block(parameter),
                     end = begin + parameter.shape().elements() / kernels::kWeightBlockSize;
  narrow_.add({static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)});
}

bool PartialGradients::holds_narrow(const Parameter& parameter) const {
  return narrow_.contain(first_weight_block(parameter));
}

void PartialGradients::forget_narrow(const Parameter& parameter) { narrow_.remove(first_weight_block(parameter)); }

void PartialGradients::widen(const Tensor& slot, DType dtype) {
  if (narrow_.count == 0) return;
  BANTAM_KERNEL(exec_, widen_gradients, slot.as<float>(), narrow_, dtype);
  narrow_ = {};
}

}  // namespace bantam

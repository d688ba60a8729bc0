// What waits, and its adding up.
#include "bantam/engine/pending_gradients.h"

#include <algorithm>
#include <utility>

#include "bantam/engine/context.h"

namespace bantam {

bool PendingGradients::takes(const Context& context, std::size_t bytes, std::size_t arrays) const {
  return context.device.kind == DeviceKind::cuda && bytes_ + bytes <= kMostBytes &&
         parameters_.size() + arrays <= static_cast<std::size_t>(kernels::PendingSums::kMost);
}

void PendingGradients::keep(const Context& context, std::initializer_list<const Parameter*> parameters, Tensor parts) {
  exec_ = context.exec;
  bytes_ += parts.bytes();
  parameters_.insert(parameters_.end(), parameters);
  parts_.push_back(std::move(parts));
}

bool PendingGradients::hold(const Parameter& parameter) const {
  return std::ranges::find(parameters_, &parameter) != parameters_.end();
}

void PendingGradients::add_up() {
  if (sums_.count > 0) BANTAM_KERNEL(exec_, add_up_parts, sums_);
  drop();
}

void PendingGradients::drop() {
  sums_ = {};
  parameters_.clear();
  parts_.clear();
  bytes_ = 0;
}

}  // namespace bantam

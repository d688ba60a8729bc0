// Average: every input receives dy divided by their number.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/join/mean.h"

namespace bantam::ops {
namespace {

void check(const Context& context, std::span<const Tensor> inputs) {
  if (inputs.empty() || inputs.size() > kernels::kMostAveraged)
    throw ShapeError(fmt::format("average: expected 1 to {} inputs, got {}", kernels::kMostAveraged, inputs.size()));
  const Tensor& first = inputs.front();
  for (const Tensor& input : inputs) {
    context.check_device("average", {&input});
    if (input.shape() != first.shape())
      throw ShapeError(fmt::format("average: {} and {} differ", to_string(first.shape()), to_string(input.shape())));
    if (input.dtype() != first.dtype())
      throw DTypeError(fmt::format("average: {} and {} differ", to_string(first.dtype()), to_string(input.dtype())));
  }
}

}  // namespace

Tensor average(const Context& context, std::span<const Tensor> inputs) {
  check(context, inputs);
  kernels::MeanInputs from{.count = static_cast<int>(inputs.size())};
  for (std::size_t i = 0; i < inputs.size(); ++i) from.data[i] = inputs[i].data();
  Tensor y = context.allocate(inputs.front().shape(), inputs.front().dtype());
  if (!context.output_unused()) BANTAM_KERNEL(context.exec, mean_of, y.elements(), y.dtype(), from, y.data());
  if (std::ranges::none_of(inputs, [&](const Tensor& input) { return records(context, {&input}); })) return y;
  const std::vector<ValueRef> refs(inputs.begin(), inputs.end());
  context.tape->record(context, y, [refs](const Context& ctx, Tensor dy, GradientStore& store) {
    Tensor dx = reuse_or_allocate(ctx, dy);
    BANTAM_KERNEL(ctx.exec, scale, dx.elements(), dx.dtype(), 1.0f / static_cast<float>(refs.size()), dy.data(),
                  dx.data());
    dy = Tensor();
    const Gradient shared(std::move(dx));
    for (const ValueRef& input : refs) store.add(ctx, input, shared);
  });
  return y;
}

}  // namespace bantam::ops

// Concat: backward writes each input's part of dy, added to the gradient that is there already.
#include "bantam/kernels/join/concat.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/ops/ops.h"

namespace bantam::ops {
namespace {

/// An input, and the column of y that it begins at.
struct Part {
  ValueRef input;
  Shape shape;
  std::int64_t begin = 0;
};

Shape check(const Context& context, std::span<const Tensor> inputs) {
  if (inputs.empty()) throw ShapeError("concat: expected at least one input");
  const Tensor& first = inputs.front();
  if (first.shape().rank() < 1) throw ShapeError("concat: expected inputs (…, channels), got a scalar");
  std::int64_t channels = 0;
  for (const Tensor& input : inputs) {
    context.check_device("concat", {&input});
    if (input.shape().rank() != first.shape().rank() || input.shape().with(-1, 1) != first.shape().with(-1, 1))
      throw ShapeError(fmt::format("concat: the inputs {} and {} differ in more than their last axis",
                                   to_string(first.shape()), to_string(input.shape())));
    if (input.dtype() != first.dtype())
      throw DTypeError(fmt::format("concat: {} and {} differ", to_string(first.dtype()), to_string(input.dtype())));
    channels += input.shape()[-1];
  }
  return first.shape().with(-1, channels);
}

/// The shape of one call that joins inputs from `first` on, as many as a call can, and their columns in the result.
kernels::JoinShape call_from(const Shape& whole, const std::vector<Part>& parts, std::size_t first) {
  kernels::JoinShape shape{.rows = whole[-1] == 0 ? 0 : whole.elements() / whole[-1], .channels = whole[-1]};
  shape.count = static_cast<int>(std::min<std::size_t>(parts.size() - first, kernels::kMostJoined));
  shape.begin[0] = parts[first].begin;
  for (int i = 0; i < shape.count; ++i) {
    const Part& part = parts[first + static_cast<std::size_t>(i)];
    shape.begin[i + 1] = part.begin + part.shape[-1];
  }
  return shape;
}

void join(const Context& context, std::span<const Tensor> inputs, const std::vector<Part>& parts, const Tensor& y) {
  for (std::size_t first = 0; first < inputs.size(); first += kernels::kMostJoined) {
    const kernels::JoinShape shape = call_from(y.shape(), parts, first);
    kernels::ConcatInputs from;
    for (int i = 0; i < shape.count; ++i) from.data[i] = inputs[first + static_cast<std::size_t>(i)].data();
    BANTAM_KERNEL(context.exec, concat, shape, y.dtype(), from, y.data());
  }
}

/// A gradient of y, as the sum of one or two tensors.
struct SplitGradient {
  Tensor value, other;  // the second may be undefined

  SplitGradient(const Context& context, Gradient dy) {
    const bool is_sum = dy.is_deferred() && !dy.shared() && !dy.of_norm() && !dy.operands().mask.defined();
    if (is_sum) other = std::move(dy.operands().other);
    value = is_sum ? std::move(dy.operands().value) : std::move(dy).tensor(context);
  }
  kernels::SplitInput input() const { return {value.data(), other.defined() ? other.data() : nullptr}; }
};

/// Gradients of the inputs of one call, repeated where one value stands in it more than once: its parts are
/// added one after the other.
void split_call(const Context& context, const kernels::JoinShape& shape, std::span<const Part> parts,
                const SplitGradient& dy, GradientStore& store) {
  std::vector<bool> done(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) done[i] = !wants_gradient(parts[i].input);
  while (std::ranges::find(done, false) != done.end()) {
    kernels::SplitOutputs outputs;
    std::vector<std::pair<ValueRef, Tensor>> written;
    std::vector<Tensor> addends;  // alive until the kernel has been called
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto same = [&](const auto& one) { return one.first.id == parts[i].input.id; };
      if (done[i] || std::ranges::any_of(written, same)) continue;
      done[i] = true;
      Tensor addend = store.pop_addend(context, parts[i].input);
      if (addend.defined()) outputs.addend[i] = addend.data();
      if (addend.defined() && addend.sole_owner()) {
        written.emplace_back(parts[i].input, std::move(addend));
      } else {
        written.emplace_back(parts[i].input, context.allocate(parts[i].shape, dy.value.dtype()));
        addends.push_back(std::move(addend));
      }
      outputs.data[i] = written.back().second.data();
    }
    BANTAM_KERNEL(context.exec, split, shape, dy.value.dtype(), dy.input(), outputs);
    for (auto& [input, gradient] : written) store.add(context, input, std::move(gradient));
  }
}

/// How y is rebuilt from its inputs, which backward of others keeps (in a dense block, of all layers before this one).
/// Traffic: y is written and as much is read, and so much of it as is rebuilt itself.
void attach_concat_recipe(const Context& context, Tensor& y, const std::vector<SavedTensor>& inputs,
                          const std::vector<Part>& parts) {
  std::int64_t rebuilt = 0;
  for (const SavedTensor& input : inputs) rebuilt += input.traffic() * input.shape()[-1];
  const std::int64_t channels = std::max<std::int64_t>(y.shape()[-1], 1);
  const std::int64_t traffic = 2 + (rebuilt + channels - 1) / channels;
  if (traffic > Recipe::kMostTraffic) return;
  set_recipe(y, std::make_shared<Recipe>(context.path, static_cast<int>(traffic),
                                         [=, shape = y.shape(), dtype = y.dtype()](const Context& ctx) {
                                           std::vector<Tensor> from;
                                           for (const SavedTensor& input : inputs) from.push_back(input.get(ctx));
                                           Tensor again = ctx.allocate(shape, dtype);
                                           join(ctx, from, parts, again);
                                           return again;
                                         }));
}

/// Whether most of the inputs' bytes are kept by others.
bool mostly_kept_anyway(std::span<const Tensor> inputs) {
  std::size_t kept = 0, all = 0;
  for (const Tensor& input : inputs) {
    all += input.bytes();
    if (kept_anyway(input)) kept += input.bytes();
  }
  return 2 * kept >= all;
}

}  // namespace

Tensor concat(const Context& context, std::span<const Tensor> inputs) {
  const Shape whole = check(context, inputs);
  std::vector<Part> parts;
  std::int64_t begin = 0;
  for (const Tensor& input : inputs) {
    parts.push_back({input, input.shape(), begin});
    begin += input.shape()[-1];
  }
  Tensor y = context.allocate(whole, inputs.front().dtype());
  if (!context.output_unused()) join(context, inputs, parts, y);
  if (std::ranges::none_of(inputs, [&](const Tensor& input) { return records(context, {&input}); })) return y;
  context.tape->record_deferred(
      context, y, [parts, whole](const Context& ctx, Gradient deferred, GradientStore& store) {
        const SplitGradient dy(ctx, std::move(deferred));
        for (std::size_t first = 0; first < parts.size(); first += kernels::kMostJoined) {
          const kernels::JoinShape shape = call_from(whole, parts, first);
          split_call(ctx, shape, std::span(parts).subspan(first, static_cast<std::size_t>(shape.count)), dy, store);
        }
      });
  if (derives(context, 2) && mostly_kept_anyway(inputs))
    attach_concat_recipe(context, y, {inputs.begin(), inputs.end()}, parts);
  return y;
}

}  // namespace bantam::ops

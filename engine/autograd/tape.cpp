// The backward pass over a tape, and its store of gradients.
#include "bantam/engine/autograd/tape.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/memory/device/trace_range.h"

namespace bantam {

namespace {

/// A gradient of another size would be read or written past its end.
void require_gradient_of(const Shape& shape, const Tensor& gradient, std::string_view what, std::string_view name) {
  if (gradient.elements() != shape.elements())
    throw ShapeError(fmt::format("backward: the gradient of {} '{}' is {}, expected {}", what, name,
                                 to_string(gradient.shape()), to_string(shape)));
}

}  // namespace

void GradientStore::add(const Context& context, const ValueRef& value, Gradient gradient) {
  if (value.parameter != nullptr) {
    if (!value.parameter->frozen()) add_to_parameter(context, *value.parameter, std::move(gradient).tensor(context));
    return;
  }
  if (value.id == 0) return;
  const auto [place, first] = gradients_.try_emplace(value.id, gradient);
  if (first) return;
  Gradient& sum = place->second;
  const Tensor &there = sum.value(), &more = gradient.value();
  if (there.shape() != more.shape() || there.dtype() != more.dtype())
    throw ShapeError(fmt::format("gradients {} {} and {} {} of one value do not fit at '{}'", to_string(there.dtype()),
                                 to_string(there.shape()), to_string(more.dtype()), to_string(more.shape()),
                                 context.path));
  Tensor left = sum_so_far(context, value.id, std::move(sum));
  sum = Gradient(std::move(left), std::move(gradient).tensor(context));
  if (!comes_next(value)) sum = std::move(sum).tensor(context);
}

Tensor GradientStore::pop_addend(const Context& context, const ValueRef& value) {
  if (value.parameter != nullptr || value.id == 0) return {};
  Gradient there = pop_gradient(value.id);
  return there.defined() ? sum_so_far(context, value.id, std::move(there)) : Tensor();
}

Tensor GradientStore::pop_rest(const Context& context, const ValueRef& value) {
  if (Tensor here = pop_addend(context, value); here.defined()) return here;
  const auto found = outer_.find(value.id);
  if (found == outer_.end()) return {};
  Gradient before = found->second.store->pop_gradient(found->second.id);
  outer_.erase(found);
  return std::move(before).tensor(context);
}

void GradientStore::add_to_parameter(const Context& context, Parameter& parameter, const Tensor& gradient) {
  const ParameterGradient target = this->parameter(parameter);
  require_gradient_of(parameter.shape(), gradient, "the parameter", parameter.name());
  const std::int64_t count = gradient.elements();
  if (!target.accumulate) {
    BANTAM_KERNEL(context.exec, cast, count, gradient.dtype(), gradient.data(), DType::float32, target.data);
    return;
  }
  const Tensor wide = ops::cast(context, gradient, DType::float32);
  BANTAM_KERNEL(context.exec, add, count, DType::float32, target.data, wide.data(), target.data);
}

Gradient GradientStore::pop_gradient(std::uint64_t id) {
  const auto found = gradients_.find(id);
  if (found == gradients_.end()) return {};
  Gradient gradient = std::move(found->second);
  gradients_.erase(found);
  return gradient;
}

Tensor GradientStore::pop(std::uint64_t id) { return pop_gradient(id).tensor(context_); }

void GradientStore::continues(std::uint64_t id, GradientStore& outer, const ValueRef& value) {
  outer_.insert_or_assign(id, Outer{&outer, value.id});
}

Tensor GradientStore::sum_so_far(const Context& context, std::uint64_t id, Gradient here) {
  Tensor sum = std::move(here).tensor(context);
  const auto found = outer_.find(id);
  if (found == outer_.end()) return sum;
  Gradient before = found->second.store->pop_gradient(found->second.id);
  outer_.erase(found);
  return before.defined() ? Gradient(std::move(before).tensor(context), std::move(sum)).tensor(context) : sum;
}

ParameterGradient GradientStore::parameter(Parameter& parameter) {
  const bool accumulate = parameter.note_written();
  written_.push_back(&parameter);
  const Tensor gradient = accumulate ? parameter.gradient() : parameter.gradient_to_overwrite();
  return {gradient.as<float>(), accumulate};
}

std::vector<Parameter*> GradientStore::pop_written() { return std::exchange(written_, {}); }

void Tape::record(const Context& context, Tensor& output, Backward backward) {
  record_deferred(context, output,
                  [backward = std::move(backward)](const Context& ctx, Gradient dy, GradientStore& store) {
                    backward(ctx, std::move(dy).tensor(ctx), store);
                  });
}

void Tape::record_deferred(const Context& context, Tensor& output, DeferredBackward backward) {
  output.set_value_id(context.runtime->new_value_id());
  output.set_parameter(nullptr);
  set_recipe(output, nullptr);
  entries_.push_back({output.value_id(), output.shape(), context.path, std::move(backward)});
}

GradientStore Tape::backward(Context context, Tensor loss, Gradient seed) {
  GradientStore store;
  backward(std::move(context), std::move(loss), std::move(seed), store);
  return store;
}

void Tape::backward(Context context, Tensor loss, Gradient seed, GradientStore& store) {
  const auto recorded = [&](const Entry& entry) { return entry.output == loss.value_id(); };
  if (loss.value_id() == 0 || std::ranges::none_of(entries_, recorded))
    throw Error("backward: the loss was not recorded on this tape");
  const Shape shape = seed.defined() ? seed.value().shape() : Shape();
  if (!seed.defined() || shape != loss.shape())
    throw ShapeError(fmt::format("backward: the seed {} does not have the loss's shape {}", to_string(shape),
                                 to_string(loss.shape())));
  context.tape = nullptr;
  store.context_ = context;
  store.observed_ = gradient_hook_ != nullptr;
  store.add(context, loss, std::move(seed));
  loss = Tensor();  // its memory is the entries' alone from here on
  while (!entries_.empty()) {
    Entry entry = std::move(entries_.back());
    entries_.pop_back();
    Gradient dy = store.pop_gradient(entry.output);
    if (!dy.defined()) continue;
    require_gradient_of(entry.shape, dy.value(), "the output of", entry.path);
    store.next_ = entries_.empty() ? 0 : entries_.back().output;
    const Context local = context.at(entry.path);
    if (gradient_hook_ && dy.operands().sums.defined()) {
      gradient_hook_(entry.path, dy.operands().observed);
    } else if (gradient_hook_) {
      Tensor tensor = std::move(dy).tensor(local);
      gradient_hook_(entry.path, tensor);
      dy = Gradient(std::move(tensor));
    }
    {
      const TraceRange range(local.device, local.path);
      entry.backward(local, std::move(dy), store);
    }
    for (Parameter* parameter : store.pop_written())
      if (hook_) hook_(*parameter);
  }
}

bool wants_gradient(const ValueRef& value) {
  if (value.parameter != nullptr) return !value.parameter->frozen();
  return value.id != 0;
}

bool records(const Context& context, std::initializer_list<const Tensor*> inputs) {
  return context.tape != nullptr &&
         std::ranges::any_of(inputs, [](const Tensor* t) { return t->defined() && wants_gradient(*t); });
}

}  // namespace bantam

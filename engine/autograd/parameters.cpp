// Layout of the arenas, initial values, and the views that ops and optimizers get.
#include "bantam/engine/autograd/parameters.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/host_floats.h"
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/kernels/elementwise/elementwise.h"
#include "bantam/kernels/update/update.h"

namespace bantam {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

/// Elements of the parameter's span in every slot.
std::int64_t span_elements(const Parameter& parameter) {
  return round_up(std::max<std::int64_t>(parameter.shape().elements(), 1), kernels::kWeightBlockSize);
}

Tensor zero_slot(const Context& context, std::int64_t elements, DType dtype, Category category, const char* name) {
  Tensor slot = context.at(context.runtime->intern(name)).allocate({elements}, dtype, category);
  zero_bytes(slot.data(), slot.bytes(), context.stream);
  return slot;
}

}  // namespace

Tensor Parameter::value() {
  const bool has_copy = arena_->compute_.defined() && !spec_.keep_float32;
  Tensor tensor = has_copy ? arena_->compute_.slice(offset_, spec_.shape) : master();
  tensor.set_parameter(this);
  return tensor;
}

Tensor Parameter::master() const {
  if (!arena_->keeps_masters_ && !spec_.keep_float32) return arena_->compute_.slice(offset_, spec_.shape);
  return arena_->master_.slice(offset_ - arena_->first_master_, spec_.shape);
}
Tensor Parameter::gradient() const {
  if (frozen()) return {};
  if (arena_->partial_->hold(*this)) arena_->partial_->add_up();
  if (arena_->partial_->holds_narrow(*this)) arena_->partial_->widen(arena_->gradient_, arena_->compute_dtype_);
  return arena_->gradient_.slice(offset_, spec_.shape);
}
Tensor Parameter::gradient() {
  const Tensor place = std::as_const(*this).gradient();
  if (gradient_written_ || frozen()) return place;
  if (arena_->any_written_) {
    zero_bytes(place.data(), place.bytes(), arena_->stream_);
    (void)note_written();
  } else {
    gradient_lent_ = true;
  }
  return place;
}
bool Parameter::note_written() {
  arena_->any_written_ = true;
  return std::exchange(gradient_written_, true);
}
Tensor Parameter::gradient_to_overwrite() {
  arena_->partial_->forget_narrow(*this);
  return arena_->gradient_.slice(offset_, spec_.shape);
}

ParameterArena::ParameterArena() : partial_(std::make_unique<PartialGradients>()) {}

ParameterArena::~ParameterArena() = default;

Parameter& ParameterArena::declare(ParameterSpec spec) {
  if (find(spec.name) != nullptr) throw ConfigError(fmt::format("two parameters are named '{}'", spec.name));
  Parameter& parameter = parameters_.emplace_back();
  parameter.arena_ = this;
  parameter.spec_ = std::move(spec);
  parameter.group_ = group_of(groups_, parameter.name());
  if (parameter.group_ >= 0 && groups_[static_cast<std::size_t>(parameter.group_)].is_frozen_for_good())
    parameter.spec_.frozen = true;
  return parameter;
}

void ParameterArena::lay_out(Parameter& parameter) {
  parameter.offset_ = slot_elements_;
  slot_elements_ += span_elements(parameter);
  if (parameter.frozen()) return;
  trainable_elements_ = slot_elements_;
  span_of_weight_block_.resize(static_cast<std::size_t>(slot_elements_ / kernels::kWeightBlockSize),
                               static_cast<std::int32_t>(spans_.size()));
  spans_.push_back(&parameter);
}

/// Where not all have masters, those that have are the last that train and the first that are frozen: side by side.
void ParameterArena::materialize(const Context& context, std::uint64_t seed) {
  stream_ = context.stream;
  slot_elements_ = trainable_elements_ = 0;
  const bool all_masters = context.precision.keeps_masters();
  for (const bool frozen : {false, true})
    for (const bool has_master : {frozen, !frozen})
      for (auto last = parameters_.rbegin(); last != parameters_.rend(); ++last)
        if (last->frozen() == frozen && (all_masters || last->spec().keep_float32) == has_master) lay_out(*last);
  // The norm of the gradients, which clips, adds split-K partial sums without asking whether their span moves yet.
  partial_->allow(std::ranges::none_of(groups_, [](const ParameterGroup& g) { return g.frozen_updates > 0; }));
  allocate_weights(context);
  gradient_ = zero_slot(context, trainable_elements_, DType::float32, Category::gradient, "parameters/gradient");
  if (context.device.meta) return;
  for (const Parameter& parameter : parameters_) {
    std::vector<float> values(static_cast<std::size_t>(parameter.shape().elements()));
    PhiloxSequence random(philox_key(seed, RandomPurpose::initializer, hash_name(parameter.name())));
    parameter.spec().initializer.fill(values, parameter.shape(), random);
    copy_floats(parameter.master(), values, context.stream);
  }
  refresh_compute(context);
  synchronize(context.stream);
}

void ParameterArena::allocate_weights(const Context& context) {
  compute_dtype_ = context.precision.compute();
  keeps_masters_ = context.precision.keeps_masters();
  first_master_ = keeps_masters_ ? 0 : trainable_elements_;
  std::int64_t masters = 0;
  for (const Parameter& parameter : parameters_) {
    if (!keeps_masters_ && !parameter.spec().keep_float32) continue;
    first_master_ = std::min(first_master_, parameter.offset());
    masters += span_elements(parameter);
  }
  master_ = zero_slot(context, masters, DType::float32, Category::parameter, "parameters/master");
  if (compute_dtype_ != DType::float32)
    compute_ = zero_slot(context, slot_elements_, compute_dtype_, Category::parameter, "parameters/compute");
}

/// Those without a compute copy come first, so that `release_masters` keeps a beginning of the slot.
void ParameterArena::materialize_for_inference(const Context& context) {
  stream_ = context.stream;
  slot_elements_ = trainable_elements_ = 0;
  for (const bool keeps_master : {true, false})
    for (Parameter& parameter : parameters_) {
      if (parameter.spec().keep_float32 != keeps_master) continue;
      parameter.spec_.frozen = true;
      lay_out(parameter);
    }
  allocate_weights(context);
}

void ParameterArena::release_masters(const Context& context) {
  if (!compute_.defined() || !keeps_masters_) return;
  std::int64_t kept = 0;
  for (const Parameter& parameter : parameters_)
    if (parameter.spec().keep_float32) kept += span_elements(parameter);
  const Tensor all = std::exchange(master_, Tensor());
  master_ = zero_slot(context, kept, DType::float32, Category::parameter, "parameters/master");
  if (kept > 0) copy_bytes(master_.data(), all.data(), master_.bytes(), context.stream);
}

Parameter* ParameterArena::find(std::string_view name) {
  const auto found = std::ranges::find_if(parameters_, [&](const Parameter& p) { return p.name() == name; });
  return found == parameters_.end() ? nullptr : &*found;
}

std::int64_t ParameterArena::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.shape().elements();
  return count;
}

std::int64_t ParameterArena::trainable_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.frozen() ? 0 : parameter.shape().elements();
  return count;
}

Tensor ParameterArena::add_slot(const Context& context, const char* name, Category category) {
  return zero_slot(context, trainable_elements_, DType::float32, category, name);
}

const Tensor& ParameterArena::gradient() {
  partial_->add_up();
  partial_->widen(gradient_, compute_dtype_);
  return gradient_;
}

void ParameterArena::begin_accumulation() {
  partial_->drop();
  any_written_ = false;
  for (Parameter& parameter : parameters_) parameter.gradient_written_ = parameter.gradient_lent_ = false;
}

void ParameterArena::end_accumulation(const Context& context) {
  for (const Parameter& parameter : parameters_)
    if (any_written_ && parameter.gradient_lent_ && !parameter.gradient_written_)
      throw Error(fmt::format(
          "update: the gradient of '{}' was asked for before backward, which then gave it none, so that what "
          "lies there may be the program's or the last update's; call Parameter::gradient() after backward "
          "to write it (and that of a const Parameter to read it)",
          parameter.name()));
  for (Parameter& parameter : parameters_) {
    if (parameter.frozen() || parameter.gradient_written_ || parameter.gradient_lent_) continue;
    const Tensor gradient = parameter.gradient_to_overwrite();
    zero_bytes(gradient.data(), gradient.bytes(), context.stream);
  }
}

void ParameterArena::refresh_compute(const Context& context) {
  if (!compute_.defined() || !keeps_masters_) return;
  BANTAM_KERNEL(context.exec, cast, slot_elements_, DType::float32, master_.data(), compute_dtype_, compute_.data());
}

Buffer& BufferArena::declare(std::string name, Shape shape, float initial) {
  const bool taken = std::ranges::any_of(buffers_, [&](const Buffer& b) { return b.name == name; });
  if (taken) throw ConfigError(fmt::format("two buffers are named '{}'", name));
  Buffer& buffer = buffers_.emplace_back(Buffer{std::move(name), shape, initial, elements_});
  elements_ += round_up(shape.elements(), kernels::kWeightBlockSize);
  return buffer;
}

const Buffer* BufferArena::find(std::string_view name) const {
  const auto found = std::ranges::find_if(buffers_, [&](const Buffer& buffer) { return buffer.name == name; });
  return found == buffers_.end() ? nullptr : &*found;
}

void BufferArena::materialize_for_inference(const Context& context) {
  if (elements_ > 0) current_ = zero_slot(context, elements_, DType::float32, Category::parameter, "buffers/current");
}

void BufferArena::materialize(const Context& context) {
  if (elements_ == 0) return;
  materialize_for_inference(context);
  next_ = zero_slot(context, elements_, DType::float32, Category::parameter, "buffers/next");
  for (const Buffer& buffer : buffers_)
    BANTAM_KERNEL(context.exec, fill, buffer.shape.elements(), DType::float32, buffer.initial, current(buffer).data());
  reset_next(context);
}

Tensor BufferArena::current(const Buffer& buffer) const { return current_.slice(buffer.offset, buffer.shape); }
Tensor BufferArena::next(const Buffer& buffer) const {
  return next_.defined() ? next_.slice(buffer.offset, buffer.shape) : Tensor();
}

void BufferArena::reset_next(const Context& context) {
  if (next_.defined()) copy_bytes(next_.data(), current_.data(), current_.bytes(), context.stream);
}

}  // namespace bantam

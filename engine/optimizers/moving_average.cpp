// The average's memory, and its kernels.
#include "bantam/engine/optimizers/moving_average.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/kernels/update/weight_average.h"

namespace bantam {
namespace {

void check(const EmaOptions& options) {
  if (!(options.decay >= 0 && options.decay < 1))
    throw ConfigError(fmt::format("ema: decay must be in [0, 1), got {}", options.decay));
  if (options.every < 1) throw ConfigError(fmt::format("ema: every must be at least 1, got {}", options.every));
}

}  // namespace

WeightAverage::WeightAverage(Model& model, const EmaOptions& options, const Context& context)
    : model_(model), options_(options) {
  check(options_);
  const auto allocate = [&](const char* name, std::int64_t elements) {
    return context.at(model_.runtime().intern(name)).allocate({elements}, DType::float32, Category::optimizer);
  };
  // The average covers frozen parameters, too, unlike rules' slots: they may be pruned, and a swap is of all weights.
  average_ = allocate("optimizer/average", model_.parameters().slot_elements());
  if (model_.buffers().elements() > 0) buffers_ = allocate("optimizer/average_of_buffers", model_.buffers().elements());
  begin();
}

void WeightAverage::begin() const {
  const Stream stream = model_.runtime().stream(model_.device());
  copy_bytes(average_.data(), model_.parameters().master().data(), average_.bytes(), stream);
  if (buffers_.defined()) copy_bytes(buffers_.data(), model_.buffers().current().data(), buffers_.bytes(), stream);
}

void WeightAverage::move(const Context& context, const kernels::UpdateControl* control) const {
  const kernels::AverageRule rule{.decay = options_.decay, .warms_up = options_.warmup, .every = options_.every};
  kernels::AverageArena arena{.elements = model_.parameters().slot_elements(),
                              .weights = model_.parameters().master().as<float>(),
                              .average = average_.as<float>()};
  if (buffers_.defined()) {
    arena.buffer_elements = model_.buffers().elements();
    arena.buffers = model_.buffers().current().as<float>();
    arena.buffer_average = buffers_.as<float>();
  }
  BANTAM_KERNEL(context.exec, move_average, rule, arena, control);
}

void WeightAverage::swap() {
  const Context context = model_.context(Pass::evaluate).at(model_.runtime().intern("optimizer"));
  const ParameterArena& parameters = model_.parameters();
  BANTAM_KERNEL(context.exec, swap_values, parameters.slot_elements(), parameters.master().as<float>(),
                average_.as<float>());
  if (buffers_.defined())
    BANTAM_KERNEL(context.exec, swap_values, model_.buffers().elements(), model_.buffers().current().as<float>(),
                  buffers_.as<float>());
  model_.parameters().refresh_compute(context);
  swapped_ = !swapped_;
}

void WeightAverage::register_state(StateRegistry& registry) const {
  for (const Parameter& parameter : model_.parameters().all())
    registry.add("ema/weights/" + parameter.name(), average_.slice(parameter.offset(), parameter.shape()));
  for (const Buffer& buffer : model_.buffers().all())
    registry.add("ema/buffers/" + buffer.name, buffers_.slice(buffer.offset, buffer.shape));
}

AveragedWeights::AveragedWeights(Optimizer& optimizer) : average_(optimizer.average()) {
  if (average_ == nullptr) return;
  if (average_->swapped()) throw Error("optimizer: the model has its averaged weights already");
  average_->swap();
}

AveragedWeights::~AveragedWeights() {
  if (average_ == nullptr) return;
  try {
    average_->swap();
  } catch (const Error&) {  // a broken device: the call that broke it has thrown
  }
}

}  // namespace bantam

// One kernel call for loss, counts and gradient; and the options that losses have in common.
#include "bantam/engine/losses/kernel_loss.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::layers {
namespace {

/// The tensor that the loss reads beside the output.
const Tensor& checked_target(const Loss& loss, const Context& context, const Tensor& output, const TensorMap& batch) {
  const std::int64_t size = output.shape()[0];
  const TensorFacts facts = loss.targets(output.shape().without_first()).at(0);
  const Tensor& target = batch.at(facts.name);
  context.check_device(std::string(loss.kind()).c_str(), {&output, &target});
  if (target.shape() != facts.shape.prepend(size))
    throw ShapeError(fmt::format("{}: the output is {} and '{}' are {}, expected {}", loss.kind(),
                                 to_string(output.shape()), facts.name, to_string(target.shape()),
                                 to_string(facts.shape.prepend(size))));
  if (target.dtype() != *facts.dtype)
    throw DTypeError(fmt::format("{}: '{}' are {}, expected {}", loss.kind(), facts.name, to_string(target.dtype()),
                                 to_string(*facts.dtype)));
  return target;
}

}  // namespace

float KernelLoss::divisor_of(const LossCall& call, std::int64_t batch) const {
  if (reduction_ == LossReduction::sum) return 1.0f;
  return call.divisor > 0.0f ? call.divisor : static_cast<float>(std::max<std::int64_t>(batch, 1));
}

Tensor KernelLoss::upload_constants(const Context& context) const {
  if (constants_.empty()) return {};
  const auto count = static_cast<std::int64_t>(constants_.size());
  Tensor to = context.allocate({count}, DType::float32);
  BANTAM_KERNEL(context.exec, store_constants, constants_.data(), count, to.as<float>());
  return to;
}

void KernelLoss::call_kernel(const Context& context, const LossOperands& operands, const kernels::LossScale& scale,
                             const kernels::LossOutputs& out) const {
  const Scratch scratch = context.scratch(workspace_bytes(operands.output.shape()));
  run(context, operands, scale, out, scratch.get());
}

Tensor KernelLoss::forward(const Context& context, const Tensor& output, const TensorMap& batch,
                           const LossCall& call) const {
  const LossOperands operands{output, checked_target(*this, context, output, batch), upload_constants(context)};
  const bool recorded = records(context, {&output}), seeded = recorded && call.seed.defined();
  Tensor loss = context.allocate({}, DType::float32), dx;
  if (seeded) dx = context.allocate(output.shape(), output.dtype());
  const kernels::LossScale scale{.mean = reduction_ == LossReduction::mean,
                                 .divisor = divisor_of(call, output.shape()[0]),
                                 .upstream = seeded ? call.seed.as<float>() : nullptr};
  call_kernel(context, operands, scale,
              {.loss = loss.as<float>(), .dx = seeded ? dx.data() : nullptr, .ring = call.sums, .slot = call.slot});
  if (seeded)
    record_gradient(context, loss, output, std::move(dx), call.seed);
  else if (recorded)
    record_call(context, loss, operands, scale.divisor);
  return loss;
}

/// Backward has nothing left to compute.
void KernelLoss::record_gradient(const Context& context, Tensor& loss, const Tensor& output, Tensor dx,
                                 Tensor seed) const {
  context.tape->record(context, loss,
                       [name = std::string(kind()), x = ValueRef(output), dx = std::move(dx), seed = std::move(seed)](
                           const Context& ctx, const Tensor& upstream, GradientStore& store) mutable {
                         if (upstream.data() != seed.data())
                           throw Error(name + ": backward starts with another gradient than the forward was promised");
                         store.add(ctx, x, std::move(dx));
                       });
}

void KernelLoss::record_call(const Context& context, Tensor& loss, const LossOperands& operands, float divisor) const {
  context.tape->record(
      context, loss,
      [self = shared_from_this(), operands, divisor](const Context& ctx, const Tensor& upstream, GradientStore& store) {
        const Tensor& output = operands.output;
        Tensor dx = ctx.allocate(output.shape(), output.dtype());
        const kernels::LossScale scale{
            .mean = self->reduction_ == LossReduction::mean, .divisor = divisor, .upstream = upstream.as<float>()};
        self->call_kernel(ctx, operands, scale, {.dx = dx.data()});
        store.add(ctx, output, std::move(dx));
      });
}

void check_weights(std::string_view kind, std::string_view what, const std::vector<float>& weights) {
  for (const float weight : weights)
    if (!(weight > 0.0f) || !std::isfinite(weight))
      throw ConfigError(fmt::format("{}: {} must be above 0, got {}", kind, what, weight));
}

void check_weight_count(std::string_view kind, std::string_view what, std::size_t weights, const Shape& output) {
  if (weights > 0 && static_cast<std::int64_t>(weights) != output[-1])
    throw ShapeError(
        fmt::format("{}: {} has {} values, but the model's output is {}", kind, what, weights, to_string(output)));
}

std::vector<TensorFacts> loss_targets(std::string_view kind, LossTargets targets, const Shape& output) {
  if (output.rank() == 0) throw ShapeError(fmt::format("{}: a model ends with at least one axis of values", kind));
  if (targets == LossTargets::values)
    return {{.name = std::string(kTargets), .shape = output, .dtype = DType::float32}};
  const auto axes = static_cast<std::size_t>(output.rank() - 1);
  return {{.name = std::string(kLabels),
           .shape = Shape(output.extents().first(axes)),
           .dtype = DType::int32,
           .classes = output[-1]}};
}

LossReduction read_reduction(ConfigMap& options) {
  const std::string reduction =
      options.choice({"reduction",
                      "mean: a sample's loss is the mean of its terms (positions, values or classes) that count, and "
                      "the loss is the mean over samples. sum: sums in both places, so that gradients grow with the "
                      "batch.",
                      "sum"},
                     {"mean", "sum"}, "mean");
  return reduction == "sum" ? LossReduction::sum : LossReduction::mean;
}

LossTargets read_targets(ConfigMap& options, std::string_view values_meaning) {
  const std::string meaning = fmt::format(
      "labels: class numbers (int32), one a position, and the model ends with one value a class. values: {}.",
      values_meaning);
  const std::string targets = options.choice({"targets", meaning, "values"}, {"labels", "values"}, "labels");
  return targets == "values" ? LossTargets::values : LossTargets::labels;
}

std::optional<std::int32_t> read_ignore_index(ConfigMap& options) {
  const auto found =
      options.find({"ignore_index",
                    "Positions with this label do not count: they have no loss and no gradient, and the mean of a "
                    "sample is over its others. A sample of which none counts has loss 0.",
                    "255", "every label counts"});
  if (!found) return std::nullopt;
  constexpr IntegerRange kInt32{.min = -2147483647, .max = 2147483647};
  return static_cast<std::int32_t>(found->as_integer(kInt32));
}

LossPtr made_at(ConfigMap& options, const std::function<LossPtr()>& make) {
  try {
    return make();
  } catch (const ConfigError& error) {
    if (options.self().is_described()) return softmax_cross_entropy();
    options.self().fail(error.what());
  }
}

std::vector<float> read_weights(ConfigMap& options, ConfigKey key) {
  std::vector<float> weights;
  constexpr NumberRange kPositive{.min = 0, .max = 1e30, .min_open = true};
  if (const auto list = options.find(key))
    for (const ConfigNode& item : list->items()) weights.push_back(static_cast<float>(item.as_number(kPositive)));
  return weights;
}

}  // namespace bantam::layers

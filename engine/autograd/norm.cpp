// A norm as an operand of kernels.
#include "bantam/engine/autograd/norm.h"

#include <utility>

namespace bantam {
namespace {

const float* floats(const Tensor& tensor) { return tensor.defined() ? tensor.as<float>() : nullptr; }

}  // namespace

kernels::BatchNormAffine Norm::affine() const { return {floats(scale), floats(shift), activation}; }

kernels::NormOperand Norm::operand(const Tensor& x) const {
  return {.x = x.data(), .affine = affine(), .mean = floats(mean), .inv_std = floats(inv_std)};
}

Norm Norm::of_batch(Tensor batch_mean, Tensor batch_inv_std) const {
  return {.scale = scale,
          .shift = shift,
          .epsilon = epsilon,
          .running = running,
          .activation = activation,
          .mean = std::move(batch_mean),
          .inv_std = std::move(batch_inv_std)};
}

kernels::StatisticsOutput Norm::statistics_output(const Context& context, const Tensor& batch_mean,
                                                  const Tensor& batch_inv_std) const {
  const bool moves = context.pass == Pass::train && next_running_mean.defined();
  kernels::RunningUpdate update = running;
  update.share = context.step.batch_share;
  if (warms_up) update.updates = context.random.update;
  return {.epsilon = epsilon,
          .update = update,
          .running_mean = moves ? next_running_mean.as<float>() : nullptr,
          .running_variance = moves ? next_running_variance.as<float>() : nullptr,
          .mean = batch_mean.as<float>(),
          .inv_std = batch_inv_std.as<float>()};
}

kernels::RunningStatistics Norm::running_statistics() const {
  return {.mean = floats(running_mean), .variance = floats(running_variance), .epsilon = epsilon};
}

}  // namespace bantam

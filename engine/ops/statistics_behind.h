// What an op that writes a batch norm's input gives that norm with it.
#pragma once

#include <memory>
#include <utility>

#include "bantam/engine/autograd/batch_statistics.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/ops/batch_norm.h"
#include "bantam/kernels/contracts/norm/statistics_output.h"

namespace bantam::ops {

/// Statistics for the norm that the context names (Context::norm_behind), if it does. Where a stretch runs again, the
/// norm has those of the first pass: none are made, but the op's output has the bits that come with them.
class StatisticsBehind {
 public:
  StatisticsBehind(const Context& context, std::int64_t channels) {
    const NormStage* norm = context.norm_behind;
    if (norm == nullptr || context.pass == Pass::evaluate) return;
    asked_ = true;
    if (context.keepsakes != nullptr && context.keepsakes->replaying()) return;
    for (Tensor* vector : {&found_.mean, &found_.inv_std}) *vector = context.allocate({channels}, DType::float32);
    const bool moves = context.pass == Pass::train && norm->tensors.pending_mean.defined();
    output_ = {.epsilon = norm->settings.epsilon,
               .update = norm->settings.running,
               .running_mean = moves ? norm->tensors.pending_mean.as<float>() : nullptr,
               .running_variance = moves ? norm->tensors.pending_variance.as<float>() : nullptr,
               .mean = found_.mean.as<float>(),
               .inv_std = found_.inv_std.as<float>()};
  }
  /// Where the kernel writes them; null where nobody asks.
  const kernels::StatisticsOutput* output() const { return asked_ ? &output_ : nullptr; }
  /// Once they are written. `makes_gradient`: BatchStatistics.
  void attach(Tensor& y, bool makes_gradient = false) {
    if (!asked_) return;
    found_.makes_gradient = makes_gradient;
    y.set_statistics(std::make_shared<BatchStatistics>(std::move(found_)));
  }

 private:
  bool asked_ = false;
  BatchStatistics found_;
  kernels::StatisticsOutput output_;
};

}  // namespace bantam::ops

// Batch statistics computed by the op that writes a norm's input.
#pragma once

#include <utility>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/program/node_plan.h"

namespace bantam::ops {

/// For the norm after the op, where the node's plan says so (NodePlan::statistics_for). When a checkpoint segment is
/// recomputed, that norm has the statistics of the first pass: none are computed, but the op's output has the bits that
/// come with them.
class StatisticsAfter {
 public:
  StatisticsAfter(const Context& context, std::int64_t channels) {
    const NormSource* source = context.plan().norm_after;
    if (source == nullptr || context.pass == Pass::evaluate) return;
    wanted_ = true;
    if (context.replays()) return;
    for (Tensor* vector : {&statistics_.mean, &statistics_.inv_std})
      *vector = context.allocate({channels}, DType::float32);
    output_ = source->norm().statistics_output(context, statistics_.mean, statistics_.inv_std);
  }
  /// Where the kernel writes them; null where nobody wants them.
  const kernels::StatisticsOutput* output() const { return wanted_ ? &output_ : nullptr; }
  /// Notes them on the op's output, once they are written.
  void attach(Tensor& y, bool computes_norm_gradient = false) {
    if (!wanted_) return;
    statistics_.computes_norm_gradient = computes_norm_gradient;
    set_statistics(y, std::move(statistics_));
  }

 private:
  bool wanted_ = false;
  BatchStatistics statistics_;
  kernels::StatisticsOutput output_;
};

}  // namespace bantam::ops

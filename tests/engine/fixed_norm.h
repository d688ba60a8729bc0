// A norm source that returns one norm, and contexts of ops under a plan, for tests of ops outside a model.
#pragma once

#include <utility>

#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/norm.h"
#include "bantam/engine/program/node_plan.h"

namespace bantam::testing {

class FixedNorm : public NormSource {
 public:
  explicit FixedNorm(Norm norm) : norm_(std::move(norm)) {}
  Norm norm() const override { return norm_; }

 private:
  Norm norm_;
};

/// `context` under a plan, which must outlive it.
inline Context under(Context context, const NodePlan& plan) {
  context.node = &plan;
  return context;
}

}  // namespace bantam::testing

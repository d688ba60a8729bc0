// A norm source that returns one norm, leaf tensors of a tape, and contexts of ops under a plan, for tests of ops
// outside a model.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

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

/// Assigns tensors identities on a tape, and keeps them in order.
class LeafTensors {
 public:
  explicit LeafTensors(Runtime& runtime) : runtime_(runtime) {}
  Tensor operator()(const Tensor& values) {
    Tensor x = values;
    ids_.push_back(runtime_.new_value_id());
    x.set_value_id(ids_.back());
    return x;
  }
  const std::vector<std::uint64_t>& ids() const { return ids_; }

 private:
  Runtime& runtime_;
  std::vector<std::uint64_t> ids_;
};

/// `context` under a plan, which must outlive it.
inline Context under(Context context, const NodePlan& plan) {
  context.node = &plan;
  return context;
}

}  // namespace bantam::testing

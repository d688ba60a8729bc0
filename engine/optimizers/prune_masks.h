// Pruning: the masks of a model's weights (PruneOptions), on the device, and the weights that they set to zero.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/optimizer.h"

namespace bantam {

/// Masks are a byte a weight, all 1 at first. Belongs to an Optimizer.
class Pruning {
 public:
  /// Throws ConfigError for options out of range, and where a pattern matches no parameter that can be pruned.
  Pruning(Model& model, const PruneOptions& options, const Context& context);

  /// Follows an update's kernels, in order of the stream; the device knows whether masks change. `average`: values of
  /// the weights' average, which are masked, too, or null.
  void apply(const Context& context, const kernels::UpdateControl* control, float* average) const;
  /// "prune/mask/…", in the parameters' names.
  void register_state(StateRegistry& registry) const;
  /// Those that are pruned, in the arena's order.
  const std::vector<const Parameter*>& parameters() const { return parameters_; }

 private:
  void choose_parameters();
  void upload_tables(const Context& context);

  Model& model_;
  PruneOptions options_;
  std::vector<const Parameter*> parameters_;
  std::int64_t weight_blocks_ = 0;
  Tensor tensor_table_, weight_block_table_, mask_;
};

}  // namespace bantam

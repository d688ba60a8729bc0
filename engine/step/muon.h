// Muon: the step of weight matrices, whose momentum is made orthogonal by Newton-Schulz steps; and how the update of
// all other parameters passes over them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "bantam/engine/step/optimizer.h"
#include "bantam/engine/step/span_table.h"
#include "bantam/kernels/contracts/matmul/matmul.h"
#include "bantam/kernels/contracts/update/muon.h"

namespace bantam {

/// Tables and workspace of one optimizer of the kind muon. Moments are the optimizer's: the first has the matrices'
/// momentum, the second the matrices that become orthogonal, which no update needs from the one before.
class Muon {
 public:
  /// Allocates all that updates need. `spans`: the table of the arena's spans, in their order.
  Muon(const ParameterArena& parameters, std::vector<kernels::ArenaSpan> spans, const Context& context,
       const OptimizerOptions& options);

  /// Whether it moves this parameter: a weight of 2 or 4 dimensions that is not frozen.
  static bool moves(const Parameter& parameter);
  /// Moves the matrices: what follows `begin_update` for them, compute copies included.
  void move(const Context& context, kernels::UpdateArena arena, const kernels::UpdateControl* control) const;
  /// The arena in which the matrices are frozen, and `groups` count: for the rule of the rest.
  kernels::UpdateArena rest(kernels::UpdateArena arena, const kernels::UpdateGroup* groups) const;
  /// The rest's values where those of a matrix would be `group`. `decays`: whether weight decay acts there in any case;
  /// `weight_decay`: of the parameters' group, in place of the rest's.
  kernels::UpdateGroup rest_group(const kernels::UpdateGroup& group, bool decays,
                                  std::optional<float> weight_decay) const;

 private:
  struct Matrix {
    kernels::MuonMatrix place;
    std::int64_t offset = 0, rows = 0, columns = 0;
    std::int64_t side() const { return rows < columns ? rows : columns; }
  };
  void add_matrix(const Parameter& parameter, std::size_t& chunk);
  void allocate_workspace(const Context& context);
  void orthogonalize(const Context& context, const kernels::UpdateArena& arena, const Matrix& matrix) const;
  void multiply(const Context& context, const kernels::MatmulShape& shape, const float* a, const float* b,
                float* to) const;

  bool nesterov_;
  float learning_rate_;
  OptimizerOptions rest_;
  SpanTable table_, rest_table_;  // the rest's only where it needs norms
  std::vector<Matrix> matrices_;
  Tensor rest_spans_;
  Tensor other_;          // of the largest matrix: where every second step goes
  Tensor gram_, square_;  // of the largest matrix's smaller side
  Tensor scratch_;        // of the matrix products
};

}  // namespace bantam

// Muon: the step of weight matrices, whose momentum is made orthogonal by Newton-Schulz steps; and how the update of
// all other parameters passes over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bantam/engine/autograd/span_table.h"
#include "bantam/engine/optimizers/built_in.h"
#include "bantam/kernels/matmul/matmul.h"
#include "bantam/kernels/update/muon.h"
#include "bantam/kernels/update/update.h"

namespace bantam {

/// Names of the parameters of 2 or 4 dimensions that decay, frozen or not.
std::vector<std::string> matrix_names(const ParameterArena& parameters);

/// Throws ConfigError, with the nearest name, for the first pattern of `exclude` that matches none of `matrices`.
void check_excluded(std::span<const std::string> exclude, std::span<const std::string> matrices);

/// The options of a rule that is muon; null: it is another.
const MuonOptions* muon_options(const UpdateRule& rule);

/// The largest singular value after any of Muon's steps, where those of up to `first` come in; infinite where they grow
/// beyond all bounds.
double largest_singular_value(const MuonOptions& options, double first);

/// Tables and workspace of one optimizer whose rule is muon. Moments are the optimizer's: the first has the matrices'
/// momentum, the second the matrices that become orthogonal, which no update needs from the one before.
///
/// The products are of the model's compute type: float32, or the half type of a mixed precision, with float32 sums. In
/// a half type matrices of one shape are a batch, for fewer launches and fuller GPUs. A batch of several has at most
/// kMostElements, and its steps go between two places in the workspace: at most 4·kMostElements bytes, 32 MiB. A
/// matrix alone needs one, as the other is its place in the second moment. Beside, the batch's Gram matrices and their
/// squares: 4 bytes an element.
///
/// Products of small matrices leave most of a GPU idle, and each waits for the one before. So batches of at most
/// kMostBeside elements run in up to kMostLanes chains side by side, each on a stream and in a workspace of its own, to
/// the same bits. Larger batches run one after the other in the first chain.
class Muon : public RuleState {
 public:
  /// Most elements of a batch of several matrices, padding included.
  static constexpr std::int64_t kMostElements = 1 << 23;
  static constexpr std::int64_t kMostBeside = 1 << 21;
  static constexpr std::size_t kMostLanes = 4;

  /// Allocates all that updates need. `spans`: the table of the arena's spans, in their order.
  Muon(const ParameterArena& parameters, std::vector<kernels::ArenaSpan> spans, const Context& context,
       const MuonOptions& options);

  /// Whether it moves this parameter: a parameter of 2 or 4 dimensions that decays, and is neither frozen nor excluded.
  static bool moves(const Parameter& parameter, const MuonOptions& options);
  /// False for the memory in which matrices are made orthogonal.
  bool keeps(int slot, const Parameter& parameter) const override { return slot == 0 || !moves(parameter, options_); }
  /// Moves the matrices, compute copies included; then all other parameters, by the rest.
  void update(const Context& context, const UpdateCall& call) const;

 private:
  /// Matrices of one shape, whose products are one batch.
  struct Batch {
    kernels::MuonMatrices places;
    std::int64_t offset = 0, rows = 0, columns = 0;  // offset: of the first, in the arena
    std::int64_t side() const { return rows < columns ? rows : columns; }
    kernels::MuonSquares squares() const;
  };
  /// A chain of batches, and what their steps work in. The first runs on the context's own stream.
  struct Lane {
    std::vector<std::size_t> batches;  // of batches_, in order
    double work = 0;
    Tensor x;             // of the largest batch
    Tensor other;         // of the largest batch of several matrices: where every second step goes
    Tensor gram, square;  // of the largest batch's smaller sides
    Tensor scratch;       // of the matrix products
    std::optional<OwnedStream> stream;
    mutable std::optional<Event> done;
  };
  void add_matrix(const Parameter& parameter, std::size_t& chunk);
  void make_lanes(const Context& context);
  void allocate_workspace(const Context& context, Lane& lane) const;
  void* other_place(const kernels::UpdateArena& arena, const Lane& lane, const Batch& batch) const;
  const void* orthogonalize(const Context& context, const kernels::UpdateArena& arena, const Lane& lane,
                            const Batch& batch) const;
  void multiply(const Context& context, const Lane& lane, const kernels::MatmulShape& shape,
                const kernels::MatmulBatch& batch, const void* a, const void* b, void* to) const;
  void move(const Context& context, kernels::UpdateArena arena, const kernels::UpdateControl* control) const;
  void run_lane(const Context& context, const kernels::UpdateArena& arena, const Lane& lane,
                const kernels::UpdateControl* control) const;

  MuonOptions options_;  // its rest is never null
  kernels::NewtonSchulz polynomial_;
  kernels::MuonNormalization normalization_;
  DType dtype_;  // of the products
  SpanTable table_;
  std::vector<Batch> batches_;
  std::unique_ptr<RuleState> rest_state_;
  Tensor rest_spans_;  // in which the matrices are frozen
  std::vector<Lane> lanes_;
  mutable std::optional<Event> begun_;  // where there are several lanes: the first's stream is so far
};

}  // namespace bantam

// DryRun: the allocations of a whole run on the meta device, under a limit: full batches, the short last one,
// evaluation, the next epoch, and all that the sources of batches hold.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "bantam/engine/batch_source.h"
#include "bantam/engine/model.h"
#include "bantam/engine/optimizer.h"
#include "bantam/engine/training_step.h"

namespace bantam {

/// What a run reads; the validation source may be null.
struct RunSources {
  std::unique_ptr<BatchSource> train, validation;
};

struct DryRunOptions {
  ModelOptions model;
  OptimizerOptions optimizer;
  LossOptions loss;
  std::int64_t accumulate = 1;
  bool evaluate = true;  ///< after each epoch, where there is a validation source
  /// The device asked about; it need not be in this machine.
  Device device;
  std::uint64_t limit_bytes = 0;  ///< of the device's allocator; 0: none
  /// Updates from the beginning of an epoch on. Steps are alike, so few will do; more show what fragments slowly.
  std::int64_t updates = 2;
  /// Makes the run's sources in the given runtime for the given meta device: what they hold there counts.
  std::function<RunSources(Runtime&, Device)> open;
};

/// What a dry run came to. Bytes of the device's allocator; where it does not fit, up to the failure.
struct DryRun {
  bool fits = true;
  std::uint64_t peak_bytes = 0;       ///< most in use
  std::uint64_t peak_pool_bytes = 0;  ///< most held, what growth and fragmentation cost included
};

/// Makes sources, model, optimizer and step as `bantam train` does, in a runtime of its own over fake memory, and runs
/// the beginning of an epoch, its end, the evaluation, and the beginning of the next. The allocator's own algorithm
/// runs under the limit. Throws what making them throws, but OutOfMemory.
DryRun dry_run(const Graph& graph, const DryRunOptions& options);

}  // namespace bantam

// The memory of a training step, planned before it runs: every allocation on a stand-in for the device, and where the
// peak is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/step/batch_source.h"
#include "bantam/engine/step/training_step.h"
#include "bantam/packing/planner.h"

BANTAM_API_BEGIN
namespace bantam {

/// The step that plan_step is asked about, and what else a run of it meets.
struct StepPlanOptions {
  ModelOptions model = {};
  OptimizerOptions optimizer = {};
  LossOptions loss = {};
  ReplicaOptions replicas = {};  ///< of which this plan's rank runs its own
  std::int64_t batch = 1;        ///< samples of a micro-batch
  std::int64_t accumulate = 1;   ///< micro-batches an update, of each replica
  /// Sizes of the other micro-batches of training: of a short last one.
  std::vector<std::int64_t> last_batches = {};
  /// Sizes of evaluated batches, each the full one before a short last one: an evaluation has two of one source at a
  /// time, as a Trainer's has. Empty: nothing is evaluated, and a Trainer with validation data may need a larger pool.
  std::vector<std::int64_t> evaluation_batches = {};
  /// With views (LossOptions::views): samples of the largest evaluated source; 0: those of evaluation_batches.
  std::int64_t evaluation_samples = 0;
  bool planned = true;  ///< the pool and `step_fits`: of planned steps, as `bantam train` runs them
  /// The device asked about; it need not be in this machine. Also a meta device.
  Device device = {};
  /// How buffers are placed in the step's arena.
  PlannerOptions planner{.alignment = BfcAllocator::kAllocationUnit};
};

/// Sizes of a source's batches, each once: the full one, and that of a short last batch.
std::vector<std::int64_t> batch_sizes(const BatchSource& source);

/// `options` with the batch sizes that a Trainer meets in these sources: batch, last_batches, evaluation_batches. Null:
/// there is none.
StepPlanOptions for_sources(StepPlanOptions options, const BatchSource& train, const BatchSource* validation = nullptr,
                            const BatchSource* test = nullptr);

/// One allocation that begins and ends within a step.
struct StepBuffer {
  PlannerBuffer buffer;  ///< id: its place in the list; times in ticks of the step (AllocationTrace)
  std::string owner;     ///< layer path
  Category category = Category::other;
  std::string phase;  ///< "forward", "backward" (also of what it recomputes), "update", "evaluation"
};

/// The allocation that reaches the peak first.
struct PeakMoment {
  std::string owner;  ///< layer path
  Category category = Category::other;
  std::string phase;        ///< "setup", "input", or a StepBuffer's
  std::uint64_t bytes = 0;  ///< of this allocation
};

/// Memory that a run of the step has from the device's allocator, in rounded sizes; context and libraries come on top.
struct StepPlan {
  std::uint64_t peak_bytes = 0;  ///< the allocator's high-water mark, from making the model on
  CategoryBytes by_category;     ///< at the peak; sums to peak_bytes
  std::vector<Holder> holders;   ///< at the peak, largest first; sums to peak_bytes
  PeakMoment moment;
  std::uint64_t persistent_bytes = 0;  ///< live throughout a step: model, optimizer, metrics, the input batch
  std::uint64_t workspace_bytes = 0;   ///< most scratch memory at one time
  std::uint64_t step_peak_bytes = 0;   ///< most bytes within a step: persistent + arena.max_live_bytes
  std::vector<StepBuffer> step;        ///< the second step's buffers; the first one's are the same in a settled step
  ArenaPlan arena;                     ///< their offsets
  /// The least that the device's allocator must hold for a run of the batches that were named, where it is reserved
  /// before the model is made (Runtime::reserve) and steps run planned: what persists, the batch, and the arena. What a
  /// source allocates beside its batches (copies in another type, batches ahead) comes on top.
  std::uint64_t pool_bytes = 0;
};

/// Makes the model and runs two updates on the meta stand-in of `device`, in a runtime of its own, with one batch
/// resident, and between them evaluations: nothing is allocated on any device and no kernel runs. Throws what making
/// and running the model throws (ConfigError, ShapeError), and Error for a batch or accumulation below 1.
StepPlan plan_step(const Graph& graph, const StepPlanOptions& options);

/// Bytes of a step's buffers that live from forward into backward, by layer path.
std::map<std::string, std::uint64_t> kept_bytes(const StepPlan& plan);

/// The plan's peak_bytes alone, in less time. `read` gets the log of the second update's kernels (internal), whose
/// owners' names live as long as the call.
std::uint64_t step_peak(const Graph& graph, const StepPlanOptions& options,
                        const std::function<void(const kernels::KernelLog&)>& read = {});

/// Whether the same run gets by with `limit_bytes` (not 0) of the device's memory: the allocator's own algorithm is run
/// under that limit, with the planned pool reserved where it fits, so what fragmentation costs is counted.
bool step_fits(const Graph& graph, const StepPlanOptions& options, std::uint64_t limit_bytes);

/// The least pool with which a run of planned steps behaves as without a limit. `rehearse` makes the run on meta
/// devices, with `pool_bytes`, rounded up to a page, as its pool and limit (0: neither), and returns the allocator's
/// statistics at the end; it may throw OutOfMemory. Where no such pool is found: the peak of the run without a limit.
std::uint64_t least_pool(const std::function<MemoryStats(std::uint64_t pool_bytes)>& rehearse);

}  // namespace bantam
BANTAM_API_END

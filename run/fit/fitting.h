// Fitting a run into bytes: the batch size where it is `auto`, and what is recomputed where a budget or a limit asks
// for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/engine/plan/recompute_search.h"
#include "bantam/run/config/step_case.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::run {

/// Bytes that a run's pool may hold on the target: the smaller of `memory.budget` and the device's limit (of the
/// process, on a GPU) less the target's overhead and the device's shares; 0: nothing bounds it.
std::uint64_t bytes_to_fit(const MemoryConfig& memory, const PlanTarget& target);
/// For the configuration's own device, measured where it is in this machine (measured_target).
std::uint64_t bytes_to_fit(const RunConfig& config);

/// The bytes of a device's shares, cut from its limit or, without one, from its memory: the most that can be counted,
/// where they are more; 0 where it is not split, or is a share itself.
std::uint64_t bytes_of_shares(const MemoryConfig& memory, Device device);

/// Why the shares of the target's device (or of the one that it is a share of) do not fit: they need more than `limit`,
/// or (0) the configuration's limit or all of the device, less the target's overhead. nullopt: they fit.
std::optional<OutOfMemory> refused_shares(const MemoryConfig& memory, const PlanTarget& target, std::uint64_t limit);

/// Bytes that the pool of a run without limit or budget may have: what is free on its device now, less a reserve.
/// Throws ConfigError where the device is not in this machine.
std::uint64_t free_pool_bytes(const RunConfig& config);

/// The configuration with another batch size (given, not `auto`) and policy.
RunConfig variant(const RunConfig& config, std::int64_t batch, const RecomputeOptions& recompute);
/// Whether the whole run, data and evaluation included, gets by with a pool of `bytes`.
bool run_fits(const RunConfig& config, std::uint64_t bytes);

/// Batch sizes for `auto` are multiples of it, which suit tensor cores, where the configuration names no other number
/// and one fits: a smaller batch is better than none.
inline constexpr std::int64_t kUsualBatchUnit = 8;

/// A batch size for `auto`, and what bounds it.
struct BatchChoice {
  std::int64_t batch = 1;
  enum class Bound : std::uint8_t {
    memory,     ///< no larger one fits
    max,        ///< batch: {max: …}
    data_set,   ///< it is all of the training images
    throughput  ///< the plan predicts next to no more images/s with a larger one
  } bound = Bound::memory;
  std::int64_t multiple_of = 1;   ///< that was looked for
  double gain_beyond = 0;         ///< by plan: the share of images/s that the largest of batches would have more
  double loss_of_half = 0;        ///< by plan: the share of images/s that half of it would have less; 0: not known
  bool estimate = false;          ///< both are of a device whose rates are an estimate
  std::uint64_t cache_bytes = 0;  ///< kept free for the data set, where `cache: auto` may put it beside the batch
};

/// The largest batch that fits `bytes`, from plans of the whole run. A multiple of batch_multiple_of. Of more bytes
/// never a smaller one: the sizes that are tried do not depend on the bytes, and where `cache: auto` may keep the data
/// set there, its most (cache_bytes) is left free even where it does not. Where nobody named bytes or a `max`, the
/// predicted throughput (predict_update) bounds it: the smallest batch within 5 % of the most images/s, then up to the
/// next power of two and multiple. Throws OutOfMemory where no batch fits.
BatchChoice choose_batch(const RunConfig& config, std::uint64_t bytes, bool bytes_were_named);

/// "batch size 512: …": what was chosen and why, in lines of at most 80 columns. `bytes`: those that it fits; 0: the
/// memory that is free.
std::string to_text(const BatchChoice& choice, std::uint64_t bytes);

/// The policy of least work for one step with a batch resident, as benches have it.
RecomputeChoice choose_recompute(const RunConfig& config, const StepCase& step, std::uint64_t bytes);
/// The same for a whole run of `bantam train`, for a configuration with data.
RecomputeChoice choose_for_run(const RunConfig& config, std::int64_t batch, std::uint64_t bytes);

/// As a configuration's value: "none", "all", "[cheap, stage1..stage2]".
std::string to_yaml(const RecomputeOptions& recompute);
/// "cheap, stage1..stage2" in lines of at most `width` columns, each but the first with `indent`.
std::string wrapped(const RecomputeOptions& recompute, std::size_t width, const std::string& indent);

}  // namespace bantam::run

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

/// Bytes that the run's pool may hold on its device: the smaller of `memory.budget` and the device's limit (of the
/// process, on a GPU) less the target's overhead and the device's shares; 0: nothing bounds it.
std::uint64_t bytes_to_fit(const RunConfig& config, const PlanTarget& target);
/// For the configuration's own device, measured where it is in this machine (measured_target).
std::uint64_t bytes_to_fit(const RunConfig& config);

/// The bytes of the device's shares, cut from its limit or, without one, from its memory; 0 where it is not split, or
/// is a share itself.
std::uint64_t bytes_of_shares(const RunConfig& config);

/// Why the shares of the run's device (or of the one that it is a share of) do not fit: they need more than `limit`, or
/// (0) the configuration's limit or all of the device, less the target's overhead. nullopt: they fit.
std::optional<OutOfMemory> refused_shares(const RunConfig& config, const PlanTarget& target, std::uint64_t limit);

/// The configuration with another batch size (given, not `auto`) and policy.
RunConfig variant(const RunConfig& config, std::int64_t batch, const RecomputeOptions& recompute);
/// Whether the whole run, data and evaluation included, gets by with a pool of `bytes`.
bool run_fits(const RunConfig& config, std::uint64_t bytes);

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

/// The largest batch that fits `bytes`, from plans of the whole run; with 0 bytes, the device's free memory less a
/// reserve. A multiple of batch_multiple_of. Of more bytes never a smaller one: the sizes that are tried do not depend
/// on the bytes, and where `cache: auto` may keep the data set there, its most (cache_room) is left free even where it
/// does not. Where nobody named bytes or a `max`, the predicted throughput (predict_update) bounds it: the smallest
/// batch within 5 % of the most images/s, then up to the next power of two and multiple. Throws OutOfMemory where no
/// batch fits, ConfigError where nothing bounds it.
BatchChoice choose_batch(const RunConfig& config, std::uint64_t bytes, bool bytes_were_named);
/// Of bytes that were named, where there are any.
std::int64_t solve_batch(const RunConfig& config, std::uint64_t bytes);

/// "batch size 512: …": what was chosen and why, in lines of at most 80 columns. `bytes`: as in choose_batch.
std::string to_text(const BatchChoice& choice, std::uint64_t bytes);
/// A warning where a batch this large means few updates an epoch, with a size that has more; else "".
std::string few_updates_warning(const RunConfig& config, std::int64_t batch);

/// The policy of least work for one step with a batch resident, as benches have it.
RecomputeChoice choose_recompute(const RunConfig& config, const StepCase& step, std::uint64_t bytes);
/// The same for a whole run of `bantam train`, for a configuration with data.
RecomputeChoice choose_for_run(const RunConfig& config, std::int64_t batch, std::uint64_t bytes);

/// As a configuration's value: "none", "all", "[cheap, stage1..stage2]".
std::string to_yaml(const RecomputeOptions& recompute);
/// "cheap, stage1..stage2" in lines of at most `width` columns, each but the first with `indent`.
std::string wrapped(const RecomputeOptions& recompute, std::size_t width, const std::string& indent);

}  // namespace bantam::run

// Decisions: every `auto` and every unset value of a configuration is one row of a table, which one function walks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/run/config/cache_config.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/fit/plan_fit.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::run {

/// Who needs a value to be decided; `decide` gets a sum of them.
enum Scope : unsigned {
  for_step = 1,     ///< a step, and so plans and benches, too
  for_run = 2,      ///< a run, whether it begins or goes on
  for_new_run = 4,  ///< a run that begins: one that goes on has the value in its configuration, or is from before it
  for_rank = 8      ///< each rank of a run for itself: with several ranks the document, which all share, says `auto`
};

/// Words for the user on what was decided.
struct DecisionLog {
  std::vector<std::string> messages, warnings;
};

/// Lines of a configuration's document: paths of keys and their values in YAML.
using DocumentLines = std::vector<std::pair<std::string, std::string>>;

/// Facts that decisions depend on, beside the configuration.
struct DecisionFacts {
  const PlanTarget& target;
  PlanFit fit;            ///< the pool's bytes on the target
  RankCount ranks;        ///< of the run
  DecisionLog& log;       ///< decisions add to it
  bool run_fits = false;  ///< the batch size was chosen so that the run fits as it is
};

/// A row of the table.
struct Decision {
  std::string_view key;  ///< the key that is decided; some rows write others beside it
  Scope scope;
  bool (*is_open)(const RunConfig& config, const DecisionFacts& facts);
  /// Sets the field and returns the lines that say so in the document; none where it keeps what it has.
  DocumentLines (*decide)(RunConfig& config, DecisionFacts& facts);
};

/// All rows, in the order in which they depend on each other.
std::span<const Decision> decisions();

/// The configuration with the open values of these scopes decided for the target: in its fields, and in its document,
/// so that the resolved text means the same run on any machine. Values that are decided stay. Throws OutOfMemory where
/// no batch fits, a budget cannot be met or a device has less memory than its shares; DataError where samples or the
/// file of `model.weights` cannot be read.
RunConfig decide(RunConfig config, const PlanTarget& target, unsigned scopes, DecisionLog& log,
                 const RankCount& ranks = {});

/// Decides what a step needs (for_step), for plans and benches of steps with these batch sizes; with none, that of the
/// configuration is decided, too. Throws as `decide`, and as require_model_fits.
RunConfig decide_step(RunConfig config, const PlanTarget& target, std::span<const std::int64_t> batches,
                      DecisionLog& log);

/// Whether samples are packed into the run's own folder: `cache: disk` that names none.
bool packs_into_run(const DataOptions& data);

}  // namespace bantam::run

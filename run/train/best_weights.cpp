// The file's metadata are compared with the position of the checkpoint.
#include "bantam/run/train/best_weights.h"

#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/sha256.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/run/train/json_fields.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "bantam.best";

std::string to_text(const BestEvaluation& best) {
  return Json{{"epoch", best.epoch}, {"value", best.value}, {"metric", best.metric}}.dump();
}

/// The weights file that is there.
struct Found {
  bool named = false;                               ///< it says of which evaluation it is; earlier programs did not
  std::optional<BestEvaluation> of = std::nullopt;  ///< nothing: it is not known, or the file is damaged
  std::string sha256 = {};
};

/// A file that the system cannot read is an error: it may be sound. A link is none of the run's files.
Found read_found(const fs::path& path) {
  if (what_else_is_at({.path = path}) == "a symbolic link") return {.named = true};
  const std::string bytes = read_file(FolderFile{path});
  Found found{.named = true, .sha256 = sha256_of(bytes)};
  try {
    const SafetensorsFile file = parse_safetensors(bytes, path);
    const auto text = file.metadata.find(kKey);
    found.named = text != file.metadata.end();
    if (!found.named) return found;
    const Json json = parse_json(text->second);
    found.of = BestEvaluation{.epoch = field<std::int64_t>(json, "epoch"),
                              .value = field<double>(json, "value"),
                              .metric = field<std::string>(json, "metric")};
  } catch (const DataError&) {  // it is damaged
  }
  return found;
}

void remove_best(const fs::path& path, const std::function<void(std::string_view)>& warn) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw DataError(fmt::format("cannot remove {}: {}", path.string(), error.message()));
  sync_folder(path.parent_path());
  warn(
      fmt::format("{} is not of the best evaluation before the checkpoint, and is removed; the next evaluation is the "
                  "best so far",
                  path.string()));
}

/// Without checkpoint.best the file is that of a session before, unless that one's updates are thrown away.
bool is_later(const Found& found, const Position& position) {
  return found.of && found.of->epoch > position.epoch + (position.update > 0 ? 1 : 0);
}

}  // namespace

WatchedMetric best_rule(const RunConfig& config) {
  if (config.checkpoint.best) return *config.checkpoint.best;
  return watched_by_default(config.train);
}

std::string evaluated_weights(const RunConfig& config) {
  const std::optional<EmaOptions>& ema = config.train.optimizer.ema;
  return ema && ema->evaluate ? "averages" : "weights";
}

BestEvaluation best_of(const Position& position, const RunConfig& config) {
  if (position.best_epoch == 0) return {};
  return {.epoch = position.best_epoch, .value = position.best, .metric = best_rule(config).metric};
}

std::string write_best_weights(const fs::path& path, const StateSnapshot& snapshot, const RunConfig& config,
                               const BestEvaluation& best) {
  AtomicFile file(FolderFile{path});
  file.begin_sum();
  if (evaluated_weights(config) == "averages")
    snapshot.write_average(file, {{kKey, to_text(best)}});
  else
    snapshot.write_weights(file, {{kKey, to_text(best)}});
  file.commit();
  return file.sum().sha256;
}

void keep_best_weights(const BestAtResume& run, const std::function<void(const BestEvaluation&)>& write,
                       const std::function<void(std::string_view)>& warn) {
  Position& position = run.position;
  const std::string& metric = run.facts.best_metric.empty() ? run.metric : run.facts.best_metric;
  if (!metric.empty() && metric != best_rule(run.config).metric) position.best_epoch = 0;
  const fs::path path = run.directory.best_weights();
  std::error_code error;
  const bool is_there = fs::symlink_status(path, error).type() != fs::file_type::not_found;
  const std::optional<Found> found = is_there ? std::optional(read_found(path)) : std::nullopt;
  if (!run.config.checkpoint.best) {
    if (found && is_later(*found, position)) remove_best(path, warn);
    return;
  }
  const BestEvaluation best = best_of(position, run.config);
  const std::string& sha256 = run.facts.best_sha256;
  const bool is_it = found && (!found->named || found->of == best) && (sha256.empty() || found->sha256 == sha256);
  if (best.epoch > 0 && is_it) return;
  if (best.epoch > 0 && run.facts.best_weights == evaluated_weights(run.config)) return write(best);
  position.best_epoch = 0;
  if (found) return remove_best(path, warn);
  if (best.epoch > 0 && !sha256.empty())
    warn(fmt::format("{} is not there any more; the next evaluation is the best so far", path.string()));
}

}  // namespace bantam::run

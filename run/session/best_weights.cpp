// The file's metadata are compared with the position of the checkpoint.
#include "bantam/run/session/best_weights.h"

#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/engine/train/safetensors.h"

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
};

/// A file that the system cannot read is an error: it may be sound.
Found read_found(const fs::path& path) {
  const std::string bytes = read_file(path);
  try {
    const SafetensorsFile file = parse_safetensors(bytes, path);
    const auto text = file.metadata.find(kKey);
    if (text == file.metadata.end()) return {};
    const Json json = Json::parse(text->second);
    return {.named = true,
            .of = BestEvaluation{.epoch = json.at("epoch").get<std::int64_t>(),
                                 .value = json.at("value").get<double>(),
                                 .metric = json.at("metric").get<std::string>()}};
  } catch (const DataError&) {
    return {.named = true};
  } catch (const Json::exception&) {
    return {.named = true};
  }
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

void write_best_weights(const fs::path& path, const StateSnapshot& snapshot, const RunConfig& config,
                        const BestEvaluation& best) {
  if (evaluated_weights(config) == "averages")
    snapshot.write_average(path, {{kKey, to_text(best)}});
  else
    snapshot.write_weights(path, {{kKey, to_text(best)}});
}

void settle_best_weights(const BestAtResume& run, const std::function<void(const BestEvaluation&)>& write,
                         const std::function<void(std::string_view)>& warn) {
  Position& position = run.position;
  const std::string& metric = run.facts.best_metric.empty() ? run.metric : run.facts.best_metric;
  if (!metric.empty() && metric != best_rule(run.config).metric) position.best_epoch = 0;
  const fs::path path = run.directory.best_weights();
  std::error_code error;
  const std::optional<Found> found = fs::exists(path, error) ? std::optional(read_found(path)) : std::nullopt;
  if (!run.config.checkpoint.best) {
    if (found && is_later(*found, position)) remove_best(path, warn);
    return;
  }
  const BestEvaluation best = best_of(position, run.config);
  if (best.epoch > 0 && found && (!found->named || found->of == best)) return;
  if (best.epoch > 0 && run.facts.best_weights == evaluated_weights(run.config)) return write(best);
  position.best_epoch = 0;
  if (found) remove_best(path, warn);
}

}  // namespace bantam::run

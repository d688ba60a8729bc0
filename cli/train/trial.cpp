// A temporary folder, a few updates, and what they say.
#include "bantam/cli/train/trial.h"

#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/json.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/run/fit/decisions.h"

namespace bantam::cli {

TrialFolder::TrialFolder() : path_(make_temporary_folder("bantam-trial-")) {}

TrialFolder::~TrialFolder() {
  std::error_code error;  // what stays is in the system's temporary folder
  remove_folder(path_, error);
}

std::vector<std::string> fast_dev_overrides(const RunConfig& config, std::int64_t updates) {
  // train.stop_early counts epochs, of which there is no whole one, and would refuse evaluations after updates.
  std::vector<std::string> overrides = {fmt::format("train.max_updates={}", updates), "checkpoint.every=off",
                                        "train.stop_early=off"};
  if (!config.train.evaluate) return overrides;
  if (config.train.loss.views) {  // which stay, as the batch size does
    overrides.push_back(fmt::format("train.evaluate.every={}updates", updates));
    overrides.push_back(fmt::format("train.evaluate.limit={}batches", updates));
    return overrides;
  }
  const std::int64_t batch = config.train.evaluation.batch_size;
  const std::string size = batch > 0 ? fmt::format(", batch_size: {}", batch) : "";
  overrides.push_back(fmt::format("train.evaluate={{every: {}updates, limit: {}batches{}}}", updates, updates, size));
  return overrides;
}

void limit_held_out(RunConfig& config, std::int64_t batches) {
  if (!config.data) return;
  constexpr std::int64_t kOfAuto = 256;  // samples of a batch whose size is not known yet
  const std::int64_t batch = evaluated_batch(*config.data), most = batches * (batch > 0 ? batch : kOfAuto);
  for (std::shared_ptr<const SampleReader>* reader : {&config.data->source.validation, &config.data->source.test}) {
    if (*reader == nullptr || (*reader)->facts().size <= most) continue;
    std::vector<std::int32_t> first(static_cast<std::size_t>(most));
    std::iota(first.begin(), first.end(), 0);
    *reader = chosen_samples(*reader, std::move(first));
  }
}

void pack_nothing(RunConfig& config) {
  if (config.data && run::packs_into_run(*config.data)) config.data->pipeline.cache = CacheKind::off;
}

std::string trial_text(const run::Outcome& outcome) {
  const RunConfig& config = *outcome.config;
  const std::int64_t batch = config.data->pipeline.batch_size, updates = run::updates_per_epoch(config, batch);
  std::string text =
      fmt::format("{} on {}, {}: {} of {} of {}, {}, {} at the peak\n", config.model.name, to_string(config.device),
                  to_string(config.precision), counted(config.train.epochs, "epoch"), counted(updates, "update"),
                  counted(outcome.effective_batch, "image"), counted(outcome.parameters, "parameter"),
                  format_byte_size(outcome.planned_peak_bytes));
  const TrainResult& result = outcome.result;
  if (result.updates > 0) {
    text += fmt::format("{} update{}: loss {:.4f}", result.updates, result.updates == 1 ? "" : "s", result.train.loss);
    if (result.validation.samples > 0)
      text += fmt::format("; {}: loss {:.4f}", counted(result.validation.samples, "validation sample"),
                          result.validation.loss);
    if (result.test.samples > 0)
      text += fmt::format("; {}: loss {:.4f}", counted(result.test.samples, "test sample"), result.test.loss);
    text += "\n";
  }
  return text + (result.updates > 0 ? "nothing was kept\n" : "dry run: ready to train; nothing was trained or kept\n");
}

std::string trial_json(const run::Outcome& outcome) {
  const RunConfig& config = *outcome.config;
  const std::int64_t batch = config.data->pipeline.batch_size;
  nlohmann::ordered_json json = {{"model", config.model.name},
                                 {"device", to_string(config.device)},
                                 {"precision", to_string(config.precision)},
                                 {"epochs", config.train.epochs},
                                 {"updates_per_epoch", run::updates_per_epoch(config, batch)},
                                 {"effective_batch", outcome.effective_batch},
                                 {"parameters", outcome.parameters},
                                 {"planned_peak_bytes", outcome.planned_peak_bytes},
                                 {"planned_pool_bytes", outcome.planned_pool_bytes},
                                 {"updates", outcome.result.updates}};
  if (outcome.result.updates > 0) json["loss"] = outcome.result.train.loss;
  if (outcome.result.validation.samples > 0) json["validation_loss"] = outcome.result.validation.loss;
  if (outcome.result.test.samples > 0) {
    json["test_samples"] = outcome.result.test.samples;
    json["test_loss"] = outcome.result.test.loss;
  }
  return json_text(json) + "\n";
}

}  // namespace bantam::cli

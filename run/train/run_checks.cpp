// Step by step; a step that fails ends those that need it, and no other.
#include "bantam/run/train/run_checks.h"

#include <functional>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/model/model.h"
#include "bantam/memory/device/host_memory.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/fit/rehearsal_runtime.h"
#include "bantam/run/fit/warnings.h"
#include "bantam/run/train/disk_room.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::run {
namespace {

/// Whether the step came to its end.
bool attempt(RunFindings& findings, const std::function<void()>& step) {
  try {
    step();
    return true;
  } catch (const Error& error) {
    findings.errors.emplace_back(error.what());
    return false;
  }
}

/// As a run without its weights: nothing of the device's memory is needed.
void check_weights(const RunConfig& config, RunFindings& findings) {
  RehearsalRuntime rehearsal(config, 0);
  Model model(rehearsal.runtime(), rehearsal.device(), config.model.graph, model_options(config));
  if (InitialWeights weights = load_named_weights(model, config); weights.warns)
    findings.warnings.push_back(std::move(weights.text));
}

/// A configuration may be checked where its data are not: what is missing is a warning.
void check_files(const RunConfig& config, std::vector<std::string>& warnings) {
  try {
    const SampleSplits& source = config.data->source;
    for (const SampleReader* samples : {source.train.get(), source.validation.get(), source.test.get()})
      if (samples != nullptr) samples->check(false, 0);
  } catch (const Error& error) {
    warnings.push_back(fmt::format("the data cannot be read here: {}", error.what()));
  }
}

void check_room(const RunConfig& config, RunFindings& findings) {
  const RunPlan plan = plan_run(config);
  // By default runs lie below the current folder.
  if (std::string shortage = disk_shortage(disk_need(config, plan), "runs", {}); !shortage.empty())
    findings.warnings.push_back(std::move(shortage));
  // A run that may go on in smaller micro-batches gets a limit where the host is too small.
  if (config.memory.on_oom == OnOutOfMemory::fail) require_free_host_bytes(config, plan, plan.pool_bytes);
}

}  // namespace

void require_free_host_bytes(const RunConfig& config, const RunPlan& plan, std::uint64_t bytes) {
  // Saving copies the state: weights and the optimizer's moments. Histograms are of a copy, too.
  const std::uint64_t state = plan.by_category[Category::parameter] + plan.by_category[Category::optimizer];
  const std::uint64_t watched = plan.by_category[Category::parameter] + plan.by_category[Category::gradient];
  require_host_memory(config.device, bytes, state + (config.log.histograms > 0 ? watched : 0));
}

RunFindings check_run(const RunConfig& config) {
  RunFindings findings;
  std::optional<RunConfig> decided;
  const bool here = is_here(config.device);
  if (!here)
    findings.warnings.push_back(fmt::format(
        "device {} is not on this machine: whether its memory suffices was not checked", to_string(config.device)));
  if (here)
    attempt(findings, [&] {
      DecisionLog log;
      decided = decide(config, measured_target(config), for_step | for_run | for_rank, log);
      findings.warnings = std::move(log.warnings);
    });
  for (std::string& warning : run_warnings(decided.value_or(config))) findings.warnings.push_back(std::move(warning));
  // The file of model.weights may be what has failed already.
  if (decided || !here || !config.model.weights)
    attempt(findings, [&] { check_weights(decided.value_or(config), findings); });
  if (decided) attempt(findings, [&] { check_room(*decided, findings); });
  check_files(config, findings.warnings);
  return findings;
}

}  // namespace bantam::run

// `bantam evaluate`: a trained model on its validation or test samples.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/cli/evaluate/evaluation_report.h"
#include "bantam/cli/options/model_flags.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/progress.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/cli/signals.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Loss, accuracy and all metrics of a run's weights on its validation samples,\n"
    "the same bits as the run's own evaluation of them; each class's precision,\n"
    "recall and F1, what is confused with what, and the confusion matrix. Overrides\n"
    "change the configuration: data.path=DIR --split all evaluates other samples, all\n"
    "of them where DIR has no parts such as val/. Ctrl-C ends it after the batch\n"
    "under way.\n"
    "Example: bantam evaluate runs/pets data.path=more_pets --split all";

struct EvaluateFlags {
  ModelFlags model;
  std::string config, split = "validation", progress = "auto";
  std::vector<std::string> overrides;
  bool json = false;
};

/// CONFIG and KEY=VALUE … after RUN; the first may be an override, too. Folders of a sweep's runs have '=' in their
/// names.
ModelFlags model_of(const EvaluateFlags& flags) {
  ModelFlags model = flags.model;
  std::error_code error;
  const bool is_override = flags.config.find('=') != std::string::npos && !std::filesystem::exists(flags.config, error);
  if (!flags.config.empty() && !is_override) {
    if (std::filesystem::is_directory(flags.config, error))
      throw ConfigError(fmt::format(
          "CONFIG: {0} is a folder; data.path={0} with --split all evaluates the samples in it", flags.config));
    if (!model.config.empty()) throw ConfigError("name CONFIG or --config, not both");
    model.config = flags.config;
  }
  if (is_override) model.set.push_back(flags.config);
  model.set.insert(model.set.end(), flags.overrides.begin(), flags.overrides.end());
  return model;
}

/// A run that evaluates its averages does so under another name than its weights.
void report_averages(const TrainedModel& model, Progress& progress) {
  const std::optional<EmaOptions>& ema = model.config.train.optimizer.ema;
  if (ema && ema->evaluate && !model.averaged)
    progress.message("the run's own evaluations are of the averaged weights (train.ema): --ema evaluates those");
}

Evaluation evaluated(const TrainedModel& model, const EvaluateFlags& flags, Progress& progress, StopOnSignal& stop) {
  const auto begin = std::chrono::steady_clock::now();
  EvaluateOptions options{.set = parse_evaluated_set(flags.split), .threads = flags.model.threads};
  options.stop = [&stop] { return stop.requested(); };
  options.on_batch = [&](std::int64_t done, std::int64_t batches) {
    const double each = done > 0 ? seconds_since(begin) / static_cast<double>(done) : 0;
    progress.work({.what = "evaluating",
                   .unit = "batch",
                   .done = done,
                   .all = batches,
                   .eta_seconds = each * static_cast<double>(batches - done)});
  };
  options.on_warning = [&](std::string_view text) { progress.warning(text); };
  return evaluate(model, options);
}

int run_evaluate(const EvaluateFlags& flags) {
  StopOnSignal stop;
  stop.note_saved();  // nothing is lost whenever it ends
  Progress progress(parse_progress_mode(flags.progress, stderr), stderr);
  try {
    const TrainedModel model = open_model(model_of(flags), true, parse_evaluated_set(flags.split) == EvaluatedSet::all);
    report_averages(model, progress);
    const Evaluation evaluation = evaluated(model, flags, progress, stop);
    progress.close();
    const auto columns = static_cast<std::size_t>(terminal_columns(stdout));
    const std::string text =
        flags.json ? json_text(json_of(evaluation, model)) + "\n" : text_of(evaluation, model, columns);
    write_text(text);
    return 0;
  } catch (const EvaluationStopped& stopped) {
    progress.message(stopped.what());
    return stop_exit_code(stop.signal());
  } catch (const DeviceError& error) {
    explain_device(error);
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(fmt::format("{}\n  train.evaluate={{batch_size: N}} of fewer samples needs less", error.what()),
                      error.facts());
  }
}

}  // namespace

void add_evaluate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("evaluate", "Metrics of a trained model, and of each class");
  command->footer(kAbout);
  const auto flags = std::make_shared<EvaluateFlags>();
  add_model_flags(*command, flags->model);
  command->add_option("CONFIG", flags->config, "Configuration of a weights file");
  command->add_option("OVERRIDES", flags->overrides, "KEY=VALUE, e.g. data.path=DIR");
  command
      ->add_option("--split", flags->split, "training, validation or test samples, or all of a\nset without such parts")
      ->capture_default_str();
  add_progress_flags(*command, flags->progress);
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  command->callback([&action, flags] { action = [flags] { return run_evaluate(*flags); }; });
}

}  // namespace bantam::cli

// From flags to a trained model.
#include "bantam/cli/options/model_flags.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/run/sweep/sweep_folder.h"

namespace bantam::cli {
namespace {

void add_key_flag(CLI::App& command, ModelFlags& flags, const std::string& key, const std::string& help) {
  command.add_option_function<std::string>(
      "--" + key, [&flags, key](const std::string& value) { flags.keys[key] = value; }, help);
}

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command.add_option("RUN", flags.path, "A run, a checkpoint of it, or a weights file")->required();
  command.add_option("--checkpoint", flags.checkpoint,
                     "Of a run: last, best or a number of updates;\ndefault: its final weights");
  command.add_flag("--ema", flags.ema, "The averaged weights (train.ema)");
  command.add_option("--config", flags.config, "Configuration of a weights file, or in place of\nthe run's own");
  command.add_option("--set", flags.set, "KEY=VALUE of the configuration; may be repeated")->allow_extra_args(false);
  add_key_flag(command, flags, "device", "cpu or cuda:N; default: the run's");
  add_key_flag(command, flags, "precision", "float32, mixed_float16, mixed_bfloat16 or\nfloat16; default: the run's");
  command.add_option("--threads", flags.threads, "CPU threads; 0: all processors.\nResults do not depend on it")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
}

TrainedModel open_model(const ModelFlags& flags, bool with_data, bool whole_set) {
  if (run::Sweep::is_in(flags.path))
    throw ConfigError(
        fmt::format("{} is the folder of a sweep: name one of the runs in it, which `bantam runs {}` lists", flags.path,
                    flags.path));
  TrainedModelOptions options{.checkpoint = flags.checkpoint,
                              .ema = flags.ema,
                              .config = flags.config,
                              .overrides = flags.set,
                              .with_data = with_data,
                              .whole_set = whole_set};
  for (const auto& [key, value] : flags.keys) options.overrides.push_back(key + "=" + value);
  return open_trained_model(flags.path, options);
}

std::string weights_text(const TrainedModel& model) {
  std::string text = model.weights_file.string();
  if (model.updates) text += fmt::format(", update {}", *model.updates);
  return model.averaged ? text + ", averaged" : text;
}

void explain_device(const DeviceError& error) {
  throw DeviceError(
      fmt::format("{}\n  --device cpu uses the CPU, whose results differ in the last bits", error.what()));
}

}  // namespace bantam::cli

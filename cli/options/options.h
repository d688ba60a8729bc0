// Command-line options that the subcommands share: the configuration, its overrides, and flags that are overrides in
// short.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/run/config/run_config.h"

namespace CLI {  // whoever adds options includes <CLI/CLI.hpp>, which compiles for seconds
class App;
class Validator;
}  // namespace CLI

namespace bantam::cli {

/// The command line of one subcommand, as typed.
struct CommonOptions {
  std::string config;
  std::vector<std::string> overrides;                 ///< "key=value", as typed
  std::map<std::string, std::string> flag_overrides;  ///< by config key, from --device and the like
  int threads = 0;
};

/// CONFIG, OVERRIDES (KEY=VALUE …), --device, --seed and --threads.
void add_common_options(CLI::App& command, CommonOptions& options);
/// --precision, for the subcommands that have it.
void add_precision_flag(CLI::App& command, CommonOptions& options);
/// A flag that stands for a config key: `--epochs N` is `train.epochs=N`.
void add_override_flag(CLI::App& command, CommonOptions& options, const std::string& flag, const std::string& key,
                       const std::string& help);

/// --progress and --quiet, for the subcommands that report progress; `progress` has the default.
void add_progress_flags(CLI::App& command, std::string& progress);

/// Typed overrides, then the flags'.
std::vector<std::string> all_overrides(const CommonOptions& options);
/// The configuration with all overrides; throws ConfigError.
RunConfig read_config(const CommonOptions& options);

/// A check of a flag for seconds: more than 0, at most a day.
CLI::Validator positive_seconds();

/// "2GiB" to bytes, at least one. Throws ConfigError naming the flag.
std::uint64_t parse_bytes(const std::string& flag, const std::string& text);
/// `parse()`; a ConfigError or DeviceError is rethrown as a ConfigError whose message begins with the flag.
template <class Parse>
auto of_flag(const std::string& flag, const Parse& parse) {
  try {
    return parse();
  } catch (const ConfigError& error) {
    throw ConfigError(flag + ": " + error.what());
  } catch (const DeviceError& error) {
    throw ConfigError(flag + ": " + error.what());
  }
}

/// "16,128,1024" to numbers; "none,all" to texts. Throws ConfigError naming the flag.
std::vector<std::int64_t> parse_integers(const std::string& flag, const std::string& text);
std::vector<std::string> parse_texts(const std::string& flag, const std::string& text);

/// The action of a subcommand runs once the command line is parsed, and returns the exit code.
using Action = std::function<int()>;

/// Each adds its subcommand to `app`, which sets `action` when it is chosen.
void add_train(CLI::App& app, Action& action);
void add_init(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_find_lr(CLI::App& app, Action& action);
void add_summary(CLI::App& app, Action& action);
void add_devices(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_schema(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_runs(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_evaluate(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);

}  // namespace bantam::cli

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

/// The verbs, in the order in which they are listed: add_VERB adds its subcommand to `app`, which sets `action` when it
/// is chosen.
// clang-format off
#define BANTAM_VERBS(X)                                                            \
  X(init) X(train) X(sweep) X(find_lr) X(validate) X(summary) X(devices) X(bench)  \
  X(plan) X(explain) X(profile) X(runs) X(report) X(compare) X(inspect) X(data)    \
  X(evaluate) X(predict) X(embed) X(import) X(export) X(schema) X(doctor) X(completion)
// clang-format on
#define BANTAM_DECLARE_VERB(name) void add_##name(CLI::App& app, Action& action);
BANTAM_VERBS(BANTAM_DECLARE_VERB)
#undef BANTAM_DECLARE_VERB

}  // namespace bantam::cli

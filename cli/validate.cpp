// `bantam validate`: everything that is wrong with a configuration, at once.
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/train/run_checks.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutValidate =
    "Prints everything that is wrong with a configuration, each with file, line and\n"
    "column: unknown keys, values of another type or outside their range, layers\n"
    "whose shapes do not fit, and data that do not suit model and loss. Then all that\n"
    "`train` would refuse or warn of before its first update: memory, weights that do\n"
    "not fit, missing normalize or shuffle, a batch norm momentum that is too slow.\n"
    "The machine needs no GPU and, of most formats, no data. Exit codes: 0 nothing is\n"
    "wrong, with or without warnings; 2 something is; 3 the data cannot be read.\n"
    "Example: bantam validate configs/quickstart.yaml";

constexpr int kWrong = 2;  // the exit code of configurations

struct ValidateOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool json = false;
};

/// The number after the last colon, which is then cut off; nothing where there is none.
nlohmann::ordered_json number_at_end(std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return nullptr;
  int number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data() + colon + 1, last, number);
  if (error != std::errc() || end != last) return nullptr;
  text.resize(colon);
  return number;
}

/// Splits an error into its parts: "file:12:7: error: what\n   the line\n   ^~~".
nlohmann::ordered_json json_of(const std::string& error) {
  constexpr std::string_view kMark = ": error: ";
  const std::string head = error.substr(0, error.find('\n'));
  const std::size_t mark = head.find(kMark);
  if (mark == std::string::npos) return {{"file", nullptr}, {"line", nullptr}, {"column", nullptr}, {"message", head}};
  std::string file = head.substr(0, mark);
  const nlohmann::ordered_json column = number_at_end(file), line = number_at_end(file);
  return {{"file", file}, {"line", line}, {"column", column}, {"message", head.substr(mark + kMark.size())}};
}

/// The configuration's own errors, or, of one that reads well, what a start would refuse and warn of.
run::RunFindings findings_of(const ValidateOptions& options) {
  const run::CheckedConfig checked = run::checked_config(options.config, options.overrides);
  if (!checked.config) return {.errors = checked.errors, .warnings = {}};
  if (checked.config->data) return run::check_run(*checked.config);
  return {.errors = {}, .warnings = {"there is no key 'data': `train` needs it"}};
}

std::string count_text(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

int run_validate(const ValidateOptions& options) {
  const run::RunFindings found = findings_of(options);
  const bool valid = found.errors.empty();
  const std::string file = printable_line(options.config);
  if (options.json) {
    nlohmann::ordered_json json = {{"config", options.config}, {"valid", valid}};
    json["errors"] = nlohmann::ordered_json::array();
    for (const std::string& error : found.errors) json["errors"].push_back(json_of(error));
    json["warnings"] = found.warnings;
    print_out("{}\n", json_text(json));
    return valid ? 0 : kWrong;
  }
  const std::string warned =
      found.warnings.empty() ? "" : fmt::format("; {}", count_text(found.warnings.size(), "warning"));
  if (valid) print_out("{}: nothing is wrong{}\n", file, warned);
  std::fflush(stdout);
  std::string text;
  for (const std::string& error : found.errors) text += shown_message(error) + "\n";
  for (const std::string& warning : found.warnings)
    text += fmt::format("{}: warning: {}\n", file, shown_message(warning));
  constexpr std::size_t kMost = 50;  // errors that are printed; the last of more is their number
  const std::string count = found.errors.size() > kMost ? fmt::format("more than {} errors", kMost)
                                                        : count_text(found.errors.size(), "error");
  if (!valid) text += fmt::format("{}: {}{}\n", file, count, warned);
  write_text(text, stderr);
  return valid ? 0 : kWrong;
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("validate", "All that is wrong with a configuration");
  command->footer(kAboutValidate);
  const auto options = std::make_shared<ValidateOptions>();
  command->add_option("CONFIG", options->config, "YAML file, e.g. configs/quickstart.yaml")->required();
  command->add_option("OVERRIDES", options->overrides, "KEY=VALUE, e.g. train.epochs=5 data.path=DIR");
  command->add_flag("--json", options->json, "One JSON object: valid, and each error's place");
  command->callback([&action, options] { action = [options] { return run_validate(*options); }; });
}

}  // namespace bantam::cli

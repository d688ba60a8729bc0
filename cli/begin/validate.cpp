// `bantam validate`: everything that is wrong with a configuration, at once.
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/text.h"
#include "bantam/cli/config/options.h"
#include "bantam/cli/print/json_text.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Prints everything that is wrong with a configuration, each with file, line and\n"
    "column: unknown keys, values of another type or outside their range, layers\n"
    "whose shapes do not fit, and data that do not suit model and loss. The machine\n"
    "needs no GPU and, of most formats, no data. Exit codes: 0 nothing is wrong,\n"
    "2 something is, 3 the data cannot be read.\n"
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

/// Of "file:12:7: error: what\n   the line\n   ^~~".
nlohmann::ordered_json json_of(const std::string& error) {
  constexpr std::string_view kMark = ": error: ";
  const std::string head = error.substr(0, error.find('\n'));
  const std::size_t mark = head.find(kMark);
  if (mark == std::string::npos) return {{"file", nullptr}, {"line", nullptr}, {"column", nullptr}, {"message", head}};
  std::string file = head.substr(0, mark);
  const nlohmann::ordered_json column = number_at_end(file), line = number_at_end(file);
  return {{"file", file}, {"line", line}, {"column", column}, {"message", head.substr(mark + kMark.size())}};
}

int run_validate(const ValidateOptions& options) {
  const std::vector<std::string> errors = run::configuration_errors(options.config, options.overrides);
  if (options.json) {
    nlohmann::ordered_json json = {{"config", options.config}, {"valid", errors.empty()}};
    json["errors"] = nlohmann::ordered_json::array();
    for (const std::string& error : errors) json["errors"].push_back(json_of(error));
    fmt::print("{}\n", json_text(json));
  } else if (errors.empty()) {
    fmt::print("{}: nothing is wrong\n", printable(options.config));
  }
  if (errors.empty()) return 0;
  std::string text;
  for (const std::string& error : errors) text += shown_message(error) + "\n";
  text += fmt::format("{}: {} error{}\n", printable(options.config), errors.size(), errors.size() == 1 ? "" : "s");
  if (!options.json) std::fputs(text.c_str(), stderr);
  return kWrong;
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("validate", "All that is wrong with a configuration");
  command->footer(kAbout);
  const auto options = std::make_shared<ValidateOptions>();
  command->add_option("CONFIG", options->config, "YAML file, e.g. configs/quickstart.yaml")->required();
  command->add_option("OVERRIDES", options->overrides, "KEY=VALUE, e.g. train.epochs=5 data.path=DIR");
  command->add_flag("--json", options->json, "One JSON object: valid, and each error's place");
  command->callback([&action, options] { action = [options] { return run_validate(*options); }; });
}

}  // namespace bantam::cli

// `bantam init`: a first configuration for the data in a folder.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/memory/device/device.h"
#include "bantam/run/init/first_config.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutInit =
    "Writes a commented configuration for the data in DIR, which trains as it stands:\n"
    "class folders of images, images and masks, a CSV file, NumPy arrays, MNIST's or\n"
    "CIFAR's files. Sizes, classes and normalisation are measured; network, batch and\n"
    "epochs fit them. Without --data the images are drawn by the program.\n"
    "Exit codes: 0 written, 2 FILE is there already, 3 no data set was found.\n"
    "Example: bantam init --data photos --out photos.yaml";

struct InitOptions {
  std::string data, out = "config.yaml";
  bool overwrite = false, json = false;
  int threads = 0;
};

int run_init(const InitOptions& options) {
  const bool to_terminal = options.out == "-";
  if (to_terminal && options.json)
    throw ConfigError("--json does not go with --out -, which prints the configuration itself");
  std::error_code error;
  if (!to_terminal && !options.overwrite && std::filesystem::exists(options.out, error))
    throw ConfigError(fmt::format("--out: {} is there already; expected a new file, or --overwrite", options.out));
  const std::string data = options.data.empty() ? "" : " --data " + options.data;
  const run::FirstConfig config = run::first_config(options.data, {.threads = options.threads,
                                                                   .for_gpu = cuda_device_count() > 0,
                                                                   .command = "bantam init" + data,
                                                                   .file = to_terminal ? "config.yaml" : options.out});
  if (!options.json)
    for (const std::string& warning : config.warnings) print_error("warning: {}\n", shown_message(warning));
  if (to_terminal) {
    write_file_text(config.text);
    return 0;
  }
  write_file_atomically(options.out, config.text);
  if (options.json) {
    print_out("{}\n", json_text({{"config", options.out},
                                 {"found", config.summary},
                                 {"warnings", config.warnings},
                                 {"advice", config.advice}}));
    return 0;
  }
  std::string advice;
  for (const std::string& line : config.advice) advice += printable(line) + "\n";
  print_out("{}\n{}wrote {}; next: bantam train {}\n", printable(config.summary), advice, printable_line(options.out),
            printable_line(options.out));
  return 0;
}

}  // namespace

void add_init(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("init", "A first configuration, fitted to your data");
  command->footer(kAboutInit);
  const auto options = std::make_shared<InitOptions>();
  command->add_option("--data", options->data, "Folder or file of the data");
  command->add_option("--out", options->out, "File to write; -: the terminal")->capture_default_str();
  command->add_flag("--overwrite", options->overwrite, "Replace FILE");
  command->add_option("--threads", options->threads, "That read samples; 0: all processors")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object instead of words");
  command->callback([&action, options] { action = [options] { return run_init(*options); }; });
}

}  // namespace bantam::cli

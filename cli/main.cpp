// The `bantam` program: its subcommands.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bantam/cli/failure.h"
#include "bantam/cli/options/expanded_arguments.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/help.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/cli/print/usage.h"
#include "bantam/memory/device/device.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutBantam =
    "Bantam trains convolutional networks: a model and a number of bytes, on CPU and\n"
    "CUDA.";
constexpr const char* kFooter =
    "Exit codes: 0 done, 2 usage or configuration, 3 data, 4 does not fit,\n"
    "5 not finite, 75 stopped by SIGTERM, SIGUSR1 or a hangup and saved, 130 stopped\n"
    "by Ctrl-C and saved, 1 anything else.\n"
    "Example: bantam train configs/quickstart.yaml (a file of the source tree)";

/// Fills closed standard streams with /dev/null, read-only: writing fails, and no later file becomes standard output.
void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) == -1 && ::open("/dev/null", O_RDONLY) != descriptor) return;
}

/// `--memory ""` (of a script's unset variable, say) must not mean that nothing was given.
void refuse_empty_values(CLI::App& app) {
  const std::function<std::string(std::string&)> check = [](std::string& text) {
    return text.empty() ? std::string("expected a value, got an empty text") : std::string();
  };
  for (CLI::Option* option : app.get_options())
    if (option->get_items_expected_max() > 0) option->check(CLI::Validator(check, ""));
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) refuse_empty_values(*command);
}

int run(int argc, char** argv) {
  CLI::App app(kAboutBantam, "bantam");
  app.footer(kFooter);
  app.formatter(brief_formatter(terminal_columns(stdout)));
  app.require_subcommand(1);
  const std::string version =
      fmt::format("bantam {} ({})", BANTAM_VERSION, built_with_cuda() ? "CPU and CUDA" : "CPU only");
  app.set_version_flag("--version", version);
  Action action;
#define BANTAM_ADD_VERB(name) add_##name(app, action);
  BANTAM_VERBS(BANTAM_ADD_VERB)
#undef BANTAM_ADD_VERB
  add_help(app, action, version);
  refuse_empty_values(app);
  std::vector<std::string> texts = expanded_arguments(argc, argv);
  check_subcommand(app, std::vector<std::string>(texts.begin() + std::min(argc, 1), texts.end()));
  try {
    std::vector<char*> arguments;
    for (std::string& text : texts) arguments.push_back(text.data());
    app.parse(argc, arguments.data());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) fail_usage(app, error);
    return app.exit(error);  // help and version
  }
  return action();
}

}  // namespace
}  // namespace bantam::cli

int main(int argc, char** argv) {
  using namespace bantam::cli;
  open_standard_streams();
  // Recorded exchanges of memory that NCCL registers by itself have hung (2.28.3, mapped pages). A user's wish counts.
  (void)::setenv("NCCL_GRAPH_REGISTER", "0", 0);
  std::signal(SIGXFSZ, SIG_IGN);  // past `ulimit -f` a write fails, and is reported, instead of ending the program
  try {
    const int code = run(argc, argv);
    // A result that did not arrive is no result.
    if (const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0; failed && code == kDone)
      return report_error("standard output cannot be written", kFailed);
    return code;
  } catch (const std::exception&) {
    try {
      return report_exception();
    } catch (const std::bad_alloc&) {  // there is no memory for the message either
      write_at_once("bantam: error: the host has no memory left\n");
      return kDoesNotFit;
    }
  }
}

// The `bantam` program: its subcommands, and from exceptions to exit codes.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/cli/options.h"
#include "bantam/memory/device.h"

namespace bantam::cli {
namespace {

enum ExitCode : int { kDone = 0, kFailed = 1, kUsage = 2, kData = 3, kDoesNotFit = 4, kNotFinite = 5 };

constexpr const char* kAbout =
    "Bantam trains convolutional networks: a model and a number of bytes, on CPU and\n"
    "CUDA.";
constexpr const char* kFooter =
    "\nExit codes: 0 done, 2 usage or configuration, 3 data, 4 does not fit,\n"
    "5 not finite, 75 stopped by SIGTERM and saved, 130 stopped by Ctrl-C and saved,\n"
    "1 anything else.\n"
    "Begin with: bantam train configs/quickstart.yaml";

int report(std::string_view message, int code) {
  // Errors with a position begin with it, as compilers' do.
  const bool has_position = message.find(": error: ") < message.find('\n');
  fmt::print(stderr, "{}{}\n", has_position ? "" : "bantam: error: ", message);
  return code;
}

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

/// A misspelt subcommand, also of a group such as `bench`, gets the nearest one; the parser would only say that one is
/// required. `before`: the words in front of it.
void check_subcommand(const CLI::App& app, std::span<char* const> words, const std::string& before = "") {
  const std::vector<const CLI::App*> commands = subcommands(app);
  if (commands.empty() || words.empty() || words.front()[0] == '-') return;
  const std::string word = words.front();
  const auto found = std::ranges::find(commands, word, &CLI::App::get_name);
  if (found != commands.end()) return check_subcommand(**found, words.subspan(1), before + word + " ");
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  const auto near = nearest(word, names);
  const std::string advice =
      near ? fmt::format("did you mean '{}{}'?", before, *near) : "there are " + join(names, ", ", " and ");
  throw ConfigError(fmt::format("unknown subcommand '{}{}'; {}", before, word, advice));
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
  CLI::App app(kAbout, "bantam");
  app.footer(kFooter);
  app.require_subcommand(1);
  app.set_version_flag("--version",
                       fmt::format("bantam {} ({})", BANTAM_VERSION, built_with_cuda() ? "CPU and CUDA" : "CPU only"));
  Action action;
  add_train(app, action);
  add_summary(app, action);
  add_devices(app, action);
  add_bench(app, action);
  add_plan(app, action);
  add_profile(app, action);
  refuse_empty_values(app);
  check_subcommand(app, std::span<char* const>(argv, static_cast<std::size_t>(argc)).subspan(1));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kDone : kUsage;  // help and version end here too
  }
  return action();
}

}  // namespace
}  // namespace bantam::cli

int main(int argc, char** argv) {
  using namespace bantam::cli;
  std::signal(SIGXFSZ, SIG_IGN);  // past `ulimit -f` a write fails, and is told, instead of ending the program
  try {
    const int code = run(argc, argv);
    // A result that did not arrive is no result.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
      return report("standard output cannot be written", kFailed);
    return code;
  } catch (const bantam::ConfigError& error) {
    return report(error.what(), kUsage);
  } catch (const bantam::DataError& error) {
    return report(error.what(), kData);
  } catch (const bantam::OutOfMemory& error) {
    return report(error.what(), kDoesNotFit);
  } catch (const std::bad_alloc&) {
    return report("the host has no memory left", kDoesNotFit);
  } catch (const bantam::NotFiniteError& error) {
    return report(error.what(), kNotFinite);
  } catch (const bantam::CudaError& error) {
    return report(error.what(), kFailed);
  } catch (const bantam::DeviceError& error) {
    return report(error.what(), kUsage);
  } catch (const std::exception& error) {
    return report(error.what(), kFailed);
  }
}

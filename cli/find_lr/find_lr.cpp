// `bantam find-lr`: a learning-rate range test, drawn, with a suggestion.
#include "bantam/run/find_lr.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/cli/find_lr/range_page.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/oom_message.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/cli/print/text_plot.h"
#include "bantam/run/fit/decisions.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Trains a fresh model for some updates while the learning rate grows from --from\n"
    "to --to, and draws the smoothed loss over the rate. The suggestion is the rate\n"
    "at which the loss falls fastest; a tenth of the rate at its minimum stands\n"
    "beside it. Ends early where the loss diverges. Writes no run folder.\n"
    "Example: bantam find-lr configs/quickstart.yaml --out find-lr.html";

struct FindLrOptions {
  CommonOptions common;
  run::RangeTestOptions test;
  std::string out;
  bool json = false;
};

nlohmann::ordered_json json_of(const RunConfig& config, const run::RangeTest& test) {
  const auto value = [](const std::optional<double>& rate) {
    return rate ? nlohmann::ordered_json(*rate) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json = {{"config", config.name},
                                 {"updates", test.points.size()},
                                 {"diverged", test.diverged},
                                 {"suggestion", value(test.steepest)},
                                 {"steepest", value(test.steepest)},
                                 {"tenth_of_minimum", value(test.tenth_of_minimum)}};
  for (const run::RangeTestPoint& point : test.points)
    json["points"].push_back(
        {{"learning_rate", point.learning_rate}, {"loss", point.loss}, {"smoothed", point.smoothed}});
  return json;
}

std::string text_of(const RunConfig& config, const run::RangeTest& test) {
  constexpr int kLabels = 14;  // columns beside the curve
  TextPlot plot{.log_x = true, .columns = std::clamp(terminal_columns(stdout) - kLabels, 20, TextPlot().columns)};
  for (const run::RangeTestPoint& point : test.points) {
    plot.x.push_back(point.learning_rate);
    plot.y.push_back(std::min(point.smoothed, run::range_test_ceiling(test)));
  }
  if (test.steepest) plot.marks.push_back(*test.steepest);
  std::string text = fmt::format("{} on {}, {}: smoothed loss of {} updates over the learning rate\n", config.name,
                                 to_string(config.device), to_string(config.precision), test.points.size());
  text += draw(plot);
  if (test.diverged) text += fmt::format("diverged above {:.2g}\n", test.points.back().learning_rate);
  text += test.steepest ? fmt::format("suggestion: {:.2g}, where the loss falls fastest (^)\n", *test.steepest)
                        : std::string("no suggestion: the loss falls nowhere; try --updates, or a larger --to\n");
  return text + fmt::format("a tenth of the rate at the minimum: {:.2g}\n", *test.tenth_of_minimum);
}

/// The configuration as `train` decides it; what was decided is not reported.
RunConfig decided_config(const CommonOptions& options) {
  const RunConfig config = read_config(options);
  run::require_device(config);
  if (!config.data) config.document.root().fail_at_key("missing key 'data': a range test needs data");
  run::DecisionLog log;
  return run::decide(config, measured_target(config), run::for_step | run::for_run | run::for_rank, log);
}

int run_find_lr(const FindLrOptions& options) {
  const RunConfig config = decided_config(options.common);
  run::RangeTestOptions wanted = options.test;
  wanted.threads = options.common.threads;
  run::RangeTest test;
  try {
    test = run::range_test(config, wanted);
  } catch (const OutOfMemory& error) {
    throw explain_training(error, config);
  }
  if (test.points.empty())
    throw NotFiniteError(fmt::format("find-lr: the loss is not finite at a learning rate of {}", wanted.from));
  if (!options.out.empty()) write_file_atomically(options.out, range_page(config.name, test));
  write_text(options.json ? json_text(json_of(config, test)) + "\n" : text_of(config, test));
  return 0;
}

}  // namespace

void add_find_lr(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("find-lr", "A learning rate to begin with");
  command->footer(kAbout);
  const auto options = std::make_shared<FindLrOptions>();
  add_common_options(*command, options->common);
  add_precision_flag(*command, options->common);
  command->add_option("--from", options->test.from, "Learning rate of the first update")->capture_default_str();
  command->add_option("--to", options->test.to, "Learning rate of the last update")->capture_default_str();
  command->add_option("--updates", options->test.updates, "Updates of the test")->capture_default_str();
  command->add_option("--out", options->out, "Also write an HTML page to this file");
  command->add_flag("--json", options->json, "One JSON object instead of the drawing");
  command->callback([&action, options] { action = [options] { return run_find_lr(*options); }; });
}

}  // namespace bantam::cli

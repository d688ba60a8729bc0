// `bantam explain`: the step program, operation by operation: what runs, what it costs, what backward keeps.
#include "bantam/run/explain/explain.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/counted.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/explain/schedule_curve.h"
#include "bantam/cli/options/profile_flag.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/fitted_text.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/cli/profile/step_profile_report.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/plan.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Show the program of one update, operation by operation: the layers it stands\n"
    "for, what runs them, what backward keeps of it (kept in memory, rebuilt by a\n"
    "recipe, or recomputed with its checkpoint segment), the bytes of device memory\n"
    "and operations of its kernels, and the time that these predict. Nothing runs:\n"
    "the device need not be in this machine (--device h200).\n"
    "--measure runs updates on the device and tells where their time goes: each\n"
    "instant belongs to the operation whose kernel ran, or to a gap.\n"
    "Example: bantam explain configs/quickstart.yaml --device h200";

struct ExplainFlags {
  CommonOptions common;
  std::string profile, batch;
  bool measure = false, json = false;
};

constexpr std::size_t kLeastName = 12;

/// "stem", or "block/norm +2" where it stands for two layers more.
std::string layers_text(const ExplainedNode& node, std::size_t most) {
  const std::string more = node.layers.size() > 1 ? fmt::format(" +{}", node.layers.size() - 1) : std::string();
  return shown(node.name, most - more.size()) + more;
}

/// Names what runs, and what it does about norms: "conv2d, stats", "batch_norm, later".
std::string runs_text(const ExplainedNode& node, std::size_t most) {
  const char* norm = !node.statistics_for.empty() ? ", stats" : !node.norm_applied_by.empty() ? ", later" : "";
  return shown(node.runs, most) + norm;
}

std::string microseconds(double seconds) { return fmt::format("{:.1f}", 1e6 * seconds); }
std::string share(double part, double whole) { return fmt::format("{:.1f}", whole > 0 ? 100 * part / whole : 0); }

void add_node(Table& table, const ExplainedNode& node, const Explanation& explanation, std::size_t most_of_name) {
  std::vector<std::string> cells = {layers_text(node, most_of_name),
                                    runs_text(node, most_of_name),
                                    std::string(to_string(node.backward)),
                                    node.kept_bytes > 0 ? compact_bytes(node.kept_bytes) : "",
                                    compact_bytes(static_cast<std::uint64_t>(node.bytes())),
                                    fmt::format("{:.2f}", 1e-9 * static_cast<double>(node.flops())),
                                    microseconds(node.predicted_seconds())};
  if (explanation.times) {
    cells.push_back(microseconds(node.measured_seconds()));
    cells.push_back(share(node.measured_seconds(), explanation.times->step_seconds));
  }
  table.add_row(std::move(cells));
}

void add_gap(Table& table, const char* name, double seconds, const StepTimes& times) {
  table.add_row({name, "", "", "", "", "", "", microseconds(seconds), share(seconds, times.step_seconds)});
}

std::string table_text(const Explanation& explanation, bool estimate, std::size_t most_of_name) {
  std::vector<Table::Column> columns = {{"operation", Align::left},
                                        {"runs", Align::left},
                                        {"backward", Align::left},
                                        {"kept"},
                                        {"bytes"},
                                        {"GFLOP"},
                                        {estimate ? fmt::format("us ±{:.0f}%", 100 * kEstimateShare) : "us"}};
  if (explanation.times) columns.insert(columns.end(), {{"measured"}, {"%"}});
  Table table(std::move(columns));
  for (const ExplainedNode& node : explanation.nodes) add_node(table, node, explanation, most_of_name);
  if (explanation.times) {
    add_gap(table, "(between kernels)", explanation.times->between_kernels, *explanation.times);
    add_gap(table, "(between updates)", explanation.times->between_updates, *explanation.times);
  }
  table.add_rule();
  std::vector<std::string> total = {"one update",
                                    counted(explanation.kernels, "kernel"),
                                    "",
                                    "",
                                    compact_bytes(static_cast<std::uint64_t>(explanation.bytes)),
                                    fmt::format("{:.2f}", 1e-9 * static_cast<double>(explanation.flops)),
                                    microseconds(explanation.predicted_seconds)};
  if (explanation.times) {
    total.push_back(microseconds(explanation.times->step_seconds));
    total.push_back("100.0");
  }
  table.add_row(std::move(total));
  return table.to_string();
}

nlohmann::ordered_json phase_json(const ExplainedPhase& phase) {
  nlohmann::ordered_json json = {{"phase", to_string(phase.phase)},
                                 {"kernels", phase.kernels},
                                 {"bytes", phase.bytes},
                                 {"flops", phase.flops},
                                 {"predicted_us", 1e6 * phase.predicted_seconds}};
  if (phase.measured_seconds) json["measured_us"] = 1e6 * *phase.measured_seconds;
  return json;
}

nlohmann::ordered_json node_json(const ExplainedNode& node) {
  nlohmann::ordered_json json = {{"name", node.name}, {"layers", node.layers}, {"runs", node.runs}};
  if (!node.statistics_for.empty()) json["statistics_for"] = node.statistics_for;
  if (!node.norm_applied_by.empty()) json["norm_applied_by"] = node.norm_applied_by;
  json["backward"] = node.backward == Keeping::nothing ? "nothing" : std::string(to_string(node.backward));
  json["kept_bytes"] = node.kept_bytes;
  json["phases"] = nlohmann::ordered_json::array();
  for (const ExplainedPhase& phase : node.phases) json["phases"].push_back(phase_json(phase));
  return json;
}

void print_json(const RunConfig& config, const StepCase& step, const DeviceRates& rates,
                const Explanation& explanation) {
  nlohmann::ordered_json json = describe(config, step);
  json["accumulate"] = config.train.accumulate;
  if (config.train.replicas > 1) json["replicas"] = config.train.replicas;
  json["kernels"] = explanation.kernels;
  json["bytes"] = explanation.bytes;
  json["flops"] = explanation.flops;
  json["predicted_us"] = 1e6 * explanation.predicted_seconds;
  if (rates.estimate) json["estimate"] = true;
  if (const auto& times = explanation.times) {
    json["measured_us"] = 1e6 * times->step_seconds;
    json["between_kernels_us"] = 1e6 * times->between_kernels;
    json["between_updates_us"] = 1e6 * times->between_updates;
    json["untraced_us"] = 1e6 * times->untraced_seconds;
  }
  if (config.train.optimizer.schedules.any()) json["schedules"] = schedule_points(config, step.batch);
  json["nodes"] = nlohmann::ordered_json::array();
  for (const ExplainedNode& node : explanation.nodes) json["nodes"].push_back(node_json(node));
  print_out("{}\n", json_text(json));
}

void print_text(const RunConfig& config, const PlanTarget& target, const StepCase& step, const DeviceRates& rates,
                const Explanation& explanation) {
  print_out("{} on {}, {}, batch {}, accumulate {}{}, recompute {}\n{}\n", printable_line(config.model.name),
            device_title(target), to_string(step.precision), step.batch, config.train.accumulate,
            config.train.replicas > 1 ? fmt::format(", {} replicas", config.train.replicas) : "",
            wrapped(step.recompute, 60, "  "), stand_in_text(config, target.profile));
  const auto text_of = [&](std::size_t most) { return table_text(explanation, rates.estimate, most); };
  print_out("{}", fitted_text(static_cast<std::size_t>(table_columns(stdout)), kLeastName, text_of));
  print_out(
      "\nus: predicted. stats: computes the statistics of the norm after it; later: its\n"
      "norm is applied by the operation that reads it.\n");
  if (rates.estimate)
    print_out("The rates of {} are an estimate, so each predicted time is good to ±{:.0f} %.\n",
              target.profile.stand_in.empty() ? target.profile.name : target.profile.stand_in, 100 * kEstimateShare);
  if (explanation.times)
    print_out("Measured: {}, by {};\nan unrecorded update lasts {} us.\n",
              counted(explanation.times->updates, "update"),
              method_words(explanation.times->method, explanation.times->why_not_traced),
              microseconds(explanation.times->untraced_seconds));
  if (config.train.optimizer.schedules.any()) print_out("\n{}", schedule_curves(config, step.batch));
}

int run_explain(ExplainFlags flags) {
  const auto profile = take_profile(flags.common, flags.profile);
  if (profile && flags.measure)
    throw ConfigError("explain: --measure runs on a device of this machine, not on a profile");
  RunConfig config = read_config(flags.common);
  config.planned_for = profile;
  if (flags.measure) require_device(config);
  const PlanTarget target = plan_target(config, profile);
  StepGrid grid{.modes = {config.train.mode}, .whole_run = true};
  if (!flags.batch.empty()) grid.batches = parse_integers("--batch-size", flags.batch);
  if (grid.batches.size() > 1) throw ConfigError("--batch-size: expected one number, got " + flags.batch);
  DecisionLog log;
  config = decide_step(std::move(config), target, grid.batches, log);
  const StepCase step = step_cases(config, grid, plan_fit(config.memory, target).chosen_pool()).front();
  const DeviceRates rates = rates_of(config, step.precision);
  const Explanation explanation =
      flags.measure ? explain_measured(config, step, rates, flags.common.threads) : explain(config, step, rates);
  if (flags.json)
    print_json(config, step, rates, explanation);
  else
    print_text(config, target, step, rates, explanation);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("explain", "What a training step runs, and what that costs");
  command->footer(kAbout);
  const auto flags = std::make_shared<ExplainFlags>();
  add_common_options(*command, flags->common);
  add_precision_flag(*command, flags->common);
  command->add_option("--batch-size", flags->batch, "Images a batch; default: the config's, or 16");
  command->get_option("--device")->description("auto (default), cpu, cuda:N or a card: rtx3060");
  command->add_option("--profile", flags->profile, "A GPU's profile: `devices --measure` wrote it, or you");
  command->add_flag("--measure", flags->measure, "Run updates, and measure each operation");
  command->add_flag("--json", flags->json, "One JSON object instead of the table");
  command->callback([&action, flags] { action = [flags] { return run_explain(*flags); }; });
}

}  // namespace bantam::cli

// `bantam runs`: the runs in a folder, with how far each came.
#include "bantam/run/runs.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/fitted_text.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"

namespace bantam::cli {
namespace {

struct RunsOptions {
  std::string folder;
  bool json = false;
};

std::string name_of(const run::ListedRun& listed) {
  const std::filesystem::path path = std::filesystem::absolute(listed.path).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

void print_json(const run::ListedRun& listed) {
  const run::RunRecord& record = listed.record;
  nlohmann::ordered_json json = {
      {"name", name_of(listed)}, {"path", listed.path.string()},  {"state", listed.state},
      {"reason", record.reason}, {"config", record.name},         {"model", record.model},
      {"device", record.device}, {"precision", record.precision}, {"epoch", record.epoch},
      {"epochs", record.epochs}, {"update", record.update},       {"updates", record.updates}};
  if (!record.metric.empty())
    json["best"] = {{"metric", record.metric}, {"value", record.best}, {"epoch", record.best_epoch}};
  json["seconds"] = record.seconds;
  json["sessions"] = record.sessions;
  json["created"] = utc_text(record.created);
  json["started"] = utc_text(record.started);
  json["updated"] = utc_text(record.updated);
  json["bytes"] = listed.bytes;
  print_out("{}\n", json_text(json));
}

/// "2/5", and within an epoch "2/5+117".
std::string epoch_text(const run::RunRecord& record) {
  const std::string epochs = fmt::format("{}/{}", record.epoch, record.epochs);
  return record.update == 0 ? epochs : fmt::format("{}+{}", epochs, record.update);
}

/// The metric of all runs that have one; empty: they differ.
std::string common_metric(const std::vector<run::ListedRun>& runs) {
  std::string common;
  for (const run::ListedRun& listed : runs) {
    const std::string& metric = listed.record.metric;
    if (!common.empty() && !metric.empty() && metric != common) return "";
    if (!metric.empty()) common = metric;
  }
  return common;
}

std::string best_text(const run::RunRecord& record, bool names_metric) {
  if (record.metric.empty()) return "";
  const std::string metric = names_metric ? shown(record.metric, 12) + " " : "";
  return fmt::format("{}{:.4g} @{}", metric, record.best, record.best_epoch);
}

/// The name has what the other columns leave of a line.
void print_table(const std::vector<run::ListedRun>& runs) {
  constexpr std::size_t kLeastName = 16;
  const auto now = static_cast<double>(std::time(nullptr));
  const std::string metric = common_metric(runs);
  const auto table_of = [&](std::size_t most_of_name) {
    Table table({{"run", Align::left},
                 {"state", Align::left},
                 {"epoch", Align::left},
                 {metric.empty() ? "best" : "best " + shown(metric, 12), Align::left},
                 {"trained"},
                 {"ago"},
                 {"size"}});
    for (const run::ListedRun& listed : runs) {
      const run::RunRecord& record = listed.record;
      table.add_row({shown(name_of(listed), most_of_name), listed.state, epoch_text(record),
                     best_text(record, metric.empty()), format_duration(record.seconds),
                     format_duration(std::max(0.0, now - static_cast<double>(record.updated))),
                     compact_bytes(listed.bytes)});
    }
    return table.to_string();
  };
  print_out("{}", fitted_text(static_cast<std::size_t>(terminal_columns(stdout)), kLeastName, table_of));
}

int run_runs(const RunsOptions& options) {
  const std::filesystem::path folder = options.folder.empty() ? "runs" : options.folder;
  std::error_code error;
  run::RunList list;
  if (!options.folder.empty() || std::filesystem::exists(folder, error)) list = run::list_runs(folder);
  for (const std::string& message : list.unreadable) print_error("bantam: {}\n", shown_message(message));
  if (options.json) {
    for (const run::ListedRun& listed : list.runs) print_json(listed);
  } else if (list.runs.empty()) {
    print_out("There are no runs in {}\n", printable_line(folder.string()));
  } else {
    print_table(list.runs);
  }
  return 0;
}

}  // namespace

void add_runs(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("runs", "Runs in a folder: state, epoch, best, size");
  command->footer(
      "A run is a folder with run.json; the one whose session began last comes first.\n"
      "state    running, stopped, finished or failed; killed: it did not end by\n"
      "         itself, and `bantam train --resume` goes on from its last checkpoint\n"
      "epoch    2/5+117: 2 of 5 epochs, and 117 updates of the next, as last logged\n"
      "best     the best evaluation, with its epoch\n"
      "trained  time of training; ago: since run.json was written\n"
      "Example: bantam runs runs");
  const auto options = std::make_shared<RunsOptions>();
  command->add_option("DIR", options->folder, "A folder of runs, or of one; default: runs");
  command->add_flag("--json", options->json, "One JSON object a run, with all of these and more");
  command->callback([&action, options] { action = [options] { return run_runs(*options); }; });
}

}  // namespace bantam::cli

// `bantam plan`: the memory of a training step before anything is allocated, on a device that need not be here.
#include "bantam/run/plan.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/profile_flag.h"
#include "bantam/cli/options/written_file.h"
#include "bantam/cli/plan/memory_curve.h"
#include "bantam/cli/plan/plan_ranks.h"
#include "bantam/cli/plan/plan_trace.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/process_table.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/engine/plan/step_cost.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Show a training step's memory in the device's allocator, to the byte,\n"
    "before anything is allocated: the step runs on a stand-in for the device, which\n"
    "need not be in this machine. The table counts one resident batch; for one row\n"
    "the whole run is told as well, with its data, batches made ahead, a short last\n"
    "one and evaluation.\n"
    "On a GPU --memory and memory.limits bound the process (context, libraries,\n"
    "kernels and pool, by the device's profile), memory.budget bounds the pool\n"
    "alone; where none is set, the card is the limit. On the CPU all bound the\n"
    "pool. --device accepts the names of cards, too: h200, rtx3060, \"RTX 4070 Ti\" …\n"
    "(`bantam devices --profiles` lists them). --memory alone, without a GPU here,\n"
    "plans for a GPU of that size.\n"
    "With bytes to fit, and nothing said of recompute, the policy of least extra\n"
    "work is found.\n"
    "arena: the step's own buffers at fixed offsets; live: most bytes of them alive\n"
    "at one time.\n"
    "--curve shows the trade of memory for time: for several batch sizes, what each\n"
    "needs and how fast it is by prediction, from nothing recomputed to the least\n"
    "bytes; --out writes it as a page with a picture.\n"
    "With --trace, lifetimes from a CSV file (header id,lower,upper,size) are solved\n"
    "instead.\n"
    "Example: bantam plan configs/resnet50.yaml --device t4 --batch-sizes 64,128";

constexpr std::array<const char*, kCategories> kShort = {"param", "grad", "optim", "activ", "work", "input", "other"};
constexpr std::size_t kShownHolders = 10;

struct PlanFlags {
  BenchOptions rows;
  std::string memory, capacity, profile;
  int ranks = 0;  ///< 0: a step and a run of one process
  CurveFlags curve;
  TraceOptions trace;
};

void print_json(const RunConfig& config, const PlanRow& row, const PlanTarget& target, const PlanFit& fit) {
  const StepPlan& plan = row.plan;
  nlohmann::ordered_json json = describe(config, row.step);
  json["accumulate"] = config.train.accumulate;
  if (config.train.replicas > 1) json["replicas"] = config.train.replicas;
  json["peak_bytes"] = plan.peak_bytes;
  json["by_category"] = categories_json(plan.by_category);
  json["persistent_bytes"] = plan.persistent_bytes;
  json["workspace_bytes"] = plan.workspace_bytes;
  json["step_peak_bytes"] = plan.step_peak_bytes;
  json["buffers"] = plan.step.size();
  json["max_live_bytes"] = plan.arena.max_live_bytes;
  json["arena_bytes"] = plan.arena.arena_bytes;
  json["arena_seconds"] = plan.arena.seconds;
  json["arena_stopped"] = to_string(plan.arena.stop);
  json["pool_bytes"] = plan.pool_bytes;
  if (row.run)
    json["run"] = {{"peak_bytes", row.run->peak_bytes},
                   {"pool_bytes", row.run->pool_bytes},
                   {"arena_bytes", row.run->arena_bytes},
                   {"by_category", categories_json(row.run->by_category)}};
  if (fit.any()) {
    json["memory_bytes"] = fit.bytes;
    json["memory_of"] = to_string(fit.of);
    json["needed_bytes"] = fit.needed_bytes(target, row.needed_pool());
    json["fits"] = row.planned.fits;
  }
  const StepPlanOptions step = train_plan_options(config, row.step);
  const DeviceRates rates = rates_of(config, row.step.precision);
  json["predicted_ms"] = 1e3 * step_seconds(config.model.graph, step, rates);
  if (rates.estimate) json["estimate"] = true;
  if (row.step.predicted_extra) json["predicted_extra_percent"] = 100 * *row.step.predicted_extra;
  json["moment"] = {{"layer", plan.moment.owner},
                    {"phase", plan.moment.phase},
                    {"category", to_string(plan.moment.category)},
                    {"bytes", plan.moment.bytes}};
  json["holders"] = nlohmann::ordered_json::array();
  for (const Holder& holder : plan.holders)
    json["holders"].push_back({{"layer", holder.owner},
                               {"category", to_string(holder.category)},
                               {"bytes", holder.bytes},
                               {"allocations", holder.allocations}});
  add_process(json, target, row.planned.pool_bytes);
  print_out("{}\n", json_text(json));
}

/// Columns of the batch sizes.
std::size_t batch_width(const std::vector<StepCase>& cases) {
  std::size_t width = std::string_view("batch").size();
  for (const StepCase& step : cases) width = std::max(width, std::to_string(step.batch).size());
  return width;
}

std::string header(bool fits, std::size_t width) {
  std::string line = fmt::format("{:>{}} {:>4} {:>5} {:>5}", "batch", width, "prec", "rec", "peak");
  for (const char* title : kShort) line += fmt::format(" {:>5}", title);
  return line + fmt::format(" {:>5} {:>5}{}", "arena", "live", fits ? " fit" : "");
}

void print_row(const RunConfig& config, const PlanRow& row, bool fits, std::size_t width) {
  std::string line = fmt::format("{:>{}} {:>4} {:>5.5} {:>5}", row.step.batch, width, short_name(row.step.precision),
                                 policy_name(row.step), compact_bytes(row.plan.peak_bytes));
  for (const std::uint64_t bytes : row.plan.by_category.bytes) line += fmt::format(" {:>5}", compact_bytes(bytes));
  line += fmt::format(" {:>5} {:>5}", compact_bytes(row.plan.arena.arena_bytes),
                      compact_bytes(row.plan.arena.max_live_bytes));
  print_out("{}{}\n", line, !fits ? "" : row.planned.fits ? " yes" : "  no");
  if (row.step.predicted_extra)
    print_out("      recompute {}\n      {} time predicted\n", wrapped(row.step.recompute, 64, "                "),
              predicted_percent(*row.step.predicted_extra, rates_of(config, row.step.precision).estimate));
}

/// Where the peak is, and who holds it.
void print_details(const PlanRow& row) {
  const StepPlan& plan = row.plan;
  print_out("\nThe peak: {} bytes, reached in {} of {}\nwith {} of {}.\n",
            format_count(static_cast<std::int64_t>(plan.peak_bytes)), plan.moment.phase, plan.moment.owner,
            format_byte_size(plan.moment.bytes), to_string(plan.moment.category));
  print_out(
      "Persistent {}, scratch memory at most {};\n{} a step in an arena of {:.4f} x their live bytes;\n"
      "planned steps reserve a pool of {}.\n",
      format_byte_size(plan.persistent_bytes), format_byte_size(plan.workspace_bytes),
      counted(plan.step.size(), "buffer"), plan.arena.ratio(), format_byte_size(plan.pool_bytes));
  if (row.run)
    print_out("The whole run (train, with its data and evaluation):\n{} at the peak, {} reserved.\n",
              format_byte_size(row.run->peak_bytes), format_byte_size(row.run->pool_bytes));
  print_out("\n");
  Table table({{"alive at the peak", Align::left}, {"category", Align::left}, {"bytes"}, {"share"}});
  std::uint64_t rest = plan.peak_bytes;
  for (std::size_t i = 0; i < std::min(kShownHolders, plan.holders.size()); ++i) {
    const Holder& holder = plan.holders[i];
    rest -= holder.bytes;
    table.add_row(
        {holder.owner, std::string(to_string(holder.category)), format_byte_size(holder.bytes),
         fmt::format("{:.1f} %", 100.0 * static_cast<double>(holder.bytes) / static_cast<double>(plan.peak_bytes))});
  }
  if (rest > 0)
    table.add_row({counted(plan.holders.size() - kShownHolders, "other"), "", format_byte_size(rest),
                   fmt::format("{:.1f} %", 100.0 * static_cast<double>(rest) / static_cast<double>(plan.peak_bytes))});
  print_out("{}", table.to_string());
}

void print_no_run(const RunConfig& config) {
  print_out("\nNo whole run: {} make no batch, and drop_last drops them.\n",
            counted(train_facts(*config.data).size, "sample"));
}

void print_head(const RunConfig& config, const Plan& plan, std::size_t width) {
  const PlanTarget& target = plan.target;
  print_out("{} on {}, accumulate {}{}\n", printable_line(config.model.name), device_title(target),
            config.train.accumulate,
            config.train.replicas > 1 ? fmt::format(", {} replicas", config.train.replicas) : "");
  print_out("{}", stand_in_text(config, target.profile));
  if (plan.fit.any()) print_out("{}\n", plan.fit.to_text(target));
  for (const std::string& message : plan.decisions.messages) print_out("{}\n", message);
  print_out("{}\n", header(plan.fit.any(), width));
}

/// For people who have read that no row fits: what would do for the smallest.
void print_needed(const PlanTarget& target, const PlanFit& fit, const PlanRow& least, bool alone) {
  print_out("\n{} a {} of {}.\n",
            alone ? "It does not fit: it needs"
                  : fmt::format("None of these fits: the least, with batch {}, needs", least.step.batch),
            fit.of == PlanFit::Of::pool ? "pool" : "limit",
            format_byte_size(fit.needed_bytes(target, least.needed_pool())));
}

/// Details of the only row, or what all have in common; and what would do where none fits.
void print_end(const RunConfig& config, const Plan& plan) {
  const bool alone = plan.rows.size() == 1;
  if (alone) {
    print_details(plan.rows.front());
    if (config.data && !plan.rows.front().run) print_no_run(config);
    print_out("{}", process_table(plan.target, plan.rows.front().planned.pool_bytes));
  } else {
    print_out("{}", process_table(plan.target, std::nullopt));
  }
  if (!plan.any_fits()) print_needed(plan.target, plan.fit, plan.least(), alone);
}

int plan_config_of_ranks(const RunConfig& config, const PlanFlags& options) {
  const BenchOptions& rows = options.rows;
  if (!rows.batch_sizes.empty() || !rows.precisions.empty() || !rows.recompute.empty())
    throw ConfigError("plan: --ranks plans the configuration as it is: leave out what varies rows");
  require_model_fits(config);
  return plan_ranks_and_print(
      config, {.ranks = options.ranks, .memory = options.memory, .seconds = rows.seconds, .json = rows.json});
}

int plan_curve(const RunConfig& config, const PlanTarget& target, const PlanFlags& options, const StepGrid& grid) {
  require_place("--out", options.curve.out, options.curve.overwrite);
  const auto [decided, curve] = curve_of(config, target, grid, options.rows.seconds);
  show_curve({decided, target, curve, {}, plan_fit(decided.memory, target).bytes}, options.rows.json,
             options.curve.out);
  return curve.fastest() != nullptr ? 0 : 4;
}

int plan_config(PlanFlags options) {
  auto profile = take_profile(options.rows.common, options.profile);
  RunConfig config = read_config(options.rows.common);
  run::require_weights(config);
  if (options.ranks > 0) {
    config.planned_for = profile;
    return plan_config_of_ranks(config, options);
  }
  const std::uint64_t memory = options.memory.empty() ? 0 : parse_bytes("--memory", options.memory);
  if (!profile && memory > 0 && device_is_open(config)) {
    profile = stand_in_profile(memory);
    options.rows.common.flag_overrides["device"] = "cuda:0";
    config = read_config(options.rows.common);
  }
  config.planned_for = profile;
  PlanTarget target = plan_target(config, profile);
  target.memory = memory;
  const PlanFit fit = plan_fit(config.memory, target);
  // A policy that is asked for fits all there is; what is chosen unasked, what was named.
  const StepGrid grid = read_grid(config, options.rows, options.rows.recompute.empty() ? fit.chosen_pool() : fit.pool);
  if (options.curve.on) return plan_curve(config, target, options, grid);
  const PlanRequest request{.batches = grid.batches,
                            .precisions = grid.precisions,
                            .recomputes = grid.recomputes,
                            .arena_seconds = options.rows.seconds};
  const bool json = options.rows.json;
  const auto print = [&](const Plan& plan) {
    const std::size_t width = batch_width(plan.cases);
    if (!json && plan.rows.size() == 1) print_head(config, plan, width);  // a row that cannot be planned has none
    if (json)
      print_json(config, plan.rows.back(), target, plan.fit);
    else
      print_row(config, plan.rows.back(), plan.fit.any(), width);
  };
  const Plan planned = plan(config, target, request, print);
  if (!json) print_end(config, planned);
  return planned.any_fits() ? 0 : 4;
}

int run_plan(const PlanFlags& options) {
  if (options.trace.file.empty()) {
    if (options.rows.common.config.empty())
      throw ConfigError("plan: name a CONFIG, e.g. configs/quickstart.yaml, or --trace FILE");
    if (!options.capacity.empty() || !options.trace.offsets_file.empty())
      throw ConfigError("plan: --capacity and --offsets belong to --trace FILE");
    return plan_config(options);
  }
  if (!options.rows.common.config.empty()) throw ConfigError("plan: name CONFIG or --trace FILE, not both");
  TraceOptions trace = options.trace;
  trace.seconds = options.rows.seconds;
  trace.json = options.rows.json;
  if (!options.capacity.empty()) trace.capacity = parse_bytes("--capacity", options.capacity);
  return plan_trace(trace);
}

/// A trace has no device, rows or limits: flags for them would be ignored.
void refuse_plans_flags(const CLI::App& command) {
  for (const char* flag : {"--memory", "--device", "--profile", "--batch-sizes", "--precision", "--recompute", "--seed",
                           "--ranks", "--curve"})
    if (command.count(flag) > 0)
      throw ConfigError(fmt::format("plan: {} belongs to a CONFIG, not to --trace FILE", flag));
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("plan", "A step's memory, before anything is allocated");
  command->footer(kAbout);
  const auto options = std::make_shared<PlanFlags>();
  options->rows.seconds = 1.0;
  options->rows.whole_run = true;
  add_bench_options(*command, options->rows);
  command->get_option("CONFIG")->required(false);
  command->get_option("--seconds")->description("Most time to solve an arena");
  command->get_option("--device")->description("auto (default), cpu, cuda:N or a card: rtx3060");
  command->add_option("--profile", options->profile, "A GPU's profile: `devices --measure` wrote it, or you");
  command->add_option("--memory", options->memory,
                      "Bytes to fit into, e.g. 2GiB: of the process on\na GPU, else of the pool; default: the "
                      "config's\nbudget or limit, else the GPU's memory");
  command->add_option("--ranks", options->ranks, "Plan each of N ranks; --memory may be a list by rank")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  add_curve_flags(*command, options->curve,
                  "Memory for time: several batch sizes, and for each\nall that recompute can save")
      ->excludes("--ranks");
  command->add_option("--trace", options->trace.file, "CSV of lifetimes to solve instead of a CONFIG");
  command->add_option("--capacity", options->capacity, "With --trace: an arena that is small enough");
  command->add_option("--offsets", options->trace.offsets_file, "With --trace: write the offsets to a CSV");
  command->callback([&action, command, options] {
    if (!options->trace.file.empty()) refuse_plans_flags(*command);
    action = [options] { return run_plan(*options); };
  });
}

}  // namespace bantam::cli

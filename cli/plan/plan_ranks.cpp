// A table of ranks.
#include "bantam/cli/plan/plan_ranks.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/fit/fitting.h"
#include "bantam/run/plan.h"

namespace bantam::cli {
namespace {

std::vector<std::uint64_t> memory_of(const PlanRanksFlags& flags) {
  std::vector<std::uint64_t> memory;
  if (flags.memory.empty()) return memory;
  for (const std::string& text : parse_texts("--memory", flags.memory)) memory.push_back(parse_bytes("--memory", text));
  if (memory.size() > 1 && static_cast<int>(memory.size()) != flags.ranks)
    throw ConfigError(fmt::format("--memory: expected bytes for all {} ranks, or one number a rank, got {} numbers",
                                  flags.ranks, memory.size()));
  return memory;
}

/// The run's, where there are data.
std::uint64_t arena_of(const PlanRow& row) { return row.run ? row.run->arena_bytes : row.plan.arena.arena_bytes; }

void print_json(const RankPlan& plan, int rank) {
  const PlanRow& row = plan.row();
  nlohmann::ordered_json json = {{"rank", rank},
                                 {"first_replica", plan.first},
                                 {"replicas", plan.count},
                                 {"batch", row.step.batch},
                                 {"recompute", to_string(row.step.recompute)},
                                 {"arena_bytes", arena_of(row)},
                                 {"tree_bytes", plan.tree_bytes},
                                 {"exchange_bytes", plan.exchange_bytes},
                                 {"peak_bytes", row.planned.peak_bytes},
                                 {"pool_bytes", row.planned.pool_bytes}};
  if (plan.plan.fit.any()) {
    json["memory_bytes"] = plan.plan.fit.bytes;
    json["fits"] = row.planned.fits;
  }
  print_out("{}\n", json_text(json));
}

void print_table(const RunConfig& config, const std::vector<RankPlan>& plans) {
  print_out("{} on {} ranks of {}: {} replicas of batch {}, accumulate {}\n", printable_line(config.model.name),
            plans.size(), config.planned_for ? config.planned_for->title() : to_string(config.device),
            config.train.replicas, plans.front().row().step.batch, config.train.accumulate);
  Table table({{"rank"},
               {"replicas"},
               {"limit"},
               {"recompute", Align::left},
               {"arena"},
               {"tree"},
               {"exchange"},
               {"peak"},
               {"reserved"},
               {"fits", Align::left}});
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    const RankPlan& plan = plans[rank];
    const PlanRow& row = plan.row();
    const bool bounded = plan.plan.fit.any();
    table.add_row(
        {std::to_string(rank),
         plan.count == 1 ? std::to_string(plan.first) : fmt::format("{} - {}", plan.first, plan.first + plan.count - 1),
         bounded ? format_byte_size(plan.plan.fit.bytes) : "-", shown(to_string(row.step.recompute), 24),
         format_byte_size(arena_of(row)), format_byte_size(plan.tree_bytes), format_byte_size(plan.exchange_bytes),
         format_byte_size(row.planned.peak_bytes), format_byte_size(row.planned.pool_bytes),
         !bounded           ? ""
         : row.planned.fits ? "yes"
                            : "no"});
  }
  print_out("{}", table.to_string());
}

}  // namespace

int plan_ranks_and_print(const RunConfig& config, const PlanRanksFlags& flags) {
  const std::vector<RankPlan> plans = plan_ranks(config, flags.ranks, memory_of(flags), flags.seconds);
  if (flags.json)
    for (std::size_t rank = 0; rank < plans.size(); ++rank) print_json(plans[rank], static_cast<int>(rank));
  else
    print_table(config, plans);
  return std::ranges::all_of(plans, [](const RankPlan& plan) { return plan.row().planned.fits; }) ? 0 : 4;
}

}  // namespace bantam::cli

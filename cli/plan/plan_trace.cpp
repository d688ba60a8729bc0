// `bantam plan --trace`: the planner by itself.
#include "bantam/cli/plan/plan_trace.h"

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/json.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/cli/print/output.h"
#include "bantam/packing/planner.h"
#include "bantam/run/bench/buffer_trace.h"

namespace bantam::cli {
namespace {

void write_offsets(const std::string& file, const BufferTrace& trace, const ArenaPlan& plan) {
  std::string text = "id,lower,upper,size,offset\n";
  for (std::size_t i = 0; i < trace.buffers.size(); ++i) {
    const PlannerBuffer& b = trace.buffers[i];
    text += fmt::format("{},{},{},{},{}\n", trace.ids[i], b.lower, b.upper, b.size, plan.offsets[i]);
  }
  write_file_atomically(file, text);
}

void print_json(const BufferTrace& trace, const TraceOptions& options, const ArenaPlan& plan) {
  nlohmann::ordered_json json = {{"trace", options.file},           {"buffers", trace.buffers.size()},
                                 {"arena_bytes", plan.arena_bytes}, {"max_live_bytes", plan.max_live_bytes},
                                 {"ratio", plan.ratio()},           {"seconds", plan.seconds},
                                 {"iterations", plan.iterations},   {"stopped", to_string(plan.stop)}};
  if (options.capacity > 0) {
    json["capacity_bytes"] = options.capacity;
    json["fits"] = plan.arena_bytes <= options.capacity;
  }
  json["ids"] = trace.ids;
  json["offsets"] = plan.offsets;
  print_out("{}\n", json_text(json));
}

}  // namespace

int plan_trace(const TraceOptions& options) {
  const BufferTrace trace = read_buffer_trace(options.file);
  const ArenaPlan plan = solve_arena(trace.buffers, {.capacity = options.capacity, .seconds = options.seconds});
  if (!options.offsets_file.empty()) write_offsets(options.offsets_file, trace, plan);
  const bool fits = options.capacity == 0 || plan.arena_bytes <= options.capacity;
  if (options.json) {
    print_json(trace, options, plan);
  } else {
    print_out("{}: {} buffer{}\n", options.file, trace.buffers.size(), trace.buffers.size() == 1 ? "" : "s");
    print_out("arena_bytes     {}\nmax_live_bytes  {}\nratio           {:.4f}\n", plan.arena_bytes, plan.max_live_bytes,
              plan.ratio());
    print_out("seconds         {:.3f} (stopped: {}, {} placements tried)\n", plan.seconds, to_string(plan.stop),
              plan.iterations);
    if (options.capacity > 0) print_out("capacity        {}: {}\n", options.capacity, fits ? "fits" : "does not fit");
  }
  return fits ? 0 : 4;
}

}  // namespace bantam::cli

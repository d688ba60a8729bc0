// Keys and rounding of the JSON rows.
#include "bantam/cli/print/step_json.h"

#include <cmath>
#include <string>

namespace bantam::cli {
namespace {

double rounded(double ms) { return std::round(ms * 1e5) / 1e5; }

}  // namespace

nlohmann::ordered_json describe(const RunConfig& config, const StepCase& options) {
  return {{"model", config.model.name},
          {"batch", options.batch},
          {"precision", to_string(options.precision)},
          {"recompute", to_string(options.recompute)},
          {"device", to_string(config.device)}};
}

nlohmann::ordered_json categories_json(const CategoryBytes& bytes) {
  nlohmann::ordered_json object;
  for (std::size_t i = 0; i < kCategories; ++i)
    object[std::string(to_string(static_cast<Category>(i)))] = bytes[static_cast<Category>(i)];
  return object;
}

void add_memory(nlohmann::ordered_json& row, const MemoryStats& memory) {
  row["peak_bytes"] = memory.peak_bytes;
  row["pool_bytes"] = memory.peak_pool_bytes;
  row["by_category"] = categories_json(memory.by_category_at_peak);
}

void add_timing(nlohmann::ordered_json& row, const StepMeasurement& measured) {
  row["ms_per_step"] = std::round(measured.ms_per_step * 1e4) / 1e4;
  row["images_per_s"] = std::round(measured.images_per_s);
  row["windows"] = measured.windows;
  if (measured.kernels > 0) row["kernels"] = measured.kernels;
}

void add_limits(nlohmann::ordered_json& json, const StepLimits& limits, double ms_per_step) {
  json["floor_ms"] = rounded(limits.floor_ms());
  json["floor_bound"] = limits.bound();
  json["bytes_ms"] = rounded(limits.bytes_ms);
  json["flops_ms"] = rounded(limits.flops_ms);
  json["chain_ms"] = rounded(limits.chain_ms);
  json["ratio_to_floor"] = rounded(ms_per_step / limits.floor_ms());
}

void add_process(nlohmann::ordered_json& row, const PlanTarget& target, std::uint64_t pool_bytes) {
  if (!target.counts) return;
  row["profile"] = target.profile.name;
  row["profile_measured"] = target.profile.measured;
  if (!target.profile.stand_in.empty()) row["stand_in"] = target.profile.stand_in;
  for (const OverheadLine& line : target.profile.overhead) row["overhead"][line.name] = line.bytes;
  row["overhead_bytes"] = total_bytes(target.profile.overhead);
  row["reserve_bytes"] = kLateReserve;
  row["process_bytes"] = process_bytes(target, pool_bytes);
}

nlohmann::ordered_json profile_json(const DeviceProfile& profile) {
  nlohmann::ordered_json json = {{"name", profile.name},
                                 {"compute_capability", profile.compute_capability},
                                 {"multiprocessors", profile.multiprocessors},
                                 {"total_bytes", profile.total_bytes},
                                 {"overhead", nlohmann::ordered_json::object()},
                                 {"copy_bytes_per_s", profile.copy_bytes_per_s},
                                 {"float32_flops_per_s", profile.float32_flops_per_s},
                                 {"float16_flops_per_s", profile.float16_flops_per_s},
                                 {"measured", profile.measured}};
  for (const OverheadLine& line : profile.overhead) json["overhead"][line.name] = line.bytes;
  return json;
}

}  // namespace bantam::cli

// Steps, their plans and measurements, and device profiles as JSON.
#pragma once

#include "bantam/base/json.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/memory/device/device_profile.h"
#include "bantam/run/bench/measure.h"
#include "bantam/run/bench/step_limits.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::cli {

/// model, batch, precision, recompute, device.
nlohmann::ordered_json describe(const RunConfig& config, const StepCase& options);
/// peak_bytes, pool_bytes, by_category (at the peak).
void add_memory(nlohmann::ordered_json& row, const MemoryStats& memory);
void add_timing(nlohmann::ordered_json& row, const StepMeasurement& measured);
/// {"parameter": bytes, …}.
nlohmann::ordered_json categories_json(const CategoryBytes& bytes);

/// floor_ms, floor_bound, bytes_ms, flops_ms, chain_ms, and ratio_to_floor.
void add_limits(nlohmann::ordered_json& json, const StepLimits& limits, double ms_per_step);

/// profile, profile_measured, overhead, overhead_bytes, reserve_bytes, process_bytes.
void add_process(nlohmann::ordered_json& row, const PlanTarget& target, std::uint64_t pool_bytes);

/// Writes the profile in the form that load_device_profile reads.
nlohmann::ordered_json profile_json(const DeviceProfile& profile);

}  // namespace bantam::cli

// Rates measured once a device and precision, and what they leave of a step.
#include "bantam/cli/measure/step_limits.h"

#include <algorithm>
#include <cmath>

#include "bantam/base/error.h"
#include "bantam/cli/measure/measure_rates.h"
#include "bantam/engine/plan/step_floor.h"

namespace bantam::cli {
namespace {

double rounded(double ms) { return std::round(ms * 1e5) / 1e5; }

}  // namespace

std::optional<MeasuredRates> measure_rates(const RunConfig& config, Precision precision, int threads) {
  try {
    Runtime runtime({.threads = threads});
    const Context context = Context::make(runtime, config.device, precision);
    return MeasuredRates{.copy_bytes_per_s = measure_copy_rate(context),
                         .flops_per_s = measure_matmul_rate(context, precision.compute()),
                         .kernel_seconds = measure_kernel_seconds(context)};
  } catch (const OutOfMemory&) {
    return {};
  }
}

double StepLimits::floor_ms() const { return std::max({bytes_ms, flops_ms, chain_ms}); }

const char* StepLimits::bound() const {
  const double floor = floor_ms();
  return floor == bytes_ms ? "bytes" : floor == flops_ms ? "flops" : "chain";
}

StepLimits step_limits(const RunConfig& config, const StepCase& row, const StepMeasurement& measured,
                       const MeasuredRates& rates) {
  const StepWork work = least_step_work(config.model.graph, row.batch, row.precision, measured.parameters,
                                        moment_slots(config.train.optimizer));
  return {.bytes_ms = 1e3 * work.bytes / rates.copy_bytes_per_s,
          .flops_ms = 1e3 * work.flops / rates.flops_per_s,
          .chain_ms = 1e3 * measured.kernels * rates.kernel_seconds};
}

void add_limits(nlohmann::ordered_json& json, const StepLimits& limits, double ms_per_step) {
  json["floor_ms"] = rounded(limits.floor_ms());
  json["floor_bound"] = limits.bound();
  json["bytes_ms"] = rounded(limits.bytes_ms);
  json["flops_ms"] = rounded(limits.flops_ms);
  json["chain_ms"] = rounded(limits.chain_ms);
  json["ratio_to_floor"] = rounded(ms_per_step / limits.floor_ms());
}

}  // namespace bantam::cli

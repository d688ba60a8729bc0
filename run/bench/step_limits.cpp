// Rates measured once a device and precision, and the lower bounds of a step's time by them.
#include "bantam/run/bench/step_limits.h"

#include <algorithm>
#include <cmath>

#include "bantam/base/error.h"
#include "bantam/engine/plan/step_floor.h"
#include "bantam/run/bench/measure_rates.h"

namespace bantam::run {
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
  const std::int64_t samples = row.batch * config.train.accumulate * config.train.replicas;
  const StepWork work = least_step_work(config.model.graph, samples, row.precision, measured.parameters,
                                        config.train.optimizer.rule->slots());
  return {.bytes_ms = 1e3 * work.bytes / rates.copy_bytes_per_s,
          .flops_ms = 1e3 * work.flops / rates.flops_per_s,
          .chain_ms = 1e3 * measured.kernels * rates.kernel_seconds};
}

}  // namespace bantam::run

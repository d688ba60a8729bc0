// A rehearsal allocates on a meta device as the run would on its own.
#include "bantam/run/fit/rehearsal_runtime.h"

namespace bantam::run {
namespace {

/// The data set lies beside a share, on the whole device.
Device stand_in_of(Device device) {
  const Device whole = Device::meta_of(device);
  return device.is_logical() ? whole.logical(device.share) : whole;
}

RuntimeOptions stand_in_options(const RunConfig& config) {
  RuntimeOptions options{.threads = 1};
  if (config.device.is_logical())
    options.logical[to_string(stand_in_of(config.device).whole())] =
        config.memory.logical.at(to_string(config.device.whole()));
  return options;
}

}  // namespace

RehearsalRuntime::RehearsalRuntime(const RunConfig& config, std::uint64_t pool_bytes)
    : device_(stand_in_of(config.device)), runtime_(stand_in_options(config)) {
  BfcAllocator& memory = runtime_.allocator(device_);
  memory.set_limit(0);  // a share's: how much it needs is asked, not whether it fits
  if (pool_bytes > 0 && memory.reserve_pool(pool_bytes)) memory.set_limit(memory.stats().pool_bytes);
}

void reserve_planned(Runtime& runtime, const RunConfig& config, std::uint64_t pool_bytes) {
  if (config.memory.growth)
    (void)runtime.allocator(config.device).reserve_pool(pool_bytes);
  else
    runtime.reserve(config.device, pool_bytes);
}

}  // namespace bantam::run

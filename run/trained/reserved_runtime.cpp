// Limits are asked first, then the pool is reserved.
#include "bantam/run/trained/reserved_runtime.h"

#include "bantam/memory/device/host_memory.h"
#include "bantam/run/fit/rehearsal_runtime.h"

namespace bantam::run {

std::unique_ptr<Runtime> reserved_runtime(const RunConfig& config, int threads,
                                          const std::function<void(std::string_view)>& on_warning,
                                          const ReservedMemory& memory) {
  std::unique_ptr<Runtime> runtime = make_runtime(config, threads, [on_warning](std::string_view message) {
    if (on_warning) on_warning(message);
  });
  if (memory.pool_bytes == 0) return runtime;
  if (memory.must_fit) {
    runtime->require_pool(config.device, memory.pool_bytes);
    require_host_memory(config.device, memory.pool_bytes);
  }
  reserve_planned(*runtime, config, memory.pool_bytes);
  return runtime;
}

}  // namespace bantam::run

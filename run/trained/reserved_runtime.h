// A runtime with the memory that evaluations and predictions have planned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct ReservedMemory {
  std::uint64_t pool_bytes = 0;  ///< as planned; 0: it is not known, and nothing is reserved
  bool must_fit = true;          ///< false: what does not fit is tried nevertheless
};

/// `threads` of the CPU, 0: all processors; `on_warning` must not throw, and may be empty. Throws OutOfMemory where
/// limits or the device do not have the pool, before anything is read.
std::unique_ptr<Runtime> reserved_runtime(const RunConfig& config, int threads,
                                          const std::function<void(std::string_view)>& on_warning,
                                          const ReservedMemory& memory);

}  // namespace bantam::run

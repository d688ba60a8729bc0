// Ranks that are threads of one process.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "bantam/engine/comm/network.h"

namespace bantam {

/// The networks of `ranks` ranks, one for each thread: streams are queues of up to `buffer_bytes` bytes in memory. A
/// network that is destroyed is a rank that has gone; its bytes can still be read.
std::vector<std::unique_ptr<Network>> local_networks(int ranks, std::size_t buffer_bytes = 256 << 10);

}  // namespace bantam

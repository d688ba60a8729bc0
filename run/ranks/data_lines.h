// Ranks that train together compare their data by these lines: hosts may have other files at one path.
#pragma once

#include <string>

#include "bantam/data/delivery/data_config.h"

namespace bantam::run {

/// Returns for each set a line for each class, for each key that its samples decide (features, means), for the names of
/// its samples in their order, and for the stored bytes of 32 samples that are evenly spread. Paths of folders are left
/// out, which are each host's own. Reads those samples: called once the data are open.
std::string data_lines(const DataOptions& data);

}  // namespace bantam::run

// What is likely to spoil a run, and is known before it begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Warnings of a run with data, in batches of `batch`; none of them refuses it. The only list: `train` and `validate`
/// both print it. May read the targets of a few training samples; what cannot be read is passed over.
std::vector<std::string> run_warnings(const RunConfig& config, std::int64_t batch);

}  // namespace bantam::run

// Warnings of a run before it begins: values that are likely to spoil it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// Warnings of a run with data; none of them refuses it. The only list: `train` and `validate` both print it. Those
/// that depend on the batch size are left out where it is `auto`. May read the targets of a few training samples; what
/// cannot be read is passed over.
std::vector<std::string> run_warnings(const RunConfig& config);

/// A warning where a batch this large means few updates an epoch, with a size that has more; else "".
std::string few_updates_warning(const RunConfig& config, std::int64_t batch);

}  // namespace bantam::run

// `bantam bench step --gpus 1,2,4`: a training step on as many GPUs, each a process of this program.
#pragma once

#include <string>

#include "bantam/cli/print/bench.h"

namespace bantam::cli {

/// Numbers of GPUs, as typed: "1,2,4". Throws ConfigError.
std::vector<int> parse_gpu_counts(const std::string& text);

/// A row for each case and count; in a process that such a call has started, the measurement of one of them, which
/// prints nothing. Returns the exit code.
int bench_gpus(const BenchOptions& options, const std::string& counts);

}  // namespace bantam::cli

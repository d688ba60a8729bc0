// Lines of histograms.jsonl.
#pragma once

#include <string>

#include "bantam/run/log/weight_watch.h"

namespace bantam::run {

/// One JSON object, with its end of line:
///
///     {"update": 100, "tensor": "stem/weight", "kind": "gradient", "minimum": -0.1, "maximum": 0.2, "mean": 0.01,
///      "deviation": 0.03, "not_finite": 0, "edges": [65 numbers, ascending], "counts": [64 numbers]}
///
/// Numbers have at least the digits of a float32.
std::string histogram_line(std::int64_t update, const TensorHistogram& histogram);

}  // namespace bantam::run

// Outputs of several views of a sample added up to their mean, and the samples whose prediction is the least certain.
#pragma once

#include <cstdint>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"

namespace bantam::kernels {

/// y (rows, columns), to (…, columns).
struct ViewOutputShape {
  std::int64_t rows = 0, columns = 0;
  bool adds = false;     ///< to what is there; else that is written over
  float divisor = 1.0f;  ///< the sum is divided by it
};

/// to[places[n], c] = ((adds ? to[places[n], c] : 0) + y[n, c]) / divisor in float32, the sum rounded before the
/// division; places[n] is n where `places` is null. Places (rows) lie in device memory, each once. y `dtype`.
using ViewOutputs = void(const Exec&, const ViewOutputShape&, DType dtype, const void* y, const std::int32_t* places,
                         float* to);

/// outputs (rows, classes), of which `count` rows are chosen, 1 to `rows`.
struct LeastCertainShape {
  std::int64_t rows = 0, classes = 0, count = 0;
};

/// Bytes of workspace: a key a row.
inline std::size_t least_certain_workspace(const LeastCertainShape& shape) {
  return static_cast<std::size_t>(shape.rows) * sizeof(std::uint32_t);
}

/// chosen (count): the numbers of the rows whose largest softmax probability is the smallest, ascending; of equal ones
/// the lower numbers. A row whose probabilities are no numbers is the least certain of all. The largest probability is
/// 1 / Σ exp(x - max x) in float32, added in an order that is fixed for a backend. Deterministic. Fewer than 2^31 rows.
using LeastCertain = void(const Exec&, const LeastCertainShape&, const float* outputs, std::int32_t* chosen, Workspace);

BANTAM_DECLARE_KERNEL(ViewOutputs, view_outputs);
BANTAM_DECLARE_KERNEL(LeastCertain, least_certain);

}  // namespace bantam::kernels

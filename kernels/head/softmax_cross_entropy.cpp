// The layout of MetricSums: devices write it and hosts read it, so it must be the same for both compilers.
#include "bantam/kernels/head/softmax_cross_entropy.h"

namespace bantam::kernels {

static_assert(sizeof(MetricSums) == 24 && alignof(MetricSums) == 8);

}  // namespace bantam::kernels

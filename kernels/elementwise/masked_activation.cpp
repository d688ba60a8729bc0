// The size of an activation's mask.
#include "bantam/kernels/elementwise/masked_activation.h"

namespace bantam::kernels {

std::size_t activation_mask_bytes(std::int64_t count) { return static_cast<std::size_t>((count + 7) / 8); }

}  // namespace bantam::kernels

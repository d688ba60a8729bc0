// Internal: bytes of an epilogue.
#pragma once

#include "bantam/kernels/common/work.h"
#include "bantam/kernels/elementwise/epilogue.h"

namespace bantam::kernels::work {

/// Counts the elements that an epilogue reads for an output of so many elements and channels.
inline std::int64_t epilogue_elements(const Epilogue& epilogue, std::int64_t elements, std::int64_t channels) {
  return unless_null(epilogue.bias, channels) + unless_null(epilogue.residual, elements);
}

}  // namespace bantam::kernels::work

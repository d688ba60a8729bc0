// Internal: whether two values name one stream.
#pragma once

#include "bantam/memory/device/device.h"

namespace bantam {

inline bool same_stream(const Stream& a, const Stream& b) {
  return a.id == b.id && a.handle == b.handle && a.device == b.device;
}

}  // namespace bantam

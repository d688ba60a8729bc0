// Internal: arrays of the C interface: checked, and as the engine's shapes and types.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/bantam_c.h"
#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"

namespace bantam::capi {

/// Values in host memory of the caller. `shape` has the axis of samples.
struct HostArray {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  const std::byte* data = nullptr;

  std::int64_t samples() const { return shape[0]; }
  std::size_t row_bytes() const { return static_cast<std::size_t>(shape.without_first().elements()) * size_of(dtype); }
};

/// Throws BadArgument naming the array where it is none: no shape, an unknown type, no axis of samples, no data where
/// `needs_data`.
HostArray read_array(const bantam_array& array, bool needs_data = true);
/// Reads the arrays of a batch or of samples: names differ, all have as many samples, at least 1. Throws BadArgument.
std::vector<HostArray> read_arrays(const bantam_array* arrays, std::size_t count, bool needs_data = true);

/// "images (32, 8, 8, 3) uint8".
std::string to_string(const HostArray& array);

}  // namespace bantam::capi

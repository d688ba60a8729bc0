// Checks of what a caller says of its arrays, before any of it is read.
#include "bantam/capi/arrays.h"

#include <fmt/format.h>

#include "bantam/capi/status.h"

namespace bantam::capi {
namespace {

static_assert(BANTAM_FLOAT32 == static_cast<int>(DType::float32) &&
              BANTAM_FLOAT16 == static_cast<int>(DType::float16) &&
              BANTAM_BFLOAT16 == static_cast<int>(DType::bfloat16) &&
              BANTAM_FLOAT64 == static_cast<int>(DType::float64) && BANTAM_UINT8 == static_cast<int>(DType::uint8) &&
              BANTAM_INT32 == static_cast<int>(DType::int32) && BANTAM_INT64 == static_cast<int>(DType::int64));

}  // namespace

HostArray read_array(const bantam_array& array, bool needs_data) {
  HostArray read{.name = array.name != nullptr ? array.name : "images"};
  if (array.dtype < BANTAM_FLOAT32 || array.dtype > BANTAM_INT64)
    throw BadArgument(fmt::format("array '{}': {} is no BANTAM_… element type", read.name, array.dtype));
  if (array.rank < 1 || array.rank > Shape::kMaxRank)
    throw BadArgument(fmt::format("array '{}': expected 1 to {} axes, the first that of samples, got {}", read.name,
                                  Shape::kMaxRank, array.rank));
  if (array.shape == nullptr) throw BadArgument(fmt::format("array '{}': shape is null", read.name));
  read.dtype = static_cast<DType>(array.dtype);
  read.shape = Shape(std::span(array.shape, static_cast<std::size_t>(array.rank)));
  if (needs_data && array.data == nullptr && read.shape.elements() > 0)
    throw BadArgument(fmt::format("array '{}': data is null", read.name));
  read.data = static_cast<const std::byte*>(array.data);
  return read;
}

std::vector<HostArray> read_arrays(const bantam_array* arrays, std::size_t count, bool needs_data) {
  if (count == 0) throw BadArgument("expected at least one array, got none");
  required(arrays, "arrays");
  std::vector<HostArray> read;
  for (std::size_t i = 0; i < count; ++i) {
    read.push_back(read_array(arrays[i], needs_data));
    const HostArray& last = read.back();
    if (last.samples() < 1) throw BadArgument(fmt::format("array {} has no samples", to_string(last)));
    if (last.samples() != read[0].samples())
      throw BadArgument(fmt::format("{} and {} have not as many samples", to_string(read[0]), to_string(last)));
    for (std::size_t before = 0; before < i; ++before)
      if (read[before].name == last.name) throw BadArgument(fmt::format("two arrays are named '{}'", last.name));
  }
  return read;
}

std::string to_string(const HostArray& array) {
  return fmt::format("{} {} {}", array.name, bantam::to_string(array.shape), bantam::to_string(array.dtype));
}

}  // namespace bantam::capi

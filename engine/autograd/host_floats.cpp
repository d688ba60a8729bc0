// Rounding on the host, and the copy.
#include "bantam/engine/autograd/host_floats.h"

#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

template <class T>
void copy_as(const Tensor& to, std::span<const float> values, Stream stream) {
  std::vector<T> rounded;
  rounded.reserve(values.size());
  for (const float value : values) rounded.emplace_back(value);
  copy_bytes(to.data(), rounded.data(), to.bytes(), stream);
}

}  // namespace

void copy_floats(const Tensor& to, std::span<const float> values, Stream stream) {
  if (std::ssize(values) != to.elements())
    throw ShapeError(fmt::format("{} values for a tensor of {}", values.size(), to.elements()));
  switch (to.dtype()) {
    case DType::float32:
      return copy_bytes(to.data(), values.data(), to.bytes(), stream);
    case DType::float16:
      return copy_as<Half>(to, values, stream);
    case DType::bfloat16:
      return copy_as<BFloat16>(to, values, stream);
    default:
      throw DTypeError(fmt::format("cannot write floats to a {} tensor", to_string(to.dtype())));
  }
}

}  // namespace bantam

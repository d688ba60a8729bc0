// Two passes: extremes and mean first, then the deviation from that mean.
#include "bantam/run/inspect/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace bantam::run {
namespace {

/// Calls `use` with each value. A tensor's bytes need not be aligned.
template <class T>
void for_each_value(const HostTensor& tensor, const auto& use) {
  for (std::size_t at = 0; at + sizeof(T) <= tensor.bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + at, sizeof(T));
    use(static_cast<double>(value));
  }
}

template <class T>
TensorStatistics statistics_as(const HostTensor& tensor) {
  TensorStatistics found{.min = std::numeric_limits<double>::infinity(),
                         .max = -std::numeric_limits<double>::infinity()};
  double sum = 0, squares = 0;
  for_each_value<T>(tensor, [&](double value) {
    if (!std::isfinite(value)) {
      ++found.not_finite;
      return;
    }
    ++found.finite;
    found.zeros += value == 0 ? 1 : 0;
    found.min = std::min(found.min, value);
    found.max = std::max(found.max, value);
    sum += value;
  });
  if (found.finite == 0) return {.not_finite = found.not_finite};
  const auto count = static_cast<double>(found.finite);
  found.mean = sum / count;
  for_each_value<T>(tensor, [&](double value) {
    if (std::isfinite(value)) squares += (value - found.mean) * (value - found.mean);
  });
  found.deviation = std::sqrt(squares / count);
  return found;
}

}  // namespace

TensorStatistics statistics_of(const HostTensor& tensor) {
  switch (tensor.dtype) {
    case DType::float32:
      return statistics_as<float>(tensor);
    case DType::float16:
      return statistics_as<Half>(tensor);
    case DType::bfloat16:
      return statistics_as<BFloat16>(tensor);
    case DType::float64:
      return statistics_as<double>(tensor);
    case DType::uint8:
      return statistics_as<std::uint8_t>(tensor);
    case DType::int32:
      return statistics_as<std::int32_t>(tensor);
    case DType::int64:
      return statistics_as<std::int64_t>(tensor);
  }
  return {};
}

}  // namespace bantam::run

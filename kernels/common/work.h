// Internal: noting the work of a call, and the sums that several families count.
#pragma once

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/kernels/common/parameter_target.h"
#include "bantam/kernels/common/statistics_output.h"

namespace bantam::kernels::work {

/// Into the log, where there is one.
inline void note(const Exec& exec, const char* kernel, const KernelWork& work) {
  if (exec.log != nullptr) exec.log->note(kernel, exec.owner, work);
}

inline std::int64_t bytes_of(std::int64_t elements, DType dtype) {
  return elements * static_cast<std::int64_t>(size_of(dtype));
}
/// `bytes`, unless the operand is null.
inline std::int64_t unless_null(const void* operand, std::int64_t bytes) { return operand != nullptr ? bytes : 0; }

/// float32 vectors of `channels`, of those that are not null.
template <class... Pointers>
std::int64_t vector_bytes(std::int64_t channels, const Pointers*... vectors) {
  return (unless_null(vectors, 4 * channels) + ... + 0);
}
/// Statistics are written; running ones are read and written.
inline std::int64_t statistics_bytes(const StatisticsOutput& statistics, std::int64_t channels) {
  return vector_bytes(channels, statistics.mean, statistics.inv_std) +
         2 * vector_bytes(channels, statistics.running_mean, statistics.running_variance);
}
/// A float32 gradient: written, and read before where it accumulates.
inline std::int64_t gradient_bytes(const float* gradient, bool accumulate, std::int64_t elements) {
  return unless_null(gradient, 4 * elements * (accumulate ? 2 : 1));
}
inline std::int64_t gradient_bytes(const ParameterTarget& target, std::int64_t elements) {
  return gradient_bytes(target.data, target.accumulate, elements);
}

}  // namespace bantam::kernels::work

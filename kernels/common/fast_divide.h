// Division of 32-bit indices by a divisor known before the launch: a multiplication and a shift.
// Source: Granlund and Montgomery 1994, "Division by Invariant Integers using Multiplication".
#pragma once

#include <cstdint>

#include "bantam/base/philox.h"  // BANTAM_HOST_DEVICE

namespace bantam::kernels {

/// Quotient and remainder.
struct Divided {
  std::uint32_t quotient, remainder;
};

/// Divides numbers below 2^31 by `divisor`, 1 ≤ divisor ≤ 2^31. Exact.
class FastDivide {
 public:
  FastDivide() = default;
  explicit FastDivide(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
    while ((std::uint64_t{1} << shift_) < divisor_) ++shift_;
    magic_ = static_cast<std::uint32_t>(
        ((std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift_) - divisor_)) / divisor_ + 1);
  }
  BANTAM_HOST_DEVICE std::uint32_t quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * magic_) >> 32);
    return (high + n) >> shift_;
  }
  BANTAM_HOST_DEVICE Divided divide(std::uint32_t n) const {
    const std::uint32_t q = quotient(n);
    return {q, n - q * divisor_};
  }

 private:
  std::uint32_t divisor_ = 1, magic_ = 1, shift_ = 0;
};

}  // namespace bantam::kernels

// Internal: where made-up addresses begin: those of meta devices and of fake sources.
#pragma once

#include <cstdint>

namespace bantam {

/// No process can have memory here, so that a read or write through a made-up address faults at once. Bit 62 alone (bit
/// 63 is 0) is no address of x86-64, with 48 bits or with 57; where the top byte is left out of the translation
/// (AArch64), bit 55 says that it is the kernel's half. Bit 44 keeps the rest apart from small numbers.
inline constexpr std::uintptr_t kFakeAddresses =
    std::uintptr_t{1} << 62 | std::uintptr_t{1} << 55 | std::uintptr_t{1} << 44;

}  // namespace bantam

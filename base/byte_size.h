// Byte counts as people write them: "4GiB", "512 MiB", "1.5GB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bantam {

/// Bytes from text: a number, then B, KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB (powers of 1000); no unit
/// means bytes. "1.1GiB" is rounded down to whole bytes. Throws ConfigError naming the text and the units allowed; also
/// for negative and overflowing counts, fractions of plain bytes ("1.5", "1.5B") and sizes above nothing but under one
/// byte ("0.0001KiB").
std::uint64_t parse_byte_size(std::string_view text);

/// "1.50 GiB", "3.20 KiB", "17 B": three significant digits, binary units.
std::string format_byte_size(std::uint64_t bytes);

}  // namespace bantam

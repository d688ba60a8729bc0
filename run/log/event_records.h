// TensorBoard's event files: records of a length and bytes, each with its checksum (TFRecord).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bantam::run {

/// CRC-32C (Castagnoli's polynomial, reflected): 0xe3069283 of "123456789".
std::uint32_t crc32c(std::string_view bytes);

/// One record: the length as 8 bytes, its masked checksum, the bytes, their masked checksum, all little-endian. Source:
/// TensorFlow's description of TFRecord.
std::string event_record(std::string_view event);

}  // namespace bantam::run

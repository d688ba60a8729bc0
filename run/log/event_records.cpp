// The checksum byte by byte from a table, and the record's layout.
#include "bantam/run/log/event_records.h"

#include <array>
#include <bit>

namespace bantam::run {
namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits in reverse
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? kPolynomial : 0);
    table[byte] = sum;
  }
  return table;
}();

/// Checksums of bytes that hold checksums themselves would be weak: they are rotated and moved by a constant.
std::uint32_t masked(std::uint32_t sum) { return std::rotr(sum, 15) + 0xa282ead8u; }

void add_little_endian(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t sum = 0xffffffffu;
  for (const char byte : bytes) sum = kTable[(sum ^ static_cast<std::uint8_t>(byte)) & 0xff] ^ (sum >> 8);
  return ~sum;
}

std::string event_record(std::string_view event) {
  std::string record;
  record.reserve(event.size() + 16);
  add_little_endian(record, event.size(), 8);
  add_little_endian(record, masked(crc32c(record)), 4);
  record += event;
  add_little_endian(record, masked(crc32c(event)), 4);
  return record;
}

}  // namespace bantam::run

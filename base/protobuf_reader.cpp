// Reads Protocol Buffers' wire format, field by field, within the bytes that there are.
#include <bit>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/protobuf.h"

namespace bantam {
namespace {

constexpr std::uint64_t kMostFields = (std::uint64_t{1} << 29) - 1;

std::string_view name_of(ProtoField::Type type) {
  switch (type) {
    case ProtoField::Type::varint:
      return "a varint";
    case ProtoField::Type::fixed64:
      return "64 bits";
    case ProtoField::Type::bytes:
      return "bytes";
    case ProtoField::Type::fixed32:
      return "32 bits";
  }
  return "";
}

[[noreturn]] void fail_type(const ProtoField& field, std::string_view expected) {
  throw DataError(fmt::format("field {} is {}; expected {}", field.number, name_of(field.type), expected));
}

/// Little-endian, whatever the machine's order of bytes is.
template <class Bits>
Bits fixed_bits(std::string_view bytes) {
  Bits bits = 0;
  for (std::size_t i = 0; i < sizeof(Bits); ++i)
    bits |= static_cast<Bits>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return bits;
}

}  // namespace

std::int64_t ProtoField::as_integer() const {
  if (type == Type::bytes) fail_type(*this, "an integer");
  return static_cast<std::int64_t>(bits);
}

float ProtoField::as_float() const {
  if (type != Type::fixed32) fail_type(*this, "a float, 32 bits");
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

double ProtoField::as_double() const {
  if (type != Type::fixed64) fail_type(*this, "a double, 64 bits");
  return std::bit_cast<double>(bits);
}

std::string_view ProtoField::as_bytes() const {
  if (type != Type::bytes) fail_type(*this, "bytes");
  return bytes;
}

std::uint64_t ProtoReader::varint() {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    if (i == rest_.size()) throw DataError("the message ends within a number");
    const auto byte = static_cast<unsigned char>(rest_[i]);
    if (i == 9 && byte > 1) break;  // more than 64 bits
    value |= static_cast<std::uint64_t>(byte & 0x7F) << (7 * i);
    if ((byte & 0x80) != 0) continue;
    rest_.remove_prefix(i + 1);
    return value;
  }
  throw DataError("a number has more than 64 bits");
}

std::optional<ProtoField> ProtoReader::next() {
  if (rest_.empty()) return std::nullopt;
  const std::uint64_t key = varint(), type = key & 7;
  if (key >> 3 == 0 || key >> 3 > kMostFields)
    throw DataError(fmt::format("a field has the number {}; expected 1 to {}", key >> 3, kMostFields));
  ProtoField field{.number = static_cast<std::uint32_t>(key >> 3), .type = static_cast<ProtoField::Type>(type)};
  std::uint64_t length = 0;
  if (type == 0) {
    field.bits = varint();
    return field;
  }
  if (type == 1 || type == 5)
    length = type == 1 ? 8 : 4;
  else if (type == 2)
    length = varint();
  else
    throw DataError(fmt::format("field {} has the wire type {}; expected 0, 1, 2 or 5", field.number, type));
  if (length > rest_.size())
    throw DataError(fmt::format("field {} has {} bytes, and {} are left", field.number, length, rest_.size()));
  field.bytes = rest_.substr(0, length);
  rest_.remove_prefix(length);
  if (type == 1) field.bits = fixed_bits<std::uint64_t>(field.bytes);
  if (type == 5) field.bits = fixed_bits<std::uint32_t>(field.bytes);
  return field;
}

}  // namespace bantam

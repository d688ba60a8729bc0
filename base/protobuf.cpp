// ProtoWriter: fields of a message as bytes.
#include "bantam/base/protobuf.h"

#include <bit>
#include <limits>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

static_assert(std::endian::native == std::endian::little, "fixed fields are little-endian and copied");

std::uint64_t key(std::uint32_t field, ProtoField::Type type) {
  return std::uint64_t{field} << 3 | static_cast<std::uint64_t>(type);
}

template <class T>
std::string_view bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// Appends the seven low bits at a time, the last byte without the highest bit.
void append_varint(std::string& text, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text += static_cast<char>((value & 0x7f) | 0x80);
  text += static_cast<char>(value);
}

}  // namespace

void ProtoWriter::varint(std::uint64_t value) { append_varint(bytes_, value); }

void ProtoWriter::integer(std::uint32_t field, std::int64_t value) {
  varint(key(field, ProtoField::Type::varint));
  varint(static_cast<std::uint64_t>(value));
}

void ProtoWriter::number(std::uint32_t field, float value) {
  varint(key(field, ProtoField::Type::fixed32));
  bytes_ += bytes_of(std::span<const float>(&value, 1));
}

void ProtoWriter::number(std::uint32_t field, double value) {
  varint(key(field, ProtoField::Type::fixed64));
  bytes_ += bytes_of(std::span<const double>(&value, 1));
}

void ProtoWriter::bytes(std::uint32_t field, std::string_view value) {
  if (value.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw Error(fmt::format("a field of Protocol Buffers has at most {} bytes, got {}",
                            std::numeric_limits<std::int32_t>::max(), value.size()));
  varint(key(field, ProtoField::Type::bytes));
  varint(value.size());
  bytes_ += value;
}

void ProtoWriter::integers(std::uint32_t field, std::span<const std::int64_t> values) {
  if (values.empty()) return;
  std::string packed;
  for (const std::int64_t value : values) append_varint(packed, static_cast<std::uint64_t>(value));
  bytes(field, packed);
}

void ProtoWriter::numbers(std::uint32_t field, std::span<const float> values) {
  if (!values.empty()) bytes(field, bytes_of(values));
}

void ProtoWriter::numbers(std::uint32_t field, std::span<const double> values) {
  if (!values.empty()) bytes(field, bytes_of(values));
}

}  // namespace bantam

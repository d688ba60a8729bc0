// Protocol Buffers' wire format: messages as fields of a number and a value, without schemas and generated code. Enough
// for ONNX models and TensorBoard's events. Source: the public description of the encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// Appends fields to a message's bytes, in the order of the calls.
class ProtoWriter {
 public:
  /// int32, int64, uint64, bool and enum fields; a negative number has ten bytes, as the format wants it.
  void integer(std::uint32_t field, std::int64_t value);
  void number(std::uint32_t field, float value);   ///< fixed 32 bits
  void number(std::uint32_t field, double value);  ///< fixed 64 bits
  /// string, bytes and embedded messages. Throws Error for more than 2^31 - 1 bytes, which readers refuse.
  void bytes(std::uint32_t field, std::string_view value);
  void message(std::uint32_t field, const ProtoWriter& value) { bytes(field, value.text()); }
  /// Packed repeated int64; nothing is written of an empty one.
  void integers(std::uint32_t field, std::span<const std::int64_t> values);
  void numbers(std::uint32_t field, std::span<const float> values);   ///< packed floats
  void numbers(std::uint32_t field, std::span<const double> values);  ///< packed doubles

  const std::string& text() const { return bytes_; }

 private:
  void varint(std::uint64_t value);
  std::string bytes_;
};

/// One field of a message that is read.
struct ProtoField {
  enum class Type : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  std::uint32_t number = 0;
  Type type = Type::varint;
  std::uint64_t bits = 0;  ///< varint, fixed64, fixed32
  std::string_view bytes;  ///< Type::bytes: within the message

  /// Each throws DataError where the field has another type. `as_` values of fixed bits and of varints.
  std::int64_t as_integer() const;
  float as_float() const;
  double as_double() const;
  std::string_view as_bytes() const;
};

/// Reads a message's fields one after the other. Nothing is copied or allocated: a damaged message ends with an error,
/// whatever lengths it claims.
class ProtoReader {
 public:
  /// `message` must outlive the reader and what it returns.
  explicit ProtoReader(std::string_view message) : rest_(message) {}
  /// The next field; nothing at the end. Throws DataError saying what is wrong (a length beyond the end, groups, a
  /// number of more than ten bytes, field 0).
  std::optional<ProtoField> next();

 private:
  std::uint64_t varint();
  std::string_view rest_;
};

}  // namespace bantam

// The wire format's reader: what the writer writes, the encoding's own examples, and messages that are damaged.
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/base/protobuf.h"

namespace bantam::protobuf_reader_test {
namespace {

using namespace std::string_literals;

std::string error_of(const std::string& message) {
  try {
    ProtoReader reader(message);
    while (reader.next()) {
    }
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(ProtoReader, ReadsWhatTheWriterWrites) {
  ProtoWriter inner, writer;
  inner.integer(1, 150);
  writer.integer(1, -1);
  writer.integer(3, std::numeric_limits<std::int64_t>::min());
  writer.number(2, 1.5f);
  writer.number(4, -2.25);
  writer.bytes(5, "testing");
  writer.message((1u << 29) - 1, inner);
  ProtoReader reader(writer.text());
  EXPECT_EQ(reader.next()->as_integer(), -1);
  EXPECT_EQ(reader.next()->as_integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reader.next()->as_float(), 1.5f);
  EXPECT_EQ(reader.next()->as_double(), -2.25);
  EXPECT_EQ(reader.next()->as_bytes(), "testing");
  const auto message = reader.next();
  EXPECT_EQ(message->number, (1u << 29) - 1);
  EXPECT_EQ(ProtoReader(message->as_bytes()).next()->as_integer(), 150);
  EXPECT_FALSE(reader.next());
  EXPECT_FALSE(ProtoReader("").next());
}

TEST(ProtoReader, RefusesDamagedMessages) {
  EXPECT_EQ(error_of("\x08"s), "the message ends within a number");
  EXPECT_EQ(error_of("\x08\x80"s), "the message ends within a number");
  EXPECT_EQ(error_of("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"s), "a number has more than 64 bits");
  EXPECT_EQ(error_of("\x12\x05"s + "four"), "field 2 has 5 bytes, and 4 are left");
  EXPECT_EQ(error_of("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s),
            "field 2 has 18446744073709551615 bytes, and 0 are left");
  EXPECT_EQ(error_of("\x15\x00\x00"s), "field 2 has 4 bytes, and 2 are left");
  EXPECT_EQ(error_of("\x11\x00"s), "field 2 has 8 bytes, and 1 are left");
  EXPECT_EQ(error_of("\x0b"s), "field 1 has the wire type 3; expected 0, 1, 2 or 5");
  EXPECT_EQ(error_of("\x00"s), "a field has the number 0; expected 1 to 536870911");
  EXPECT_EQ(error_of("\xff\xff\xff\xff\xff\x01"s), "a field has the number 8589934591; expected 1 to 536870911");
}

TEST(ProtoReader, RefusesValuesOfOtherTypes) {
  const auto error = [](auto&& read) -> std::string {
    try {
      read();
    } catch (const DataError& caught) {
      return caught.what();
    }
    return "";
  };
  const ProtoField number = *ProtoReader("\x08\x01"s).next();
  const std::string text = "\x12\x01x"s;
  const ProtoField bytes = *ProtoReader(text).next();
  EXPECT_EQ(error([&] { (void)number.as_float(); }), "field 1 is a varint; expected a float, 32 bits");
  EXPECT_EQ(error([&] { (void)number.as_double(); }), "field 1 is a varint; expected a double, 64 bits");
  EXPECT_EQ(error([&] { (void)number.as_bytes(); }), "field 1 is a varint; expected bytes");
  EXPECT_EQ(error([&] { (void)bytes.as_integer(); }), "field 2 is bytes; expected an integer");
}

}  // namespace
}  // namespace bantam::protobuf_reader_test

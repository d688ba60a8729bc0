// The wire format's writer: the encoding's own examples, and values by hand.
#include "bantam/base/protobuf.h"

#include <limits>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::protobuf_test {
namespace {

using namespace std::string_literals;

/// The bytes of what `write` writes.
template <class Write>
std::string written(const Write& write) {
  ProtoWriter proto;
  write(proto);
  return proto.text();
}

// Examples of the encoding's public description: field 1 with 150, field 2 with "testing", a message in field 3, and
// packed values in field 6.
TEST(ProtoWriter, WritesTheExamplesOfTheDescription) {
  ProtoWriter inner;
  inner.integer(1, 150);
  EXPECT_EQ(inner.text(), "\x08\x96\x01");
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.bytes(2, "testing"); }), "\x12\x07testing");
  EXPECT_EQ(written([&](ProtoWriter& proto) { proto.message(3, inner); }), "\x1a\x03\x08\x96\x01");
  constexpr std::int64_t kValues[] = {3, 270, 86942};
  EXPECT_EQ(written([&](ProtoWriter& proto) { proto.integers(6, kValues); }), "\x32\x06\x03\x8e\x02\x9e\xa7\x05");
}

TEST(ProtoWriter, NegativeNumbersHaveTenBytes) {
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.integer(1, -1); }), "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.integer(1, std::numeric_limits<std::int64_t>::min()); }),
            "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01");
}

TEST(ProtoWriter, KeysOfLargeFieldsHaveSeveralBytes) {
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.integer(16, 0); }), "\x80\x01\x00"s);
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.integer((1u << 29) - 1, 1); }), "\xf8\xff\xff\xff\x0f\x01");
}

TEST(ProtoWriter, FixedNumbersAreLittleEndian) {
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.number(2, 1.5f); }), "\x15\x00\x00\xc0\x3f"s);
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.number(2, 1.5); }), "\x11\x00\x00\x00\x00\x00\x00\xf8\x3f"s);
  constexpr float kFloats[] = {1.5f, -2.0f};
  EXPECT_EQ(written([&](ProtoWriter& proto) { proto.numbers(7, std::span<const float>(kFloats)); }),
            "\x3a\x08\x00\x00\xc0\x3f\x00\x00\x00\xc0"s);
  constexpr double kDoubles[] = {1.5};
  EXPECT_EQ(written([&](ProtoWriter& proto) { proto.numbers(7, std::span<const double>(kDoubles)); }),
            "\x3a\x08\x00\x00\x00\x00\x00\x00\xf8\x3f"s);
}

TEST(ProtoWriter, EmptyTextIsWrittenAndEmptyListsAreNot) {
  EXPECT_EQ(written([](ProtoWriter& proto) { proto.bytes(2, ""); }), "\x12\x00"s);
  EXPECT_EQ(written([](ProtoWriter& proto) {
              proto.integers(1, {});
              proto.numbers(2, std::span<const float>());
              proto.numbers(3, std::span<const double>());
            }),
            "");
}

TEST(ProtoWriter, RefusesWhatReadersRefuse) {
  const std::size_t bytes = std::size_t{1} << 31;
  const auto memory = std::make_unique_for_overwrite<char[]>(bytes);  // pages that are not touched do not exist
  ProtoWriter proto;
  try {
    proto.bytes(1, {memory.get(), bytes});
    FAIL() << "2^31 bytes were written";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "a field of Protocol Buffers has at most 2147483647 bytes, got 2147483648");
  }
  EXPECT_EQ(proto.text(), "");
}

}  // namespace
}  // namespace bantam::protobuf_test

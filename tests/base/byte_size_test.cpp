// Byte sizes: every unit, exact fractions, overflow, and messages that name the text and the units.
#include "bantam/base/byte_size.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::byte_size_test {
namespace {

std::string message_of(std::string_view text) {
  try {
    const std::uint64_t value = parse_byte_size(text);
    return "accepted as " + std::to_string(value);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(ParseByteSize, KnowsEveryUnit) {
  EXPECT_EQ(parse_byte_size("4096"), 4096u);
  EXPECT_EQ(parse_byte_size("17B"), 17u);
  EXPECT_EQ(parse_byte_size("3KiB"), 3072u);
  EXPECT_EQ(parse_byte_size("512 MiB"), 536870912u);
  EXPECT_EQ(parse_byte_size("4GiB"), 4294967296u);
  EXPECT_EQ(parse_byte_size("2TiB"), 2199023255552u);
  EXPECT_EQ(parse_byte_size("3kB"), 3000u);
  EXPECT_EQ(parse_byte_size("3MB"), 3000000u);
  EXPECT_EQ(parse_byte_size("3GB"), 3000000000u);
  EXPECT_EQ(parse_byte_size("3TB"), 3000000000000u);
  EXPECT_EQ(parse_byte_size("  12  MB "), 12000000u);
  EXPECT_EQ(parse_byte_size("0"), 0u);
}

TEST(ParseByteSize, ReadsFractionsExactlyAndRoundsDown) {
  EXPECT_EQ(parse_byte_size("1.5GB"), 1500000000u);
  EXPECT_EQ(parse_byte_size("0.5KiB"), 512u);
  EXPECT_EQ(parse_byte_size("1.10"
                            "GiB"),
            1181116006u);                     // 1181116006.4
  EXPECT_EQ(parse_byte_size("0.3kB"), 300u);  // 0.3 is not a binary fraction: doubles would risk 299
  EXPECT_EQ(parse_byte_size("4.0"), 4u);
  EXPECT_EQ(parse_byte_size("16777215.999999TiB"), 18446744073708452104u);  // past the 53 bits of a double
}

TEST(ParseByteSize, StopsAtSixtyFourBits) {
  EXPECT_EQ(parse_byte_size("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_byte_size("16777215TiB"), 18446742974197923840u);
  EXPECT_EQ(message_of("18446744073709551616"),
            "'18446744073709551616' is not a byte size: it is more than 64 bits can count");
  EXPECT_EQ(message_of("16777216TiB"), "'16777216TiB' is not a byte size: it is more than 64 bits can count");
  EXPECT_EQ(message_of("99999999999999999999999999999999999999999999GB"),
            "'99999999999999999999999999999999999999999999GB' is not a byte size: it is more than 64 bits can count");
}

TEST(ParseByteSize, SaysWhatIsWrong) {
  EXPECT_EQ(message_of("-1GiB"), "'-1GiB' is not a byte size: it is negative");
  EXPECT_EQ(message_of("1.5"), "'1.5' is not a byte size: a byte has no fractions");
  EXPECT_EQ(message_of("1.5B"), "'1.5B' is not a byte size: a byte has no fractions");
  EXPECT_EQ(message_of("0.0001KiB"), "'0.0001KiB' is not a byte size: it is less than one byte");
  EXPECT_EQ(message_of("1.GiB"), "'1.GiB' is not a byte size: digits must follow the point");
  EXPECT_EQ(
      message_of(""),
      "'' is not a byte size: expected a number, then B, KiB, MiB, GiB, TiB, kB, MB, GB or TB (or no unit, for bytes)");
  EXPECT_EQ(message_of("GiB"),
            "'GiB' is not a byte size: expected a number, then B, KiB, MiB, GiB, TiB, kB, MB, GB or TB (or no unit, "
            "for bytes)");
  EXPECT_EQ(message_of("4gb"),
            "'4gb' is not a byte size: unknown unit 'gb'; expected B, KiB, MiB, GiB, TiB, kB, MB, GB or TB (did you "
            "mean 'GB'?)");
  EXPECT_EQ(message_of("4 parsecs"),
            "'4 parsecs' is not a byte size: unknown unit 'parsecs'; expected B, KiB, MiB, GiB, TiB, kB, MB, GB or TB");
  EXPECT_EQ(message_of("1e9"),
            "'1e9' is not a byte size: unknown unit 'e9'; expected B, KiB, MiB, GiB, TiB, kB, MB, GB or TB");
}

TEST(FormatByteSize, ShowsThreeDigits) {
  EXPECT_EQ(format_byte_size(0), "0 B");
  EXPECT_EQ(format_byte_size(17), "17 B");
  EXPECT_EQ(format_byte_size(1023), "1023 B");
  EXPECT_EQ(format_byte_size(1024), "1.00 KiB");
  EXPECT_EQ(format_byte_size(1610612736), "1.50 GiB");
  EXPECT_EQ(format_byte_size(12'900), "12.6 KiB");
  EXPECT_EQ(format_byte_size(695493 * 4), "2.65 MiB");
  EXPECT_EQ(format_byte_size(500ULL << 20), "500 MiB");
  EXPECT_EQ(format_byte_size((1ULL << 20) - 1), "1.00 MiB");  // not "1024 KiB"
  EXPECT_EQ(format_byte_size(10235), "10.0 KiB");             // 9.995: not "9.99" nor "10.00"
  EXPECT_EQ(format_byte_size(UINT64_MAX), "16.0 EiB");
}

}  // namespace
}  // namespace bantam::byte_size_test

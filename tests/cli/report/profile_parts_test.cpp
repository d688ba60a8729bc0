// What a profile is made of: addresses put in a row, and pickled values.
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/cli/report/pickle.h"
#include "bantam/cli/report/profile_run.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::string_literals;

TEST(AddressRow, PutsRangesInTheOrderOfTheirFirstUse) {
  const std::vector<MemoryRegion> regions = {{0x1000, 0x1000}, {0x9000, 0x2000}, {0xf000, 0x1000}};
  const std::vector<TraceEvent> events = {{.address = 0x9100, .bytes = 0x100},
                                          {.address = 0x5100, .bytes = 0x100},  // in no region: given back since
                                          {.address = 0x1000, .bytes = 0x100},
                                          {.address = 0x5200, .bytes = 0x300}};
  const AddressRow row(regions, events);
  ASSERT_EQ(row.ranges().size(), 4u);
  EXPECT_EQ(row.ranges()[0].address, 0x9000u);
  EXPECT_EQ(row.ranges()[1].address, 0x5100u);
  EXPECT_EQ(row.ranges()[1].bytes, 0x400u) << "neighbours are one range";
  EXPECT_FALSE(row.ranges()[1].held);
  EXPECT_EQ(row.ranges()[2].address, 0x1000u);
  EXPECT_EQ(row.ranges()[3].address, 0xf000u) << "never used: last";
  EXPECT_EQ(row.offset(0x9100), 0x100u);
  EXPECT_EQ(row.offset(0x5200), 0x2100u);
  EXPECT_EQ(row.offset(0x1000), 0x2400u);
  EXPECT_EQ(row.offset(0xffff), 0x3400u + 0xfff);
  EXPECT_THROW((void)row.offset(0x3000), Error);
  EXPECT_THROW((void)row.offset(0x10), Error);
}

TEST(Pickle, WritesWhatPythonReads) {
  const auto body = [](const Json& value) {
    const std::string bytes = pickle(value);
    EXPECT_EQ(bytes.substr(0, 2), "\x80\x04"s);
    EXPECT_EQ(bytes.back(), '.');
    return bytes.substr(2, bytes.size() - 3);
  };
  EXPECT_EQ(body(nullptr), "N");
  EXPECT_EQ(body(true), "\x88");
  EXPECT_EQ(body(0), "K\0"s);
  EXPECT_EQ(body(255), "K\xff");
  EXPECT_EQ(body(256), "M\0\x01"s);
  EXPECT_EQ(body(65536), "J\0\0\x01\0"s);
  EXPECT_EQ(body(2147483647), "J\xff\xff\xff\x7f");
  EXPECT_EQ(body(2147483648u), "\x8a\x08\0\0\0\x80\0\0\0\0"s);
  EXPECT_EQ(body(-1), "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff");
  EXPECT_EQ(body(~std::uint64_t{0}), "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0"s) << "not minus one";
  EXPECT_EQ(body(1.0), "G\x3f\xf0\0\0\0\0\0\0"s);
  EXPECT_EQ(body(Json::array({"ab", "ab"})),
            "]\x8c\x02"
            "ab\x94"
            "ah\0a"s)
      << "written once, then recalled";
  EXPECT_EQ(body(Json{{"k", 1}}), "}\x8c\x01k\x94K\x01s");
  EXPECT_EQ(body(std::string(256, 'x')), "X\0\x01\0\0"s + std::string(256, 'x') + "\x94");
}

TEST(Pickle, RecallsMoreThan256Strings) {
  Json names = Json::array();
  for (int i = 0; i < 300; ++i) names.push_back("name" + std::to_string(i));
  names.push_back("name299");
  const std::string bytes = pickle(names);
  EXPECT_EQ(bytes.substr(bytes.size() - 7), "j\x2b\x01\0\0a."s);
}

}  // namespace
}  // namespace bantam::cli

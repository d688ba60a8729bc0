// Pickled values, as Python reads them.
#include <gtest/gtest.h>

#include "bantam/cli/profile/pickle.h"

namespace bantam::cli::profile_parts_test {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::string_literals;

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
}  // namespace bantam::cli::profile_parts_test

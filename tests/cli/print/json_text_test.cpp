// JSON for files and standard output, from any bytes.
#include "bantam/cli/print/json_text.h"

#include <gtest/gtest.h>

namespace bantam::cli {
namespace {

TEST(JsonText, IsOneLineInOrder) {
  const nlohmann::ordered_json json = {{"b", 1}, {"a", {1, 2}}};
  EXPECT_EQ(json_text(json), R"({"b":1,"a":[1,2]})");
  EXPECT_EQ(json_text({{"b", 1}}, 2), "{\n  \"b\": 1\n}");
}

TEST(JsonText, ReplacesWhatIsNoText) {
  EXPECT_EQ(json_text({{"name", "a\xff\nb"}}), "{\"name\":\"a\xEF\xBF\xBD\\nb\"}");
}

}  // namespace
}  // namespace bantam::cli

// JSON without allocations in its destructor, and as it is printed.
#include "bantam/base/json.h"

#include <gtest/gtest.h>

#include "tests/public/counted_new.h"

namespace bantam::json_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::new_counters;

/// A tree of lists, objects and texts that are too long for a string's own room: a function of the seed.
Json random_tree(int depth, unsigned& seed) {
  seed = seed * 1664525u + 1013904223u;
  const unsigned kind = (seed >> 20) % 6;
  if (depth == 0 || kind < 2) return kind == 0 ? Json(3) : Json("a text that is longer than a string's own room");
  Json tree = kind < 4 ? Json::array() : Json::object();
  for (unsigned i = 0; i < kind; ++i)
    if (tree.is_array())
      tree.push_back(random_tree(depth - 1, seed));
    else
      tree["key " + std::to_string(i)] = random_tree(depth - 1, seed);
  return tree;
}

TEST(JsonTest, IsDestroyedWithoutAnAllocation) {
  unsigned seed = 1;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t live = new_counters().live;
    auto tree = std::make_unique<Json>(random_tree(6, seed));
    const std::int64_t calls = new_counters().calls;
    tree.reset();
    ASSERT_EQ(new_counters().calls, calls) << "tree " << i;
    ASSERT_EQ(new_counters().live, live) << "tree " << i << ": not all was freed";
  }
}

TEST(JsonTest, IsDestroyedHoweverDeep) {
  constexpr std::size_t kDepth = 200'000;  // a call each would need more than the stack has
  std::string objects;
  for (std::size_t i = 0; i < kDepth; ++i) objects += R"({"a":[1,2],"b":)";
  const std::int64_t live = new_counters().live;
  { const Json lists = Json::parse(std::string(kDepth, '[') + std::string(kDepth, ']')); }
  { const Json tree = Json::parse(objects + "1" + std::string(kDepth, '}')); }
  EXPECT_EQ(new_counters().live, live);
}

TEST(JsonTest, TextSaysTheSameWithoutWhatATerminalObeys) {
  const Json json = {{"name",
                      "\x1b[31m\x7f\xC2\x9B\xE2\x80\xAE"
                      "größe 名 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x94\xAC"}};
  const std::string text = json_text(json);
  EXPECT_EQ(text, "{\"name\":\"\\u001b[31m\\u007f\\u009b\\u202egröße 名 👩‍🔬\"}");
  EXPECT_EQ(Json::parse(text), json);
  EXPECT_EQ(json_text({{"a", 1}, {"b", {1, 2}}}), R"({"a":1,"b":[1,2]})");
  EXPECT_EQ(json_text({{"b", 1}}, 2), "{\n  \"b\": 1\n}");
  EXPECT_EQ(json_text({{"replaced", "\xEF\xBF\xBD"}}), "{\"replaced\":\"\xEF\xBF\xBD\"}") << "U+FFFD is a character";
}

TEST(JsonTest, NamesThatAreNoUtf8KeepTheirBytes) {
  EXPECT_EQ(json_text({{"path", "a\xFF.png"}, {"n", 1}}), R"({"path":"a\\xff.png","path_bytes":"Yf8ucG5n","n":1})");
  EXPECT_EQ(json_text({{"files", {"a", "\x80"}}}), R"({"files":["a","\\x80"],"files_bytes":[null,"gA=="]})");
  EXPECT_EQ(json_text({{"pixels", {{"caf\xE9", 3}, {"sky", 1}}}}),
            R"({"pixels":{"caf\\xe9":3,"sky":1},"pixels_bytes":{"caf\\xe9":"Y2Fm6Q=="}})");
  EXPECT_EQ(json_text({{"inner", {{"file", "\xC3"}}}}), R"({"inner":{"file":"\\xc3","file_bytes":"ww=="}})");
  const Json twice = Json::parse(json_text({{"k", {{"\\xff", 1}, {"\xFF", 2}}}}));
  EXPECT_EQ(twice["k"].size(), 2u) << "no value is lost where an escape is another's name";
}

}  // namespace
}  // namespace bantam::json_test

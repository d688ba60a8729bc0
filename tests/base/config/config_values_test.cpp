// Values by path: what two documents that mean the same have in common.
#include <gtest/gtest.h>

#include "bantam/base/config/config.h"

namespace bantam::config_values_test {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

Values values_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return ConfigDocument::parse(yaml, "v.yaml", overrides).values();
}

TEST(ConfigValues, StandUnderTheirPathsInTheirOrder) {
  EXPECT_EQ(values_of("b: 1\na:\n  list: [x, {y: 2}]\n  text: 'two words'\n"),
            (Values{{"b", "1"}, {"a.list.0", "x"}, {"a.list.1.y", "2"}, {"a.text", "two words"}}));
}

TEST(ConfigValues, EmptyMapsAndListsAreValues) {
  EXPECT_EQ(values_of("a: {}\nb: []\nc: {d: {}}\n"), (Values{{"a", "{}"}, {"b", "[]"}, {"c.d", "{}"}}));
}

TEST(ConfigValues, SpellingsAreOne) {
  const Values flow = values_of("a: {b: [1, 2], c: x}");
  EXPECT_EQ(flow, values_of("a:\n  b:\n    - 1\n    - 2\n  c: 'x'  # why\n"));
  EXPECT_EQ(flow, values_of("a: {b: [1, 3], c: x}", {"a.b.1=2"})) << "overrides count";
}

TEST(ConfigValues, NumbersHaveOneSpelling) {
  EXPECT_EQ(
      values_of("a: [5.0e-2, 0.05, +16, 16.0, 1.0e-3, -0.5]"),
      (Values{{"a.0", "0.05"}, {"a.1", "0.05"}, {"a.2", "16"}, {"a.3", "16"}, {"a.4", "0.001"}, {"a.5", "-0.5"}}));
  EXPECT_EQ(values_of("a: ['16.0', 9007199254740993, 1h]"),
            (Values{{"a.0", "16.0"}, {"a.1", "9007199254740993"}, {"a.2", "1h"}}))
      << "text and what float64 does not hold stay as they are";
}

TEST(ConfigValues, APlainNameIsANameWithoutOptions) {
  const auto read = [](const std::string& yaml) {
    const ConfigDocument document = ConfigDocument::parse(yaml, "v.yaml");
    for (const ConfigNode& item : document.map().list("layers")) (void)item.as_named();
    return document.values();
  };
  EXPECT_EQ(read("layers: [relu, flatten]"), read("layers:\n  - relu: {}\n  - flatten:\n"));
  EXPECT_NE(read("layers: [relu, flatten]"), read("layers: [tanh, flatten]"));
}

TEST(ConfigValues, DefaultsThatWereReadCount) {
  const ConfigDocument document = ConfigDocument::parse("a: {b: 1}", "v.yaml");
  ConfigMap map = document.map();
  ConfigMap inner = map.map("a");
  (void)inner.integer("b", {});
  (void)inner.integer("c", {}, 7);
  EXPECT_EQ(document.values(), (Values{{"a.b", "1"}, {"a.c", "7"}}));
}

TEST(ConfigValues, ADefaultMayBeAList) {
  const ConfigDocument document = ConfigDocument::parse("a: {}", "v.yaml");
  ConfigMap map = document.map().map("a");
  const ConfigNode list = map.node({"list"}, std::vector<std::string>{"1epoch", "10min"});
  EXPECT_EQ(list.items().at(1).as_duration(), Duration::seconds(600));
  EXPECT_TRUE(map.node({"word"}, "off").is_text("off"));
  EXPECT_EQ(document.values(), (Values{{"a.list.0", "1epoch"}, {"a.list.1", "10min"}, {"a.word", "off"}}));
  EXPECT_EQ(ConfigDocument::parse(document.resolved_yaml(), "again.yaml").values(), document.values());
}

}  // namespace
}  // namespace bantam::config_values_test

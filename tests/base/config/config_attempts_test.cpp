// Complete checks: what readers go on after, and what they do not.
#include "bantam/base/config/config_attempts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/cpu_seconds.h"

namespace bantam::config_attempts_test {
namespace {

constexpr const char* kText = "size: many\nlist:\n  - a: 1\n  - b: two\n  - c: three\nmore: 1\nname: x\n";

/// Reads all of kText; `list` has three entries with a whole number each.
std::int64_t read(const ConfigDocument& document) {
  ConfigMap map = document.map();
  const std::int64_t size = map.integer("size", {.min = 1}, 7);
  ConfigAttempts attempt(map);
  for (const ConfigNode& item : map.list("list"))
    attempt([&] { (void)item.as_named().options.as_integer({.min = 1}); });
  (void)map.text("name");
  map.finish();
  attempt.finish();
  return size;
}

std::string head(const std::string& message) { return message.substr(0, message.find('\n')); }

TEST(ConfigAttempts, ThrowTheFirstErrorWhereNoneAreCollected) {
  const ConfigDocument document = ConfigDocument::parse(kText, "x.yaml");
  try {
    (void)read(document);
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_EQ(head(error.what()), "x.yaml:1:7: error: size: expected an integer ≥ 1, got 'many'");
  }
  EXPECT_TRUE(collected_errors(document).empty());
}

TEST(ConfigAttempts, CollectAllErrorsInTheOrderOfTheText) {
  const ConfigDocument document = ConfigDocument::parse(kText, "x.yaml");
  collect_errors(document);
  EXPECT_THROW((void)read(document), ConfigError) << "the list's entries are needed";
  EXPECT_THROW((void)read(document), ConfigError) << "again: the same errors";
  std::vector<std::string> places;
  for (const std::string& error : collected_errors(document)) places.push_back(error.substr(0, error.find(": error")));
  EXPECT_EQ(places, (std::vector<std::string>{"x.yaml:1:7", "x.yaml:4:8", "x.yaml:5:8", "x.yaml:6:1"}));
}

TEST(ConfigAttempts, AWrongValueCountsAsItsDefault) {
  const ConfigDocument document = ConfigDocument::parse("size: 0\nlist: []\nname: x\n", "x.yaml");
  collect_errors(document);
  EXPECT_EQ(read(document), 7);
  EXPECT_EQ(collected_errors(document).size(), 1u);
}

TEST(ConfigAttempts, OtherErrorsPassThrough) {
  const ConfigDocument document = ConfigDocument::parse("name: x\n", "x.yaml");
  collect_errors(document);
  ConfigAttempts attempt(document.root());
  EXPECT_THROW(attempt([] { throw DataError("a file"); }), DataError);
  EXPECT_FALSE(attempt.failed());
}

/// Unknown keys, near ones and others, and wrong entries of a list: the first errors are messages, all others a number.
TEST(ConfigAttempts, AfterFiftyErrorsTheOthersAreCounted) {
  constexpr int kKeys = 40'000;
  std::string keys, inner, list = "[";
  for (int i = 0; i < kKeys; ++i) {
    keys += fmt::format("{}{}: 1\n", i % 2 == 0 ? "naem" : "zzzzzzzzzz", i);
    inner += fmt::format("k{}: 1, ", i);
    list += "x, ";
  }
  const ConfigDocument document =
      ConfigDocument::parse(fmt::format("size: 1\nlist: {}]\nname: x\n{}map: {{{}}}\n", list, keys, inner), "x.yaml");
  collect_errors(document);
  const double seconds = testing::cpu_seconds([&] {
    ConfigMap map = document.map();
    ConfigAttempts attempt(map);
    for (const ConfigNode& item : map.list("list")) attempt([&] { (void)item.as_integer({.min = 1}); });
    for (const ConfigNode& item : map.list("list")) attempt([&] { (void)item.as_integer({.min = 1}); });
    (void)map.integer("size", {});
    (void)map.text("name");
    map.map("map").finish();
    map.finish();
  });
  EXPECT_EQ(collected_errors(document).size(), 50u);
  EXPECT_EQ(further_errors(document), 3u * kKeys - 50u) << "each once";
  EXPECT_LT(seconds, 6) << "it was a minute: advice, and places in a line of 120 KB, for each";
}

}  // namespace
}  // namespace bantam::config_attempts_test

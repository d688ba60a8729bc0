// Configurations at their cap: what is larger is refused, and none takes more than seconds to read.
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"
#include "tests/cpu_seconds.h"

namespace bantam::config_limits_test {
namespace {

using bantam::testing::cpu_seconds;

constexpr std::size_t kMostBytes = 4'000'000;

/// As many numbered lines as there is room for.
std::string lines_up_to(std::size_t bytes, const std::string& begin, const std::string& end) {
  std::string text;
  text.reserve(bytes);
  for (int i = 0;; ++i) {
    const std::string line = fmt::format("{}{}{}", begin, i, end);
    if (text.size() + line.size() > bytes) return text;
    text += line;
  }
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ConfigLimits, FiftyThousandKeysAreReadInSeconds) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += fmt::format("key_number_{}: {}\n", i, i);
  const double seconds = cpu_seconds([&] {
    const auto document = ConfigDocument::parse(text, "t.yaml");
    EXPECT_EQ(document.map().integer("key_number_49999", {}), 49'999);
    EXPECT_NE(error_of([&] { document.map().finish(); }).find("unknown key 'key_number_0'"), std::string::npos);
  });
  EXPECT_LT(seconds, 2.5);
}

TEST(ConfigLimits, FilesAtTheCapAreReadInSeconds) {
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"keys", lines_up_to(kMostBytes, "k", ":\n")},
      {"one list", "a:\n" + lines_up_to(kMostBytes - 3, "- ", "\n")},
      {"a list in brackets", "a: [" + lines_up_to(kMostBytes - 5, "", ",") + "]"},
      {"a map in braces", "a: {" + lines_up_to(kMostBytes - 5, "k", ": 1,") + "}"},
      {"small maps", "a:\n" + lines_up_to(kMostBytes - 3, "- {b: ", "}\n")},
      {"one text", "a: " + std::string(kMostBytes - 4, 'x') + "\n"},
      {"one key", std::string(kMostBytes - 4, 'x') + ": 1\n"},
      {"one quoted text", "a: \"" + std::string(kMostBytes - 6, 'x') + "\"\n"},
      {"spaces", "a: 1\n" + std::string(kMostBytes - 6, ' ') + "\n"},
      {"comments", lines_up_to(kMostBytes, "# ", "\n")},
      {"open brackets", "a: " + std::string(kMostBytes - 3, '[')},
      {"dashes", "a: " + lines_up_to(kMostBytes - 3, "- ", " ")},
      {"question marks", std::string(kMostBytes, '?')},
      {"colons", "a" + std::string(kMostBytes - 1, ':')},
  };
  for (const auto& [name, content] : texts) {
    const std::string& text = content;  // clang 14 captures no structured binding
    ASSERT_LE(text.size(), kMostBytes) << name;
    std::string error;
    const double seconds = cpu_seconds([&] {
      error = error_of([&] {
        ConfigMap map = ConfigDocument::parse(text, "t.yaml").map();
        map.node("a");
        map.finish();
      });
    });
    EXPECT_LT(seconds, 10) << name;  // of a processor: five on a slow machine
    EXPECT_LT(error.size(), 3000u) << name << ": a message repeats what is too long to read";
  }
}

TEST(ConfigLimits, WhatIsLargerIsRefused) {
  const std::string most = "a: " + std::string(kMostBytes - 4, 'x') + "\n";
  EXPECT_EQ(ConfigDocument::parse(most, "t.yaml").map().text("a").size(), kMostBytes - 4);
  EXPECT_EQ(error_of([&] { (void)ConfigDocument::parse(most + "\n", "t.yaml"); }),
            "t.yaml: error: a configuration has at most 4,000,000 bytes, got 4,000,001");
  EXPECT_EQ(error_of([&] { (void)ConfigDocument::load("/dev/zero"); }),
            "cannot read /dev/zero: it is a device; expected a file or a pipe");
}

TEST(ConfigLimits, LongValuesAndKeysAreShortenedInMessages) {
  const std::string word(1'000'000, 'x'), key(900, 'x');  // the parser takes no longer ones for keys
  const auto refused = [&](const std::string& text, const auto& read) {
    const std::string error = error_of([&] {
      ConfigMap map = ConfigDocument::parse(text, "t.yaml").map();
      read(map);
      map.finish();
    });
    EXPECT_NE(error.find("xxxx…xxxx"), std::string::npos) << error.substr(0, 1000);
    EXPECT_LT(error.size(), 1000u);
  };
  refused("a: " + word, [](ConfigMap& map) { map.integer("a", {}); });
  refused("a: \"" + word + "\"", [](ConfigMap& map) { map.boolean("a"); });
  refused("a: " + word, [](ConfigMap& map) { map.choice("a", {"b", "c"}); });
  refused("a: " + word, [](ConfigMap& map) { map.byte_size("a"); });
  refused("a: 1" + word, [](ConfigMap& map) { map.byte_size("a"); });
  refused(key + ": 1", [](ConfigMap&) {});
  refused(key + ": 1\n" + key + ": 2", [](ConfigMap&) {});
  refused("a: {b:" + key + "}", [](ConfigMap&) {});
  refused("a: 1", [&](ConfigMap& map) { map.node("a").fail_unknown("layer", word, std::vector<std::string>{"relu"}); });
}

TEST(ConfigLimits, ControlCharactersOfNamesAreEscapedInMessages) {
  const auto error = [](const std::string& text) {
    return error_of([&] {
      ConfigMap map = ConfigDocument::parse(text, "t.yaml").map();
      map.integer("a", {});
      map.finish();
    });
  };
  EXPECT_EQ(error(R"(a: "\e[31mred\n")"),
            "t.yaml:1:4: error: a: expected an integer, got the text \"\\x1b[31mred\\n\"\n"
            "   a: \"\\e[31mred\\n\"\n"
            "      ^~~~~~~~~~~~~");
  EXPECT_EQ(error("\"b\\x9B\": 1\na: 1\n"),
            "t.yaml:1:1: error: unknown key 'b\\u009b'; valid keys: a\n   \"b\\x9B\": 1\n   ^~~~~~~");
  EXPECT_EQ(error("a: x\xC2\x9B"), "t.yaml:1:5: error: control character 0x9b; a configuration is plain text");
}

}  // namespace
}  // namespace bantam::config_limits_test

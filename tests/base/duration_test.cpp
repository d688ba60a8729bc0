// Durations: every spelling, there and back, and messages that name what is expected.
#include <gtest/gtest.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"

namespace bantam::duration_test {
namespace {

std::string message_of(const auto& call) {
  try {
    (void)call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ParseDuration, KnowsEveryUnit) {
  EXPECT_EQ(parse_duration("500"), Duration::updates(500));
  EXPECT_EQ(parse_duration("500updates"), Duration::updates(500));
  EXPECT_EQ(parse_duration("1update"), Duration::updates(1));
  EXPECT_EQ(parse_duration("2epochs"), Duration::epochs(2));
  EXPECT_EQ(parse_duration("1epoch"), Duration::epochs(1));
  EXPECT_EQ(parse_duration("30s"), Duration::seconds(30));
  EXPECT_EQ(parse_duration("10min"), Duration::seconds(600));
  EXPECT_EQ(parse_duration("1h"), Duration::seconds(3600));
  EXPECT_EQ(parse_duration("10 min"), Duration::seconds(600));
  EXPECT_EQ(parse_duration("0"), Duration::updates(0));
}

TEST(ParseDuration, RefusesWhatIsNone) {
  for (const char* text : {"", "-1", "+1", "1.5h", "epochs", "2 epochs ", "2  epochs", "1d", "1m", "010", "5Epochs",
                           "1e3", "999999999999999", "300000000000h", "99999999999999999999"})
    EXPECT_EQ(
        message_of([&] { return parse_duration(text); }),
        "expected a duration such as 500 or 500updates, 2epochs, 30s, 10min or 1h, got '" + std::string(text) + "'");
}

TEST(DurationText, IsReadAsTheSame) {
  for (const auto& [duration, text] : std::vector<std::pair<Duration, std::string>>{{Duration::updates(1), "1update"},
                                                                                    {Duration::updates(0), "0updates"},
                                                                                    {Duration::epochs(1), "1epoch"},
                                                                                    {Duration::epochs(12), "12epochs"},
                                                                                    {Duration::seconds(0), "0s"},
                                                                                    {Duration::seconds(90), "90s"},
                                                                                    {Duration::seconds(120), "2min"},
                                                                                    {Duration::seconds(7200), "2h"}}) {
    EXPECT_EQ(to_string(duration), text);
    EXPECT_EQ(parse_duration(text), duration);
  }
}

TEST(DurationSpellings, NameWhatIsAllowed) {
  EXPECT_EQ(duration_spellings(true, false, false), "500 or 500updates");
  EXPECT_EQ(duration_spellings(false, true, true), "2epochs, 30s, 10min or 1h");
  EXPECT_EQ(duration_spellings(true, true, false), "500 or 500updates, 2epochs");
}

Duration read(const std::string& yaml, DurationRange range = {}) {
  const auto document = ConfigDocument::parse(yaml, "t.yaml");
  ConfigMap map = document.map();
  return map.duration("every", range, Duration::updates(7));
}

TEST(ConfigDuration, ReadsValuesAndDefaults) {
  EXPECT_EQ(read("every: 500"), Duration::updates(500));
  EXPECT_EQ(read("every: 16.0"), Duration::updates(16)) << "as other integers";
  EXPECT_EQ(read("every: 2epochs"), Duration::epochs(2));
  EXPECT_EQ(read("every: \"10 min\""), Duration::seconds(600));
  EXPECT_EQ(read("other: 1"), Duration::updates(7));
}

TEST(ConfigDuration, SaysWhatIsExpected) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(message_of([] { return read("every: soon"); }),
      "t.yaml:1:8: error: every: expected a duration such as 500 or 500updates, 2epochs, 30s, 10min or 1h, got 'soon'");
  const DurationRange updates{.min = 1, .epochs = false, .seconds = false};
  has(message_of([&] { return read("every: 2epochs", updates); }),
      "every: expected a duration such as 500 or 500updates, got '2epochs'");
  has(message_of([&] { return read("every: 0", updates); }), "every: expected at least 1update, got 0");
  has(message_of([&] { return read("every: -3", updates); }), "every: expected at least 1update, got -3");
  has(message_of([&] { return read("every: [1]", updates); }), "got a list");
}

TEST(ConfigDuration, ADefaultIsWrittenDown) {
  const auto document = ConfigDocument::parse("a: 1", "t.yaml");
  ConfigMap map = document.map();
  (void)map.duration("every", {}, Duration::updates(7));
  (void)map.duration("keep", {}, Duration::seconds(600));
  EXPECT_EQ(document.resolved_yaml(), "a: 1\nevery: 7\nkeep: 10min\n");
}

}  // namespace
}  // namespace bantam::duration_test

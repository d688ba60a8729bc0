// Command-line text to values: lists, bytes, seconds, and overrides from flags.
#include "bantam/cli/options/options.h"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

namespace bantam::cli::options_test {
namespace {

/// The message of what `call` throws as ConfigError; "" where it throws nothing.
template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ParseIntegers, ReadsAList) {
  EXPECT_EQ(parse_integers("--batch-sizes", "16"), (std::vector<std::int64_t>{16}));
  EXPECT_EQ(parse_integers("--batch-sizes", "16,1,16777216"), (std::vector<std::int64_t>{16, 1, 16777216}));
}

TEST(ParseIntegers, RefusesWhatIsNoListOfWholePositiveNumbers) {
  for (const char* text : {"", ",", "16,", ",16", "16,,32", "0", "-1", "1.5", "16 ", " 16", "sixteen", "16777217",
                           "99999999999999999999", "+3", "0x10"}) {
    const std::string message = refusal([&] { (void)parse_integers("--batch-sizes", text); });
    EXPECT_EQ(message.rfind("--batch-sizes: expected ", 0), 0u) << "'" << text << "': " << message;
  }
}

TEST(ParseTexts, SplitsAtCommas) {
  EXPECT_EQ(parse_texts("--mode", "planned"), std::vector<std::string>{"planned"});
  EXPECT_EQ(parse_texts("--mode", "a,b+c,d"), (std::vector<std::string>{"a", "b+c", "d"}));
  for (const char* text : {"", ",", "a,", ",a", "a,,b"})
    EXPECT_NE(refusal([&] { (void)parse_texts("--mode", text); }), "") << text;
}

TEST(ParseBytes, ReadsUnitsAndNamesTheFlag) {
  EXPECT_EQ(parse_bytes("--memory", "4096"), 4096u);
  EXPECT_EQ(parse_bytes("--memory", "1.5KiB"), 1536u);
  EXPECT_EQ(parse_bytes("--memory", "2GiB"), std::uint64_t{2} << 30);
  for (const char* text : {"", "0", "0GiB", "-1", "two", "2Gib", "1.5B", "1e99GiB"})
    EXPECT_EQ(refusal([&] { (void)parse_bytes("--memory", text); }).rfind("--memory: ", 0), 0u) << text;
}

TEST(OfFlag, PutsTheFlagBeforeTheMessage) {
  EXPECT_EQ(of_flag("--x", [] { return 3; }), 3);
  EXPECT_EQ(refusal([] { of_flag("--x", [] { throw ConfigError("no good"); }); }), "--x: no good");
  EXPECT_EQ(refusal([] { of_flag("--x", [] { throw DeviceError("no such device"); }); }), "--x: no such device");
  EXPECT_THROW(of_flag("--x", [] { throw ShapeError("is not the flag's"); }), ShapeError);
}

TEST(PositiveSeconds, AreAboveNothingAndUpToADay) {
  const CLI::Validator check = positive_seconds();
  for (const char* text : {"0.001", "1", "86400"}) EXPECT_EQ(check(std::string(text)), "") << text;
  for (const char* text : {"0", "-1", "86401", "nan", "inf", "soon", ""})
    EXPECT_EQ(check(std::string(text)).rfind("expected seconds above 0 and up to 86400", 0), 0u) << text;
}

/// A command as a subcommand has it, after reading `words`.
CommonOptions parsed(std::vector<std::string> words) {
  CLI::App app;
  CommonOptions options;
  add_common_options(app, options);
  add_precision_flag(app, options);
  add_override_flag(app, options, "--epochs", "train.epochs", "Epochs");
  std::reverse(words.begin(), words.end());  // as the parser wants them
  app.parse(words);
  return options;
}

TEST(CommonOptions, FlagsBecomeOverridesAfterTypedOnes) {
  const CommonOptions options = parsed(
      {"--epochs", "3", "a.yaml", "train.epochs=5", "--device", "cpu", "data.path=x=y", "--precision", "float32"});
  EXPECT_EQ(options.config, "a.yaml");
  EXPECT_EQ(options.overrides, (std::vector<std::string>{"train.epochs=5", "data.path=x=y"}));
  EXPECT_EQ(all_overrides(options), (std::vector<std::string>{"train.epochs=5", "data.path=x=y", "device=cpu",
                                                              "precision=float32", "train.epochs=3"}));
}

TEST(CommonOptions, ThreadsHaveALimitAndTheConfigurationIsRequired) {
  EXPECT_EQ(parsed({"a.yaml"}).threads, 0);
  EXPECT_EQ(parsed({"a.yaml", "--threads", "4096"}).threads, 4096);
  EXPECT_THROW((void)parsed({"a.yaml", "--threads", "4097"}), CLI::ValidationError);
  EXPECT_THROW((void)parsed({"a.yaml", "--threads", "-1"}), CLI::ParseError);
  EXPECT_THROW((void)parsed({}), CLI::RequiredError);
}

}  // namespace
}  // namespace bantam::cli::options_test

// The program's own words on a command line: nearest subcommands and flags, and `help`.
#include "bantam/cli/print/usage.h"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "bantam/base/error.h"

namespace bantam::cli::usage_test {
namespace {

class UsageTest : public ::testing::Test {
 protected:
  UsageTest() {
    app_.require_subcommand(1);
    add_train(app_, action_);
    add_bench(app_, action_);
    add_plan(app_, action_);
    add_help(app_, action_, "bantam 0");
  }
  std::string refusal_of(const std::vector<std::string>& words) {
    try {
      check_subcommand(app_, words);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  std::string parse_error_of(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    try {
      app_.parse(words);
    } catch (const CLI::ParseError& error) {
      try {
        fail_usage(app_, error);
      } catch (const ConfigError& own) {
        return own.what();
      }
    }
    return "";
  }
  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' lacks " << part;
  }
  CLI::App app_{"about", "bantam"};
  Action action_;
};

TEST_F(UsageTest, KnownSubcommandsPass) {
  EXPECT_EQ(refusal_of({"train", "x.yaml"}), "");
  EXPECT_EQ(refusal_of({"bench", "step", "x.yaml"}), "");
  EXPECT_EQ(refusal_of({"--version"}), "");
}

TEST_F(UsageTest, NamesTheNearestSubcommand) {
  expect_in(refusal_of({"trian"}), "'trian'");
  expect_in(refusal_of({"trian"}), "'train'");
  expect_in(refusal_of({"bench", "stpe"}), "did you mean 'bench step'?");
  expect_in(refusal_of({}), "train");
}

TEST_F(UsageTest, NamesTheNearestFlag) {
  expect_in(parse_error_of({"train", "x.yaml", "--epoch", "3"}), "--epochs");
  expect_in(parse_error_of({"plan", "x.yaml", "--memroy", "3"}), "--memory");
}

TEST_F(UsageTest, HelpIsASubcommand) {
  std::vector<std::string> words = {"help"};
  app_.parse(words);
  ASSERT_TRUE(action_);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(action_(), 0);
  const std::string text = ::testing::internal::GetCapturedStdout();
  expect_in(text, "train");
  expect_in(text, "bench");
}

}  // namespace
}  // namespace bantam::cli::usage_test

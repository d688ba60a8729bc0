// Lists of values as they are typed, and the settings that follow.
#include "bantam/run/sweep/sweep_plan.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::sweep_plan_test {
namespace {

using Values = std::vector<std::string>;

std::string error_of(const std::string& text) {
  try {
    (void)parse_axis(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SweepAxis, CommasSeparateValuesOutsideOfQuotesAndBrackets) {
  EXPECT_EQ(parse_axis("train.epochs=1,2,3"), (SweepAxis{"train.epochs", {"1", "2", "3"}}));
  EXPECT_EQ(parse_axis(" a = 1 ,\t2 "), (SweepAxis{"a", {"1", "2"}}));
  EXPECT_EQ(parse_axis("a=none,[cheap, flatten]").values, (Values{"none", "[cheap, flatten]"}));
  EXPECT_EQ(parse_axis("a={sgd: {learning_rate: 0.1}},{adam: {}}").values,
            (Values{"{sgd: {learning_rate: 0.1}}", "{adam: {}}"}));
  EXPECT_EQ(parse_axis("a='x,y',\"z,\\\"w\",v").values, (Values{"'x,y'", "\"z,\\\"w\"", "v"}));
  EXPECT_EQ(parse_axis("a='it''s, so',b").values, (Values{"'it''s, so'", "b"}));
  EXPECT_EQ(parse_axis("a=it's,b").values, (Values{"it's", "b"})) << "a quote within a word is a letter";
  EXPECT_EQ(parse_axis("a=['x]', y],b").values, (Values{"['x]', y]", "b"}));
  EXPECT_EQ(parse_axis("a=k=1,k=2").values, (Values{"k=1", "k=2"}));
}

TEST(SweepAxis, WhatIsNoListIsNamed) {
  const std::string expected = "; expected KEY=VALUE,VALUE,… such as train.epochs=1,2";
  EXPECT_EQ(error_of("configs/x.yaml"), "--set: no '=' in 'configs/x.yaml'" + expected);
  EXPECT_EQ(error_of("=1,2"), "--set: no key before '=' in '=1,2'" + expected);
  EXPECT_EQ(error_of("a="), "--set: an empty value in 'a='" + expected);
  EXPECT_EQ(error_of("a=1,,2"), "--set: an empty value in 'a=1,,2'" + expected);
  EXPECT_EQ(error_of("a=1,2,1"), "--set: value 1 stands twice in 'a=1,2,1'" + expected);
  EXPECT_EQ(error_of("a=[1,2"), "--set: a bracket is not closed in 'a=[1,2'" + expected);
  EXPECT_EQ(error_of("a='1,2"), "--set: a quote is not closed in 'a='1,2'" + expected);
  EXPECT_EQ(error_of("a=1],2"), "--set: a ']' that closes nothing in 'a=1],2'" + expected);
  EXPECT_EQ(error_of("a=[1},2"), "--set: a '}' that closes nothing in 'a=[1},2'" + expected);
}

TEST(SweepPlan, EveryCombinationTheLastAxisFastest) {
  EXPECT_EQ(settings_of({}), std::vector<SweepSetting>{{}}) << "without axes there is one setting";
  const SweepPlan plan{.axes = {{"a", {"1", "2"}}, {"fixed", {"x"}}, {"b", {"3", "4"}}}};
  EXPECT_EQ(settings_of(plan),
            (std::vector<SweepSetting>{{"1", "x", "3"}, {"1", "x", "4"}, {"2", "x", "3"}, {"2", "x", "4"}}));
  EXPECT_EQ(varied_axes(plan), (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(setting_text(plan, {"1", "x", "4"}), "a=1, b=4");
  EXPECT_EQ(setting_text(plan, {"1", "x", "4"}, "-"), "a=1-b=4");
}

TEST(SweepPlan, NamesAreTheEndsOfKeysThatNoOtherHas) {
  const SweepPlan plan{.axes = {{"train.optimizer.adam.learning_rate", {"1", "2"}},
                                {"data.pipeline.batch.size", {"1", "2"}},
                                {"data.pipeline.resize.size", {"1", "2"}},
                                {"seed", {"1", "2"}}}};
  EXPECT_EQ(short_keys(plan), (Values{"learning_rate", "batch.size", "resize.size", "seed"}));
}

TEST(SweepPlan, WhatCannotBeASweepIsRefused) {
  const auto error_of_plan = [](const SweepPlan& plan) -> std::string {
    try {
      (void)settings_of(plan);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of_plan({.axes = {{"a", {"1"}}, {"a", {"2"}}}}),
            "--set: a is named twice; write all of its values in one list");
  EXPECT_EQ(error_of_plan({.axes = {{"seed", {"1", "2"}}}, .repeat = 2}),
            "--set: seed is what --repeat varies; name one of the two");
  SweepAxis many{.key = "a"};
  for (int i = 0; i < 101; ++i) many.values.push_back(std::to_string(i));
  SweepAxis more = many;
  more.key = "b";
  EXPECT_EQ(error_of_plan({.axes = {many, more}}), "--set: more than 10,000 settings");
  EXPECT_EQ(error_of_plan({.axes = {many}, .repeat = 1000}), "--repeat: more than 100,000 runs");
  const SweepAxis optimizers{"train.optimizer", {"{sgd: {}}", "{adam: {}}"}};
  const std::string lost = "; write it within each of them, or name it after them with --set";
  EXPECT_EQ(error_of_plan({.overrides = {"train.optimizer.adam.beta1=0.8"}, .axes = {optimizers}}),
            "--set: values of train.optimizer replace train.optimizer.adam.beta1=0.8" + lost);
  EXPECT_EQ(error_of_plan({.axes = {{"train.optimizer.sgd.momentum", {"0", "0.9"}}, optimizers}}),
            "--set: values of train.optimizer replace train.optimizer.sgd.momentum" + lost);
  EXPECT_EQ(error_of_plan({.overrides = {"train.optimizers=1", "train.optimizer={sgd: {}}"},
                           .axes = {optimizers, {"train.optimizer.sgd.momentum", {"0", "0.9"}}}}),
            "no error");
}

struct SweepConfig : RunTest {
  static SweepPlan plan() {
    return {.config = tiny().document.resolved_yaml(),
            .config_path = "tiny.yaml",
            .overrides = {"train.epochs=5"},
            .axes = {{"train.optimizer.sgd.learning_rate", {"0.1", "0.2"}}, {"train.epochs", {"3"}}}};
  }
};

TEST_F(SweepConfig, ASettingsConfigurationHasItsValues) {
  const RunConfig config = config_of(plan(), {"0.2", "3"});
  EXPECT_EQ(config.train.epochs, 3) << "values of --set count before overrides of all runs";
  EXPECT_EQ(config.seed, 7u);
  EXPECT_EQ(config.name, "tiny");
  EXPECT_NE(config.document.resolved_yaml().find("learning_rate: 0.2"), std::string::npos);
  EXPECT_EQ(config_of(plan(), {"0.2", "3"}, 9).seed, 9u);
  EXPECT_THROW((void)config_of(plan(), {"fast", "3"}), ConfigError);
}

}  // namespace
}  // namespace bantam::run::sweep_plan_test

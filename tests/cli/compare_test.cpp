// `bantam compare` as users run it.
#include "bantam/base/text.h"
#include "tests/cli/program.h"

namespace bantam::cli::compare_test {
namespace {

class Compare : public ProgramTest {
 protected:
  Compare() { write_tiny_config(); }
};

TEST_F(Compare, ConfigurationResultTimeAndMemory) {
  ASSERT_EQ(train("a", {"--epochs", "2"}).code, 0);
  ASSERT_EQ(train("b", {"--epochs", "3", "seed=8"}).code, 0);
  const Outcome text = run({"compare", "a", "b"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("Their configurations differ in 2 keys."), std::string::npos) << text.out;
  for (const char* part :
       {"train.epochs", "seed", "best accuracy", "validation_loss", "trained", "images/s", "peak in use", "2/2"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in\n" << text.out;
  std::istringstream lines(text.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(display_width(line), 80u) << line;

  const nlohmann::json both = run({"compare", "a", "b", "--json"}).last_json();
  ASSERT_EQ(both["config"].size(), 2u);
  EXPECT_EQ(both["config"][0]["key"], "seed");
  EXPECT_EQ(both["config"][0]["second"], "8");
  EXPECT_EQ(both["config"][1]["key"], "train.epochs");
  EXPECT_FALSE(both["same_weights"]);
  const auto epochs = read_lines("b/metrics.jsonl");
  const auto result =
      std::ranges::find(both["results"], "validation_loss", [](const auto& row) { return row["name"]; });
  ASSERT_NE(result, both["results"].end());
  EXPECT_EQ((*result)["second"], epochs.back()["validation_loss"]);
  EXPECT_EQ(both["second"]["peak_bytes"], epochs.back()["peak_bytes"]);
  const double first = both["first"]["best"]["value"], second = both["second"]["best"]["value"];
  EXPECT_EQ(both["better"], first == second ? "equal" : second > first ? "second" : "first") << "accuracy";
}

TEST_F(Compare, TheSameRunTwice) {
  ASSERT_EQ(train("a", {"--epochs", "1"}).code, 0);
  ASSERT_EQ(train("b", {"--epochs", "1"}).code, 0);
  const Outcome text = run({"compare", "a", "b"});
  EXPECT_NE(text.out.find("Their configurations are the same. Their weights are the same bits."), std::string::npos)
      << text.out;
}

TEST_F(Compare, WhatIsNoRunIsNamed) {
  ASSERT_EQ(train("a", {"--epochs", "1"}).code, 0);
  const Outcome none = run({"compare", "a", "nowhere"});
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.err.find("nowhere/run.json"), std::string::npos) << none.err;
  EXPECT_EQ(run({"compare", "a"}).code, 2);
}

}  // namespace
}  // namespace bantam::cli::compare_test

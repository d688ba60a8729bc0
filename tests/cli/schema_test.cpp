// `bantam schema` as users run it.
#include <cstdlib>
#include <filesystem>

#include "tests/cli/program.h"

namespace bantam::cli::schema_test {
namespace {

class Schema : public ProgramTest {};

TEST_F(Schema, PrintsAJsonSchema) {
  const Outcome outcome = run({"schema"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json schema = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(schema.at("$schema"), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema.at("required"), nlohmann::json({"model"}));
  EXPECT_EQ(schema.at("additionalProperties"), false);
  EXPECT_EQ(schema.at("properties").at("seed").at("default"), 42);
  EXPECT_EQ(schema.at("properties").at("device").at("default"), "auto") << "not what this machine has";
  for (const char* table : {"layer", "block", "pipeline_stage", "loss", "metric", "optimizer", "schedule", "callback"})
    EXPECT_TRUE(schema.at("$defs").contains(table)) << table;
}

TEST_F(Schema, PrintsTheCheckedInPage) {
  const Outcome outcome = run({"schema", "--markdown"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out == read_file(std::filesystem::path(BANTAM_SOURCE_DIR) / "docs" / "CONFIG.md"))
      << "docs/CONFIG.md is stale: run `make schema`";
}

TEST_F(Schema, HelpEndsWithAnExample) {
  const Outcome outcome = run({"schema", "--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.ends_with("bantam schema > bantam.schema.json\n")) << outcome.out;
  EXPECT_EQ(run({"schema", "extra"}).code, 2);
}

/// With Python's validator, where there is one: shipped configurations pass, and what a reader refuses does not.
TEST_F(Schema, ValidatesTheShippedConfigurations) {
  if (std::system("python3 -c 'import jsonschema, yaml; jsonschema.Draft202012Validator' > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "python3 with jsonschema (4 or later) and yaml is not there: skipped";
  const Outcome outcome = run({"schema"});
  write("schema.json", outcome.out);
  const std::string command = "python3 " BANTAM_SOURCE_DIR "/tests/cli/check_schema.py " +
                              path("schema.json").string() + " " BANTAM_SOURCE_DIR "/configs > " +
                              path("check.txt").string() + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << read("check.txt");
}

}  // namespace
}  // namespace bantam::cli::schema_test

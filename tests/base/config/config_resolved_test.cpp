// The resolved configuration: complete, in order, and the same when it is loaded again.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"

namespace bantam::config_resolved_test {
namespace {

/// Reads a run's settings, defaults included, into one line.
std::string read_run(const ConfigDocument& document) {
  ConfigMap top = document.map();
  std::string seen = "seed " + std::to_string(top.integer("seed", {}, 42));
  seen += ", name " + top.text("name", "it's: a \"test\"");
  seen += ", number " + top.text("number", "16");
  seen += ", device " + top.choice("device", {"auto", "cpu"}, "auto");
  seen += ", limit " + std::to_string(top.byte_size("limit", 4096));
  ConfigMap train = top.map("train");
  seen += ", rate " + std::to_string(train.number("rate", {}, 1e-7) * 1e9);
  seen += ", nesterov " + std::to_string(train.boolean("nesterov", true));
  seen += ", epochs " + std::to_string(train.integer("epochs", {}));
  const auto workers = train.integer_or_auto("workers", {});
  seen += ", workers " + (workers ? std::to_string(*workers) : "auto");
  for (const ConfigNode& item : top.list("layers")) {
    const auto [name, options] = item.as_named();
    ConfigMap map = options.as_map();
    seen += ", " + name + " " + std::to_string(map.number("slope", {}, 0.25));
    for (const auto v : map.pair("kernel", {}, {3, 5})) seen += " " + std::to_string(v);
    for (const auto& v : map.texts("tags", {"a", "true", "x, y"})) seen += " " + v;
    map.finish();
  }
  ConfigMap memory = top.map_or_empty("memory");
  seen += ", growth " + std::to_string(memory.boolean("growth", true));
  memory.finish();
  train.finish();
  top.finish();
  return seen;
}

constexpr const char* kText = R"(# a comment
train: {epochs: 5}
name: "quoted: \"text\"\nof two lines"
layers:
  - leaky_relu
  - dense: {slope: 1e-2, kernel: [1, 2]}
  - flatten:
seed: 3
)";

TEST(Resolved, ListsTheFilesKeysThenTheDefaults) {
  const auto document = ConfigDocument::parse(kText, "t.yaml");
  read_run(document);
  EXPECT_EQ(document.resolved_yaml(), R"(train: {epochs: 5, rate: 1e-07, nesterov: true, workers: auto}
name: "quoted: \"text\"\nof two lines"
layers:
  - leaky_relu:
      slope: 0.25
      kernel: [3, 5]
      tags: [a, "true", "x, y"]
  - dense:
      slope: 1e-2
      kernel: [1, 2]
      tags: [a, "true", "x, y"]
  - flatten:
      slope: 0.25
      kernel: [3, 5]
      tags: [a, "true", "x, y"]
seed: 3
number: "16"
device: auto
limit: 4096
memory: {growth: true}
)");
}

TEST(Resolved, LoadsAgainToTheSameRun) {
  const std::vector<std::string> overrides = {"train.epochs=9", "layers.dense.slope=0.5", "device=cpu",
                                              "name=on/off: no"};
  const std::vector<std::string> flow_name = {"train.epochs=9", "layers.dense.slope=0.5", "device=cpu",
                                              "name='on: no'"};
  EXPECT_THROW(ConfigDocument::parse(kText, "t.yaml", overrides).map().text("name"), ConfigError);  // that one is a map
  const auto document = ConfigDocument::parse(kText, "t.yaml", flow_name);
  const std::string first = read_run(document);
  const std::string yaml = document.resolved_yaml();
  const auto again = ConfigDocument::parse(yaml, "resolved.yaml");
  EXPECT_EQ(read_run(again), first);
  EXPECT_EQ(again.resolved_yaml(), yaml);  // nothing is left to default
  EXPECT_NE(first.find("epochs 9"), std::string::npos);
  EXPECT_NE(first.find("name on: no"), std::string::npos);
}

TEST(Resolved, KeepsTextThatLooksLikeOtherThings) {
  const std::vector<std::string> odd = {"16",   "1e3",  "true", "null", "~",     "yes",  "",     " x ",  "- a",
                                        "a: b", "#c",   "[1]",  "{a}",  "*x",    "&x",   "!t",   "|",    ">",
                                        "%x",   "@x",   "`x",   "'q'",  "\"q\"", "a\\b", "a\tb", "a\nb", "cuda:0",
                                        ".5",   ".inf", "...",  "---",  "µ",     "a #b"};
  const auto document = ConfigDocument::parse("{}", "t.yaml");
  ConfigMap map = document.map();
  map.texts("list", odd);
  for (std::size_t i = 0; i < odd.size(); ++i) map.text("key" + std::to_string(i), odd[i]);
  const auto again = ConfigDocument::parse(document.resolved_yaml(), "again.yaml");
  EXPECT_EQ(again.map().texts("list"), odd);
  for (std::size_t i = 0; i < odd.size(); ++i) EXPECT_EQ(again.map().text("key" + std::to_string(i)), odd[i]) << i;
}

TEST(Resolved, KeepsFileTextThatLooksLikeOtherThings) {
  const auto document = ConfigDocument::parse(
      "\"16\": '16'\n\"a: b\": \"yes\"\nblock: |\n  one\n  two\nurl: http://x.y/z\nempty: ''\nnothing: ~\nnested: [[1, "
      "[2]], "
      "{a: [b: c]}, []]\n",
      "t.yaml");
  const auto again = ConfigDocument::parse(document.resolved_yaml(), "again.yaml");
  ConfigMap map = again.map();
  EXPECT_EQ(map.text("16"), "16");
  EXPECT_EQ(map.text("a: b"), "yes");
  EXPECT_EQ(map.text("block"), "one\ntwo\n");
  EXPECT_EQ(map.text("url"), "http://x.y/z");
  EXPECT_EQ(map.text("empty"), "");
  EXPECT_TRUE(map.node("nothing").is_null());
  const auto nested = map.list("nested");
  EXPECT_EQ(nested[0].items()[1].as_integers(), std::vector<std::int64_t>{2});
  EXPECT_EQ(nested[1].as_map().list("a")[0].as_named().name, "b");
  EXPECT_TRUE(nested[2].items().empty());
  EXPECT_EQ(again.resolved_yaml(), document.resolved_yaml());
}

TEST(Resolved, KeepsControlCharactersThatWereEscaped) {
  const auto document = ConfigDocument::parse(R"({"k\x01": "a\x01b\x1f\x7f\0c\e[1m\r\t\b9"})", "t.yaml");
  const std::string expected(
      "a\x01"
      "b\x1f\x7f\0c\x1b[1m\r\t\b9",
      15);
  EXPECT_EQ(document.map().text("k\x01"), expected);
  const std::string yaml = document.resolved_yaml();
  EXPECT_EQ(yaml, R"("k\x01": "a\x01b\x1f\x7f\x00c\x1b[1m\r\t\x089")"
                  "\n");
  EXPECT_EQ(ConfigDocument::parse(yaml, "again.yaml").map().text("k\x01"), expected);
}

TEST(Resolved, NumbersKeepEveryBit) {
  const auto document = ConfigDocument::parse("{}", "t.yaml");
  const std::vector<double> values = {1e-7, 0.1, 1.0 / 3, 0.00392156862745098, 5e-324, 1.7976931348623157e308, 3, -0.0};
  ConfigMap map = document.map();
  for (std::size_t i = 0; i < values.size(); ++i) map.number("v" + std::to_string(i), {}, values[i]);
  const auto again = ConfigDocument::parse(document.resolved_yaml(), "again.yaml");
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(again.map().number("v" + std::to_string(i), {}), values[i]) << i;
}

TEST(Resolved, LongMapsBecomeBlocks) {
  std::string text = "long: {";
  for (int i = 0; i < 20; ++i) text += "number_" + std::to_string(i) + ": 1, ";
  const auto document = ConfigDocument::parse(text + "last: 2}\nshort: {a: 1}\nitems: [{a: 1, b: 2}]\n", "t.yaml");
  const std::string yaml = document.resolved_yaml();
  EXPECT_TRUE(yaml.starts_with("long:\n  number_0: 1\n  number_1: 1\n")) << yaml;
  EXPECT_TRUE(yaml.ends_with("  last: 2\nshort: {a: 1}\nitems:\n  - {a: 1, b: 2}\n")) << yaml;
}

TEST(Resolved, AnEmptyDocumentIsAnEmptyMap) { EXPECT_EQ(ConfigDocument::parse("", "t.yaml").resolved_yaml(), "{}\n"); }

TEST(Resolved, AValueThatIsSetLaterReadsAsAnOverride) {
  for (const auto& [path, value] :
       std::vector<std::pair<std::string, std::string>>{{"seed", "4"},
                                                        {"device", "cpu"},
                                                        {"train.workers", "3"},
                                                        {"memory.growth", "false"},
                                                        {"layers.leaky_relu.slope", "0.5"},
                                                        {"layers.dense.kernel", "[4, 4]"}}) {
    const auto document = ConfigDocument::parse(kText, "t.yaml");
    const std::string before = read_run(document), text = document.resolved_yaml();
    const ConfigDocument other = document.with_value(path, value);
    EXPECT_EQ(document.resolved_yaml(), text) << "the document itself stays";
    const auto typed = ConfigDocument::parse(kText, "t.yaml", std::vector{path + "=" + value});
    const std::string after = read_run(typed);
    EXPECT_NE(after, before) << path;
    EXPECT_EQ(other.resolved_yaml(), typed.resolved_yaml()) << path;
    EXPECT_EQ(read_run(other), after) << path;
  }
}

TEST(Resolved, AValueForNoPlaceIsRefused) {
  const auto document = ConfigDocument::parse(kText, "t.yaml");
  EXPECT_THROW((void)document.with_value("layers.conv.slope", "1"), ConfigError);
  EXPECT_THROW((void)document.with_value("train.epochs.five", "1"), ConfigError);
}

}  // namespace
}  // namespace bantam::config_resolved_test

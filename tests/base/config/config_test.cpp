// Reading values in their types: what is accepted, names with options, positions and paths.
#include "bantam/base/config/config.h"

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::config_test {
namespace {

ConfigDocument parse(std::string_view text) { return ConfigDocument::parse(text, "t.yaml"); }

TEST(ConfigMap, ReadsEveryType) {
  const auto document = parse(R"(
seed: 42
rate: 1e-3
nesterov: true
path: data/cifar-10-batches-bin
mode: auto
limit: 1.5GiB
plain_limit: 4096
axes: [1, 2, 3]
metrics: [accuracy, "2"]
kernel: 3
stride: [2, 1]
depth: auto
workers: 4
)");
  ConfigMap map = document.map();
  EXPECT_EQ(map.integer("seed", {}), 42);
  EXPECT_EQ(map.number("rate", {}), 1e-3);
  EXPECT_TRUE(map.boolean("nesterov"));
  EXPECT_EQ(map.text("path"), "data/cifar-10-batches-bin");
  EXPECT_EQ(map.choice("mode", {"auto", "cpu"}), "auto");
  EXPECT_EQ(map.byte_size("limit"), 1610612736u);
  EXPECT_EQ(map.byte_size("plain_limit"), 4096u);
  EXPECT_EQ(map.integers("axes", {}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(map.texts("metrics"), (std::vector<std::string>{"accuracy", "2"}));
  EXPECT_EQ(map.pair("kernel", {}), (std::array<std::int64_t, 2>{3, 3}));
  EXPECT_EQ(map.pair("stride", {}), (std::array<std::int64_t, 2>{2, 1}));
  EXPECT_EQ(map.integer_or_auto("depth", {}), std::nullopt);
  EXPECT_EQ(map.integer_or_auto("workers", {}), 4);
  map.finish();
}

TEST(ConfigMap, GivesDefaultsForMissingKeys) {
  const auto document = parse("{}");
  ConfigMap map = document.map();
  EXPECT_EQ(map.integer("a", {.min = 1}, 7), 7);
  EXPECT_EQ(map.number("b", {}, 0.9), 0.9);
  EXPECT_TRUE(map.boolean("c", true));
  EXPECT_EQ(map.text("d", "x"), "x");
  EXPECT_EQ(map.choice("e", {"p", "q"}, "q"), "q");
  EXPECT_EQ(map.byte_size("f", 512), 512u);
  EXPECT_EQ(map.integers("g", {}, {4, 5}), (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(map.pair("h", {}, {2, 3}), (std::array<std::int64_t, 2>{2, 3}));
  EXPECT_EQ(map.texts("i", {"z"}), std::vector<std::string>{"z"});
  EXPECT_EQ(map.integer_or_auto("j", {}), std::nullopt);
  EXPECT_EQ(map.map_or_empty("l").integer("m", {}, 1), 1);
  EXPECT_FALSE(map.find("n").has_value());
  EXPECT_FALSE(map.has("n"));
  map.finish();
}

/// What the ConfigError of `call` says first.
template <class Call>
std::string first_line_of(Call&& call) {
  try {
    call();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
  return "nothing was thrown";
}

TEST(ConfigMap, LookingForAKeyMakesItKnownButDoesNotReadIt) {
  const auto misspelt = parse("{siz: 3, far: 4}");
  ConfigMap map = misspelt.map();
  EXPECT_FALSE(map.has("size"));
  EXPECT_EQ(first_line_of([&] { map.finish(); }), "t.yaml:1:2: error: unknown key 'siz'; did you mean 'size'?");
  EXPECT_EQ(first_line_of([&] { (void)map.node("other"); }),
            "t.yaml:1:2: error: unknown key 'siz'; did you mean 'size'?");
  const auto unused = parse("{size: 3}");
  ConfigMap present = unused.map();
  EXPECT_TRUE(present.has("size"));
  EXPECT_EQ(first_line_of([&] { present.finish(); }),
            "t.yaml:1:2: error: unknown key 'size'; no keys are allowed here");
  EXPECT_EQ(present.integer("size", {}), 3);
  present.finish();
}

TEST(ConfigNode, AByteSizeMayHaveALeast) {
  const auto document = parse("limits: {none: 0, some: 1KiB}");
  ConfigMap limits = document.map().map("limits");
  EXPECT_EQ(limits.node("none").as_byte_size(), 0u);
  EXPECT_EQ(limits.node("some").as_byte_size(1024), 1024u);
  EXPECT_EQ(first_line_of([&] { (void)limits.node("none").as_byte_size(1); }),
            "t.yaml:1:16: error: limits.none: expected a byte size of at least 1, got 0");
}

TEST(ConfigNode, AcceptsTheUsualSpellingsOfNumbers) {
  const auto list = [](std::string_view text) { return parse(text).map().list("v"); };
  const std::vector<double> numbers = {1e-3, 1.0e-3, 0.5, 5, -2.25, 1e5, 3, 3, 0.00392156862745098};
  const auto nodes = list("v: [1e-3, 1.0e-3, .5, 5., -2.25, 1E+5, +3, 3.0, 0.00392156862745098]");
  ASSERT_EQ(nodes.size(), numbers.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) EXPECT_EQ(nodes[i].as_number(), numbers[i]) << i;
  const std::vector<std::int64_t> integers = {16, -3, 4, 1000, 9223372036854775807, INT64_MIN};
  const auto whole = list("v: [16.0, -3, +4, 1e3, 9223372036854775807, -9223372036854775808]");
  ASSERT_EQ(whole.size(), integers.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i].as_integer(), integers[i]) << i;
}

TEST(ConfigNode, RangesIncludeTheirEndsUnlessOpen) {
  const auto document = parse("a: 0\nb: 1\n");
  ConfigMap map = document.map();
  const NumberRange half_open = {.min = 0, .max = 1, .max_open = true};
  EXPECT_EQ(map.number("a", half_open), 0);
  EXPECT_THROW(map.number("b", half_open), ConfigError);
  EXPECT_THROW(map.number("a", {.min = 0, .min_open = true}), ConfigError);
  EXPECT_EQ(map.integer("b", {.min = 1, .max = 1}), 1);
}

TEST(ConfigNode, ReadsNamesWithOptions) {
  const auto document =
      parse("layers:\n  - cache: ram\n  - batch: {size: 16}\n  - relu: {}\n  - flatten\n  - shuffle:\n");
  const auto items = document.map().list("layers");
  std::vector<std::string> names;
  for (const ConfigNode& item : items) names.push_back(item.as_named().name);
  EXPECT_EQ(names, (std::vector<std::string>{"cache", "batch", "relu", "flatten", "shuffle"}));
  EXPECT_TRUE(items[0].as_named().options.is_text("ram"));
  EXPECT_EQ(items[1].as_named().options.as_map().integer("size", {}), 16);
  EXPECT_EQ(items[1].as_named().options.path(), "layers.1.batch");
  for (const std::size_t i : {2, 3, 4}) items[i].as_named().options.as_map().finish();
  EXPECT_EQ(items[3].as_named().options.path(), "layers.3.flatten");
}

TEST(ConfigNode, KnowsItsPlace) {
  const auto document = parse("train:\n  µ: 1\n  list: [a, {b: é, c: 3}]\n");
  const ConfigNode train = document.map().node("train");
  EXPECT_EQ(train.as_map().node("µ").position(), "t.yaml:2:6");  // characters, not bytes
  const ConfigNode c = train.as_map().list("list")[1].as_map().node("c");
  EXPECT_EQ(c.position(), "t.yaml:3:23");
  EXPECT_EQ(c.path(), "train.list.1.c");
  EXPECT_EQ(document.root().path(), "");
  EXPECT_EQ(document.name(), "t.yaml");
}

TEST(ConfigNode, GivesFreeMapsEntryByEntry) {
  const auto document = parse("limits: {\"cuda:0\": 4GiB, cpu: 1MiB}");
  const auto entries = document.map().node("limits").entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].first, "cuda:0");
  EXPECT_EQ(entries[0].second.as_byte_size(), 4294967296u);
  EXPECT_EQ(entries[1].first, "cpu");
}

TEST(ConfigDocument, AcceptsWindowsFilesAndComments) {
  const auto document = parse("\xEF\xBB\xBF---\r\n# a comment\r\na: 1   # another\r\nb: text\r\n");
  ConfigMap map = document.map();
  EXPECT_EQ(map.integer("a", {}), 1);
  EXPECT_EQ(map.text("b"), "text");
  EXPECT_EQ(map.node("b").position(), "t.yaml:4:4");
}

TEST(ConfigDocument, AnEmptyTextIsAnEmptyMap) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n"}) {
    ConfigMap map = parse(text).map();
    EXPECT_EQ(map.integer("a", {}, 3), 3) << text;
    map.finish();
  }
}

TEST(ConfigDocument, OutlivesItsName) {
  const ConfigNode node = parse("a: {b: 5}").map().map("a").node("b");  // the document itself is gone
  EXPECT_EQ(node.as_integer(), 5);
}

TEST(ConfigDocument, LoadsFilesAndNamesMissingOnes) {
  const auto path =
      std::filesystem::temp_directory_path() / ("bantam_config_" + std::to_string(std::random_device()()));
  write_file_atomically(path, "a: 5\n");
  const std::vector<std::string> overrides = {"a=6"};
  EXPECT_EQ(ConfigDocument::load(path).map().integer("a", {}), 5);
  EXPECT_EQ(ConfigDocument::load(path, overrides).map().integer("a", {}), 6);
  std::filesystem::remove(path);
  try {
    ConfigDocument::load(path);
    FAIL() << "a missing file was read";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("cannot read " + path.string() + ": No such file or directory"))
        << error.what();
  }
}

TEST(ConfigDocument, AMissingFileHasANeighbourOrNoFolder) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("bantam_config_near_" + std::to_string(std::random_device()()));
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "bees.yaml", "a: 5\n");
  write_file_atomically(folder / "bees.txt", "a: 5\n");
  const auto end_of_error = [&](const std::string& name) -> std::string {
    try {
      ConfigDocument::load(folder / name);
    } catch (const ConfigError& error) {
      const std::string text = error.what(), reason = "No such file or directory";
      return text.substr(text.find(reason) + reason.size());
    }
    return "it was read";
  };
  EXPECT_EQ(end_of_error("bees.yml"), "; did you mean " + (folder / "bees.yaml").string() + "?");
  EXPECT_EQ(end_of_error("quickstart.yaml"), "");
  EXPECT_EQ(end_of_error("configs/quickstart.yaml"), "; there is no folder " + (folder / "configs").string());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace bantam::config_test

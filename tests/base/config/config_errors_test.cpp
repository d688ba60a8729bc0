// Bad YAML, line by line: the exact message, position and caret of each.
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"

namespace bantam::config_errors_test {
namespace {

/// Reads a small configuration as the program's own readers do: all keys but `layers` have defaults.
void read_config(std::string_view text) {
  const auto document = ConfigDocument::parse(text, "t.yaml");
  ConfigMap top = document.map();
  top.integer("seed", {.min = 0}, 42);
  top.choice("device", {"auto", "cpu", "cuda"}, "auto");
  top.byte_size("limit", 0);
  top.text("path", "x");
  top.integers("axes", {.min = 0, .max = 3}, {0});
  top.texts("metrics", {});
  top.pair("kernel", {.min = 1}, {3, 3});
  top.integer_or_auto("workers", {.min = 0});
  ConfigMap train = top.map_or_empty("train");
  train.integer("epochs", {.min = 1}, 5);
  train.number("momentum", {.min = 0, .max = 1, .max_open = true}, 0);
  train.boolean("nesterov", false);
  ConfigMap adam = train.map_or_empty("adam");
  adam.number("learning_rate", {.min = 0, .min_open = true}, 1e-3);
  adam.number("epsilon", {}, 1e-7);
  adam.finish();
  train.finish();
  for (const ConfigNode& item : top.list("layers")) {
    const auto [name, options] = item.as_named();
    const std::vector<std::string> known = {"dense", "relu"};
    if (name != "dense" && name != "relu") options.fail_unknown("layer", name, known);
    ConfigMap map = options.as_map();
    if (name == "dense") map.integer("units", {.min = 1, .max = 4096});
    map.finish();
  }
  top.finish();
}

struct Case {
  std::string text;
  std::string message;
};

/// What a failing case is called in GoogleTest's output.
void PrintTo(const Case& bad, std::ostream* out) { *out << bad.text; }

class BadYaml : public ::testing::TestWithParam<Case> {};

TEST_P(BadYaml, IsRefusedWithPositionAndReason) {
  try {
    read_config(GetParam().text);
    FAIL() << "accepted:\n" << GetParam().text;
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), GetParam().message) << "of:\n" << GetParam().text;
  }
}

/// A case in a file that is right but for `text`: the layers follow it.
Case with_layers(const std::string& text, const std::string& message) { return {text + "layers: []\n", message}; }

INSTANTIATE_TEST_SUITE_P(
    Keys, BadYaml,
    ::testing::Values(
        with_layers("train:\n  adam:\n      learning_rat: 0.1\n",
                    "t.yaml:3:7: error: unknown key 'learning_rat' in train.adam; did you mean 'learning_rate'?\n"
                    "   learning_rat: 0.1\n"
                    "   ^~~~~~~~~~~~"),
        with_layers("sede: 1\n", "t.yaml:1:1: error: unknown key 'sede'; did you mean 'seed'?\n   sede: 1\n   ^~~~"),
        with_layers("train: {adam: {zzz: 1}}\n",
                    "t.yaml:1:16: error: unknown key 'zzz' in train.adam; valid keys: learning_rate and epsilon\n"
                    "   train: {adam: {zzz: 1}}\n"
                    "                  ^~~"),
        with_layers("epochs: 1\n",
                    "t.yaml:1:1: error: unknown key 'epochs'; did you mean train.epochs?\n   epochs: 1\n   ^~~~~~"),
        with_layers("train: {learning_rat: 1}\n",
                    "t.yaml:1:9: error: unknown key 'learning_rat' in train; did you mean train.adam.learning_rate?\n"
                    "   train: {learning_rat: 1}\n           ^~~~~~~~~~~~"),
        Case{"layers:\n  - relu: {slope: 1}\n",
             "t.yaml:2:12: error: unknown key 'slope' in layers.0.relu; no keys are allowed here\n"
             "   - relu: {slope: 1}\n"
             "            ^~~~~"},
        with_layers("seed: 1\nseed: 2\n",
                    "t.yaml:2:1: error: duplicate key 'seed' (first at t.yaml:1:1)\n   seed: 2\n   ^~~~"),
        with_layers("train:\n  epochs: 1\n  \"epochs\": 2\n",
                    "t.yaml:3:3: error: duplicate key 'epochs' in train (first at t.yaml:2:3)\n"
                    "   \"epochs\": 2\n"
                    "   ^~~~~~~~"),
        Case{"seed: 1\n", "t.yaml:1:1: error: missing key 'layers'\n   seed: 1\n   ^"},
        Case{"", "t.yaml:1:1: error: missing key 'layers'"},
        Case{"layers:\n  - dense: {unit: 4}\n",
             "t.yaml:2:13: error: unknown key 'unit' in layers.0.dense; did you mean 'units'?\n   - dense: {unit: 4}\n "
             "            ^~~~"},
        Case{"layers:\n  - dense: {}\n",
             "t.yaml:2:5: error: missing key 'units' in layers.0.dense\n   - dense: {}\n     ^~~~~"},
        Case{"layers:\n  - relu\n  - dense\n",
             "t.yaml:3:5: error: missing key 'units' in layers.1.dense\n   - dense\n     ^~~~~"},
        Case{"layers: [dence: {units: 3}]\n",
             "t.yaml:1:10: error: unknown layer 'dence'; did you mean 'dense'?\n"
             "   layers: [dence: {units: 3}]\n"
             "            ^~~~~"},
        Case{"layers:\n  - conv\n",
             "t.yaml:2:5: error: unknown layer 'conv'; valid: dense and relu\n   - conv\n     ^~~~"},
        Case{"layers:\n  - dense: {units: 3}\n    relu: {}\n",
             "t.yaml:2:5: error: layers.0: expected a name or one 'name: {options}', got a map of 2 keys\n"
             "   - dense: {units: 3}\n"
             "     ^"},
        Case{
            "layers:\n  - [relu]\n",
            "t.yaml:2:5: error: layers.0: expected a name or one 'name: {options}', got a list\n   - [relu]\n     ^"}));

INSTANTIATE_TEST_SUITE_P(
    Values, BadYaml,
    ::testing::Values(
        with_layers("train:\n  epochs: many\n",
                    "t.yaml:2:11: error: train.epochs: expected an integer ≥ 1, got 'many'\n"
                    "   epochs: many\n"
                    "           ^~~~"),
        with_layers("seed: -1\n", "t.yaml:1:7: error: seed: expected an integer ≥ 0, got -1\n   seed: -1\n         ^~"),
        with_layers("seed: 1.5\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got 1.5\n   seed: 1.5\n         ^~~"),
        with_layers(
            "seed: \"16\"\n",
            "t.yaml:1:7: error: seed: expected an integer ≥ 0, got the text \"16\"\n   seed: \"16\"\n         ^~~~"),
        with_layers("seed: 99999999999999999999\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got 99999999999999999999\n"
                    "   seed: 99999999999999999999\n"
                    "         ^~~~~~~~~~~~~~~~~~~~"),
        with_layers("seed: 1e17\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got 1e17\n   seed: 1e17\n         ^~~~"),
        with_layers("seed: 0x10\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got '0x10'\n   seed: 0x10\n         ^~~~"),
        with_layers("seed: 010\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got 010 (numbers begin with no extra 0: some "
                    "read it as decimal, some as octal)\n   seed: 010\n         ^~~"),
        with_layers("workers: -007\n",
                    "t.yaml:1:10: error: workers: expected an integer ≥ 0 or auto, got -007 (numbers begin with no "
                    "extra 0: some read it as decimal, some as octal)\n   workers: -007\n            ^~~~"),
        with_layers("train: {adam: {epsilon: 010.5}}\n",
                    "t.yaml:1:25: error: train.adam.epsilon: expected a number, got 010.5 (numbers begin with no extra "
                    "0: some read it as decimal, some as octal)\n   train: {adam: {epsilon: 010.5}}\n"
                    "                           ^~~~~"),
        with_layers("limit: 010MiB\n",
                    "t.yaml:1:8: error: limit: '010MiB' is not a byte size: numbers begin with no extra 0\n"
                    "   limit: 010MiB\n          ^~~~~~"),
        with_layers("seed: 1_000\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got '1_000'\n   seed: 1_000\n         ^~~~~"),
        with_layers("seed:\n", "t.yaml:1:1: error: seed: expected an integer ≥ 0, got nothing\n   seed:\n   ^~~~"),
        with_layers("seed: [1]\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got a list\n   seed: [1]\n         ^"),
        with_layers("seed: true\n",
                    "t.yaml:1:7: error: seed: expected an integer ≥ 0, got true\n   seed: true\n         ^~~~"),
        with_layers("train: {momentum: 1}\n",
                    "t.yaml:1:19: error: train.momentum: expected a number in [0, 1), got 1\n"
                    "   train: {momentum: 1}\n"
                    "                     ^"),
        with_layers("train: {momentum: .nan}\n",
                    "t.yaml:1:19: error: train.momentum: expected a number in [0, 1), got '.nan'\n"
                    "   train: {momentum: .nan}\n"
                    "                     ^~~~"),
        with_layers("train: {adam: {learning_rate: 0}}\n",
                    "t.yaml:1:31: error: train.adam.learning_rate: expected a number > 0, got 0\n"
                    "   train: {adam: {learning_rate: 0}}\n"
                    "                                 ^"),
        with_layers(
            "train: {adam: {epsilon: 1e999}}\n",
            "t.yaml:1:25: error: train.adam.epsilon: expected a number, got 1e999 (a 64-bit float cannot hold it)\n"
            "   train: {adam: {epsilon: 1e999}}\n"
            "                           ^~~~~"),
        with_layers("train: {adam: {epsilon: inf}}\n",
                    "t.yaml:1:25: error: train.adam.epsilon: expected a number, got 'inf'\n"
                    "   train: {adam: {epsilon: inf}}\n"
                    "                           ^~~"),
        with_layers("train: {nesterov: yes}\n",
                    "t.yaml:1:19: error: train.nesterov: expected true or false, got 'yes' (write true)\n"
                    "   train: {nesterov: yes}\n"
                    "                     ^~~"),
        with_layers("train: {nesterov: Off}\n",
                    "t.yaml:1:19: error: train.nesterov: expected true or false, got 'Off' (write false)\n"
                    "   train: {nesterov: Off}\n"
                    "                     ^~~"),
        with_layers("train: {nesterov: 1}\n",
                    "t.yaml:1:19: error: train.nesterov: expected true or false, got 1\n"
                    "   train: {nesterov: 1}\n"
                    "                     ^"),
        with_layers("train: 5\n",
                    "t.yaml:1:8: error: train: expected a map, got 5 (keys with their values: {KEY: VALUE})\n   train: "
                    "5\n          ^"),
        with_layers("device: gpu\n",
                    "t.yaml:1:9: error: device: expected auto, cpu or cuda, got 'gpu'; did you mean 'cpu'?\n"
                    "   device: gpu\n"
                    "           ^~~"),
        with_layers("limit: 4gb\n",
                    "t.yaml:1:8: error: limit: '4gb' is not a byte size: unknown unit 'gb'; expected B, KiB, MiB, GiB, "
                    "TiB, kB, "
                    "MB, GB or TB (did you mean 'GB'?)\n   limit: 4gb\n          ^~~"),
        with_layers(
            "limit: {}\n",
            "t.yaml:1:8: error: limit: expected a byte size such as 4GiB, got a map\n   limit: {}\n          ^"),
        with_layers("path: 5\n",
                    "t.yaml:1:7: error: path: expected text, got 5 (write \"5\" to mean text)\n   path: 5\n         ^"),
        with_layers("path: true\n",
                    "t.yaml:1:7: error: path: expected text, got true (write \"true\" to mean text)\n"
                    "   path: true\n"
                    "         ^~~~"),
        with_layers("path: [a]\n", "t.yaml:1:7: error: path: expected text, got a list\n   path: [a]\n         ^"),
        with_layers(
            "axes: [1, 4]\n",
            "t.yaml:1:11: error: axes.1: expected an integer from 0 to 3, got 4\n   axes: [1, 4]\n             ^"),
        with_layers("axes: 1\n", "t.yaml:1:7: error: axes: expected a list of integers, got 1\n   axes: 1\n         ^"),
        with_layers("metrics: accuracy\n",
                    "t.yaml:1:10: error: metrics: expected a list of texts, got 'accuracy'\n"
                    "   metrics: accuracy\n"
                    "            ^~~~~~~~"),
        with_layers("kernel: [3, 3, 3]\n",
                    "t.yaml:1:9: error: kernel: expected an integer ≥ 1 or a list of two, got a list of 3\n"
                    "   kernel: [3, 3, 3]\n"
                    "           ^"),
        with_layers(
            "kernel: [3, 0]\n",
            "t.yaml:1:13: error: kernel.1: expected an integer ≥ 1, got 0\n   kernel: [3, 0]\n               ^"),
        with_layers("workers: many\n",
                    "t.yaml:1:10: error: workers: expected an integer ≥ 0 or auto, got 'many'\n"
                    "   workers: many\n"
                    "            ^~~~"),
        Case{"layers: relu\n",
             "t.yaml:1:9: error: layers: expected a list, got 'relu'\n   layers: relu\n           ^~~~"},
        Case{"layers:\n  - dense: {units: 5000}\n",
             "t.yaml:2:20: error: layers.0.dense.units: expected an integer from 1 to 4096, got 5000\n"
             "   - dense: {units: 5000}\n"
             "                    ^~~~"}));

INSTANTIATE_TEST_SUITE_P(
    Syntax, BadYaml,
    ::testing::Values(
        Case{"a: [1, 2", "t.yaml:1:4: error: this bracket is never closed\n   a: [1, 2\n      ^"},
        Case{"a: {b: [1, 2]\n", "t.yaml:1:4: error: this bracket is never closed\n   a: {b: [1, 2]\n      ^"},
        Case{"a: {b: 1}}\n", "t.yaml:1:10: error: YAML syntax: illegal flow end\n   a: {b: 1}}\n            ^"},
        Case{"a: \"abc\nb: 1\n", "t.yaml:1:4: error: this quote is never closed\n   a: \"abc\n      ^"},
        Case{"a: 'it''s\n", "t.yaml:1:4: error: this quote is never closed\n   a: 'it''s\n      ^"},
        Case{"a: 1\nb\n", "t.yaml:2:1: error: expected ':' after the key 'b'\n   b\n   ^"},
        Case{"a: {b:1}\n",
             "t.yaml:1:5: error: expected ':' after the key 'b:1'; write a space after the colon: 'b: 1'\n   a: "
             "{b:1}\n       ^~~"},
        Case{"a: 1\n  b: 2\n", "t.yaml:2:4: error: YAML syntax: illegal map value\n   b: 2\n    ^"},
        Case{"a: b: c\n", "t.yaml:1:5: error: YAML syntax: illegal map value\n   a: b: c\n       ^"},
        Case{"a:\n\t- b\n", "t.yaml:2:1: error: a tab in the indentation: YAML indents by spaces\n    - b\n   ^"},
        Case{"a:\n  - b\n - c\n", "t.yaml:3:2: error: YAML syntax: end of map not found\n   - c\n   ^"},
        Case{"a: @x\n", "t.yaml:1:4: error: YAML syntax: unknown token\n   a: @x\n      ^"},
        Case{"a: &x 5\n",
             "t.yaml:1:4: error: anchors (&name) are not supported: write the value where it is used\n   a: &x 5\n     "
             " ^"},
        Case{"a: *x\n", "t.yaml:1:4: error: aliases (*name) are not supported: write the value out\n   a: *x\n      ^"},
        Case{"<<: {a: 1}\n",
             "t.yaml:1:1: error: merge keys (<<) are not supported: write the values out\n   <<: {a: 1}\n   ^~"},
        Case{"a: !!str 5\n",
             "t.yaml:1:4: error: tags are not supported, got 'tag:yaml.org,2002:str'\n   a: !!str 5\n      ^"},
        Case{"a: !!map {b: 1}\n",
             "t.yaml:1:4: error: tags are not supported, got 'tag:yaml.org,2002:map'\n   a: !!map {b: 1}\n      ^"},
        Case{"a: 1\n---\nb: 2\n",
             "t.yaml:2:1: error: a second YAML document begins here; one file holds one configuration\n   ---\n   ^"},
        Case{"- a\n- b\n", "t.yaml:1:1: error: expected a map of keys at the top, got a list\n   - a\n   ^"},
        Case{"just text\n",
             "t.yaml:1:1: error: expected a map of keys at the top, got 'just text'\n   just text\n   ^~~~~~~~~"},
        Case{"~: 3\n", "t.yaml:1:1: error: a key must be text, got nothing\n   ~: 3\n   ^"},
        Case{"[a]: 3\n",
             "t.yaml:1:1: error: a key must be text, not a list or a map (is a bracket left open?)\n   [a]: 3\n   ^"},
        Case{
            "[1, a]: 3\n",
            "t.yaml:1:1: error: a key must be text, not a list or a map (is a bracket left open?)\n   [1, a]: 3\n   ^"},
        Case{"[1, 2]: 3\n'[1, 2]': 4\n",
             "t.yaml:2:1: error: duplicate key '[1, 2]' (first at t.yaml:1:1)\n   '[1, 2]': 4\n   ^~~~~~~~"},
        Case{std::string("a: x\1\n"), "t.yaml:1:5: error: control character 0x01; a configuration is plain text"}));

TEST(BadYaml, LongLinesAreShownAroundTheMistake) {
  std::string text = "seed: 1\nlayers: [";
  for (int i = 0; i < 40; ++i) text += "relu, ";
  text += "relo, ";
  for (int i = 0; i < 40; ++i) text += "relu, ";
  try {
    read_config(text + "relu]\n");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "t.yaml:2:250: error: unknown layer 'relo'; did you mean 'relu'?\n"
        "   …lu, relu, relu, relu, relu, relu, relu, relo, relu, relu, relu, relu, relu, relu, relu, relu, relu, "
        "relu, relu…\n"
        "                                            ^~~~");
  }
}

TEST(BadYaml, CaretsCountCharacters) {
  try {
    read_config("# é\ntrain: {µµ: 1, \"ß\": 2}\nlayers: []\n");
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "t.yaml:2:9: error: unknown key 'µµ' in train; valid keys: epochs, momentum, nesterov and adam\n"
                 "   train: {µµ: 1, \"ß\": 2}\n"
                 "           ^~");
  }
}

TEST(BadYaml, ATabInTheIndentationIsNamed) {
  const auto error_of = [](std::string_view text) -> std::string {
    try {
      read_config(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string reason = "error: a tab in the indentation: YAML indents by spaces\n";
  EXPECT_EQ(error_of("layers: []\ntrain:\n\tepochs: 1\n").rfind("t.yaml:3:1: " + reason, 0), 0u);
  EXPECT_EQ(error_of("layers: []\ntrain:\n  epochs: 1\n \tmomentum: 0\n").rfind("t.yaml:4:2: " + reason, 0), 0u);
  EXPECT_EQ(error_of("axes: [0,\n\t1]\nlayers: []\n"), "no error") << "within brackets it is harmless";
}

TEST(BadYaml, DeepNestingIsAnErrorNotACrash) {
  EXPECT_THROW(read_config("a: " + std::string(5000, '[')), ConfigError);
  std::string blocks;
  for (int i = 0; i < 3000; ++i) blocks += std::string(static_cast<std::size_t>(i), ' ') + "a:\n";
  EXPECT_THROW(read_config(blocks), ConfigError);
  EXPECT_THROW(read_config("a: " + std::string(20000, '[') + std::string(20000, ']')), ConfigError);
}

TEST(BadYaml, CodeReadingTheConfigurationCanPointAtAnyValue) {
  const auto document = ConfigDocument::parse("a: {b: 77}\n", "t.yaml");
  const auto error_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no error";
  };
  const ConfigNode b = document.map().map("a").node("b");
  EXPECT_EQ(error_of([&] { b.fail("too odd"); }), "t.yaml:1:8: error: too odd\n   a: {b: 77}\n          ^~");
  EXPECT_EQ(error_of([&] { b.fail_at_key("odd key"); }), "t.yaml:1:5: error: odd key\n   a: {b: 77}\n       ^");
  EXPECT_EQ(error_of([&] { document.root().fail("no"); }), "t.yaml:1:1: error: no\n   a: {b: 77}\n   ^");
}

}  // namespace
}  // namespace bantam::config_errors_test

// Graphs that cannot be: each mistake is reported at its place, in a block's list with the place of its use.

#include <gtest/gtest.h>

#include "tests/cpu_seconds.h"
#include "tests/models/yaml/error_case.h"

namespace bantam::models::graph_errors_test {
namespace {

class BadGraphs : public ::testing::TestWithParam<Case> {};

TEST_P(BadGraphs, AreReportedWhereTheyStand) { expect_reported(GetParam()); }

/// The first layer's entry begins at 4:7.
std::string layers(const std::string& text) { return "model:\n  input: [8, 8, 4]\n  layers:\n    - " + text + "\n"; }

/// A block `b` with parameters in line 5 (values from column 20) and one entry in line 7 (from column 11); its use is
/// in line 9, at column 7.
std::string block(const std::string& parameters, const std::string& entry, const std::string& use) {
  return "model:\n  input: [8, 8, 4]\n  blocks:\n    b:\n      parameters: " + parameters +
         "\n      layers:\n        - " + entry + "\n  layers:\n    - " + use + "\n";
}

INSTANTIATE_TEST_SUITE_P(
    Names, BadGraphs,
    ::testing::Values(
        Case{"unknown_input", layers("relu: {name: first}\n    - tanh: {inputs: [frist]}"), "5:23",
             "no layer or block before this one is named 'frist'; did you mean 'first'?"},
        Case{"a_later_layer", layers("relu: {inputs: [tanh]}\n    - tanh"), "4:23", "there are input"},
        Case{"a_layer_within_a_block", layers("block: {body: [relu: {name: a}]}\n    - tanh: {inputs: [a]}"), "5:23",
             "is named 'a'"},
        Case{"left_out", layers("relu: {name: a, when: false}\n    - tanh: {inputs: [a]}"), "5:23",
             "'a' is not there: its `when` is false"},
        Case{"no_inputs", layers("relu: {inputs: []}"), "4:14", "at least one layer"},
        Case{"inputs_no_list", layers("relu: {inputs: input}"), "4:22", "expected a list of texts"},
        Case{"too_many_inputs", layers("relu\n    - tanh: {inputs: [relu, input]}"), "5:7",
             "expected one input, got 2"},
        Case{"two_inputs_of_a_block", layers("relu\n    - block: {inputs: [relu, input], body: [relu]}"), "5:15",
             "a block has one input, got 2"},
        Case{"one_input_of_a_sum", layers("add"), "4:7", "layer 'add'"},
        Case{"shapes_of_a_sum", layers("max_pool\n    - add: {inputs: [input, max_pool]}"), "5:7", "layer 'add'"},
        Case{"dead_branch", layers("relu: {name: lost}\n    - tanh: {inputs: [input]}"), "4:7",
             "no layer reads the output of 'lost'"},
        Case{"dead_end",
             layers("relu: {name: a}\n    - tanh: {name: b}\n    - block: {inputs: [a], body: [relu: {when: "
                    "false}]}"),
             "5:7", "no layer reads the output of 'b', and the model's output is that of its last entry, 'a'"},
        Case{"long_name", layers("relu: {name: " + std::string(101, 'a') + "}"), "4:20",
             "a name is made of at most 100 letters"},
        Case{"repeated_name_taken", layers("relu: {name: a_2}\n    - tanh: {name: a, repeat: 2}"), "5:20",
             "the name 'a_2' is taken"},
        Case{"name_of_repetitions", layers("tanh: {name: a, repeat: 2}\n    - relu: {name: a}"), "5:20",
             "the name 'a' is taken"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Words, BadGraphs,
    ::testing::Values(Case{"repeat_0", layers("relu: {repeat: 0}"), "4:22", "expected an integer from 1 to"},
                      Case{"repeat_negative", layers("relu: {repeat: $(2 - 3)}"), "4:22", "got -1"},
                      Case{"repeat_half", layers("relu: {repeat: 2.5}"), "4:22", "got 2.5"},
                      Case{"when_number", layers("relu: {when: 1}"), "4:20", "expected true or false, got 1"},
                      Case{"nothing_left", layers("relu: {when: false}"), "3:3", "at least one layer"},
                      Case{"nothing_left_in_a_block", layers("block: {body: [relu: {when: false}]}"), "3:3",
                           "at least one layer"},
                      Case{"option_of_a_layer", layers("relu: {repeats: 2}"), "4:14", "did you mean 'repeat'?"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Blocks, BadGraphs,
    ::testing::Values(
        Case{"size", block("{n: null}", "conv2d: {filters: $(n), kernel: 9}", "b: {n: 2}"), "7:11",
             "a window of 9x9 does not fit"},
        Case{"size_has_the_use", block("{n: null}", "conv2d: {filters: $(n), kernel: 9}", "b: {n: 2}"), "7:11",
             "(in block 'b', used at test.yaml:9:7)"},
        Case{"type", block("{n: 1}", "conv2d: {filters: $(channels / 8 * n), kernel: 1}", "b: {n: 5}"), "7:29",
             "model.blocks.b.layers.0.conv2d.filters: expected an integer from 1 to 16777216, got 2.5 (in block 'b', "
             "used "
             "at test.yaml:9:7)"},
        Case{"type_by_name", block("{n: 1}", "conv2d: {filters: $(n), kernel: 1}", "b: {n: many}"), "7:29",
             "got 'many' (in block 'b'"},
        Case{"key", block("{n: 1}", "conv2d: {filter: $(n), kernel: 1}", "b"), "7:20", "did you mean 'filters'?"},
        Case{"unknown_parameter", block("{count: 1}", "dropout: {rate: $(count)}", "b: {coumt: 1}"), "9:11",
             "unknown key 'coumt' in model.layers.0.b; did you mean 'count'?"},
        Case{"missing_parameter", block("{n: null}", "conv2d: {filters: $(n), kernel: 1}", "b"), "9:7",
             "missing key 'n' in model.layers.0.b"},
        Case{"parameter_without_a_value", block("{n: null}", "conv2d: {filters: $(n), kernel: 1}", "b: {n: }"), "9:11",
             "the parameter 'n' needs a value"},
        Case{"unused_parameter", block("{n: 1, m: 2}", "conv2d: {filters: $(n), kernel: 1}", "b"), "5:26",
             "no expression of block 'b' uses the parameter 'm'"},
        Case{"unused_parameter_of_a_model", "model:\n  input: [4]\n  parameters: {a: 1}\n  layers: [relu]\n", "3:16",
             "no expression of the model uses the parameter 'a'"},
        Case{"unknown_block", block("{n: 0.5}", "dropout: {rate: $(n)}", "bb"), "9:7",
             "unknown layer 'bb'; valid: conv2d, "},
        Case{"named_as_a_layer", "model:\n  input: [4]\n  blocks: {relu: {layers: [tanh]}}\n  layers: [tanh]\n", "3:12",
             "'relu' is a layer"},
        Case{"empty_block", "model:\n  input: [4]\n  blocks: {b: {layers: []}}\n  layers: [tanh]\n", "3:16",
             "is empty"},
        Case{"reserved_parameter", block("{width: 1}", "relu", "b"), "5:20", "no parameter may be called 'width'"},
        Case{"reserved_word", block("{repeat: 1}", "relu", "b"), "5:20", "no parameter may be called 'repeat'"},
        Case{"parameter_with_a_dash", block("{a-b: 1}", "relu", "b"), "5:20", "letters, digits and '_'"},
        Case{"inner_name", block("{n: 1}", "add: {inputs: [inptu, input], when: $(n == 1)}", "b"), "7:26",
             "did you mean 'input'? (in block 'b', used at test.yaml:9:7)"},
        Case{"list_to_compute_with", block("{n: 1}", "conv2d: {filters: $(2 * n), kernel: 1}", "b: {n: [1, 2]}"),
             "7:35", "'n' is a list, which an expression can only pass on, as $(n) (in block 'b'"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Expressions, BadGraphs,
    ::testing::Values(
        Case{"syntax", block("{n: 1}", "conv2d: {filters: $(2 * + n), kernel: 1}", "b"), "7:35",
             "expected a value, got '+'"},
        Case{"quoted", block("{n: 1}", "conv2d: {filters: \"$(max(n, 0 ? 1))\", kernel: 1}", "b"), "7:41",
             "unexpected '?'"},
        Case{"unknown_name", block("{n: 1}", "conv2d: {filters: $(n * chanels), kernel: 1}", "b"), "7:35",
             "unknown name 'chanels' in an expression; did you mean 'channels'?"},
        Case{"in_a_block_that_none_uses", block("{n: 1}", "conv2d: {filters: $(n * other), kernel: 1}", "relu"), "7:35",
             "unknown name 'other'"},
        Case{"value", block("{n: 0}", "conv2d: {filters: $(channels // n), kernel: 1}", "b"), "7:40",
             "division by 0 (in block 'b', used at test.yaml:9:7)"},
        Case{"no_image", block("{n: 1}", "dense: {units: $(n * height)}", "flatten\n    - b"), "7:32",
             "there is no height: the input (256) is no image (in block 'b', used at test.yaml:10:7)"},
        Case{"part_of_a_text", layers("relu: {name: a$(1)}"), "4:20", "an expression is a whole value"},
        Case{"key_of_an_entry", block("{n: relu}", "$(n): {}", "b"), "7:11", "an expression is a value, not a key"},
        Case{"braces", layers("conv2d:\n        filters: ${channels}\n        kernel: 1"), "5:18", "written $(…)"},
        Case{"comma_in_braces", layers("conv2d: {filters: $(max(1, 2)), kernel: 1}"), "4:34",
             "an expression with a comma is written in quotes"},
        Case{"comma_in_brackets", layers("conv2d: {filters: 1, kernel: [$(max(1, 2)), 1]}"), "4:37", "in quotes"},
        Case{"default_of_a_later_one", block("{a: $(n), n: 1}", "conv2d: {filters: $(a + n), kernel: 1}", "b"), "5:25",
             "unknown name 'n'"}),
    name_of_case);

constexpr const char* kRing = R"(
model:
  input: [4]
  blocks:
    a: {layers: [relu, b]}
    b: {layers: [c: {name: inner}]}
    c: {layers: [block: {body: [a]}]}
  layers: [a]
)";

TEST(BadGraphs, ABlockWithinItselfIsShownAsARing) {
  const std::string text = error_of(kRing);
  EXPECT_NE(text.find("test.yaml:7:33: error: block 'a' is used within itself: a → b → c → a (in block 'c', used at "
                      "test.yaml:6:18 in block 'b', used at test.yaml:5:24 in block 'a', used at test.yaml:8:12)"),
            std::string::npos)
      << text;
}

/// Blocks x0 … xN, of which each has `uses` of the one before it.
std::string tower(int blocks, const std::string& use) {
  std::string text = "model:\n  input: [4]\n  blocks:\n    x0: {layers: [relu]}\n";
  for (int i = 1; i < blocks; ++i)
    text += "    x" + std::to_string(i) + ": {layers: [x" + std::to_string(i - 1) + ": " + use + "]}\n";
  return text + "  layers: [x" + std::to_string(blocks - 1) + "]\n";
}

double seconds_until_refused(const std::string& yaml, const std::string& message) {
  std::string text;
  const double seconds = testing::cpu_seconds([&] { text = error_of(yaml); });
  EXPECT_NE(text.find(message), std::string::npos) << text.substr(0, 500);
  return seconds;
}

TEST(BadGraphs, TooDeepNestingIsRefused) {
  EXPECT_EQ(error_of(tower(32, "{}")), "was accepted");
  EXPECT_LT(seconds_until_refused(tower(40, "{}"), "nested too deeply: more than 32"), 5);
  std::string inner = "relu";
  for (int i = 0; i < 40; ++i) inner = "block: {body: [" + inner + "]}";
  EXPECT_LT(seconds_until_refused(layers(inner), "nested too deeply: more than 32"), 5);
}

TEST(BadGraphs, TooManyLayersAreRefusedSoon) {
  EXPECT_LT(seconds_until_refused(tower(10, "{repeat: 1000}"), "too many layers"), 20);
  EXPECT_LT(seconds_until_refused(
                layers("block: {repeat: 1000, body: [block: {repeat: 1000, body: [relu: {repeat: 1000}]}]}"),
                "more than 131,072 entries"),
            20);
  // without a single layer
  EXPECT_LT(seconds_until_refused(
                layers("block: {repeat: 100000, body: [block: {repeat: 100000, body: [relu: {when: false}]}]}"),
                "too many layers"),
            20);
  std::string wide = "model:\n  input: [4]\n  blocks:\n    w:\n      layers: [";
  for (int i = 0; i < 20'000; ++i) wide += "relu: {when: false}, ";
  EXPECT_LT(seconds_until_refused(wide + "relu]\n  layers: [w: {repeat: 100000}]\n", "too many layers"), 20);
  // a long text, copied often
  std::string texts = "model:\n  input: [4]\n  blocks:\n    w:\n      parameters: {t: " + std::string(100'000, 'a') +
                      "}\n      layers: [";
  for (int i = 0; i < 20'000; ++i) texts += "relu: {name: $(t)}, ";
  EXPECT_LT(seconds_until_refused(texts + "relu]\n  layers: [w]\n", "more than 524,288 values"), 20);
}

}  // namespace
}  // namespace bantam::models::graph_errors_test

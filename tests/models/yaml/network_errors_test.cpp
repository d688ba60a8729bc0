// Models that cannot be: each mistake is reported at its own place in the file, with what would be right.
#include <gtest/gtest.h>

#include "tests/models/yaml/error_case.h"

namespace bantam::models::network_errors_test {
namespace {

class BadModels : public ::testing::TestWithParam<Case> {};

TEST_P(BadModels, AreReportedWhereTheyStand) { expect_reported(GetParam()); }

/// One layer in block style: the layer's name is at 4:7, its options at column 7 + length + 2.
std::string layer(const std::string& text) { return "model:\n  input: [9, 9, 4]\n  layers:\n    - " + text + "\n"; }

INSTANTIATE_TEST_SUITE_P(
    Structure, BadModels,
    ::testing::Values(
        Case{"no_input", "model:\n  layers: [relu]\n", "1:1", "missing key 'input' in model"},
        Case{"no_layers", "model:\n  input: [4, 4, 1]\n", "1:1", "missing key 'layers' in model"},
        Case{"empty_layers", "model:\n  input: [4, 4, 1]\n  layers: []\n", "3:3", "at least one layer"},
        Case{"layers_is_a_map", "model:\n  input: [4, 4, 1]\n  layers: {relu: {}}\n", "3:11", "expected a list"},
        Case{"input_is_a_number", "model:\n  input: 32\n  layers: [relu]\n", "2:10", "expected a list of integers"},
        Case{"input_has_rank_4", "model:\n  input: [1, 2, 3, 4]\n  layers: [relu]\n", "2:10", "got 4 extents"},
        Case{"input_is_zero", "model:\n  input: [4, 0, 1]\n  layers: [relu]\n", "2:14", "expected an integer from 1"},
        Case{"unknown_model_key", "model:\n  input: [4, 4, 1]\n  layers: [relu]\n  layrs: 1\n", "4:3",
             "unknown key 'layrs' in model; did you mean 'layers'?"},
        Case{"unknown_layer", layer("conv2: {filters: 4, kernel: 3}"), "4:7",
             "unknown layer 'conv2'; did you mean 'conv2d'?"},
        Case{"unknown_plain_layer", layer("rellu"), "4:7", "did you mean 'relu'?"},
        Case{"far_layer", layer("xyzzyxyzzy"), "4:7", "valid: conv2d, depthwise_conv2d"},
        Case{"two_layers_in_one_entry", layer("relu: {}\n      flatten: {}"), "4:7", "of 2 keys"},
        Case{"options_are_a_number", layer("dropout: 0.5"), "4:16", "expected a map"},
        Case{"zoo_and_layers", "model:\n  zoo: resnet50\n  layers: [relu]\n", "3:3", "unknown key 'layers' in model"},
        Case{"unknown_zoo", "model: {zoo: resnet500}\n", "1:9",
             "unknown zoo model 'resnet500'; did you mean 'resnet50'?"},
        Case{"another_network", "model: {zoo: resnet152}\n", "1:9",
             "unknown zoo model 'resnet152'; the zoo has separable_cnn, resnet18_cifar, resnet20, resnet56, "},
        Case{"huge_kernel", layer("conv2d: {filters: 8, kernel: 1048576, padding: same}"), "4:7",
             "layer 'conv2d': 35,184,372,088,840 weights are too many: a model has at most 17,179,869,184"},
        Case{"uncountable_weights", layer("conv2d: {filters: 16777216, kernel: 1048576, padding: same}"), "4:7",
             "a shape's element count overflows"},
        Case{"huge_in_a_block", layer("block: {body: [relu, conv2d: {filters: 8, kernel: 1048576, padding: same}]}"),
             "4:28", "layer 'block/conv2d': 35,184,372,088,840 weights"},
        Case{"huge_zoo", "model:\n  zoo: separable_cnn\n  input: [65536, 65536, 3]\n", "3:10", "weights are too many"},
        Case{"width_without_width", "model: {zoo: resnet50, width: 2}\n", "1:24", "unknown key 'width'"},
        Case{"misspelt_zoo", "model: {zo: resnet18_cifar}\n", "1:9", "unknown key 'zo' in model; did you mean 'zoo'?"},
        Case{"input_has_rank_2", "model:\n  input: [32, 32]\n  layers: [relu]\n", "2:10", "got 2 extents"},
        Case{"zoo_input_has_rank_2", "model:\n  zoo: mobilenet_v1\n  input: [32, 32]\n", "3:10", "got 2 extents"},
        Case{"zoo_channels_first", "model:\n  zoo: resnet50\n  input: [3, 224, 224]\n", "3:10",
             "[channels, height, width]; it is [height, width, channels] here:\n  input: [224, 224, 3]"},
        Case{"zoo_grey_channels_first", "model:\n  zoo: mobilenet_v1\n  input: [1, 32, 32]\n", "3:10",
             "input: [32, 32, 1]"},
        Case{"zoo_channels_first_too_few_rows", "model:\n  zoo: vgg11\n  input: [3, 224, 192]\n", "3:10",
             "input: [224, 192, 3]"},
        Case{"layers_channels_first",
             "model:\n  input: [3, 32, 32]\n  layers:\n    - conv2d: {filters: 8, kernel: 5}\n", "4:7",
             "input: [32, 32, 3]"},
        Case{"zoo_input_is_no_image", "model:\n  zoo: mobilenet_v1\n  input: [32]\n", "3:10", "layer 'stem'"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Options, BadModels,
    ::testing::Values(
        Case{"unknown_option", layer("conv2d: {filters: 4, kernl: 3}"), "4:28",
             "unknown key 'kernl' in model.layers.0.conv2d; did you mean 'kernel'?"},
        Case{"misspelt_option", layer("conv2d: {filters: 4, kernel: 3, stirde: 2}"), "4:39", "did you mean 'stride'?"},
        Case{"missing_filters", layer("conv2d: {kernel: 3}"), "4:7", "missing key 'filters'"},
        Case{"missing_beside_another_name", layer("conv2d: {kernel_size: 3}"), "4:7",
             "missing key 'filters' in model.layers.0.conv2d; and 'kernel_size' is called 'kernel' here"},
        Case{"filters_is_text", layer("conv2d: {filters: many, kernel: 3}"), "4:25", "expected an integer"},
        Case{"filters_is_zero", layer("conv2d: {filters: 0, kernel: 3}"), "4:25", "expected an integer from 1"},
        Case{"kernel_of_three", layer("conv2d: {filters: 1, kernel: [3, 3, 3]}"), "4:36", "list of two"},
        Case{"padding_word", layer("conv2d: {filters: 1, kernel: 3, padding: smae}"), "4:48",
             "expected valid, same, an integer"},
        Case{"padding_negative", layer("conv2d: {filters: 1, kernel: 3, padding: -1}"), "4:48", "expected valid, same"},
        Case{"padding_side", layer("conv2d: {filters: 1, kernel: 3, padding: {upper: 1}}"), "4:49",
             "unknown key 'upper'"},
        Case{"bias_is_yes", layer("dense: {units: 1, bias: yes}"), "4:31", "write true"},
        Case{"unknown_activation", layer("dense: {units: 1, activation: relo}"), "4:37", "did you mean 'relu'?"},
        Case{"activation_option", layer("dense: {units: 1, activation: {relu: {slope: 1}}}"), "4:45",
             "unknown key 'slope'"},
        Case{"unknown_initializer", layer("dense: {units: 1, initializer: he_norml}"), "4:38",
             "did you mean 'he_normal'?"},
        Case{"momentum_and_rate", layer("batch_norm: {momentum: 0.9, rate: 0.1}"), "4:20", "not both"},
        Case{"momentum_of_one", layer("batch_norm: {momentum: 1}"), "4:30", "expected a number in [0, 1)"},
        Case{"rate_of_zero", layer("batch_norm: {rate: 0}"), "4:26", "expected a number in (0, 1]"},
        Case{"misspelt_rate", layer("batch_norm: {rat: 0.1}"), "4:20",
             "unknown key 'rat' in model.layers.0.batch_norm; did you mean 'rate'?"},
        Case{"epsilon_lost_in_float32", layer("batch_norm: {epsilon: 1e-60}"), "4:29",
             "expected a number in [1e-12, 1], got 1e-60"},
        Case{"dropout_of_one", layer("dropout: {rate: 1.0}"), "4:23", "expected a number in [0, 1)"},
        Case{"bad_name", layer("relu: {name: \"a/b\"}"), "4:20", "a name is made of at most 100 letters"},
        Case{"name_taken", layer("relu: {name: a}\n    - relu: {name: a}"), "5:20", "the name 'a' is taken"},
        Case{"the_inputs_name", layer("relu: {name: input}"), "4:20", "the name 'input' is taken"}),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Shapes, BadModels,
    ::testing::Values(Case{"kernel_too_large", layer("conv2d: {filters: 1, kernel: 11}"), "4:7", "layer 'conv2d'"},
                      Case{"groups", layer("conv2d: {filters: 4, kernel: 3, groups: 3}"), "4:7",
                           "do not divide into 3 groups"},
                      Case{"attention_heads", layer("attention: {heads: 2}"), "4:7", "layer 'attention'"},
                      Case{"pool_on_vector", layer("flatten\n    - max_pool"), "5:7", "layer 'max_pool'"},
                      Case{"residual_shapes", layer("residual: {body: [conv2d: {filters: 5, kernel: 1}]}"), "4:7",
                           "layer 'residual/add'"},
                      Case{"residual_without_body", layer("residual: {activation: relu}"), "4:7", "missing key 'body'"},
                      Case{"residual_empty_body", layer("residual: {body: []}"), "4:18", "empty"},
                      Case{"inside_a_body", layer("block:\n        body:\n          - dense: {units: 2, unit: 3}"),
                           "6:31", "did you mean 'units'?"}),
    name_of_case);

}  // namespace
}  // namespace bantam::models::network_errors_test

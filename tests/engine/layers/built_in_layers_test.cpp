// What holds for every built-in layer, a row each: its gradient is its function's, recompute changes no bit, plans are
// the truth to the byte, shapes that do not fit are refused, and its options are read. A new layer adds its rows.
#include <numeric>
#include <set>

#include "bantam/base/error.h"
#include "bantam/engine/plan/step_plan.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/finite_differences.h"

namespace bantam::built_in_layers_test {
namespace {

using testing::EngineTest;
using testing::random_tensor;

struct Row {
  std::string name;
  LayerPtr layer;
  Shape input, output;
  float low = -1;                       // of the gradient's inputs: away from corners, where there are some
  std::vector<LayerPtr> branches = {};  // of the input, which the layer reads, too; null: the input itself
};

std::vector<Row> rows() {
  const Shape image{6, 4, 4};
  const ActivationOptions gelu{Activation::gelu};
  return {
      {"conv2d",
       conv2d({.filters = 6, .stride = {2, 1}, .padding = Padding::same(), .groups = 2, .activation = gelu}),
       image,
       {3, 4, 6}},
      {"zero_padding, mirrored",
       zero_padding({{PaddingKind::explicit_, 1, 2, 2, -1}, ops::PaddingMode::reflect}),
       image,
       {9, 5, 4}},
      {"layer_norm", layer_norm(), image, image},
      {"layer_norm of features", layer_norm({.shift = false}), {9}, {9}},
      {"group_norm", group_norm({.groups = 2, .activation = gelu}), image, image},
      {"group_norm of features", group_norm({.groups = 3, .activation = gelu}), {12}, {12}},
      {"instance_norm", group_norm({.groups = 0}), image, image},
      {"global_response_norm", global_response_norm(), image, image},
      {"transposed_conv2d",
       transposed_conv2d({.filters = 6,
                          .kernel = {3, 2},
                          .stride = {2, 1},
                          .output_padding = {1, 0},
                          .padding = Padding::symmetric(1),
                          .groups = 2,
                          .activation = gelu}),
       image,
       {12, 3, 6}},
      {"conv2d, mirrored",
       conv2d({.filters = 6, .padding = Padding::same(), .padding_mode = ops::PaddingMode::reflect}),
       image,
       {6, 4, 6}},
      {"conv2d, circular, alone",
       conv2d({.filters = 6,
               .kernel = {3, 2},
               .stride = {2, 1},
               .padding = {PaddingKind::explicit_, 2, 1, 0, 1},
               .padding_mode = ops::PaddingMode::circular,
               .bias = false}),
       image,
       {4, 4, 6}},
      {"transposed_conv2d alone", transposed_conv2d({.filters = 3, .bias = false}), image, {12, 8, 3}},
      {"depthwise_conv2d", depthwise_conv2d({.multiplier = 2}), image, {4, 2, 8}},
      {"separable_conv2d", separable_conv2d({.filters = 5, .padding = Padding::same()}), image, {6, 4, 5}},
      {"dense", dense({.units = 7, .activation = gelu}), {9}, {7}},
      {"batch_norm", batch_norm({.activation = gelu}), image, image},
      {"average_pool", average_pool({.window = {3, 2}, .stride = {2, 2}}), image, {2, 2, 4}},
      {"average_pool, ceil mode",
       average_pool({.window = {3, 3}, .dilation = {2, 1}, .count_padding = true, .ceil_mode = true}),
       image,
       {2, 2, 4}},
      {"upsample", upsample(), image, {12, 8, 4}},
      {"upsample, bilinear",
       upsample({.scale = {3, 2}, .interpolation = ops::Interpolation::bilinear}),
       image,
       {18, 8, 4}},
      {"upsample, aligned",
       upsample({.interpolation = ops::Interpolation::bilinear, .align_corners = true}),
       image,
       {12, 8, 4}},
      {"zero_padding", zero_padding({.amounts = Padding::symmetric(2)}), image, {10, 8, 4}},
      {"crop", crop({.amounts = {PaddingKind::explicit_, 1, 2, 0, 1}}), image, {3, 3, 4}},
      {"depth_to_space", depth_to_space(), image, {12, 8, 1}},
      {"channel_slice", channel_slice({.begin = 1, .end = 3}), image, {6, 4, 2}},
      {"channel_slice to the end", channel_slice({.begin = 5}), {9}, {4}},
      {"channel_slice of what is read elsewhere", multiply(), {9}, {9}, -1, {channel_slice({.end = 9})}},
      {"slice", slice({.axis = 0, .stop = 1}), image, {1, 4, 4}},
      {"slice of features", slice({.axis = -1, .start = -4, .stop = -1}), {9}, {3}},
      {"slice of columns", slice({.axis = 1, .start = 1, .stop = 3}), image, {6, 2, 4}},
      {"slice, every second row", slice({.axis = 0, .start = 1, .stop = 9, .step = 2}), image, {3, 4, 4}},
      {"slice, every third channel", slice({.axis = 2, .step = 3}), image, {6, 4, 2}},
      {"slice of what is read elsewhere", multiply(), {9}, {9}, -1, {slice({.axis = 0})}},
      {"channel_shuffle", channel_shuffle(), image, image},
      {"channel_shuffle of features", channel_shuffle({.groups = 4}), {12}, {12}},
      {"global_average_pool", global_average_pool(), image, {4}},
      {"relu", activation({Activation::relu}), image, image, 0.5f},
      {"silu", activation({Activation::silu}), image, image},
      {"elu", activation({Activation::elu, 1.0f}), image, image},
      {"selu", activation({Activation::selu}), image, image},
      {"mish", activation({Activation::mish}), image, image},
      {"hard_swish", activation({Activation::hard_swish}), image, image},
      {"hard_sigmoid", activation({Activation::hard_sigmoid}), image, image},
      {"softplus", activation({Activation::softplus}), image, image},
      {"batch_norm with hard_swish", batch_norm({.activation = {Activation::hard_swish}}), image, image},
      {"squeeze_excite", squeeze_excite({.units = 3, .activation = {Activation::silu}}), image, image},
      {"squeeze_excite, hard gate",
       squeeze_excite({.units = 5, .activation = {Activation::tanh}, .gate = Activation::hard_sigmoid}), image, image},
      {"dropout", dropout({.rate = 0.25f}), image, image},
      {"spatial_dropout", spatial_dropout({.rate = 0.25f}), image, image},
      {"drop_path", drop_path({.rate = 0.25f}), image, image},
      {"prelu", prelu(), image, image, 0.5f},
      {"prelu, one slope", prelu({.initial = 0.1f, .shared = true}), image, image, 0.5f},
      {"layer_scale", layer_scale({.initial = 0.5f}), image, image},
      {"softmax", softmax(), image, image},
      {"flatten", flatten(), image, {96}},
      {"reshape", reshape({.shape = {12, 2, 4}}), image, {12, 2, 4}},
      {"reshape, one extent inferred", reshape({.shape = {8, -1}}), image, {8, 12}},
      {"reshape to an image", reshape({.shape = {-1, 2, 3}}), {12}, {2, 2, 3}},
      {"attention of tokens", attention({.heads = 2}), {5, 48}, {5, 16}},
      {"attention of images", attention({.heads = 1}), {3, 4, 36}, {3, 4, 12}},
      {"attention of many tokens", attention({.heads = 1}), {17, 16, 24}, {17, 16, 8}},
      {"concat", concat(), image, {6, 4, 10}, -1, {conv2d({.filters = 6, .padding = Padding::same()})}},
      {"concat of one value", concat(), image, {6, 4, 16}, -1, {nullptr, activation({Activation::silu}), nullptr}},
      {"concat of vectors", concat(), {9}, {12}, -1, {dense({.units = 3})}},
      {"average", average(), image, image, -1, {activation({Activation::silu}), nullptr}},
      {"multiply", multiply(), image, image, -1, {activation({Activation::silu}), nullptr}},
      {"multiply by channels", multiply(), image, image, -1, {global_average_pool()}},
      {"multiply by channels, kept axes", multiply(), image, image, -1, {conv2d({.filters = 4, .kernel = {6, 4}})}},
      {"add of three", add(), image, image, -1, {activation({Activation::silu}), nullptr}}};
}

/// Adds the branches, and the layer after the last node.
void add_layer(Graph& graph, const Row& row) {
  const NodeId x = graph.output();
  std::vector<NodeId> inputs{x};
  for (const LayerPtr& branch : row.branches) inputs.push_back(branch != nullptr ? graph.add("", branch, {x}) : x);
  graph.add("layer", row.layer, inputs);
}

struct Misfit {
  std::string name;
  LayerPtr layer;
  Shape input;
  std::string message;
  std::vector<Shape> others = {};  // further inputs
};

std::vector<Misfit> misfits() {
  const std::string extents = "reshape: expected 1 to 7 extents of at least 1, one of which may be -1, got ";
  return {
      {"conv2d", conv2d({}), {9}, "conv2d: expected an input (height, width, channels), got (9)"},
      {"transposed_conv2d",
       transposed_conv2d({.filters = 6, .groups = 4}),
       {2, 2, 4},
       "transposed_conv2d: 4 input channels and 6 filters do not divide into 4 groups"},
      {"no output",
       transposed_conv2d({.padding = Padding::symmetric(2)}),
       {2, 2, 4},
       "transposed_conv2d: an input of 2x2 with padding 2+2, 2+2 makes an output of 0x0"},
      {"dense",
       dense({}),
       {2, 2, 3},
       "dense: expected an input (features), got (2, 2, 3); put flatten or global_average_pool before it"},
      {"pool", max_pool(), {1, 1, 4}, "max_pool: a window of 2x2 does not fit an input of 1x1"},
      {"padding alone",
       max_pool({.stride = {1, 1}, .dilation = {2, 1}, .padding = {PaddingKind::explicit_, 1, 1, 0, 0}}),
       {1, 2, 4},
       "max_pool: a window of 2x2 with dilation 2x1 would hold padding alone on an input of 1x2"},
      {"groups",
       group_norm({.groups = 3}),
       {2, 2, 4},
       "group_norm: 3 groups do not divide the 4 channels of (2, 2, 4)"},
      {"no positions",
       global_response_norm(),
       {9},
       "global_response_norm: expected an input with positions and channels, got (9)"},
      {"no channels", layer_norm(), {}, "layer_norm: expected an input with channels, got a scalar"},
      {"upsample", upsample({.scale = {0, 1}}), {2, 2, 4}, "upsample: scale must be at least 1, got 0"},
      {"mirrored",
       zero_padding({Padding::symmetric(2), ops::PaddingMode::reflect}),
       {2, 4, 4},
       "zero_padding: mirrored padding 2 must be smaller than the height 2"},
      {"circular",
       conv2d({.padding = Padding::symmetric(3), .padding_mode = ops::PaddingMode::circular}),
       {4, 2, 4},
       "conv2d: circular padding 3 must not be larger than the width 2"},
      {"crop",
       crop({.amounts = Padding::symmetric(2)}),
       {5, 4, 4},
       "crop: cropping 2 and 2 leaves nothing of a width of 4"},
      {"depth_to_space",
       depth_to_space({.block = 3}),
       {2, 2, 6},
       "depth_to_space: 6 channels do not divide into blocks of 3x3"},
      {"channel_slice",
       channel_slice({.begin = 4, .end = 4}),
       {2, 2, 6},
       "channel_slice: channels 4 to 4 of 6; expected 0 <= begin < end <= 6"},
      {"channel_slice beyond",
       channel_slice({.end = 7}),
       {6},
       "channel_slice: channels 0 to 7 of 6; expected 0 <= begin < end <= 6"},
      {"slice",
       slice({.axis = 0, .start = 3, .stop = -4}),
       {6, 2},
       "slice: positions 3 to 2 of axis 0 of (6, 2) are none"},
      {"slice of no axis", slice({.axis = -3}), {6, 2}, "slice: axis -3 of an input (6, 2)"},
      {"slice backwards", slice({.axis = 0, .step = -1}), {6, 2}, "slice: step must be at least 1, got -1"},
      {"channel_shuffle",
       channel_shuffle({.groups = 4}),
       {2, 2, 6},
       "channel_shuffle: 6 channels do not divide into 4 groups"},
      {"dropout", dropout({.rate = 1}), {4}, "dropout: the rate must be in [0, 1), got 1"},
      {"channels dropped", spatial_dropout({.rate = 1}), {4}, "spatial_dropout: the rate must be in [0, 1), got 1"},
      {"samples dropped", drop_path({.rate = -0.5f}), {4}, "drop_path: the rate must be in [0, 1), got -0.5"},
      {"no channels", prelu(), {}, "prelu: expected an input with channels, got a scalar"},
      {"nothing to scale", layer_scale(), {}, "layer_scale: expected an input with channels, got a scalar"},
      {"no classes", softmax(), {}, "softmax: expected an input with classes, got a scalar"},
      {"more", reshape({.shape = {4, 4}}), {2, 4, 1}, "reshape: the 8 elements of (2, 4, 1) do not fit (4, 4)"},
      {"fewer", reshape({.shape = {2, 2}}), {2, 4, 1}, "reshape: the 8 elements of (2, 4, 1) do not fit (2, 2)"},
      {"no whole extent", reshape({.shape = {3, -1}}), {8}, "reshape: the 8 elements of (8) do not fit (3, -1)"},
      {"two open", reshape({.shape = {-1, -1}}), {8}, extents + "(-1, -1)"},
      {"zero", reshape({.shape = {0, 8}}), {8}, extents + "(0, 8)"},
      {"negative", reshape({.shape = {-4, -2}}), {8}, extents + "(-4, -2)"},
      {"none", reshape({}), {1}, extents + "()"},
      {"too many", reshape({.shape = {1, 1, 1, 1, 1, 1, 1, 8}}), {8}, extents + "(1, 1, 1, 1, 1, 1, 1, 8)"},
      {"attention of features",
       attention({.heads = 2}),
       {48},
       "attention: expected an input (tokens, channels) or (height, width, channels), got (48)"},
      {"heads",
       attention({.heads = 6}),
       {10, 384},
       "attention: queries, keys and values of 6 heads do not divide the 384 channels of (10, 384); expected a "
       "multiple "
       "of 18, as a dense layer of 3 · 6 · head size units before it writes"},
      {"no heads", attention({.heads = 0}), {10, 384}, "attention: heads must be at least 1, got 0"},
      {"small heads",
       attention({.heads = 8}),
       {10, 96},
       "attention: a head has 4 channels; expected a multiple of 4 from 8 to 128"},
      {"large heads",
       attention({.heads = 1}),
       {10, 396},
       "attention: a head has 132 channels; expected a multiple of 4 from 8 to 128"},
      {"concat of one", concat(), {8}, "concat: expected two or more inputs, got 1"},
      {"concat",
       concat(),
       {4, 4, 8},
       "concat: the inputs (4, 4, 8) and (4, 3, 8) do not fit; expected shapes that differ in their last axis alone",
       {{4, 4, 2}, {4, 3, 8}}},
      {"average",
       average(),
       {4, 4, 8},
       "average: the inputs (4, 4, 8) and (8) do not fit; expected inputs of one shape",
       {{8}}},
      {"multiply",
       multiply(),
       {4, 4, 8},
       "multiply: the inputs (4, 4, 8) and (4) do not fit; expected inputs of one shape, or (…, C) and (C)",
       {{4}}},
      {"add of one", add(), {8}, "add: expected two or more inputs, got 1"}};
}

/// A layer as a configuration has it: its output shape and its number of parameters, worked out by hand.
struct Reading {
  std::string yaml;
  Shape output;
  std::int64_t parameters = 0;
  Shape input = {9, 9, 4};
  std::vector<Shape> others = {};  // further inputs

  std::string kind() const { return yaml.substr(0, yaml.find(':')); }
};

std::vector<Reading> readings() {
  const Shape kImage{9, 9, 4};
  return {
      {"conv2d: {filters: 8, kernel: 3}", {7, 7, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: [3, 5], bias: false}", {7, 5, 8}, 8 * 15 * 4},
      {"conv2d: {filters: 8, kernel: 3, padding: same, stride: 2}", {5, 5, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: 3, padding: valid, stride: [2, 1]}", {4, 7, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: 3, padding: 1}", {9, 9, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: 3, padding: [1, 0]}", {9, 7, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: 3, padding: {bottom: 1, right: 2}}", {8, 9, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: 3, dilation: 2}", {5, 5, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: 3, groups: 2, initializer: he_normal}", {7, 7, 8}, 8 * 9 * 2 + 8},
      {"depthwise_conv2d: {kernel: 3, multiplier: 2}", {7, 7, 8}, 9 * 8 + 8},
      {"depthwise_conv2d: {kernel: 3, stride: 2, padding: 1, bias: false}", {5, 5, 4}, 9 * 4},
      // depthwise without bias, pointwise with one
      {"separable_conv2d: {filters: 8, kernel: 3, activation: relu}", {7, 7, 8}, 9 * 4 + 4 * 8 + 8},
      {"separable_conv2d: {filters: 8, kernel: 3, multiplier: 3, bias: false}", {7, 7, 8}, 9 * 12 + 12 * 8},
      {"transposed_conv2d: {filters: 6, kernel: 2, stride: 2}", {18, 18, 6}, 4 * 4 * 6 + 6},
      {"transposed_conv2d: {filters: 6, kernel: [3, 4], stride: 2, padding: 1, output_padding: [1, 0], groups: 2, "
       "bias: false}",
       {18, 18, 6},
       4 * 12 * 3},
      {"transposed_conv2d: {filters: 6, kernel: 3, stride: [2, 3], padding: same, initializer: he_normal}",
       {18, 27, 6},
       4 * 9 * 6 + 6},
      {"conv2d: {filters: 8, kernel: 3, padding: 1, padding_mode: reflect}", {9, 9, 8}, 8 * 9 * 4 + 8},
      {"conv2d: {filters: 8, kernel: 3, stride: 2, padding: same, padding_mode: circular}", {5, 5, 8}, 8 * 9 * 4 + 8},
      {"batch_norm", kImage, 8},
      {"batch_norm: {scale: false, epsilon: 1e-5, rate: 0.1, unbiased: false}", kImage, 4},
      {"batch_norm: {momentum: 0.9, activation: relu6}", kImage, 8},
      {"layer_norm", kImage, 8},
      {"layer_norm: {epsilon: 1e-5, shift: false}", kImage, 4},
      {"group_norm: {groups: 2, activation: silu}", kImage, 8},
      {"instance_norm: {scale: false, shift: false, epsilon: 1e-3}", kImage},
      {"global_response_norm: {epsilon: 1e-5}", kImage, 8},
      {"global_response_norm", {7, 5}, 10, {7, 5}},
      {"max_pool", {4, 4, 4}},
      {"max_pool: {size: 3}", {3, 3, 4}},
      {"max_pool: {size: 3, stride: 2, padding: 1}", {5, 5, 4}},
      {"average_pool: {size: [2, 3], stride: 1, padding: same, count_padding: true}", kImage},
      {"max_pool: {size: 2, ceil_mode: true}", {5, 5, 4}},
      {"max_pool: {size: 3, stride: 1, dilation: [2, 3]}", {5, 3, 4}},
      {"average_pool: {size: 3, stride: 3, padding: 1, ceil_mode: true}", {4, 4, 4}},
      {"upsample", {18, 18, 4}},
      {"upsample: {scale: [3, 1], interpolation: bilinear, align_corners: true}", {27, 9, 4}},
      {"zero_padding: {padding: 1}", {11, 11, 4}},
      {"zero_padding: {padding: {top: 2, right: 3}, mode: reflect}", {11, 12, 4}},
      {"crop: {cropping: [1, 2]}", {7, 5, 4}},
      {"crop: {cropping: {left: 4}}", {9, 5, 4}},
      {"depth_to_space: {order: channel_first}", {18, 18, 1}},
      {"channel_slice: {begin: 1, end: 3}", {9, 9, 2}},
      {"channel_slice: {begin: 1}", {9, 9, 3}},
      {"slice: {axis: 1, start: -3, step: 2}", {9, 2, 4}},
      {"slice: {stop: 1}", {1, 5}, 0, {7, 5}},
      {"channel_shuffle: {groups: 4}", kImage},
      {"attention: {heads: 3}", {7, 36}, 0, {7, 108}},
      {"global_average_pool: {}", {4}},
      {"global_max_pool:", {4}},
      {"dropout: {rate: 0.3}", kImage},
      {"spatial_dropout: {rate: 0.3}", kImage},
      {"drop_path: {rate: 0.3}", kImage},
      {"prelu", kImage, 4},
      {"prelu: {initial: 0.1, shared: true}", kImage, 1},
      {"layer_scale: {initial: 0.1}", kImage, 4},
      {"softmax", kImage},
      {"flatten: {}", {324}},
      {"squeeze_excite: {units: 3}", kImage, 2 * 3 * 4 + 3 + 4},
      {"squeeze_excite: {units: 1, activation: {leaky_relu: {slope: 0.2}}, gate: hard_sigmoid}", kImage, 2 * 4 + 1 + 4},
      {"reshape: {shape: [27, 12]}", {27, 12}},
      {"dense: {units: 7}", {7}, 324 * 7 + 7, {324}},
      {"add: {activation: relu}", kImage, 0, kImage, {kImage}},
      {"concat", {9, 9, 12}, 0, kImage, {kImage, kImage}},
      {"average", kImage, 0, kImage, {kImage}},
      {"multiply", kImage, 0, kImage, {kImage}},
      {"multiply", kImage, 0, kImage, {{4}}},
      {"reshape: {shape: [3, -1, 6]}", {3, 18, 6}},
      {"relu", kImage},
      {"relu6", kImage},
      {"leaky_relu: {slope: 0.2}", kImage},
      {"gelu", kImage},
      {"silu", kImage},
      {"sigmoid", kImage},
      {"tanh: {}", kImage},
      {"elu: {alpha: 0.5}", kImage},
      {"selu", kImage},
      {"mish", kImage},
      {"hard_swish", kImage},
      {"hard_sigmoid", kImage},
      {"softplus: {}", kImage}};
}

class BuiltInLayers : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(BuiltInLayers);

TEST_P(BuiltInLayers, GradientsAgreeWithTheFunction) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    Graph graph(row.input);
    add_layer(graph, row);
    EXPECT_EQ(graph.output_shape(), row.output);
    Model model(runtime(), device(), graph, {});
    Context base = model.context(Pass::train);
    const std::int64_t no_updates = 0;
    const Tensor updates = base.upload({1}, &no_updates);  // dropout counts by it
    base.random.update = updates.as<std::int64_t>();
    // Statistics of a batch amplify rounding the most: 5e-3, as for the op.
    testing::expect_directional(
        base, row.input.prepend(3), row.low, 1,
        [&](const Context& context, const Tensor& x) { return model.forward(context, x); }, 5e-3);
  }
}

// The layer's scale begins with 0, where the norms have no part in the gradient of x.
TEST_P(BuiltInLayers, GlobalResponseNormHasItsFunctionsGradientAtAnyScale) {
  const Context base = context();
  const Shape image{3, 5, 4, 6}, channels{6};
  const Tensor x = random_tensor(base, image, 1), scale = random_tensor(base, channels, 2, -1, 2),
               shift = random_tensor(base, channels, 3);
  const auto norm = [](const Context& c, const Tensor& of, const Tensor& factor, const Tensor& term) {
    return ops::global_response_norm(c, of, factor, term, 1e-2f);
  };
  const auto expect = [&](const Shape& shape, const auto& function) {
    testing::expect_directional(base, shape, -1, 1, function, 2e-3);
  };
  expect(image, [&](const Context& c, const Tensor& t) { return norm(c, t, scale, shift); });
  expect(channels, [&](const Context& c, const Tensor& t) { return norm(c, x, t, shift); });
  expect(channels, [&](const Context& c, const Tensor& t) { return norm(c, x, scale, t); });
}

// NumPy: np.arange(2 * 5 * 3).reshape(2, 5, 3)[:, 1:-1], [:, ::2], [:, :, -2:9:2] and [:, 3:].
TEST_P(BuiltInLayers, SlicesKeepThePositionsThatNumPyKeeps) {
  std::vector<float> values(2 * 5 * 3);
  std::iota(values.begin(), values.end(), 0.0f);
  const auto kept = [&](const SliceOptions& options) {
    Graph graph({5, 3});
    graph.add("slice", slice(options));
    Model model(runtime(), device(), graph, {});
    const Context context = model.context(Pass::evaluate);
    return to_host<float>(model.forward(context, context.upload({2, 5, 3}, values.data())), context.stream);
  };
  using Values = std::vector<float>;
  EXPECT_EQ(kept({.start = 1, .stop = -1}), (Values{3, 4, 5, 6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23, 24, 25, 26}));
  EXPECT_EQ(kept({.step = 2}), (Values{0, 1, 2, 6, 7, 8, 12, 13, 14, 15, 16, 17, 21, 22, 23, 27, 28, 29}));
  EXPECT_EQ(kept({.axis = -1, .start = -2, .stop = 9, .step = 2}), (Values{1, 4, 7, 10, 13, 16, 19, 22, 25, 28}));
  EXPECT_EQ(kept({.start = 3}), (Values{9, 10, 11, 12, 13, 14, 24, 25, 26, 27, 28, 29}));
}

/// The layer in the middle of a network that learns five classes.
Graph network_with(const Row& row) {
  Graph graph(row.input);
  if (row.input.rank() == 3)
    graph.add("first", conv2d({.filters = row.input[2], .padding = Padding::same()}));
  else
    graph.add("first", dense({.units = row.input[-1]}));
  add_layer(graph, row);
  if (row.output.rank() > 1) graph.add("flat", flatten());
  graph.add("head", dense({.units = 5}));
  return graph;
}

struct Outcome {
  std::vector<float> weights;
  MemoryStats memory;
};

/// Three updates, each of one batch of 6.
Outcome trained(Device device, const Graph& graph, const ModelOptions& options) {
  Runtime fresh({.threads = 2});
  Model model(fresh, device, graph, options);
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {6}});
  for (int i = 0; i < 3; ++i)
    step.step(testing::make_batch(model.context(Pass::train), graph.input_shape(), 5, i * 6, 6));
  return {to_host<float>(model.parameters().master(), fresh.stream(device)), fresh.allocator(device).stats()};
}

TEST_P(BuiltInLayers, RecomputeChangesNoBitAndPlansAreTheTruth) {
  using Kind = RecomputeOptions::Kind;
  for (const Row& row : rows()) {
    const Graph graph = network_with(row);
    for (const PrecisionKind precision : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
      ModelOptions options{.precision = {precision}, .seed = 3};
      const std::vector<float> kept = trained(device(), graph, options).weights;
      for (const RecomputeOptions& recompute :
           {RecomputeOptions{}, RecomputeOptions{.derive = Derive::cheap}, RecomputeOptions{.kind = Kind::all},
            RecomputeOptions{.kind = Kind::named, .names = {"layer"}},
            RecomputeOptions{.kind = Kind::named, .names = {"first..layer"}, .derive = Derive::inner}}) {
        SCOPED_TRACE(row.name + ", " + std::string(to_string(options.precision)));
        options.recompute = recompute;
        const Outcome run = trained(device(), graph, options);
        EXPECT_EQ(run.weights, kept);
        EXPECT_EQ(run.memory.departures, 0u);
        if (precision != PrecisionKind::float32) continue;  // the test's own batches are cast on the device
        const StepPlanOptions planned{.model = options, .batch = 6, .device = device()};
        EXPECT_EQ(run.memory.peak_bytes, plan_step(graph, planned).peak_bytes);
      }
    }
  }
}

TEST(BuiltInLayerShapes, ThatDoNotFitAreRefused) {
  for (const Misfit& misfit : misfits()) {
    SCOPED_TRACE(misfit.name);
    try {
      std::vector<Shape> inputs{misfit.input};
      inputs.insert(inputs.end(), misfit.others.begin(), misfit.others.end());
      (void)misfit.layer->output_shape(inputs);
      ADD_FAILURE() << "accepted";
    } catch (const ShapeError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, misfit.message.size()), misfit.message);
    }
  }
}

TEST(BuiltInLayerOptions, AreReadFromAConfiguration) {
  for (const Reading& reading : readings()) {
    SCOPED_TRACE(reading.yaml);
    const ConfigDocument document = ConfigDocument::parse("layer:\n  " + reading.yaml, "test.yaml");
    const LayerPtr layer = read_registered(layer_kinds(), document.map().node("layer"));
    EXPECT_EQ(layer->kind(), layer->kind() == "activation" ? "activation" : reading.kind());
    std::vector<Shape> inputs{reading.input};
    inputs.insert(inputs.end(), reading.others.begin(), reading.others.end());
    EXPECT_EQ(layer->output_shape(inputs), reading.output);
    ParameterArena parameters;
    BufferArena buffers;
    LayerScope scope("layer", parameters, buffers);
    (void)layer->bind(scope, buffers, inputs);
    EXPECT_EQ(parameters.parameter_count(), reading.parameters);
  }
}

TEST(BuiltInLayerOptions, OfEveryKindAreRead) {
  std::set<std::string> read;
  for (const Reading& reading : readings()) read.insert(reading.kind());
  const std::vector<std::string> names = layer_kinds().names();
  EXPECT_EQ(read, std::set<std::string>(names.begin(), names.end()));
  EXPECT_EQ(read.size(), names.size());  // no kind stands twice in the table
  EXPECT_EQ(layer_kinds().find("no_such_layer"), nullptr);
}

}  // namespace
}  // namespace bantam::built_in_layers_test

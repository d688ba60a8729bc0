// What is not supported, by message: the node, its op, and what was expected.
#include <climits>
#include <utility>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/models/onnx/onnx_import.h"
#include "tests/cpu_seconds.h"
#include "tests/models/onnx/small_models.h"

namespace bantam::onnx::onnx_import_errors_test {
namespace {

using namespace std::string_literals;
using testing::Chain;
using testing::integers;
using testing::Integers;
using testing::numbers;
using testing::weight;

std::string error_of(const Model& model, const ImportOptions& options = {}) {
  try {
    (void)import_model(model, options);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

struct Refused {
  std::string name;
  Model model;
  std::string error;
};

void PrintTo(const Refused& c, std::ostream* out) { *out << c.name; }

class ImportOnnxRefuses : public ::testing::TestWithParam<Refused> {};

TEST_P(ImportOnnxRefuses, ByName) { EXPECT_EQ(error_of(GetParam().model), GetParam().error); }

Chain conv() { return Chain().add("Conv", {}, {weight("c.weight", {4, 3, 1, 1})}, "/c/Conv"); }
Tensor scalar(float value) { return Tensor::of("", {}, std::vector<float>{value}); }

Chain response_norm_over(const Integers& positions, std::int64_t channels) {
  Chain chain = conv();
  return testing::add_global_response_norm(chain, positions, channels, channels == 1 ? 4 : 6);
}

std::vector<Refused> windows() {
  return {
      {"one_axis", Chain({-1, 3, 8}).add("Conv", {}, {weight("w", {4, 3, 3})}, "c").model(),
       "node 'c' (Conv): a weight of 3 axes; expected 4, of a convolution over height and width"},
      {"channels", Chain().add("Conv", {}, {weight("w", {4, 2, 3, 3})}, "c").model(),
       "node 'c' (Conv): a weight of 4 filters over 2 channels, in 1 groups, does not fit 3 channels"},
      {"computed_weight", conv().node({.name = "d", .op = "Conv", .inputs = {"v0", "v0"}, .outputs = {"z"}}).model(),
       "node 'd' (Conv): input 1 ('v0') depends on the network's input; expected a constant"},
      {"without_weight", Chain().add("Conv", {}, {}, "c").model(), "node 'c' (Conv): input 1 is missing: the weight"},
      {"too_large", Chain().add("Conv", {}, {weight("w", {4, 3, 9, 9})}, "c").model(),
       "node 'c' (Conv): as conv2d: {filters: 4, kernel: 9, bias: false}: conv2d: a window of 9x9 does not fit an "
       "input of 8x6 with padding 0+0, 0+0"},
      {"pads", Chain().add("Conv", {{"pads", Integers{1, 1}}}, {weight("w", {4, 3, 3, 3})}, "c").model(),
       "node 'c' (Conv): pads: expected four numbers from 0 on"},
      {"strides",
       Chain().add("MaxPool", {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 0}}}, {}, "p").model(),
       "node 'p' (MaxPool): strides: 2 numbers; expected two from 1 on, of height and width"},
      {"auto_pad", Chain().add("MaxPool", {{"kernel_shape", Integers{2, 2}}, {"auto_pad", "SOME"s}}, {}, "p").model(),
       "node 'p' (MaxPool): auto_pad 'SOME'; expected NOTSET, SAME_UPPER, SAME_LOWER or VALID"},
      {"transposed_same",
       Chain()
           .add("ConvTranspose", {{"auto_pad", "SAME_UPPER"s}, {"strides", Integers{1, 2}}},
                {weight("w", {3, 2, 1, 1})}, "t")
           .model(),
       "node 't' (ConvTranspose): auto_pad SAME_UPPER with strides larger than the kernel is not supported; pads are"},
      {"dilated_pool_same",
       Chain()
           .add("MaxPool",
                {{"kernel_shape", Integers{2, 2}}, {"dilations", Integers{2, 1}}, {"auto_pad", "SAME_UPPER"s}}, {}, "p")
           .model(),
       "node 'p' (MaxPool): auto_pad SAME of a window with dilations is not supported; pads are"},
      {"attribute", Chain().add("MaxPool", {{"kernel_shape", 2.0f}}, {}, "p").model(),
       "node 'p' (MaxPool): attribute 'kernel_shape': expected integers"},
      {"resize_axes",
       Chain()
           .add("Resize", {{"axes", Integers{0, 1, 3, 2}}}, {numbers("roi", {}), numbers("", {1, 1, 2, 3})}, "u")
           .model(),
       "node 'u' (Resize): attribute 'axes': expected 0, 1, 2 and 3"},
      {"resize_policy",
       Chain()
           .add("Resize", {{"keep_aspect_ratio_policy", "not_larger"s}},
                {numbers("roi", {}), numbers("", {1, 1, 2, 3})}, "u")
           .model(),
       "node 'u' (Resize): keep_aspect_ratio_policy 'not_larger'; expected stretch"},
      {"bias", Chain().add("Conv", {}, {weight("w", {4, 3, 1, 1}), weight("b", {3})}, "c").model(),
       "node 'c' (Conv): as conv2d: its bias has the shape (3); expected (4)"},
  };
}

std::vector<Refused> values() {
  return {
      {"two_values", Chain({-1, 4}).node({.name = "m", .op = "MatMul", .inputs = {"x", "x"}, .outputs = {"z"}}).model(),
       "node 'm' (MatMul): expected the network's values times a constant matrix; products of two values have no "
       "layer, but attention's"},
      {"inputs", Chain({-1, 4}).add("Gemm", {}, {weight("w", {5, 2})}, "g").model(),
       "node 'g' (Gemm): a weight for 5 inputs; there are 4"},
      {"trans_a", Chain({-1, 4}).add("Gemm", {{"transA", std::int64_t{1}}}, {weight("w", {4, 2})}, "g").model(),
       "node 'g' (Gemm): transA is not supported: the batch is the first axis"},
      {"image_for_features", conv().add("Gemm", {}, {weight("w", {4, 2})}, "g").model(),
       "node 'g' (Gemm): a value of 4 axes; expected 2: (batch, features)"},
      {"clip", conv().add("Clip", {}, {scalar(-1), scalar(1)}, "a").model(),
       "node 'a' (Clip): bounds -1 and 1; expected 0 and 6 (relu6), or 0 alone (relu)"},
      {"hard_sigmoid", conv().add("HardSigmoid", {}, {}, "a").model(),
       "node 'a' (HardSigmoid): alpha 0.2 and beta 0.5; expected 1/6 and 0.5: hard_sigmoid is PyTorch's"},
      {"gelu", conv().add("Gelu", {{"approximate", "sigmoid"s}}, {}, "a").model(),
       "node 'a' (Gelu): approximate 'sigmoid'; expected none or tanh"},
      {"within_a_channel", conv().add("Mul", {}, {weight("", {4, 8, 6})}, "m").model(),
       "node 'm' (Mul): a constant that differs within a channel; expected one number, or one a channel"},
      {"log_softmax_within", conv().add("LogSoftmax", {{"axis", std::int64_t{1}}}, {}, "s").add("Relu").model(),
       "node 's' (LogSoftmax): within a network; at its end it is left out"},
      {"layer_norm_of_images",
       conv().add("LayerNormalization", {{"axis", std::int64_t{1}}}, {weight("w", {4, 8, 6})}, "n").model(),
       "node 'n' (LayerNormalization): normalises more than the last axis, which layer_norm does not"},
      {"instance_norm_of_groups",
       conv().add("InstanceNormalization", {}, {weight("s", {2}), weight("b", {2})}, "n").model(),
       "node 'n' (InstanceNormalization): input 1 has 2 values; there are 4 channels in 4 groups"},
      {"group_norm_without_groups",
       conv().add("GroupNormalization", {}, {weight("s", {4}), weight("b", {4})}, "n").model(),
       "node 'n' (GroupNormalization): num_groups 0 of 4 channels; expected a divisor of them"},
      {"group_norm_of_others",
       conv()
           .add("GroupNormalization", {{"num_groups", std::int64_t{4}}}, {weight("s", {2}), weight("b", {2})}, "n")
           .model(),
       "node 'n' (GroupNormalization): input 1 has 2 values; there are 4 channels in 4 groups"},
      {"matmul_of_the_batch",
       Chain({-1, 1}).add("Reshape", {}, {integers("", {-1})}).add("MatMul", {}, {weight("w", {1, 2})}, "m").model(),
       "node 'm' (MatMul): a value of the batch's axis alone; expected (batch, features)"},
      {"axis_of_old_opsets", conv().opset(6).add("Add", {{"axis", std::int64_t{1}}}, {weight("", {4})}, "a").model(),
       "node 'a' (Add): attribute 'axis', of opsets before 7, is not supported"},
  };
}

std::vector<Refused> shapes() {
  return {
      {"batch", conv().add("Transpose", {{"perm", Integers{1, 0, 2, 3}}}, {}, "t").model(),
       "node 'y' (output): input 'y' was transposed or reshaped so that its batch is not the first axis; expected it "
       "there"},
      {"reshape", conv().add("Reshape", {}, {integers("", {0, 5, -1})}, "r").model(),
       "node 'r' (Reshape): the 192 values of a sample do not fit the new extents"},
      {"reshape_of_the_batch", conv().add("Reshape", {}, {integers("", {7, -1})}, "r").model(),
       "node 'r' (Reshape): expected a shape whose first extent is the batch's"},
      {"reshape_to_no_values",
       conv().add("Reshape", {{"allowzero", std::int64_t{1}}}, {integers("", {0, -1})}, "r").model(),
       "node 'r' (Reshape): expected a shape whose first extent is the batch's"},
      {"reshape_of_many_axes", conv().add("Reshape", {}, {integers("", {0, 1, 1, 1, 1, 1, 1, 1, -1})}, "r").model(),
       "node 'r' (Reshape): a shape of 9 axes; expected at most 8"},
      {"slice_of_the_batch",
       conv().add("Slice", {}, {integers("", {0}), integers("", {1}), integers("", {0})}, "s").model(),
       "node 's' (Slice): cuts the batch"},
      {"slice_of_an_axis_twice",
       conv().add("Slice", {}, {integers("", {1, 1}), integers("", {4, 4}), integers("", {2, -2})}, "s").model(),
       "node 's' (Slice): axes names axis 2 twice"},
      {"concat_of_reshaped_images",
       conv()
           .add("Transpose", {{"perm", Integers{0, 2, 3, 1}}})
           .add("Reshape", {}, {integers("", {0, 4, 12, 4})})
           .node({.name = "j",
                  .op = "Concat",
                  .inputs = {"v2", "v2"},
                  .outputs = {"z"},
                  .attributes = {{"axis", std::int64_t{3}}}})
           .model(),
       "node 'j' (Concat): joins images along their width, or that were reshaped; expected the channels"},
      {"flatten", conv().add("Flatten", {{"axis", std::int64_t{2}}}, {}, "f").model(),
       "node 'f' (Flatten): axis 2; expected 1"},
      {"concat",
       conv()
           .node({.name = "j",
                  .op = "Concat",
                  .inputs = {"v0", "v0"},
                  .outputs = {"z"},
                  .attributes = {{"axis", std::int64_t{2}}}})
           .model(),
       "node 'j' (Concat): along axis 2 of 4; expected that of the channels or features"},
      {"slice_of_nothing",
       conv().add("Slice", {}, {integers("", {3}), integers("", {3}), integers("", {1})}, "s").model(),
       "node 's' (Slice): leaves nothing of axis 1"},
      {"split_of_the_batch", conv().node({.name = "s", .op = "Split", .inputs = {"v0"}, .outputs = {"z", "w"}}).model(),
       "node 's' (Split): works along the batch"},
      {"split_sizes", conv().add("Split", {{"axis", std::int64_t{1}}}, {integers("", {3, 2})}, "s").model(),
       "node 's' (Split): its parts do not add up to the 4 values of its axis"},
      {"gather", conv().add("Gather", {{"axis", std::int64_t{1}}}, {integers("", {4})}, "g").model(),
       "node 'g' (Gather): index 4 of 4"},
      {"flattened_batch", conv().add("Reshape", {}, {integers("", {-1})}).add("Relu", {}, {}, "r").model(),
       "node 'r' (Relu): input 'v1' has the batch in one axis with the features; expected the batch apart"},
      {"expand", conv().add("Expand", {}, {integers("", {1, 4, 8, 12})}, "e").model(),
       "node 'e' (Expand): repeats values (4, 8, 6) to (4, 8, 12); expected factors of an image's channels, or of its "
       "pixels"},
      {"reduced", conv().add("ReduceL2", {{"axes", Integers{2, 3}}}, {}, "n").model(),
       "node 'n' (ReduceL2): there is no layer for this op (a norm over an image that is no part of a global "
       "response normalization); docs/ONNX.md lists those that are imported"},
      {"response_of_columns", response_norm_over({2}, 1).model(),
       "node '/grn/Add' (GlobalResponseNormalization): a global response norm whose norms are not over all positions "
       "of "
       "each channel"},
      {"response_of_rows_as_channels", response_norm_over({1, 3}, 2).model(),
       "node '/grn/Add' (GlobalResponseNormalization): normalises an axis that is not that of the channels"},
      {"pow", conv().add("Pow", {}, {scalar(3)}, "p").model(),
       "node 'p' (Pow): expected the exponent 2 (a product with itself)"},
      {"max", conv().add("Max", {}, {scalar(1)}, "m").model(),
       "node 'm' (Max): expected the larger of a value and 0 (relu)"},
      {"slice_steps",
       conv()
           .add("Slice", {}, {integers("", {8}), integers("", {0}), integers("", {2}), integers("", {-1})}, "s")
           .model(),
       "node 's' (Slice): a step of -1; expected one forwards"},
      {"pad_value", conv().add("Pad", {}, {integers("", {0, 0, 1, 1, 0, 0, 1, 1}), scalar(1)}, "p").model(),
       "node 'p' (Pad): pads with 1; expected 0"},
      {"resize",
       conv().add("Resize", {{"mode", "cubic"s}}, {numbers("roi", {}), numbers("", {1, 1, 2, 2})}, "u").model(),
       "node 'u' (Resize): mode cubic by half_pixel; expected nearest, or linear by half_pixel or align_corners"},
      {"scale", conv().add("Resize", {}, {numbers("roi", {}), numbers("", {1, 1, 1.5f, 2})}, "u").model(),
       "node 'u' (Resize): a scale of 1.5; expected a whole number from 1 on"},
      {"one_axis_of_an_image", conv().add("ReduceMean", {{"axes", Integers{2}}}, {}, "m").model(),
       "node 'm' (ReduceMean): reduces one axis of an image; expected both, height and width"},
  };
}

std::string name_of(const ::testing::TestParamInfo<Refused>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Windows, ImportOnnxRefuses, ::testing::ValuesIn(windows()), name_of);
INSTANTIATE_TEST_SUITE_P(Values, ImportOnnxRefuses, ::testing::ValuesIn(values()), name_of);
INSTANTIATE_TEST_SUITE_P(Shapes, ImportOnnxRefuses, ::testing::ValuesIn(shapes()), name_of);

TEST(ImportOnnxErrors, OpsWithoutLayersAreNamed) {
  const std::string error = error_of(conv().add("LSTM", {}, {}, "/rnn/LSTM").model());
  EXPECT_EQ(error,
            "node '/rnn/LSTM' (LSTM): there is no layer for this op (a recurrent network); docs/ONNX.md lists those "
            "that are imported");
  Chain chain = conv();
  EXPECT_EQ(
      error_of(
          chain.node({.name = "f", .op = "FusedConv", .domain = "com.microsoft", .inputs = {"v0"}, .outputs = {"z"}})
              .model()),
      "node 'f' (com.microsoft.FusedConv): ops of the domain 'com.microsoft' are not supported");
}

TEST(ImportOnnxErrors, ModelsThatAreNoNetworks) {
  Model model = conv().model();
  model.inputs.push_back({.name = "z", .dims = {-1, 2}});
  EXPECT_EQ(error_of(model), "the model has 2 inputs ('x' and 'z'); expected one");
  model = conv().model();
  model.outputs.push_back({.name = "aux", .dims = {-1, 2}});
  EXPECT_EQ(error_of(model), "the model has 2 outputs ('y' and 'aux'); expected one: choose it with --output y");
  EXPECT_EQ(error_of(model, {.output = "z"}), "the model has no output 'z'; it has 2 ('y' and 'aux')");
  model.outputs.clear();
  EXPECT_EQ(error_of(model), "the model has 0 outputs; expected one");
  model = conv().model();
  model.outputs[0].name = "gone";
  EXPECT_EQ(error_of(model), "the output 'gone' is computed by no node");
  EXPECT_EQ(error_of(Chain().add("Identity").model()), "the model has no layers");
  model = conv().model();
  model.nodes.push_back(model.nodes[0]);
  EXPECT_EQ(error_of(model), "node '/c/Conv' (Conv): two values have the name 'y'");
  model = conv().model();
  model.nodes[0].inputs[0] = "nothing";
  EXPECT_EQ(error_of(model), "node '/c/Conv' (Conv): input 'nothing' is computed by no node before");
  model.initializers.push_back(model.initializers[0]);
  EXPECT_EQ(error_of(model), "two initializers have the name 'c.weight'");
}

TEST(ImportOnnxErrors, InputsWithoutASize) {
  Model model = conv().model();
  model.inputs[0].dims = {-1, 3, -1, -1};
  model.inputs[0].names = {"batch", "", "height", ""};
  EXPECT_EQ(
      error_of(model),
      "the input 'x' has the extents (batch, 3, height, ?); expected numbers from 1 to 1048576 but for the batch: "
      "say the height and the width");
  model.inputs[0].dims = {-1, 3, 8, 6};
  EXPECT_EQ(error_of(model, {.size = {8, 7}}),
            "the input 'x' has the extents (batch, 3, 8, 6); its height and width cannot be others");
  model.inputs[0].dims = {-1};
  EXPECT_EQ(error_of(model),
            "the input 'x' has the extents (batch); expected (batch, channels, height, width), (batch, height, width, "
            "channels) or (batch, features)");
}

TEST(ImportOnnxErrors, ClassesOfWhatIsNoClassifier) {
  EXPECT_EQ(error_of(conv().model(), {.classes = 3}),
            "node '/c/Conv' (Conv): the last layer is conv2d; expected a dense one for 3 classes");
}

TEST(ImportOnnxErrors, WeightsThatAreNotFinite) {
  Model model = conv().model();
  model.initializers[0].data.replace(0, 4, "\x00\x00\x80\x7f"s);
  EXPECT_EQ(error_of(model), "node '/c/Conv' (Conv): as conv2d: its weight has values that are not finite");
}

TEST(ImportOnnxErrors, ConstantsThatAreSlicedTwiceAlongAnAxis) {
  Model model = conv().model();
  for (const char* name : {"starts", "ends"}) model.initializers.push_back(integers(name, {3, 3}));
  model.initializers.push_back(integers("axes", {0, 0}));
  model.nodes.insert(
      model.nodes.begin(),
      {.name = "s", .op = "Slice", .inputs = {"c.weight", "starts", "ends", "axes"}, .outputs = {"constant"}});
  EXPECT_EQ(error_of(model), "node 's' (Slice): axes names axis 0 twice");
}

// A constant that nodes of a small file ask to be large.
TEST(ImportOnnxErrors, ConstantsHaveASize) {
  Chain chain = conv();
  Model model = chain.model();
  model.initializers.push_back(integers("huge", {std::int64_t{1} << 40}));
  model.nodes.insert(model.nodes.begin(),
                     {.name = "fill", .op = "ConstantOfShape", .inputs = {"huge"}, .outputs = {"constant"}});
  EXPECT_EQ(error_of(model), "node 'fill' (ConstantOfShape): computes a constant that is too large");
}

/// A million values of a byte each.
Tensor bytes(const std::string& name) {
  return {.name = name, .type = Type::uint8, .dims = {1 << 20}, .data = std::string(1 << 20, '\1')};
}

// Copies of a large constant, as many as nodes that say so.
TEST(ImportOnnxErrors, ConstantsAreCopiedSoOften) {
  Model model = conv().model();
  model.initializers.push_back(bytes("c0"));
  for (int i = 12; i >= 0; --i)
    model.nodes.insert(model.nodes.begin(), {.name = "copy" + std::to_string(i),
                                             .op = "Identity",
                                             .inputs = {"c" + std::to_string(i)},
                                             .outputs = {"c" + std::to_string(i + 1)}});
  // 2^22 elements and eight times the file's own, of which those of a byte count a quarter: 6 of 2^20.
  EXPECT_EQ(error_of(model), "node 'copy6' (Identity): computes a constant that is too large");
}

/// A file of 83 KB that took 45 s: thousands of nodes each read a constant of millions of values, which is one node
/// itself.
TEST(ImportOnnxErrors, ReadingsOfALargeConstantAreCounted) {
  struct Case {
    std::string op;
    std::vector<std::string> inputs;
    bool computed = true;  // else it is a layer's option
  };
  const std::vector<Case> cases = {{"Squeeze", {"one", "large"}},
                                   {"Unsqueeze", {"one", "large"}},
                                   {"Gather", {"large", "zero"}},
                                   {"Slice", {"large", "zero", "one"}},
                                   {"Slice", {"one", "large", "large"}},
                                   {"ReduceSum", {"one", "large"}},
                                   {"CastLike", {"zero", "large"}},
                                   {"Concat", {"zero", "zero"}},
                                   {"Squeeze", {"v", "large"}, false},
                                   {"Reshape", {"v", "large"}, false},
                                   {"Slice", {"v", "large", "large"}, false},
                                   {"Expand", {"v", "large"}, false},
                                   {"Pad", {"v", "large"}, false}};
  constexpr int kNodes = 3000;
  for (const Case& each : cases) {
    Chain chain = conv();
    Model model = chain.model();
    model.initializers.push_back(integers("count", {std::int64_t{4'000'000}}));
    model.initializers.push_back(integers("one", {1}));
    model.initializers.push_back(integers("zero", {0}));
    model.nodes.push_back({.name = "fill",
                           .op = "ConstantOfShape",
                           .inputs = {"count"},
                           .outputs = {"large"},
                           .attributes = {{"value", integers("", {0})}}});
    std::string last = "y";
    for (int i = 0; i < kNodes; ++i) {
      std::vector<std::string> inputs = each.inputs;
      if (!each.computed) inputs[0] = std::exchange(last, "z" + std::to_string(i));
      const std::string name = std::to_string(i);
      model.nodes.push_back({.name = name, .op = each.op, .inputs = inputs, .outputs = {"z" + name}});
    }
    if (!each.computed) model.outputs[0].name = last;
    std::string error;
    EXPECT_LT(bantam::testing::cpu_seconds([&] { error = error_of(model); }), 5) << each.op;
  }
}

/// Empty parts of a sum of parts, and further inputs of a smallest one, cost as much as the values that they are
/// beside.
TEST(ImportOnnxErrors, InputsThatAreCheapToNameAreCounted) {
  Model model = conv().model();
  model.initializers.push_back(integers("count", {std::int64_t{1'000'000}, 1}));
  model.initializers.push_back(integers("none", {std::int64_t{1'000'000}, 0}));
  model.initializers.push_back(integers("one", {1}));
  for (const char* of : {"count", "none"})
    model.nodes.push_back({.name = of,
                           .op = "ConstantOfShape",
                           .inputs = {of},
                           .outputs = {std::string("of ") + of},
                           .attributes = {{"value", integers("", {0})}}});
  std::vector<std::string> parts(20'000, "of none"), least(20'000, "one");
  parts[0] = least[0] = "of count";
  model.nodes.push_back(
      {.name = "joined", .op = "Concat", .inputs = parts, .outputs = {"j"}, .attributes = {{"axis", std::int64_t{1}}}});
  model.nodes.push_back({.name = "least", .op = "Min", .inputs = least, .outputs = {"m"}});
  std::string error;
  EXPECT_LT(bantam::testing::cpu_seconds([&] { error = error_of(model); }), 5);
  EXPECT_EQ(error.substr(0, error.find(" of 2")), "node 'least' (Min): the nodes so far read constants");
}

TEST(ImportOnnxErrors, ConstantsHaveFewAxes) {
  Model model = conv().model();
  model.initializers.push_back(integers("shape", Integers(65, 1)));
  model.initializers.push_back(integers("one", {1}));
  model.nodes.push_back({.name = "r", .op = "Reshape", .inputs = {"one", "shape"}, .outputs = {"z"}});
  EXPECT_EQ(error_of(model), "node 'r' (Reshape): computes a constant of more than 64 axes");
}

// A weight that many nodes read is a weight of many layers.
TEST(ImportOnnxErrors, WeightsAreSharedSoOften) {
  Chain chain({-1, 1024, 1, 1});
  chain.add("Conv", {}, {weight("w", {1024, 1024, 1, 1})});
  for (int i = 1; i < 13; ++i)
    chain.node({.name = "c" + std::to_string(i),
                .op = "Conv",
                .inputs = {chain.last(), "w"},
                .outputs = {"z" + std::to_string(i)}});
  EXPECT_EQ(error_of(chain.model()),
            "node 'c12' (Conv): the layers so far have tensors of 13631488 values, and the model's own constants allow "
            "12582912");
}

// Weights that are Constant nodes instead of initializers are no less the file's own.
TEST(ImportOnnxErrors, ConstantNodesMayBeLarge) {
  Model model = conv().model();
  for (int i = 0; i < 6; ++i)
    model.nodes.insert(model.nodes.begin(),
                       {.op = "Constant", .outputs = {"w" + std::to_string(i)}, .attributes = {{"value", bytes("")}}});
  model.nodes.insert(model.nodes.begin() + 6, {.op = "Identity", .inputs = {"w0"}, .outputs = {"copy"}});
  EXPECT_EQ(error_of(model), "");
}

}  // namespace
}  // namespace bantam::onnx::onnx_import_errors_test

// Attention as exporters write it, node by node: one network of dense layers and `attention`, with the outputs of the
// formula.
#include <algorithm>
#include <cmath>
#include <functional>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/models/onnx/onnx_import.h"
#include "tests/models/onnx/imported_model.h"
#include "tests/models/onnx/small_models.h"

namespace bantam::onnx::attention_test {
namespace {

using namespace std::string_literals;
using testing::Attributes;
using testing::integers;
using testing::Integers;
using testing::weight;

constexpr std::int64_t kTokens = 5, kInputs = 6, kHeads = 2, kSize = 8, kChannels = kHeads * kSize, kUnits = 3;
const std::int64_t kOne = 1;

Tensor scalar(double value) { return Tensor::of("", {}, std::vector<float>{static_cast<float>(value)}); }
Tensor index(std::int64_t value) { return Tensor::of("", {}, Integers{value}); }

/// A graph of x (batch, 5, 6), node by node.
class Net {
 public:
  Net() {
    model_.inputs = {{.name = "x", .dims = {-1, kTokens, kInputs}, .names = {"batch", "", ""}}};
    model_.outputs = {{.name = "y", .dims = {-1, -1, -1}, .names = {"batch", "", ""}}};
  }
  std::string constant(Tensor tensor) {
    if (tensor.name.empty()) tensor.name = "c" + std::to_string(model_.initializers.size());
    model_.initializers.push_back(std::move(tensor));
    return model_.initializers.back().name;
  }
  std::string operator()(const std::string& op, std::vector<std::string> inputs, Attributes attributes = {}) {
    return all(op, std::move(inputs), 1, std::move(attributes))[0];
  }
  std::vector<std::string> all(const std::string& op, std::vector<std::string> inputs, std::size_t outputs,
                               Attributes attributes = {}) {
    Node node{.name = "node" + std::to_string(model_.nodes.size()), .op = op, .inputs = std::move(inputs)};
    for (std::size_t i = 0; i < outputs; ++i) node.outputs.push_back(node.name + "_" + std::to_string(i));
    node.attributes = std::move(attributes);
    model_.nodes.push_back(node);
    return node.outputs;
  }
  std::string reshape(const std::string& x, const Integers& shape) {
    return (*this)("Reshape", {x, constant(integers("", shape))});
  }
  std::string transpose(const std::string& x, const Integers& perm) {
    return (*this)("Transpose", {x}, {{"perm", perm}});
  }
  /// x · weight of (inputs, units) + bias.
  std::string dense(const std::string& x, const Tensor& weight, const Tensor& bias) {
    return (*this)("Add", {(*this)("MatMul", {x, constant(weight)}), constant(bias)});
  }
  Model model(const std::string& output) const {
    Model model = model_;
    model.outputs[0].name = output;
    return model;
  }
  void opset(std::int64_t version) { model_.opset = version; }

 private:
  Model model_;
};

Tensor qkv_weight() { return weight("attn.qkv.weight", {kInputs, 3 * kChannels}, 0.05f); }
Tensor qkv_bias() { return weight("qkv.bias", {3 * kChannels}, 0.03f); }
Tensor project_weight() { return weight("attn.proj.weight", {kChannels, kUnits}); }
Tensor project_bias() { return weight("proj.bias", {kUnits}); }

/// Columns of a matrix, or of a vector.
Tensor columns(const Tensor& tensor, const std::string& name, std::int64_t begin) {
  const std::vector<float> values = tensor.as_floats();
  const std::int64_t width = tensor.dims.back();
  std::vector<float> part;
  for (std::int64_t row = 0; row < std::ssize(values) / width; ++row)
    for (std::int64_t i = begin; i < begin + kChannels; ++i)
      part.push_back(values[static_cast<std::size_t>(row * width + i)]);
  Integers dims = tensor.dims;
  dims.back() = kChannels;
  return Tensor::of(name, dims, part);
}

std::vector<float> inputs(std::int64_t batch) {
  std::vector<float> x(static_cast<std::size_t>(batch * kTokens * kInputs));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(3 * i % 31));
  return x;
}

using Matrix = std::vector<std::vector<double>>;

/// x · w + b.
Matrix product(const Matrix& x, const Tensor& w, const Tensor& b) {
  const std::vector<float> weights = w.as_floats(), terms = b.as_floats();
  Matrix y;
  for (const std::vector<double>& row : x) {
    y.emplace_back(terms.begin(), terms.end());
    for (std::size_t i = 0; i < row.size(); ++i)
      for (std::size_t u = 0; u < terms.size(); ++u) y.back()[u] += row[i] * weights[i * terms.size() + u];
  }
  return y;
}

/// softmax(scale · q · kᵀ) · v, head by head, and the projection, of one sample after the other.
std::vector<double> expected(const std::vector<float>& x, double scale) {
  std::vector<double> all;
  for (std::size_t sample = 0; sample < x.size(); sample += kTokens * kInputs) {
    Matrix tokens;
    for (std::size_t t = 0; t < kTokens; ++t) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(sample + t * kInputs);
      tokens.emplace_back(begin, begin + kInputs);
    }
    const Matrix qkv = product(tokens, qkv_weight(), qkv_bias());
    Matrix o(kTokens, std::vector<double>(kChannels));
    for (std::size_t head = 0; head < kHeads; ++head)
      for (std::size_t t = 0; t < kTokens; ++t) {
        std::vector<double> p(kTokens);
        double sum = 0;
        for (std::size_t s = 0; s < kTokens; ++s) {
          for (std::size_t i = head * kSize; i < (head + 1) * kSize; ++i) p[s] += qkv[t][i] * qkv[s][kChannels + i];
          sum += p[s] = std::exp(scale * p[s]);
        }
        for (std::size_t s = 0; s < kTokens; ++s)
          for (std::size_t i = head * kSize; i < (head + 1) * kSize; ++i)
            o[t][i] += p[s] / sum * qkv[s][2 * kChannels + i];
      }
    for (const std::vector<double>& row : product(o, project_weight(), project_bias()))
      all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

const double kScale = 1 / std::sqrt(static_cast<double>(kSize));

/// softmax(factor · q · kᵀ) · v of (…, tokens, size) and kᵀ.
std::string products(Net& net, const std::string& q, const std::string& k_transposed, const std::string& v) {
  return net("MatMul", {net("Softmax", {net("MatMul", {q, k_transposed})}, {{"axis", std::int64_t{-1}}}), v});
}

/// Three matrix products, as Hugging Face's networks have.
Model separate_products(double scale) {
  Net net;
  std::vector<std::string> parts;
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::string name = "attn."s + "qkv"[i];
    parts.push_back(net.dense("x", columns(qkv_weight(), name + ".weight", i * kChannels),
                              columns(qkv_bias(), name + ".bias", i * kChannels)));
    parts.back() = net.reshape(parts.back(), {0, kTokens, kHeads, kSize});
    parts.back() = net.transpose(parts.back(), i == 1 ? Integers{0, 2, 3, 1} : Integers{0, 2, 1, 3});
  }
  const std::string scores = net("MatMul", {parts[0], parts[1]});
  const std::string scaled = net("Div", {scores, net.constant(scalar(1 / scale))});
  const std::string o = net("MatMul", {net("Softmax", {scaled}, {{"axis", std::int64_t{3}}}), parts[2]});
  const std::string rows = net.reshape(net.transpose(o, {0, 2, 1, 3}), {0, kTokens, kChannels});
  return net.model(net.dense(rows, project_weight(), project_bias()));
}

/// One product, cut by Split and Squeeze; queries and keys are both scaled, keys through three axes: timm's networks.
Model packed(bool with_gather) {
  Net net;
  const std::string all = net.dense("x", qkv_weight(), qkv_bias());
  const std::string cut = net.transpose(net.reshape(all, {0, kTokens, 3, kHeads, kSize}), {2, 0, 3, 1, 4});
  std::vector<std::string> parts;
  if (with_gather) {
    for (std::int64_t i = 0; i < 3; ++i)
      parts.push_back(net("Gather", {cut, net.constant(index(i))}, {{"axis", std::int64_t{0}}}));
  } else {
    parts = net.all("Split", {cut, net.constant(integers("", {1, 1, 1}))}, 3, {{"axis", std::int64_t{0}}});
    const std::string axis = net.constant(integers("", {0}));
    for (std::string& part : parts) part = net("Squeeze", {part, axis});
  }
  const std::string root = net.constant(scalar(std::sqrt(kScale)));
  const std::string k = net.transpose(net.reshape(parts[1], {-1, kTokens, kSize}), {0, 2, 1});
  const std::string o = products(net, net("Mul", {parts[0], root}),
                                 net("Mul", {net.reshape(k, {-1, kHeads, kSize, kTokens}), root}), parts[2]);
  const std::string rows = net.reshape(net.transpose(o, {0, 2, 1, 3}), {-1, kTokens, kChannels});
  return net.model(net.dense(rows, project_weight(), project_bias()));
}

/// torch.nn.MultiheadAttention: the batch behind the tokens, heads and samples in one axis.
Model batch_second(bool by_shape) {
  Net net;
  const std::string moved = net.transpose("x", {1, 0, 2});
  const std::string all = net.dense(moved, qkv_weight(), qkv_bias());
  std::string first = net.reshape(all, {kTokens, -1, 3, kChannels});
  first = net("Unsqueeze", {first, net.constant(integers("", {0}))});
  first = net("Squeeze", {net.transpose(first, {3, 1, 2, 0, 4}), net.constant(integers("", {-2}))});
  std::string rows = net.constant(integers("", {kTokens, -1, kSize}));
  if (by_shape) {  // batch · heads, computed
    const std::string batch = net("Gather", {net("Shape", {moved}), net.constant(integers("", {1}))});
    const std::string heads = net("Mod", {net.constant(integers("", {-1})), net.constant(integers("", {kHeads + 1}))});
    const std::string both = net("Mul", {batch, heads});
    rows = net("Concat", {net.constant(integers("", {kTokens})), both, net.constant(integers("", {kSize}))},
               {{"axis", std::int64_t{0}}});
  }
  std::vector<std::string> parts;
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::string part = net("Gather", {first, net.constant(index(i))}, {{"axis", std::int64_t{0}}});
    parts.push_back(net.transpose(net("Reshape", {part, rows}), {1, 0, 2}));
    parts.back() = net.reshape(parts.back(), {-1, kHeads, kTokens, kSize});
  }
  const std::string q = net("Mul", {parts[0], net.constant(scalar(kScale))});
  const std::string o = products(net, q, net.transpose(parts[1], {0, 1, 3, 2}), parts[2]);
  const std::string flat = net.reshape(net.transpose(o, {2, 0, 1, 3}), {-1, kChannels});
  const std::string y = net("Gemm", {flat, net.constant(project_weight()), net.constant(project_bias())});
  return net.model(net.transpose(net.reshape(y, {kTokens, -1, kUnits}), {1, 0, 2}));
}

/// The op of opset 23, of three axes or of four.
Model attention_op(bool four_axes, Attributes attributes = {}, bool mask = false) {
  Net net;
  net.opset(23);
  std::vector<std::string> parts = net.all("Split", {net.dense("x", qkv_weight(), qkv_bias())}, 3,
                                           {{"axis", std::int64_t{2}}, {"num_outputs", std::int64_t{3}}});
  if (four_axes)
    for (std::string& part : parts) part = net.transpose(net.reshape(part, {0, kTokens, kHeads, kSize}), {0, 2, 1, 3});
  else
    attributes.insert({{"q_num_heads", kHeads}, {"kv_num_heads", kHeads}});
  if (mask) parts.push_back(net.constant(weight("mask", {kTokens, kTokens})));
  std::string o = net("Attention", parts, std::move(attributes));
  if (four_axes) o = net.reshape(net.transpose(o, {0, 2, 1, 3}), {0, kTokens, kChannels});
  return net.model(net.dense(o, project_weight(), project_bias()));
}

/// Heads before the batch: (heads, batch, tokens, size).
Model heads_first() {
  Net net;
  const std::string all = net.dense("x", qkv_weight(), qkv_bias());
  const std::string cut = net.transpose(net.reshape(all, {0, kTokens, 3, kHeads, kSize}), {2, 3, 0, 1, 4});
  std::vector<std::string> parts;
  for (std::int64_t i = 0; i < 3; ++i)
    parts.push_back(net("Gather", {cut, net.constant(index(i))}, {{"axis", std::int64_t{0}}}));
  const std::string k = net.transpose(parts[1], {0, 1, 3, 2});
  const std::string o = products(net, net("Mul", {parts[0], net.constant(scalar(kScale))}), k, parts[2]);
  const std::string rows = net.reshape(net.transpose(o, {1, 2, 0, 3}), {-1, kTokens, kChannels});
  return net.model(net.dense(rows, project_weight(), project_bias()));
}

struct Style {
  std::string name;
  std::function<Model()> model;
  double scale = kScale;
  std::string qkv = "attn.qkv";  ///< the dense layer's name
};

void PrintTo(const Style& style, std::ostream* out) { *out << style.name; }

class ImportAttention : public ::testing::TestWithParam<Style> {};

std::string kinds_of(const Graph& graph) {
  std::string kinds;
  for (NodeId node = 1; node <= graph.output(); ++node) kinds += std::string(graph.node(node).layer->kind()) + " ";
  return kinds;
}

// With any number of samples, and with the number that the model says.
TEST_P(ImportAttention, ComputesTheFormula) {
  for (const std::int64_t batch : {-1, 3, 1}) {
    SCOPED_TRACE(batch);
    Model model = GetParam().model();
    model.inputs[0].dims[0] = batch;
    const ImportedNetwork network = import_model(model);
    Runtime runtime;
    const std::vector<float> x = inputs(batch == -1 ? 2 : batch);
    const auto bound = testing::bound(runtime, network);
    const std::vector<float> y = testing::outputs_of(*bound, x);
    const std::vector<double> reference = expected(x, GetParam().scale);
    ASSERT_EQ(y.size(), reference.size()) << network.yaml;
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], reference[i], 2e-5) << i << "\n" << network.yaml;
    const bool scaled = GetParam().scale != kScale;
    EXPECT_EQ(kinds_of(testing::graph_of(network)),
              scaled ? "reshape dense layer_scale attention dense " : "reshape dense attention dense ");
    EXPECT_TRUE(network.weights.tensors.contains(GetParam().qkv + "/weight")) << network.yaml;
  }
}

std::vector<Style> styles() {
  return {{"separate_products", [] { return separate_products(kScale); }},
          {"another_scale", [] { return separate_products(0.7); }, 0.7},
          {"packed_by_split", [] { return packed(false); }},
          {"packed_by_gather", [] { return packed(true); }},
          {"batch_second", [] { return batch_second(false); }},
          {"batch_second_by_shape", [] { return batch_second(true); }},
          {"op_of_three_axes", [] { return attention_op(false); }},
          {"op_of_four_axes", [] { return attention_op(true); }},
          {"op_with_a_scale",
           [] {
             return attention_op(true, {{"scale", 0.5f}});
           },
           0.5},
          {"heads_first", [] { return heads_first(); }}};
}

INSTANTIATE_TEST_SUITE_P(Styles, ImportAttention, ::testing::ValuesIn(styles()),
                         [](const auto& info) { return info.param.name; });

std::string error_of(const Model& model) {
  try {
    (void)import_model(model);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

/// Products of queries and keys of (batch, heads, tokens, size), then one more node.
std::string error_after_products(const std::string& op, const Tensor& constant, Attributes attributes = {}) {
  Net net;
  const std::string all = net.reshape(net.dense("x", qkv_weight(), qkv_bias()), {0, kTokens, 3, kHeads, kSize});
  const std::vector<std::string> parts =
      net.all("Split", {net.transpose(all, {2, 0, 3, 1, 4})}, 3, {{"axis", std::int64_t{0}}});
  const std::string axis = net.constant(integers("", {0}));
  const std::string q = net("Squeeze", {parts[0], axis}), k = net("Squeeze", {parts[1], axis});
  std::vector<std::string> of{net("MatMul", {q, net.transpose(k, {0, 1, 3, 2})})};
  if (constant.elements() > 0 && op != "Softmax") of.push_back(net.constant(constant));
  return error_of(net.model(net(op, of, std::move(attributes))));
}

TEST(ImportAttentionErrors, WhatIsNotAttention) {
  EXPECT_EQ(error_after_products("Add", weight("mask", {kTokens, kTokens})),
            "node 'node9' (Add): reads products of two values, as in attention; expected one factor (Mul, Div) and "
            "their Softmax: masks, position biases and other ops between them are not supported");
  EXPECT_EQ(error_after_products("Softmax", {}, {{"axis", std::int64_t{2}}}),
            "node 'node9' (Softmax): over axis 2; expected that of the keys, the last one");
  EXPECT_EQ(error_after_products("Relu", {}),
            "node 'node9' (Relu): input 'node8_0' is a product of two values; expected its softmax and another "
            "product, as in attention");
  EXPECT_EQ(error_of(attention_op(true, {{"is_causal", kOne}})),
            "node 'node9' (Attention): is causal; expected attention of all tokens to one another");
  EXPECT_EQ(error_of(attention_op(true, {}, true)),
            "node 'node9' (Attention): has a mask or keys and values of tokens before; expected none");
  EXPECT_EQ(error_of(attention_op(false, {{"q_num_heads", std::int64_t{5}}})),
            "node 'node3' (Attention): 5 heads of 16 channels; expected a divisor of them");
}

// torch.nn.MultiheadAttention without batch_first reads (batch, tokens, channels) as (tokens, batch, channels): it then
// attends to other samples, which no layer does.
TEST(ImportAttentionErrors, SamplesThatAttendToOneAnother) {
  Net net;
  std::vector<std::string> parts = net.all("Split", {net.dense("x", qkv_weight(), qkv_bias())}, 3,
                                           {{"axis", std::int64_t{2}}, {"num_outputs", std::int64_t{3}}});
  for (std::string& part : parts) part = net.transpose(net.reshape(part, {-1, kTokens * kHeads, kSize}), {1, 0, 2});
  const std::string o = products(net, parts[0], net.transpose(parts[1], {0, 2, 1}), parts[2]);
  const std::string y = net.reshape(net.transpose(o, {1, 0, 2}), {-1, kTokens, kChannels});
  EXPECT_EQ(
      error_of(net.model(y)),
      "node 'node12' (MatMul): its queries are not (batch, heads, tokens, size): samples and heads, or the tokens "
      "of several samples, lie within each other");
}

TEST(ImportAttentionErrors, AnOutputWhoseBatchIsElsewhere) {
  Net net;
  EXPECT_EQ(error_of(net.model(net.transpose(net.dense("x", qkv_weight(), qkv_bias()), {1, 0, 2}))),
            "node 'node2_0' (output): input 'node2_0' was transposed or reshaped so that its batch is not the first "
            "axis; expected it there");
}

}  // namespace
}  // namespace bantam::onnx::attention_test

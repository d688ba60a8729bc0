// Small ONNX models for tests, node by node.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx::testing {

using Attributes = std::map<std::string, Attribute>;
using Integers = std::vector<std::int64_t>;

/// Values around 0, each another one, by their place.
inline Tensor weight(const std::string& name, const Integers& dims, float scale = 0.1f) {
  Tensor sized{.dims = dims};
  std::vector<float> values(static_cast<std::size_t>(sized.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = scale * (static_cast<float>((i * 7 + 3) % 19) - 9.0f);
  return Tensor::of(name, dims, values);
}

inline Tensor numbers(const std::string& name, const std::vector<float>& values) {
  return Tensor::of(name, {std::ssize(values)}, values);
}
inline Tensor integers(const std::string& name, const Integers& values) {
  return Tensor::of(name, {std::ssize(values)}, values);
}

/// A chain: each node's first input is the output before it, the first one's is "x"; the last one's output is "y".
class Chain {
 public:
  explicit Chain(Integers input = {-1, 3, 8, 6}) {
    model_.inputs = {{.name = "x", .dims = std::move(input), .names = {"batch", "", "", ""}}};
    model_.inputs[0].names.resize(model_.inputs[0].dims.size());
    model_.outputs = {{.name = "y", .dims = {-1, -1}, .names = {"batch", ""}}};
  }

  /// `more`: constants that are its further inputs, in order.
  Chain& add(const std::string& op, Attributes attributes = {}, std::vector<Tensor> more = {},
             const std::string& name = "") {
    Node node{
        .name = name, .op = op, .inputs = {last_}, .outputs = {last_ = "v" + std::to_string(model_.nodes.size())}};
    node.attributes = std::move(attributes);
    for (Tensor& tensor : more) {
      if (tensor.name.empty()) tensor.name = "c" + std::to_string(model_.initializers.size());
      node.inputs.push_back(tensor.name);
      model_.initializers.push_back(std::move(tensor));
    }
    model_.nodes.push_back(std::move(node));
    return *this;
  }
  Chain& node(Node node) {
    last_ = node.outputs[0];
    model_.nodes.push_back(std::move(node));
    return *this;
  }
  Chain& opset(std::int64_t version) {
    model_.opset = version;
    return *this;
  }
  const std::string& last() const { return last_; }

  Model model() const {
    Model model = model_;
    for (Node& node : model.nodes)
      for (auto* names : {&node.inputs, &node.outputs})
        for (std::string& name : *names)
          if (name == last_) name = "y";
    return model;
  }

 private:
  Model model_;
  std::string last_ = "x";
};

/// Adds x + (shift + scale · x · norm / (mean of the norms + 1e-6)), as PyTorch's exporters write the global response
/// norms of ConvNeXt V2: the norms over `positions` of a value whose axis `channels` has `count` of them.
inline Chain& add_global_response_norm(Chain& chain, const Integers& positions, std::int64_t channels,
                                       std::int64_t count) {
  const std::string x = chain.last();
  const Integers vector = channels == 1 ? Integers{1, count, 1, 1} : Integers{1, 1, 1, count};
  const std::string norm = chain.add("ReduceL2", {{"axes", positions}}, {}, "/grn/ReduceL2").last();
  chain.add("ReduceMean", {{"axes", Integers{channels}}});
  const std::string mean = chain.add("Add", {}, {Tensor::of("", {}, std::vector<float>{1e-6f})}).last();
  chain.node({.op = "Div", .inputs = {norm, mean}, .outputs = {"response"}});
  chain.node({.op = "Mul", .inputs = {x, "response"}, .outputs = {"product"}});
  chain.add("Mul", {}, {weight("grn.weight", vector)}).add("Add", {}, {weight("grn.bias", vector)});
  return chain.node({.name = "/grn/Add", .op = "Add", .inputs = {x, chain.last()}, .outputs = {"normalised"}});
}

/// Convolution, norm, pool, a sum, flatten and a matrix product: a bit of everything, for files to be damaged.
inline Model small_network() {
  Chain chain;
  chain.add("Conv", {{"kernel_shape", Integers{3, 3}}, {"pads", Integers{1, 1, 1, 1}}},
            {weight("conv.weight", {4, 3, 3, 3})}, "/conv/Conv");
  chain.add("BatchNormalization", {{"epsilon", 1e-5f}},
            {weight("bn.weight", {4}), weight("bn.bias", {4}), weight("bn.mean", {4}),
             numbers("bn.var", {1.0f, 2.0f, 0.5f, 1.5f})},
            "/bn/BatchNormalization");
  chain.add("Relu", {}, {}, "/relu/Relu");
  const std::string skip = chain.last();
  chain.add("Conv", {{"pads", Integers{0, 0, 1, 1}}}, {weight("tail.weight", {4, 4, 2, 2}), weight("tail.bias", {4})},
            "/tail/Conv");
  chain.node({.name = "/Add", .op = "Add", .inputs = {chain.last(), skip}, .outputs = {"sum"}});
  chain.add("MaxPool", {{"kernel_shape", Integers{2, 2}}, {"strides", Integers{2, 2}}}, {}, "/pool/MaxPool");
  chain.add("Reshape", {}, {integers("shape", {0, -1})}, "/Reshape");
  chain.add("Gemm", {{"transB", std::int64_t{1}}}, {weight("fc.weight", {5, 48}), weight("fc.bias", {5})}, "/fc/Gemm");
  return chain.model();
}

}  // namespace bantam::onnx::testing

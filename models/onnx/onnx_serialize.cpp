// An ONNX model as the bytes of its file. Names of messages and fields are those of onnx.proto.
#include <limits>
#include <set>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/protobuf.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {
namespace {

ProtoWriter tensor_proto(const Tensor& tensor) {
  ProtoWriter proto;
  proto.integers(1, tensor.dims);
  proto.integer(2, static_cast<std::int64_t>(tensor.type));
  proto.bytes(8, tensor.name);
  proto.bytes(9, tensor.data);  // raw_data
  return proto;
}

/// Writes an attribute's value and its type (AttributeProto.AttributeType).
struct AttributeBytes {
  ProtoWriter& proto;

  void operator()(float value) const { proto.number(2, value), proto.integer(20, 1); }
  void operator()(std::int64_t value) const { proto.integer(3, value), proto.integer(20, 2); }
  void operator()(const std::string& value) const { proto.bytes(4, value), proto.integer(20, 3); }
  void operator()(const Tensor& value) const { proto.message(5, tensor_proto(value)), proto.integer(20, 4); }
  void operator()(const std::vector<float>& values) const { proto.numbers(7, values), proto.integer(20, 6); }
  void operator()(const std::vector<std::int64_t>& values) const { proto.integers(8, values), proto.integer(20, 7); }
  void operator()(const std::vector<std::string>& values) const {
    for (const std::string& value : values) proto.bytes(9, value);
    proto.integer(20, 8);
  }
};

ProtoWriter node_proto(const Node& node) {
  ProtoWriter proto;
  for (const std::string& input : node.inputs) proto.bytes(1, input);
  for (const std::string& output : node.outputs) proto.bytes(2, output);
  proto.bytes(3, node.name);
  proto.bytes(4, node.op);
  for (const auto& [name, value] : node.attributes) {
    ProtoWriter attribute;
    attribute.bytes(1, name);
    std::visit(AttributeBytes{attribute}, value);
    proto.message(5, attribute);
  }
  if (!node.domain.empty()) proto.bytes(7, node.domain);
  return proto;
}

ProtoWriter value_proto(const Value& value) {
  ProtoWriter shape;
  for (std::size_t i = 0; i < value.dims.size(); ++i) {
    ProtoWriter dimension;
    if (value.dims[i] >= 0) dimension.integer(1, value.dims[i]);
    if (value.dims[i] < 0 && i < value.names.size()) dimension.bytes(2, value.names[i]);
    shape.message(1, dimension);
  }
  ProtoWriter tensor, type, proto;
  tensor.integer(1, static_cast<std::int64_t>(value.type));
  tensor.message(2, shape);
  type.message(1, tensor);
  proto.bytes(1, value.name);
  proto.message(2, type);
  return proto;
}

ProtoWriter graph_proto(const Model& model) {
  ProtoWriter proto;
  for (const Node& node : model.nodes) proto.message(1, node_proto(node));
  proto.bytes(2, model.graph_name);
  for (const Tensor& tensor : model.initializers) proto.message(5, tensor_proto(tensor));
  for (const Value& value : model.inputs) proto.message(11, value_proto(value));
  for (const Value& value : model.outputs) proto.message(12, value_proto(value));
  return proto;
}

void write_opset(ProtoWriter& proto, const std::string& domain, std::int64_t version) {
  ProtoWriter opset;
  opset.bytes(1, domain);
  opset.integer(2, version);
  proto.message(8, opset);
}

/// Before the weights are copied. What is written beside them is refused by ProtoWriter.
void check_size(const Model& model) {
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  std::size_t bytes = 0;
  for (const Tensor& tensor : model.initializers) bytes += tensor.data.size();
  if (bytes > kMost)
    throw Error(fmt::format("an ONNX file has at most {} bytes, the model's weights alone have {}", kMost, bytes));
}

}  // namespace

std::string serialize(const Model& model) {
  check_size(model);
  ProtoWriter proto;
  proto.integer(1, model.ir_version);
  proto.bytes(2, model.producer);
  proto.bytes(3, model.producer_version);
  write_opset(proto, "", model.opset);
  std::set<std::string> others;
  for (const Node& node : model.nodes)
    if (!node.domain.empty() && others.insert(node.domain).second) write_opset(proto, node.domain, 1);
  for (const auto& [key, value] : model.metadata) {
    ProtoWriter entry;
    entry.bytes(1, key);
    entry.bytes(2, value);
    proto.message(14, entry);
  }
  proto.message(7, graph_proto(model));
  return proto.text();
}

}  // namespace bantam::onnx

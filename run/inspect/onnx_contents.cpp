// From an ONNX model's values to texts and tensors.
#include "bantam/run/inspect/onnx_contents.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::run {
namespace {

/// "images float32 (batch, 3, 224, 224)".
HostTensor host_tensor(const onnx::Tensor& tensor) {
  HostTensor host{.shape = Shape(tensor.dims)};
  std::string data = tensor.data;
  switch (tensor.type) {
    case onnx::Type::int8: {
      const std::vector<std::int64_t> values = tensor.as_integers();
      const std::vector<std::int32_t> wide(values.begin(), values.end());
      data.assign(reinterpret_cast<const char*>(wide.data()), wide.size() * sizeof(std::int32_t));
      host.dtype = DType::int32;
      break;
    }
    case onnx::Type::boolean:
    case onnx::Type::uint8:
      host.dtype = DType::uint8;
      break;
    case onnx::Type::int32:
      host.dtype = DType::int32;
      break;
    case onnx::Type::int64:
      host.dtype = DType::int64;
      break;
    case onnx::Type::float16:
      host.dtype = DType::float16;
      break;
    case onnx::Type::bfloat16:
      host.dtype = DType::bfloat16;
      break;
    case onnx::Type::float64:
      host.dtype = DType::float64;
      break;
    case onnx::Type::float32:
      break;
  }
  host.bytes.resize(data.size());
  std::memcpy(host.bytes.data(), data.data(), data.size());
  return host;
}

}  // namespace

std::string value_text(const onnx::Value& value) {
  std::vector<std::string> extents;
  for (std::size_t i = 0; i < value.dims.size(); ++i) {
    const bool named = i < value.names.size() && !value.names[i].empty();
    extents.push_back(value.dims[i] >= 0 ? fmt::format("{}", value.dims[i]) : named ? shown(value.names[i], 24) : "?");
  }
  return fmt::format("{} {} ({})", shown(value.name), onnx::facts_of(value.type).name, fmt::join(extents, ", "));
}

OnnxContents onnx_contents(std::string_view bytes, const std::filesystem::path& path) {
  const onnx::Model model = onnx::parse(bytes, path);
  OnnxContents contents{
      .facts = {.ir_version = model.ir_version, .opset = model.opset, .graph_name = model.graph_name}};
  OnnxFacts& facts = contents.facts;
  facts.producer = model.producer_version.empty() ? model.producer : model.producer + " " + model.producer_version;
  for (const onnx::Value& input : model.inputs) facts.inputs.push_back(value_text(input));
  for (const onnx::Value& output : model.outputs) facts.outputs.push_back(value_text(output));
  for (const onnx::Node& node : model.nodes) ++facts.ops[node.domain.empty() ? node.op : node.domain + "." + node.op];
  contents.tensors.metadata = model.metadata;
  for (const onnx::Tensor& tensor : model.initializers) {
    if (tensor.name.empty()) continue;
    try {
      contents.tensors.tensors.emplace(tensor.name, host_tensor(tensor));
    } catch (const ShapeError& error) {
      throw DataError(fmt::format("{}: initializer '{}': {}", path.string(), shown(tensor.name), error.what()));
    }
  }
  return contents;
}

}  // namespace bantam::run

// Layers are checked by the readers that a configuration's layers have, so that what is written can be read.
#include "bantam/models/onnx/import/layer_list.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"
#include "bantam/models/yaml/network.h"

namespace bantam::onnx {
namespace {

/// Each is read as a configuration's is, in a tenth of a millisecond. Networks have some thousands.
constexpr std::size_t kMostLayers = 50'000;

LayerPtr read_layer(const ImportedLayer& layer) {
  const ConfigDocument document = ConfigDocument::parse(
      fmt::format("layer: {{{}}}", layer.options.empty() ? layer.kind + ": {}" : layer.text()), "layer");
  return read_registered(models::layer_kinds(), document.map().node("layer"));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

const std::string* ImportedLayer::option(std::string_view key) const {
  const auto found = std::ranges::find(options, key, &std::pair<std::string, std::string>::first);
  return found == options.end() ? nullptr : &found->second;
}

void ImportedLayer::set(std::string_view key, std::string value) {
  erase(key);
  options.emplace_back(key, std::move(value));
}

void ImportedLayer::erase(std::string_view key) {
  read = nullptr;
  std::erase_if(options, [&](const auto& option) { return option.first == key; });
}

std::string ImportedLayer::text(std::span<const std::pair<std::string, std::string>> more) const {
  std::string inner;
  for (const auto& list : {std::span<const std::pair<std::string, std::string>>(options), more})
    for (const auto& [key, value] : list) inner += fmt::format("{}{}: {}", inner.empty() ? "" : ", ", key, value);
  return inner.empty() ? kind : fmt::format("{}: {{{}}}", kind, inner);
}

int LayerList::add(ImportedLayer layer) {
  if (layers_.size() == kMostLayers) throw DataError(fmt::format("{}: more than {} layers", layer.node, kMostLayers));
  layers_.push_back(std::move(layer));
  check(size() - 1);
  return size() - 1;
}

void LayerList::check(int layer) {
  ImportedLayer& checked = (*this)[layer];
  std::vector<Shape> inputs;
  for (const int input : checked.inputs) inputs.push_back(shape(input));
  try {
    checked.read = read_layer(checked);
    checked.output = checked.read->output_shape(inputs);
  } catch (const Error& error) {
    throw DataError(fmt::format("{}: as {}: {}", checked.node, checked.text(), first_line(error.what())));
  }
}

std::vector<int> LayerList::readers() const {
  std::vector<int> readers(layers_.size());
  for (const ImportedLayer& layer : layers_)
    for (const int input : layer.inputs)
      if (!layer.removed && input != kInput) ++readers[static_cast<std::size_t>(input)];
  return readers;
}

std::map<std::string, Shape> declared_tensors(const ImportedLayer& layer, std::span<const Shape> inputs) {
  const std::string path = "layer/";
  ParameterArena parameters;
  BufferArena buffers;
  LayerScope scope("layer", parameters, buffers);
  (void)(layer.read ? layer.read : read_layer(layer))->bind(scope, buffers, inputs);
  std::map<std::string, Shape> tensors;
  for (const Parameter& parameter : parameters.all())
    tensors.emplace(parameter.name().substr(path.size()), parameter.shape());
  for (const Buffer& buffer : buffers.all()) tensors.emplace(buffer.name.substr(path.size()), buffer.shape);
  return tensors;
}

}  // namespace bantam::onnx

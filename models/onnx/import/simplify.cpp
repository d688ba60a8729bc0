// A list of layers as a person would write it: without what nothing reads, with activations where they belong.
#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "bantam/base/activation.h"
#include "bantam/models/onnx/import/layer_list.h"

namespace bantam::onnx {
namespace {

constexpr std::array<std::string_view, 8> kWithActivation = {
    "conv2d", "depthwise_conv2d", "transposed_conv2d", "dense", "batch_norm", "group_norm", "instance_norm", "add"};

/// Kinds that are an activation by themselves, as `activation:` names them.
bool is_activation(const ImportedLayer& layer) {
  for (int i = 1; i < kActivationKinds; ++i)
    if (layer.kind == to_string(static_cast<Activation>(i))) return true;
  return false;
}

/// A 1 x 1 convolution with bias of one value a channel.
bool is_pointwise(const ImportedLayer& layer) {
  const std::string *kernel = layer.option("kernel"), *bias = layer.option("bias");
  return layer.kind == "conv2d" && kernel != nullptr && *kernel == "1" && (bias == nullptr || *bias == "true") &&
         layer.output.rank() == 3 && layer.output[0] == 1 && layer.output[1] == 1 && !layer.option("stride") &&
         !layer.option("padding") && !layer.option("groups");
}

/// A dense weight of a pointwise convolution's.
HostTensor flat_weight(const HostTensor& weight) {
  return {.shape = Shape{weight.shape[0], weight.shape[-1]}, .bytes = weight.bytes};
}

}  // namespace

void LayerList::remove_unused(int output) {
  std::vector<bool> used(layers_.size());
  used[static_cast<std::size_t>(output)] = true;
  for (int layer = output; layer >= 0; --layer)
    if (used[static_cast<std::size_t>(layer)])
      for (const int input : (*this)[layer].inputs)
        if (input != kInput) used[static_cast<std::size_t>(input)] = true;
  for (std::size_t i = 0; i < layers_.size(); ++i) layers_[i].removed = !used[i];
}

void LayerList::merge_activations() {
  std::vector<int> readers = this->readers(), stands_for(layers_.size());
  std::iota(stands_for.begin(), stands_for.end(), 0);
  for (int i = 0; i < size(); ++i) {
    ImportedLayer& layer = (*this)[i];
    for (int& input : layer.inputs)
      if (input != kInput) input = stands_for[static_cast<std::size_t>(input)];
    if (layer.removed || !is_activation(layer) || layer.inputs[0] == kInput) continue;
    const auto place = static_cast<std::size_t>(layer.inputs[0]);
    ImportedLayer& before = layers_[place];
    if (std::ranges::find(kWithActivation, before.kind) == kWithActivation.end() || before.option("activation") ||
        readers[place] != 1)
      continue;
    before.set("activation", layer.options.empty() ? layer.kind : "{" + layer.text() + "}");
    layer.removed = true;
    readers[place] = readers[static_cast<std::size_t>(i)];
    stands_for[static_cast<std::size_t>(i)] = layer.inputs[0];
  }
}

/// `layer` multiplies an image by the factors that two pointwise convolutions compute from its means.
void LayerList::merge_squeeze_excite(int layer, const std::vector<int>& readers) {
  const auto is_read_once = [&](int place) { return place != kInput && readers[static_cast<std::size_t>(place)] == 1; };
  ImportedLayer& product = (*this)[layer];
  if (product.removed || product.kind != "multiply" || product.inputs.size() != 2) return;
  for (const std::size_t gate : {1u, 0u}) {
    const int x = product.inputs[1 - gate], second = product.inputs[gate];
    if (!is_read_once(second) || !is_pointwise((*this)[second])) continue;
    ImportedLayer& expand = (*this)[second];
    const int first = expand.inputs[0];
    if (!is_read_once(first) || !is_pointwise((*this)[first])) continue;
    ImportedLayer& reduce = (*this)[first];
    const int pool = reduce.inputs[0];
    if (!is_read_once(pool) || (*this)[pool].kind != "global_average_pool") continue;
    const std::string *activation = reduce.option("activation"), *factors = expand.option("activation");
    if ((*this)[pool].inputs[0] != x || factors == nullptr || (*factors != "sigmoid" && *factors != "hard_sigmoid"))
      continue;
    ImportedLayer merged{.kind = "squeeze_excite",
                         .options = {{"units", fmt::format("{}", reduce.output[2])}},
                         .inputs = {x},
                         .tensors = {{"reduce/weight", flat_weight(reduce.tensors.at("weight"))},
                                     {"reduce/bias", reduce.tensors.at("bias")},
                                     {"expand/weight", flat_weight(expand.tensors.at("weight"))},
                                     {"expand/bias", expand.tensors.at("bias")}},
                         .name = product.name,
                         .node = product.node,
                         .output = product.output};
    if (activation == nullptr || *activation != "relu") merged.set("activation", activation ? *activation : "none");
    if (*factors != "sigmoid") merged.set("gate", *factors);
    for (const int gone : {pool, first, second}) (*this)[gone].removed = true;
    product = std::move(merged);
    return check(layer);
  }
}

void LayerList::compact() {
  std::vector<int> places(layers_.size(), kInput);
  std::vector<ImportedLayer> left;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].removed) continue;
    places[i] = static_cast<int>(left.size());
    left.push_back(std::move(layers_[i]));
  }
  for (ImportedLayer& layer : left)
    for (int& input : layer.inputs)
      if (input != kInput) input = places[static_cast<std::size_t>(input)];
  layers_ = std::move(left);
}

void LayerList::simplify(int output) {
  remove_unused(output);
  merge_activations();
  const std::vector<int> readers = this->readers();
  for (int layer = 0; layer < size(); ++layer) merge_squeeze_excite(layer, readers);
  compact();
}

}  // namespace bantam::onnx

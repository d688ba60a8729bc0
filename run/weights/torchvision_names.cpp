// Rules a family: from our nodes' names to torchvision's modules, and from our tensors to theirs by the layer's kind.
#include "bantam/run/weights/torchvision_names.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::run {
namespace {

/// In `own` each # stands for a number. In `torch` {…} is a term: `$1`, the first number, or `part`, `layer` or `head`
/// (Numbers), with a factor before and a number after it: {2*$1-1}.
struct Rule {
  std::string_view own, torch;
  bool linear = false;  ///< torchvision has a linear layer where we have a 1x1 convolution
};

constexpr Rule kResNet[] = {{"stem", "conv1"},
                            {"stem_norm", "bn1"},
                            {"stage#_block#/conv#", "layer{$1}.{$2-1}.conv{$3}"},
                            {"stage#_block#/conv#_norm", "layer{$1}.{$2-1}.bn{$3}"},
                            {"stage#_block#/shortcut", "layer{$1}.{$2-1}.downsample.0"},
                            {"stage#_block#/shortcut_norm", "layer{$1}.{$2-1}.downsample.1"},
                            {"classifier", "fc"}};
constexpr Rule kVgg[] = {
    {"stage#_conv#", "features.{layer}"}, {"hidden#", "classifier.{3*$1-3}"}, {"classifier", "classifier.6"}};
constexpr Rule kMobileNetV2[] = {{"stem", "features.0.0"},
                                 {"stem_norm", "features.0.1"},
                                 {"block#/expand", "features.{$1}.conv.{part}.0"},
                                 {"block#/expand_norm", "features.{$1}.conv.{part}.1"},
                                 {"block#/depthwise", "features.{$1}.conv.{part}.0"},
                                 {"block#/depthwise_norm", "features.{$1}.conv.{part}.1"},
                                 {"block#/project", "features.{$1}.conv.{part}"},
                                 {"block#/project_norm", "features.{$1}.conv.{part+1}"},
                                 {"head", "features.{head}.0"},
                                 {"head_norm", "features.{head}.1"},
                                 {"classifier", "classifier.1"}};
constexpr Rule kMobileNetV3[] = {{"stem", "features.0.0"},
                                 {"stem_norm", "features.0.1"},
                                 {"block#/squeeze_excite", "features.{$1}.block.{part}"},
                                 {"block#/expand", "features.{$1}.block.{part}.0"},
                                 {"block#/expand_norm", "features.{$1}.block.{part}.1"},
                                 {"block#/depthwise", "features.{$1}.block.{part}.0"},
                                 {"block#/depthwise_norm", "features.{$1}.block.{part}.1"},
                                 {"block#/project", "features.{$1}.block.{part}.0"},
                                 {"block#/project_norm", "features.{$1}.block.{part}.1"},
                                 {"head", "features.{head}.0"},
                                 {"head_norm", "features.{head}.1"},
                                 {"hidden", "classifier.0"},
                                 {"classifier", "classifier.3"}};
constexpr Rule kEfficientNet[] = {{"stem", "features.0.0"},
                                  {"stem_norm", "features.0.1"},
                                  {"stage#_block#/squeeze_excite", "features.{$1}.{$2-1}.block.{part}"},
                                  {"stage#_block#/expand", "features.{$1}.{$2-1}.block.{part}.0"},
                                  {"stage#_block#/expand_norm", "features.{$1}.{$2-1}.block.{part}.1"},
                                  {"stage#_block#/depthwise", "features.{$1}.{$2-1}.block.{part}.0"},
                                  {"stage#_block#/depthwise_norm", "features.{$1}.{$2-1}.block.{part}.1"},
                                  {"stage#_block#/project", "features.{$1}.{$2-1}.block.{part}.0"},
                                  {"stage#_block#/project_norm", "features.{$1}.{$2-1}.block.{part}.1"},
                                  {"head", "features.8.0"},
                                  {"head_norm", "features.8.1"},
                                  {"classifier", "classifier.1"}};
constexpr Rule kDenseNet[] = {{"stem", "features.conv0"},
                              {"stem_norm", "features.norm0"},
                              {"stage#_block#/conv#", "features.denseblock{$1}.denselayer{$2}.conv{$3}"},
                              {"stage#_block#/norm#", "features.denseblock{$1}.denselayer{$2}.norm{$3}"},
                              {"transition#/conv", "features.transition{$1}.conv"},
                              {"transition#/norm", "features.transition{$1}.norm"},
                              {"norm", "features.norm5"},
                              {"classifier", "classifier"}};
constexpr Rule kConvNeXt[] = {{"stem", "features.0.0"},
                              {"stem_norm", "features.0.1"},
                              {"stage#_block#/depthwise", "features.{2*$1-1}.{$2-1}.block.0"},
                              {"stage#_block#/norm", "features.{2*$1-1}.{$2-1}.block.2"},
                              {"stage#_block#/expand", "features.{2*$1-1}.{$2-1}.block.3", true},
                              {"stage#_block#/project", "features.{2*$1-1}.{$2-1}.block.5", true},
                              {"stage#_block#/layer_scale", "features.{2*$1-1}.{$2-1}"},
                              {"downsample#/norm", "features.{2*$1}.0"},
                              {"downsample#/conv", "features.{2*$1}.1"},
                              {"norm", "classifier.0"},
                              {"classifier", "classifier.2"}};

struct Network {
  std::string_view name, function;
  std::span<const Rule> rules;
  bool has_width = false;
};
constexpr Network kNetworks[] = {{"resnet18", "resnet18", kResNet},
                                 {"resnet18_cifar", "resnet18", kResNet},
                                 {"resnet34", "resnet34", kResNet},
                                 {"resnet50", "resnet50", kResNet},
                                 {"resnet101", "resnet101", kResNet},
                                 {"vgg11", "vgg11", kVgg},
                                 {"vgg16", "vgg16", kVgg},
                                 {"mobilenet_v2", "mobilenet_v2", kMobileNetV2, true},
                                 {"mobilenet_v3_small", "mobilenet_v3_small", kMobileNetV3, true},
                                 {"mobilenet_v3_large", "mobilenet_v3_large", kMobileNetV3, true},
                                 {"efficientnet_b0", "efficientnet_b0", kEfficientNet},
                                 {"densenet121", "densenet121", kDenseNet},
                                 {"convnext_tiny", "convnext_tiny", kConvNeXt}};

const Network* find_network(std::string_view name) {
  const auto* found = std::ranges::find(kNetworks, name, &Network::name);
  return found == std::end(kNetworks) ? nullptr : found;
}

const Network& network_of(std::string_view name) {
  if (const Network* network = find_network(name)) return *network;
  throw ConfigError(fmt::format("torchvision has no network like the zoo's {}", name));
}

/// By its name in terms: numbers of a name, and where a node stands.
using Numbers = std::map<std::string, std::int64_t, std::less<>>;

/// The numbers that each # stands for; nothing where `name` is not like `pattern`.
std::optional<Numbers> matched(std::string_view name, std::string_view pattern) {
  Numbers numbers;
  for (const char c : pattern) {
    if (c != '#') {
      if (name.empty() || name.front() != c) return std::nullopt;
      name.remove_prefix(1);
      continue;
    }
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    if (error != std::errc()) return std::nullopt;
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    numbers[fmt::format("${}", numbers.size() + 1)] = value;
  }
  return name.empty() ? std::optional(numbers) : std::nullopt;
}

/// "2*$1-1".
std::int64_t value_of(std::string_view term, const Numbers& numbers) {
  std::int64_t factor = 1, more = 0;
  if (const std::size_t star = term.find('*'); star != std::string_view::npos) {
    std::from_chars(term.data(), term.data() + star, factor);
    term.remove_prefix(star + 1);
  }
  const std::size_t sign = term.find_first_of("+-");
  if (sign != std::string_view::npos) {
    std::from_chars(term.data() + sign + 1, term.data() + term.size(), more);
    if (term[sign] == '-') more = -more;
  }
  return factor * numbers.find(term.substr(0, sign))->second + more;
}

std::string filled(std::string_view torch, const Numbers& numbers) {
  std::string text;
  for (std::size_t at = 0; at < torch.size(); ++at) {
    if (torch[at] != '{') {
      text += torch[at];
      continue;
    }
    const std::size_t end = torch.find('}', at);
    text += fmt::format("{}", value_of(torch.substr(at + 1, end - at - 1), numbers));
    at = end;
  }
  return text;
}

/// Walks over a graph's nodes and counts what torchvision's modules are numbered by.
class Positions {
 public:
  /// `blocks` of the whole network.
  explicit Positions(std::int64_t blocks) : blocks_(blocks) {}

  /// Of the next node. `part`: its number, from 0, among the convolutions and squeeze-excitations of its block, the
  /// same for a norm after one; `layer`: among convolutions, their activations and pools of the network; `head`: after
  /// the last block.
  Numbers next(const GraphNode& node) {
    const std::string_view kind = node.layer->kind();
    const bool convolves = kind == "conv2d" || kind == "depthwise_conv2d";
    if (const std::string block = block_of(node.name); block != block_) {
      block_ = block;
      part_ = -1;
    }
    if (convolves || kind == "squeeze_excite") ++part_;
    Numbers numbers = {{"part", part_}, {"layer", layer_}, {"head", blocks_ + 1}};
    layer_ += convolves ? 2 : kind == "max_pool" ? 1 : 0;
    return numbers;
  }

 private:
  std::int64_t blocks_;
  std::string block_;
  std::int64_t part_ = -1, layer_ = 0;
};

std::int64_t blocks_of(const Graph& graph) {
  std::int64_t blocks = 0;
  for (const GraphNode& node : graph.nodes())
    if (const auto numbers = matched(block_of(node.name), "block#")) blocks = std::max(blocks, numbers->at("$1"));
  return blocks;
}

/// A module's name and rule.
struct Module {
  std::string name;
  bool linear = false;
};

Module module_of(const Network& network, const std::string& node, Numbers numbers) {
  for (const Rule& rule : network.rules)
    if (auto captured = matched(node, rule.own)) {
      numbers.merge(*captured);
      return {filled(rule.torch, numbers), rule.linear};
    }
  throw Error(fmt::format("no rule names torchvision's module of '{}' in {}", node, network.name));
}

/// What a tensor is called in torchvision's module, by the kind of layer.
std::string_view torch_suffix(std::string_view kind, std::string_view tensor) {
  if (kind == "layer_scale") return "layer_scale";
  if (kind == "squeeze_excite") {
    constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"reduce/weight", "fc1.weight"},
                                                                        {"reduce/bias", "fc1.bias"},
                                                                        {"expand/weight", "fc2.weight"},
                                                                        {"expand/bias", "fc2.bias"}};
    return std::ranges::find(kNames, tensor, &std::pair<std::string_view, std::string_view>::first)->second;
  }
  if (tensor == "scale") return "weight";
  if (tensor == "shift") return "bias";
  return tensor == "running_variance" ? "running_var" : tensor;
}

/// The image that the node's input was before it was flattened; rank 0 where it was none.
Shape flattened_image(const Graph& graph, NodeId node) {
  for (NodeId from = graph.node(node).inputs[0]; from != 0; from = graph.node(from).inputs[0]) {
    const std::string_view kind = graph.node(from).layer->kind();
    if (kind == "flatten") return graph.input_shapes(from)[0];
    if (kind != "dropout" && kind != "activation") break;
  }
  return {};
}

/// Sets the torch shape and order of a weight.
void lay_out(TorchvisionTensor& tensor, const Graph& graph, NodeId node, bool linear) {
  const Shape& own = tensor.own_shape;
  const std::string_view kind = graph.node(node).layer->kind();
  tensor.torch_shape = tensor.own_axes = own;
  if (kind == "conv2d" && own.rank() == 4) {
    tensor.to = {0, 3, 1, 2};
    tensor.torch_shape = linear ? Shape{own[0], own[3]} : Shape{own[0], own[3], own[1], own[2]};
  } else if (kind == "depthwise_conv2d" && own.rank() == 3) {
    tensor.own_axes = {own[0], own[1], own[2], 1};
    tensor.to = {2, 3, 0, 1};
    tensor.torch_shape = {own[2], 1, own[0], own[1]};
  } else if (kind == "dense" && own.rank() == 2) {
    const Shape image = flattened_image(graph, node);
    if (image.rank() != 3) return;
    tensor.own_axes = {own[0], image[0], image[1], image[2]};
    tensor.to = {0, 3, 1, 2};
  } else if (kind == "squeeze_excite" && own.rank() == 2) {
    tensor.torch_shape = {own[0], own[1], 1, 1};
  } else if (kind == "layer_scale") {
    tensor.torch_shape = {own[0], 1, 1};
  }
}

/// Names and shapes of what a node's layer declares.
std::vector<std::pair<std::string, Shape>> declared(const Graph& graph, NodeId id) {
  const GraphNode& node = graph.node(id);
  ParameterArena parameters;
  BufferArena buffers;
  LayerScope scope(node.name, parameters, buffers);
  (void)node.layer->bind(scope, buffers, graph.input_shapes(id));
  std::vector<std::pair<std::string, Shape>> tensors;
  for (const Parameter& parameter : parameters.all()) tensors.emplace_back(parameter.name(), parameter.shape());
  for (const Buffer& buffer : buffers.all()) tensors.emplace_back(buffer.name, buffer.shape);
  return tensors;
}

/// Calls `copy` with each element's place in torch's order and in ours.
template <class Copy>
void for_each_element(const TorchvisionTensor& tensor, const Copy& copy) {
  const Shape& axes = tensor.own_axes;
  std::int64_t strides[4] = {axes[1] * axes[2] * axes[3], axes[2] * axes[3], axes[3], 1}, extents[4], steps[4];
  for (std::size_t i = 0; i < 4; ++i) {
    extents[i] = axes[tensor.to[i]];
    steps[i] = strides[tensor.to[i]];
  }
  std::int64_t at = 0;
  for (std::int64_t a = 0; a < extents[0]; ++a)
    for (std::int64_t b = 0; b < extents[1]; ++b)
      for (std::int64_t c = 0; c < extents[2]; ++c)
        for (std::int64_t d = 0; d < extents[3]; ++d)
          copy(at++, a * steps[0] + b * steps[1] + c * steps[2] + d * steps[3]);
}

}  // namespace

bool is_torchvision(std::string_view zoo_name) { return find_network(zoo_name) != nullptr; }

bool torchvision_has_width(std::string_view zoo_name) { return network_of(zoo_name).has_width; }

std::string torchvision_function(std::string_view zoo_name) { return std::string(network_of(zoo_name).function); }

std::string torchvision_changes(std::string_view zoo_name) {
  if (zoo_name != "resnet18_cifar") return "";
  return "model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()";
}

std::string torchvision_classifier(std::string_view zoo_name) {
  return module_of(network_of(zoo_name), "classifier", {}).name + ".weight";
}

std::vector<TorchvisionTensor> torchvision_tensors(std::string_view zoo_name, const Graph& graph) {
  const Network& network = network_of(zoo_name);
  Positions positions(blocks_of(graph));
  std::vector<TorchvisionTensor> tensors;
  for (NodeId id = 1; id <= graph.output(); ++id) {
    const GraphNode& node = graph.node(id);
    const Numbers numbers = positions.next(node);
    for (const auto& [name, shape] : declared(graph, id)) {
      const Module module = module_of(network, node.name, numbers);
      const std::string_view suffix =
          torch_suffix(node.layer->kind(), std::string_view(name).substr(node.name.size() + 1));
      TorchvisionTensor tensor{.own = name, .own_shape = shape, .torch = fmt::format("{}.{}", module.name, suffix)};
      lay_out(tensor, graph, id, module.linear);
      tensors.push_back(std::move(tensor));
    }
  }
  return tensors;
}

std::vector<std::byte> own_order(const TorchvisionTensor& tensor, const std::vector<std::byte>& torch) {
  if (tensor.to.empty()) return torch;
  std::vector<std::byte> own(torch.size());
  for_each_element(tensor, [&](std::int64_t from, std::int64_t to) {
    std::memcpy(own.data() + to * 4, torch.data() + from * 4, sizeof(float));
  });
  return own;
}

std::vector<std::byte> torch_order(const TorchvisionTensor& tensor, const std::vector<std::byte>& own) {
  if (tensor.to.empty()) return own;
  std::vector<std::byte> torch(own.size());
  for_each_element(tensor, [&](std::int64_t to, std::int64_t from) {
    std::memcpy(torch.data() + to * 4, own.data() + from * 4, sizeof(float));
  });
  return torch;
}

}  // namespace bantam::run

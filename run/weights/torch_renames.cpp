// Source: PyTorch, torch/nn/utils (weight_norm, spectral_norm, prune, parametrizations); torchvision, densenet.py and
// vision_transformer.py; timm, vision_transformer.py; transformers, modeling_vit.py.
#include "bantam/run/weights/torch_renames.h"

#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include <fmt/format.h>

namespace bantam::run {
namespace {

using Tensors = std::map<std::string, HostTensor>;

bool is_floating(const HostTensor& tensor) {
  return tensor.dtype == DType::float32 || tensor.dtype == DType::float64 || is_half(tensor.dtype);
}

std::vector<float> floats_of(const HostTensor& tensor) {
  const HostTensor made = to_float32(tensor);
  const std::span<const float> values = float_values(made);
  return {values.begin(), values.end()};
}

/// The tensors that a weight was saved in, by the ends of their names after that of its module.
struct Parts {
  std::string_view first, second, third;  ///< the first is found by its name; the third may be missing
  std::string_view name;                  ///< for messages
  bool (*join)(std::vector<float>& value, const Shape& shape, const HostTensor& second, const HostTensor* third);
};

/// w = g v / |v|, the norm over all axes but the first (dim=0, as it is unless a program says otherwise).
bool join_weight_norm(std::vector<float>& v, const Shape& shape, const HostTensor& g, const HostTensor* /*none*/) {
  const auto rows = shape.rank() > 0 ? static_cast<std::size_t>(shape[0]) : 0;
  if (!is_floating(g) || rows == 0 || static_cast<std::size_t>(g.shape.elements()) != rows) return false;
  const std::vector<float> scales = floats_of(g);
  const std::size_t each = v.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < each; ++i) squares += static_cast<double>(v[row * each + i]) * v[row * each + i];
    const double scale = scales[row] / std::sqrt(squares);
    for (std::size_t i = 0; i < each; ++i) v[row * each + i] = static_cast<float>(v[row * each + i] * scale);
  }
  return true;
}

/// w = w / (u^T W v), W with the first axis as rows.
bool join_spectral_norm(std::vector<float>& w, const Shape& shape, const HostTensor& u, const HostTensor* v) {
  const auto rows = shape.rank() > 0 ? static_cast<std::size_t>(shape[0]) : 0;
  if (v == nullptr || rows == 0 || !is_floating(u) || !is_floating(*v)) return false;
  const std::size_t columns = w.size() / rows;
  if (static_cast<std::size_t>(u.shape.elements()) != rows || static_cast<std::size_t>(v->shape.elements()) != columns)
    return false;
  const std::vector<float> left = floats_of(u), right = floats_of(*v);
  double sigma = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::size_t i = 0; i < columns; ++i) sum += static_cast<double>(w[row * columns + i]) * right[i];
    sigma += sum * left[row];
  }
  for (float& value : w) value = static_cast<float>(value / sigma);
  return true;
}

/// w = w * mask.
bool join_mask(std::vector<float>& w, const Shape& shape, const HostTensor& mask, const HostTensor* /*none*/) {
  if (mask.shape != shape || (!is_floating(mask) && mask.dtype != DType::uint8)) return false;
  if (mask.dtype == DType::uint8) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = mask.bytes[i] == std::byte{0} ? 0.0f : w[i];
    return true;
  }
  const std::vector<float> kept = floats_of(mask);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] *= kept[i];
  return true;
}

constexpr Parts kParts[] = {
    {"weight_v", "weight_g", "", "weight_norm", join_weight_norm},
    {"parametrizations.weight.original1", "parametrizations.weight.original0", "", "weight_norm", join_weight_norm},
    {"weight_orig", "weight_mask", "", "pruning", join_mask},
    {"bias_orig", "bias_mask", "", "pruning", join_mask},
    {"weight_orig", "weight_u", "weight_v", "spectral_norm", join_spectral_norm},
    {"parametrizations.weight.original", "parametrizations.weight.0._u", "parametrizations.weight.0._v",
     "spectral_norm", join_spectral_norm}};

/// Puts the weights of one kind together; returns how many.
std::size_t join_parts(Tensors& tensors, const Parts& parts) {
  std::vector<std::string> modules;
  for (const auto& [name, tensor] : tensors)
    if (name.ends_with(parts.first) &&
        (name.size() == parts.first.size() || name[name.size() - parts.first.size() - 1] == '.'))
      modules.push_back(name.substr(0, name.size() - parts.first.size()));
  std::size_t joined = 0;
  for (const std::string& module : modules) {
    const auto part = [&](std::string_view end) { return tensors.find(module + std::string(end)); };
    const auto first = part(parts.first), second = part(parts.second);
    const auto third = parts.third.empty() ? tensors.end() : part(parts.third);
    const std::string whole = module + (parts.first.starts_with("bias") ? "bias" : "weight");
    if (second == tensors.end() || tensors.contains(whole) || !is_floating(first->second)) continue;
    std::vector<float> values = floats_of(first->second);
    const HostTensor* last = third == tensors.end() ? nullptr : &third->second;
    if (!parts.join(values, first->second.shape, second->second, last)) continue;
    tensors[whole] = host_tensor(first->second.shape, values);
    tensors.erase(first);
    tensors.erase(second);
    if (third != tensors.end()) tensors.erase(third);
    ++joined;
  }
  return joined;
}

/// "features.denseblock1.denselayer1.norm.1.weight" without the dot before the number; nothing for other names.
std::optional<std::string> denselayer_name(const std::string& name) {
  const std::size_t layer = name.find("denselayer");
  if (layer == std::string::npos) return std::nullopt;
  std::size_t at = layer + std::string_view("denselayer").size();
  while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0) ++at;
  for (const std::string_view module : {".norm.", ".conv.", ".relu."}) {
    if (!std::string_view(name).substr(at).starts_with(module)) continue;
    const std::size_t dot = at + module.size() - 1;
    if (dot + 2 >= name.size() || (name[dot + 1] != '1' && name[dot + 1] != '2') || name[dot + 2] != '.') break;
    return name.substr(0, dot) + name.substr(dot + 1);
  }
  return std::nullopt;
}

/// "encoder.layers.encoder_layer_0.mlp.linear_1.weight" with "mlp.0".
std::optional<std::string> mlp_name(const std::string& name) {
  for (const auto& [old, now] : {std::pair(".mlp.linear_1.", ".mlp.0."), std::pair(".mlp.linear_2.", ".mlp.3.")})
    if (const std::size_t at = name.find(old); at != std::string::npos)
      return name.substr(0, at) + now + name.substr(at + std::string_view(old).size());
  return std::nullopt;
}

/// "blocks.0.gamma_1" as "blocks.0.ls1.gamma".
std::optional<std::string> layer_scale_name(const std::string& name) {
  if (name.find("blocks.") == std::string::npos) return std::nullopt;
  for (const auto& [old, now] : {std::pair(".gamma_1", ".ls1.gamma"), std::pair(".gamma_2", ".ls2.gamma")})
    if (name.ends_with(old)) return name.substr(0, name.size() - std::string_view(old).size()) + now;
  return std::nullopt;
}

/// Names that a program writes no longer.
struct OldNames {
  std::optional<std::string> (*name)(const std::string& old);  ///< nothing for other names
  std::string_view text;                                       ///< for messages
};
constexpr OldNames kOldNames[] = {
    {denselayer_name, "DenseNet's names of old (norm.1 for norm1)"},
    {mlp_name, "names of torchvision's first vision transformers (linear_1 for 0)"},
    {layer_scale_name,
     "the names of DeiT III's authors (gamma_1 for ls1.gamma). timm's rope models have them, too, with "
     "rotary position embeddings that are not among their tensors: their outputs are others here"}};

std::size_t rename_all(Tensors& tensors, const OldNames& old) {
  std::vector<std::pair<std::string, std::string>> renames;
  for (const auto& [name, tensor] : tensors)
    if (auto now = old.name(name); now && !tensors.contains(*now)) renames.emplace_back(name, std::move(*now));
  for (auto& [from, to] : renames) {
    auto node = tensors.extract(from);
    node.key() = std::move(to);
    tensors.insert(std::move(node));
  }
  return renames.size();
}

/// Names of the layers of queries, keys and values.
constexpr std::string_view kAttentionParts[][3] = {{"query", "key", "value"}, {"q_proj", "k_proj", "v_proj"}};

/// Puts rows of three such tensors together, in this order; whether they are there and alike.
bool join_rows(Tensors& tensors, const std::string& module, std::string_view tensor,
               std::span<const std::string_view, 3> parts) {
  const auto name = [&](std::string_view part) { return fmt::format("{}{}.{}", module, part, tensor); };
  std::vector<float> values;
  Shape shape;
  for (const std::string_view part : parts) {
    const auto found = tensors.find(name(part));
    if (found == tensors.end() || !is_floating(found->second) || found->second.shape.rank() == 0) return false;
    if (!values.empty() && found->second.shape != shape) return false;
    shape = found->second.shape;
    const std::vector<float> rows = floats_of(found->second);
    values.insert(values.end(), rows.begin(), rows.end());
  }
  if (tensors.contains(name("qkv"))) return false;
  tensors[name("qkv")] = host_tensor(shape.with(0, 3 * shape[0]), values);
  for (const std::string_view part : parts) tensors.erase(name(part));
  return true;
}

/// Returns how many tensors were made.
std::size_t join_attention(Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  std::size_t joined = 0;
  for (const auto& parts : kAttentionParts)
    for (const std::string_view tensor : {"weight", "bias"}) {
      const std::string end = fmt::format("{}.{}", parts[0], tensor);
      for (const std::string& name : names)
        if (name.ends_with("." + end))
          joined += join_rows(tensors, name.substr(0, name.size() - end.size()), tensor, parts) ? 1 : 0;
    }
  return joined;
}

}  // namespace

std::vector<std::string> rename_as_torch_does(Tensors& tensors) {
  std::vector<std::string> lines;
  for (const OldNames& old : kOldNames)
    if (const std::size_t renamed = rename_all(tensors, old); renamed > 0)
      lines.push_back(fmt::format("{} tensors have {}", renamed, old.text));
  for (const Parts& parts : kParts)
    if (const std::size_t joined = join_parts(tensors, parts); joined > 0)
      lines.push_back(fmt::format("{} tensor{} put together: {}", joined, joined == 1 ? " was" : "s were", parts.name));
  if (const std::size_t joined = join_attention(tensors); joined > 0)
    lines.push_back(
        fmt::format("{} tensor{} put together: queries, keys and values", joined, joined == 1 ? " was" : "s were"));
  return lines;
}

}  // namespace bantam::run

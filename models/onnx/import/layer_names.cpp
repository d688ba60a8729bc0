// Names of layers, the text of their list, and the last check of their tensors.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/models/onnx/import/layer_list.h"

namespace bantam::onnx {
namespace {

constexpr std::size_t kMostOfName = 90;  // a number may be added

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// "Conv" or "Conv_12" of a Conv.
bool is_op(std::string_view part, std::string_view op) {
  if (!part.starts_with(op)) return false;
  part.remove_prefix(op.size());
  return part.empty() || (part.starts_with('_') && is_number(part.substr(1)));
}

/// Names in use. A name that is there already has a number added.
class Names {
 public:
  std::string add(const std::string& base) {
    std::string name = base;
    int& number = numbers_[base];
    while (!names_.insert(name).second) name = fmt::format("{}_{}", base, number = std::max(number + 1, 2));
    return name;
  }
  const std::set<std::string>& all() const { return names_; }

 private:
  std::set<std::string> names_{"input"};
  std::map<std::string, int> numbers_;
};

/// "conv2d" of "conv2d_2".
std::string without_number(const std::string& name) {
  const std::size_t end = name.rfind('_');
  return end != std::string::npos && is_number(std::string_view(name).substr(end + 1)) ? name.substr(0, end) : name;
}

/// "conv2d" or "conv2d_2": what a layer without a name is called.
bool is_default_name(std::string_view name, std::string_view kind) {
  if (!name.starts_with(kind)) return false;
  name.remove_prefix(kind.size());
  return name.empty() || (name.starts_with('_') && is_number(name.substr(1)));
}

/// Texts that YAML or an expression reads as something else.
bool is_word(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::set<std::string> words{"true", "false", "null", "yes", "no", "on", "off", "nan", "inf", "input"};
  return words.contains(lower);
}

}  // namespace

std::string name_of_path(std::string_view path, std::string_view op) {
  std::vector<std::string> parts = parts_of(path);
  if (!parts.empty() && is_op(parts.back(), op)) parts.pop_back();
  std::string name, before;
  for (const std::string& part : parts) {
    const bool repeats = !before.empty() && part.starts_with(before + ".");
    if (repeats) name.erase(name.size() - before.size());
    if (!repeats && !name.empty()) name += '.';
    name += part;
    before = part;
  }
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-' && c != '.') c = '_';
  if (name.size() > kMostOfName) name.erase(0, name.size() - kMostOfName);
  if (std::ranges::none_of(name, [](unsigned char c) { return std::isalpha(c) != 0; })) return "";
  if (std::isalpha(static_cast<unsigned char>(name[0])) == 0 || is_word(name)) name = "layer_" + name;
  return name;
}

void LayerList::name_all() {
  std::vector<bool> is_named(layers_.size());  // by an entry that does not simply follow it
  for (int i = 0; i < size(); ++i)
    for (const int input : (*this)[i].inputs)
      if (input != kInput && (input != i - 1 || (*this)[i].inputs.size() > 1))
        is_named[static_cast<std::size_t>(input)] = true;
  Names names;
  std::set<std::string> kinds;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    ImportedLayer& layer = layers_[i];
    const bool needs_name = is_named[i] || !layer.tensors.empty();
    if (!needs_name && is_default_name(layer.name, layer.kind)) layer.name.clear();
    if (layer.name.empty() && needs_name) layer.name = layer.kind;
    if (!layer.name.empty()) layer.name = names.add(layer.name);
  }
  for (const std::string& name : names.all()) kinds.insert(without_number(name));
  for (ImportedLayer& layer : layers_) {  // whose name by default could be another's
    if (layer.name.empty() && kinds.contains(layer.kind)) layer.name = names.add(layer.kind);
  }
}

void LayerList::check_tensors(int layer) const {
  const ImportedLayer& checked = (*this)[layer];
  std::vector<Shape> inputs;
  for (const int input : checked.inputs) inputs.push_back(shape(input));
  std::map<std::string, Shape> declared = declared_tensors(checked, inputs);
  for (const auto& [name, tensor] : checked.tensors) {
    const auto found = declared.find(name);
    if (found == declared.end() || found->second != tensor.shape)
      throw DataError(fmt::format("{}: as {}: its {} has the shape {}; expected {}", checked.node, checked.kind, name,
                                  to_string(tensor.shape),
                                  found == declared.end() ? "none" : to_string(found->second)));
    if (!std::ranges::all_of(float_values(tensor), [](float value) { return std::isfinite(value); }))
      throw DataError(
          fmt::format("{}: as {}: its {} has values that are not finite", checked.node, checked.kind, name));
    declared.erase(found);
  }
  if (!declared.empty())
    throw DataError(
        fmt::format("{}: as {}: no values for its {}", checked.node, checked.kind, declared.begin()->first));
}

void LayerList::finish() {
  name_all();
  for (int layer = 0; layer < size(); ++layer) check_tensors(layer);
}

std::string layers_text(const LayerList& layers) {
  std::string text;
  for (int i = 0; i < layers.size(); ++i) {
    const ImportedLayer& layer = layers[i];
    std::vector<std::pair<std::string, std::string>> more;
    if (!layer.name.empty()) more.emplace_back("name", layer.name);
    if (layer.inputs.size() != 1 || layer.inputs[0] != i - 1) {
      std::string inputs;
      for (const int input : layer.inputs)
        inputs += (inputs.empty() ? "" : ", ") + (input == kInput ? std::string("input") : layers[input].name);
      more.emplace_back("inputs", "[" + inputs + "]");
    }
    text += "  - " + layer.text(more) + "\n";
  }
  return text;
}

}  // namespace bantam::onnx

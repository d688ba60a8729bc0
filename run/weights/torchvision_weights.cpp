// Which network a file's tensors are of, and its tensors one by one.
#include "bantam/run/weights/torchvision_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/files/file_bytes.h"
#include "bantam/models/zoo/zoo.h"
#include "bantam/run/weights/torch_file.h"
#include "bantam/run/weights/torchvision_names.h"

namespace bantam::run {
namespace {

using Tensors = std::map<std::string, HostTensor>;
using Shapes = std::map<std::string, Shape>;

/// Which of the two names and shapes a file has.
struct Side {
  std::string TorchvisionTensor::*name;
  Shape TorchvisionTensor::*shape;
  bool torch;
};
constexpr Side kTorch{&TorchvisionTensor::torch, &TorchvisionTensor::torch_shape, true};
constexpr Side kOwn{&TorchvisionTensor::own, &TorchvisionTensor::own_shape, false};

/// Of a configuration; a damaged file may have any.
constexpr std::int64_t kMostClasses = std::int64_t{1} << 24;
constexpr double kMostWidth = 64;

/// "layer1" of "layer1.0.conv1.weight".
std::string_view module_of(std::string_view name) { return name.substr(0, name.find_first_of("./")); }

/// How a file's tensors compare with those of one network.
struct Comparison {
  std::string model;
  std::int64_t classes = 0;
  std::vector<TorchvisionTensor> expected;
  std::vector<std::string> missing, unexpected, other;  // the last with both shapes
  bool body = false;                                    // all but the classifier is there, and nothing more of the body

  bool fits() const { return missing.empty() && unexpected.empty() && other.empty(); }
  std::size_t faults() const { return missing.size() + unexpected.size() + other.size(); }
};

bool is_classifier(const TorchvisionTensor& tensor) { return tensor.own.starts_with("classifier/"); }

std::string first_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> first;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) first.push_back(shown(names[i]));
  const std::size_t rest = names.size() - first.size();
  return join(first, ", ", ", ") + (rest > 0 ? fmt::format(" and {} more", rest) : "");
}

std::string faults_text(const Comparison& network) {
  std::string text;
  if (!network.missing.empty()) text += fmt::format("\n  missing: {}", first_of(network.missing));
  if (!network.unexpected.empty()) text += fmt::format("\n  unexpected: {}", first_of(network.unexpected));
  if (!network.other.empty()) text += fmt::format("\n  of another shape: {}", first_of(network.other));
  return text;
}

/// Whether the file has the network but for its classifier: beside it there may be another one, and tensors of modules
/// that the network does not have. More tensors of one that it has are of a larger network.
bool has_body(const Comparison& network, const Shapes& shapes, const Side& side) {
  std::set<std::string_view> modules, known;
  for (const TorchvisionTensor& tensor : network.expected) {
    if (is_classifier(tensor)) continue;
    const std::string& name = tensor.*side.name;
    const auto found = shapes.find(name);
    if (found == shapes.end() || found->second != tensor.*side.shape) return false;
    modules.insert(module_of(name));
    known.insert(name);
  }
  const std::string head = torchvision_classifier(network.model);
  const std::string_view classifier = std::string_view(head).substr(0, head.rfind('.') + 1);
  return std::ranges::all_of(shapes, [&](const auto& each) {
    return known.contains(each.first) || each.first.starts_with(classifier) || !modules.contains(module_of(each.first));
  });
}

Comparison compare(const Shapes& shapes, const models::ZooModel& model, double width, const Side& side) {
  Comparison result{.model = std::string(model.name)};
  models::ZooOptions options = model.defaults;
  if (torchvision_has_width(model.name)) options.width = width;
  const std::string head = side.torch ? torchvision_classifier(model.name) : "classifier/weight";
  if (const auto found = shapes.find(head); found != shapes.end() && found->second.rank() == 2)
    options.classes = std::clamp(found->second[0], std::int64_t{1}, kMostClasses);
  result.classes = options.classes;
  result.expected = torchvision_tensors(model.name, model.build(options));
  std::set<std::string_view> known;
  for (const TorchvisionTensor& tensor : result.expected) {
    const std::string& name = tensor.*side.name;
    known.insert(name);
    const auto found = shapes.find(name);
    if (found == shapes.end())
      result.missing.push_back(name);
    else if (found->second != tensor.*side.shape)
      result.other.push_back(
          fmt::format("{} is {}, expected {}", name, to_string(found->second), to_string(tensor.*side.shape)));
  }
  for (const auto& [name, shape] : shapes)
    if (!known.contains(name)) result.unexpected.push_back(name);
  result.body = side.torch && has_body(result, shapes, side);
  return result;
}

/// The zoo's networks that torchvision has.
std::vector<const models::ZooModel*> networks() {
  std::vector<const models::ZooModel*> found;
  for (const models::ZooModel& model : models::zoo())
    if (is_torchvision(model.name)) found.push_back(&model);
  return found;
}

const models::ZooModel& named_network(const std::string& name) {
  const models::ZooModel* model = models::find_zoo_model(name);
  if (model != nullptr && is_torchvision(name)) return *model;
  std::vector<std::string> names;
  for (const models::ZooModel* each : networks()) names.emplace_back(each->name);
  const auto near = nearest(name, names);
  throw ConfigError(fmt::format("--model: {} '{}'{} the networks that torchvision has as well are {}",
                                model != nullptr ? "torchvision has no" : "unknown network", shown(name),
                                near ? fmt::format("; did you mean '{}'?", *near) : ";", join(names, ", ", " and ")));
}

void check_width(const TorchvisionOptions& options) {
  if (!(options.width > 0 && options.width <= kMostWidth))
    throw ConfigError(
        fmt::format("--width: expected a number above 0 and up to {}, got {}", kMostWidth, options.width));
  if (options.width == 1 || options.model.empty() || torchvision_has_width(named_network(options.model).name)) return;
  throw ConfigError(fmt::format("--width: torchvision's {} has no width", torchvision_function(options.model)));
}

/// The networks that may be meant, as they compare.
std::vector<Comparison> compare_all(const Shapes& shapes, const TorchvisionOptions& options, const Side& side) {
  if (!options.model.empty()) return {compare(shapes, named_network(options.model), options.width, side)};
  std::vector<Comparison> all;
  for (const models::ZooModel* model : networks())
    if (options.width == 1 || torchvision_has_width(model->name))
      all.push_back(compare(shapes, *model, options.width, side));
  return all;
}

/// The network of these tensors, else the one with all but its classifier; nothing where there is none. Throws
/// DataError where there is more than one.
std::optional<Comparison> matching(const std::vector<Comparison>& all, const std::filesystem::path& path) {
  for (const bool whole : {true, false}) {
    const Comparison* found = nullptr;
    std::vector<std::string> fitting;
    for (const Comparison& network : all) {
      if (whole ? !network.fits() : !network.body) continue;
      fitting.push_back(network.model);
      found = &network;
    }
    if (fitting.size() > 1)
      throw DataError(
          fmt::format("{}: has the tensors of {}: name one with --model", path.string(), join(fitting, ", ", " and ")));
    if (found != nullptr) return *found;
  }
  return std::nullopt;
}

[[noreturn]] void fail_no_network(const Comparison& nearest, const std::filesystem::path& path,
                                  const TorchvisionOptions& options, const Side& side) {
  const std::string faults = faults_text(nearest);
  if (!options.model.empty())
    throw DataError(fmt::format("{}: has other tensors than {}{}", path.string(), options.model, faults));
  throw DataError(fmt::format(
      "{}: has the tensors of no network that torchvision and the zoo both have{}; the nearest is {}{}{}",
      path.string(), options.width != 1 ? fmt::format(" with a width of {}", options.width) : "", nearest.model, faults,
      side.torch ? "" : "\n  --onnx FILE writes any network, for inference elsewhere"));
}

Shapes shapes_of(const Tensors& tensors) {
  Shapes shapes;
  for (const auto& [name, tensor] : tensors) shapes.emplace(name, tensor.shape);
  return shapes;
}

/// The prefix that more than half of the names begin with, of one step more than `prefix`: "backbone."; empty: none.
std::string longer_prefix(const Shapes& shapes, const std::string& prefix) {
  std::map<std::string_view, std::size_t> counts;
  for (const auto& [name, shape] : shapes) {
    const std::size_t dot = name.find('.', prefix.size());
    if (name.starts_with(prefix) && dot != std::string::npos) ++counts[std::string_view(name).substr(0, dot + 1)];
  }
  const auto most = std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; });
  return most != counts.end() && 2 * most->second > shapes.size() ? std::string(most->first) : "";
}

std::string without(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

/// A network, and what stands before its tensors' names.
struct Identified {
  std::string prefix;
  Comparison network;
};

/// With the prefixes that wrappers put before names, "model.backbone.", from none to three steps; where none helps, the
/// error is of the nearest network.
Identified identify(const Shapes& shapes, const std::filesystem::path& path, const TorchvisionOptions& options,
                    const Side& side) {
  check_width(options);
  constexpr int kMostSteps = 3;
  std::optional<Comparison> best;
  std::string prefix;
  for (int step = 0; step <= kMostSteps; ++step) {
    Shapes renamed;
    for (const auto& [name, shape] : shapes) renamed.emplace(without(name, prefix), shape);
    const std::vector<Comparison> all = compare_all(renamed, options, side);
    if (auto found = matching(all, path)) return {prefix, std::move(*found)};
    for (const Comparison& network : all)
      if (!best || network.faults() < best->faults()) best = network;
    prefix = side.torch ? longer_prefix(shapes, prefix) : "";
    if (prefix.empty()) break;
  }
  fail_no_network(*best, path, options, side);
}

/// The first bytes of a file, as many as is_torch_file() reads.
std::string begin_of(const std::filesystem::path& path) {
  const auto file = open_plain_bytes(path);
  std::vector<std::uint8_t> begin(std::min(static_cast<std::size_t>(file->size()), kTorchFileBegin));
  file->read(0, begin);
  return {begin.begin(), begin.end()};
}

/// Drops what data-parallel and compiled modules put before every name; returns it.
std::string drop_prefix(Tensors& tensors) {
  std::string dropped;
  for (const std::string prefix : {"_orig_mod.", "module.", "_orig_mod."}) {
    const bool all = !tensors.empty() &&
                     std::ranges::all_of(tensors, [&](const auto& each) { return each.first.starts_with(prefix); });
    if (!all) continue;
    Tensors renamed;
    for (auto& [name, tensor] : tensors) renamed.emplace(name.substr(prefix.size()), std::move(tensor));
    tensors = std::move(renamed);
    dropped += prefix;
  }
  return dropped;
}

ConvertedWeights read_state_dict(const std::filesystem::path& path, const std::string& key) {
  ConvertedWeights read;
  if (is_torch_file(begin_of(path))) {
    TorchFile file = read_torch_file(path, key);
    read.file.tensors = std::move(file.tensors);
    read.found_at = std::move(file.found_at);
    read.ignored = std::move(file.others);
  } else {
    if (!key.empty())
      throw ConfigError(fmt::format("--key: {} is no file of PyTorch: it holds one state_dict", path.string()));
    read.file = read_safetensors(path);
  }
  read.prefix = drop_prefix(read.file.tensors);
  std::erase_if(read.file.tensors, [&](const auto& each) {
    const bool counts = each.first.ends_with(".num_batches_tracked");
    if (counts) read.ignored.push_back(each.first);
    return counts;
  });
  return read;
}

/// A run would refuse them, much later.
void require_finite(const std::vector<std::byte>& values, const std::string& name, const std::filesystem::path& path) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, values.data() + i, sizeof(float));
    count += std::isfinite(value) ? 0 : 1;
  }
  if (count > 0)
    throw DataError(fmt::format("{}: tensor '{}' has {} value{} that {} not finite, of {}: no run can begin with it",
                                path.string(), name, count, count == 1 ? "" : "s", count == 1 ? "is" : "are",
                                values.size() / sizeof(float)));
}

/// Float32, in the other order, under the other name; without tensors that `from` lacks.
Tensors converted(const Tensors& from, const Comparison& network, const std::filesystem::path& path, bool to_own) {
  Tensors to;
  for (const TorchvisionTensor& tensor : network.expected) {
    const std::string& name = to_own ? tensor.torch : tensor.own;
    const auto found = from.find(name);
    if (found == from.end()) continue;
    const HostTensor& source = found->second;
    if (source.dtype != DType::float32 && source.dtype != DType::float64 && !is_half(source.dtype))
      throw DataError(fmt::format("{}: tensor '{}' is {}, expected floating-point numbers", path.string(), name,
                                  to_string(source.dtype)));
    const std::vector<std::byte> values = to_float32(source).bytes;
    require_finite(values, name, path);
    HostTensor& made = to[to_own ? tensor.own : tensor.torch];
    made.shape = to_own ? tensor.own_shape : tensor.torch_shape;
    made.bytes = to_own ? own_order(tensor, values) : torch_order(tensor, values);
  }
  return to;
}

/// Drops the prefix, and what is not the network's: a classifier that does not fit, and other modules' tensors.
void keep_tensors_of(const Identified& found, ConvertedWeights& weights) {
  std::map<std::string, Shape> expected;
  for (const TorchvisionTensor& tensor : found.network.expected)
    if (found.network.fits() || !is_classifier(tensor)) expected.emplace(tensor.torch, tensor.torch_shape);
  Tensors kept;
  for (auto& [name, tensor] : weights.file.tensors)
    if (std::string plain = without(name, found.prefix); expected.contains(plain))
      kept.emplace(std::move(plain), std::move(tensor));
    else
      weights.ignored.push_back(name);
  weights.file.tensors = std::move(kept);
  weights.prefix += found.prefix;
}

}  // namespace

ConvertedWeights import_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options) {
  ConvertedWeights result = read_state_dict(path, options.key);
  const Identified found = identify(shapes_of(result.file.tensors), path, options, kTorch);
  keep_tensors_of(found, result);
  const bool whole = found.network.fits();
  result.model = found.network.model;
  result.classes = whole ? found.network.classes : 0;
  result.file.tensors = converted(result.file.tensors, found.network, path, true);
  result.file.metadata = {{"format", "bantam"}, {"imported_from", "torchvision " + torchvision_function(result.model)}};
  if (whole && (options.classes == 0 || options.classes == result.classes)) return result;
  for (const char* name : {"classifier/bias", "classifier/weight"}) {
    result.file.tensors.erase(name);
    const bool has_it =
        std::ranges::find(found.network.expected, name, &TorchvisionTensor::own) != found.network.expected.end();
    if (has_it) result.left_out.emplace_back(name);
  }
  return result;
}

ConvertedWeights export_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options) {
  ConvertedWeights result{.file = read_safetensors(path)};
  const Comparison network = identify(shapes_of(result.file.tensors), path, options, kOwn).network;
  result.model = network.model;
  result.classes = network.classes;
  result.file.tensors = converted(result.file.tensors, network, path, false);
  result.file.metadata = {{"format", "pt"}};
  return result;
}

}  // namespace bantam::run

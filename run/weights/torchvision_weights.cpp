// Which network a file's tensors are of, and its tensors one by one.
#include "bantam/run/weights/torchvision_weights.h"

#include <algorithm>
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

/// How a file's tensors compare with those of one network.
struct Comparison {
  std::string model;
  std::int64_t classes = 0;
  std::vector<TorchvisionTensor> expected;
  std::vector<std::string> missing, unexpected, other;  // the last with both shapes

  bool fits() const { return missing.empty() && unexpected.empty() && other.empty(); }
  std::size_t faults() const { return missing.size() + unexpected.size() + other.size(); }
};

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

Comparison compare(const Tensors& tensors, const models::ZooModel& model, double width, const Side& side) {
  Comparison result{.model = std::string(model.name)};
  models::ZooOptions options = model.defaults;
  if (torchvision_has_width(model.name)) options.width = width;
  const std::string head = side.torch ? torchvision_classifier(model.name) : "classifier/weight";
  if (const auto found = tensors.find(head); found != tensors.end() && found->second.shape.rank() == 2)
    options.classes = std::clamp(found->second.shape[0], std::int64_t{1}, kMostClasses);
  result.classes = options.classes;
  result.expected = torchvision_tensors(model.name, model.build(options));
  std::set<std::string_view> known;
  for (const TorchvisionTensor& tensor : result.expected) {
    const std::string& name = tensor.*side.name;
    known.insert(name);
    const auto found = tensors.find(name);
    if (found == tensors.end())
      result.missing.push_back(name);
    else if (found->second.shape != tensor.*side.shape)
      result.other.push_back(
          fmt::format("{} is {}, expected {}", name, to_string(found->second.shape), to_string(tensor.*side.shape)));
  }
  for (const auto& [name, tensor] : tensors)
    if (!known.contains(name)) result.unexpected.push_back(name);
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

/// The network of these tensors. Throws DataError where there is none, or more than one.
Comparison identify(const Tensors& tensors, const std::filesystem::path& path, const TorchvisionOptions& options,
                    const Side& side) {
  check_width(options);
  const auto fail = [&](const std::string& what) { throw DataError(fmt::format("{}: {}", path.string(), what)); };
  if (!options.model.empty()) {
    Comparison network = compare(tensors, named_network(options.model), options.width, side);
    if (!network.fits()) fail(fmt::format("has other tensors than {}{}", options.model, faults_text(network)));
    return network;
  }
  std::optional<Comparison> best;
  std::vector<std::string> fitting;
  for (const models::ZooModel* model : networks()) {
    if (options.width != 1 && !torchvision_has_width(model->name)) continue;
    Comparison network = compare(tensors, *model, options.width, side);
    if (network.fits()) fitting.push_back(network.model);
    if (!best || network.faults() < best->faults()) best = std::move(network);
  }
  if (fitting.size() > 1)
    fail(fmt::format("has the tensors of {}: name one with --model", join(fitting, ", ", " and ")));
  if (fitting.empty())
    fail(fmt::format("has the tensors of no network that torchvision and the zoo both have{}; the nearest is {}{}",
                     options.width != 1 ? fmt::format(" with a width of {}", options.width) : "", best->model,
                     faults_text(*best)));
  return std::move(*best);
}

bool is_zip(const std::filesystem::path& path) {
  const auto file = open_plain_bytes(path);
  std::vector<std::uint8_t> begin(static_cast<std::size_t>(std::min<std::int64_t>(file->size(), 2)));
  file->read(0, begin);
  // A pickle, too: read_torch_file says what it is.
  return begin == std::vector<std::uint8_t>{'P', 'K'} || begin == std::vector<std::uint8_t>{0x80, 0x02};
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

ConvertedWeights read_state_dict(const std::filesystem::path& path) {
  ConvertedWeights read;
  if (is_zip(path)) {
    TorchFile file = read_torch_file(path);
    read.file.tensors = std::move(file.tensors);
    read.found_at = std::move(file.found_at);
    read.ignored = std::move(file.others);
  } else {
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

/// Float32, in the other order, under the other name.
Tensors converted(const Tensors& from, const Comparison& network, const std::filesystem::path& path, bool to_own) {
  Tensors to;
  for (const TorchvisionTensor& tensor : network.expected) {
    const HostTensor& source = from.at(to_own ? tensor.torch : tensor.own);
    if (source.dtype != DType::float32 && source.dtype != DType::float64 && !is_half(source.dtype))
      throw DataError(fmt::format("{}: tensor '{}' is {}, expected floating-point numbers", path.string(),
                                  to_own ? tensor.torch : tensor.own, to_string(source.dtype)));
    const std::vector<std::byte> values = to_float32(source).bytes;
    HostTensor& made = to[to_own ? tensor.own : tensor.torch];
    made.shape = to_own ? tensor.own_shape : tensor.torch_shape;
    made.bytes = to_own ? own_order(tensor, values) : torch_order(tensor, values);
  }
  return to;
}

}  // namespace

ConvertedWeights import_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options) {
  ConvertedWeights result = read_state_dict(path);
  const Comparison network = identify(result.file.tensors, path, options, kTorch);
  result.model = network.model;
  result.classes = network.classes;
  result.file.tensors = converted(result.file.tensors, network, path, true);
  result.file.metadata = {{"format", "bantam"},
                          {"imported_from", "torchvision " + torchvision_function(network.model)}};
  if (options.classes == 0 || options.classes == network.classes) return result;
  for (const char* name : {"classifier/bias", "classifier/weight"})
    if (result.file.tensors.erase(name) > 0) result.left_out.emplace_back(name);
  return result;
}

ConvertedWeights export_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options) {
  ConvertedWeights result{.file = read_safetensors(path)};
  const Comparison network = identify(result.file.tensors, path, options, kOwn);
  result.model = network.model;
  result.classes = network.classes;
  result.file.tensors = converted(result.file.tensors, network, path, false);
  result.file.metadata = {{"format", "pt"}};
  return result;
}

}  // namespace bantam::run

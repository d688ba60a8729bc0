// Which network a file's tensors are of, and its tensors one by one.
#include "bantam/run/weights/torchvision_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/zoo/zoo.h"
#include "bantam/run/weights/file_kinds.h"
#include "bantam/run/weights/torch_file.h"
#include "bantam/run/weights/torch_renames.h"
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

/// The most classes of a configuration; a damaged file may have any number.
constexpr std::int64_t kMostClasses = std::int64_t{1} << 24;
constexpr double kMostWidth = 64;
/// The epsilon of the zoo's batch norms in the only networks for which other programs have another one.
constexpr float kMobileNetV3Epsilon = 1e-3f;

/// "layer1" of "layer1.0.conv1.weight".
std::string_view module_of(std::string_view name) { return name.substr(0, name.find_first_of("./")); }

/// How a file's tensors compare with those of one network.
struct Comparison {
  std::string model, program;
  std::string prefix;  ///< that stands before the network's names in the file
  std::string head;    ///< the module that the classifier is, where it has another name
  std::int64_t classes = 0, channels = 3;
  std::int64_t side = 0;  ///< of the images of position embeddings for another size than the zoo's
  std::vector<TorchvisionTensor> expected;
  std::vector<std::string> missing, unexpected, other;  // the last with both shapes
  std::size_t agreeing = 0;                             // names with the right shape
  bool grows = false;                                   // there are more tensors of modules that the network has
  bool body = false, classifier = false, hidden = false;

  bool whole() const { return body && classifier && hidden; }
  bool fits() const { return missing.empty() && unexpected.empty() && other.empty(); }
};

bool is_classifier(const TorchvisionTensor& tensor) { return tensor.own.starts_with("classifier/"); }
/// Dense layers before the classifier, which VGG and MobileNet v3 have.
bool is_hidden(const TorchvisionTensor& tensor) { return tensor.own.starts_with("hidden"); }

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

std::string without(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

/// The tensors as a network whose names have this prefix sees them: first those that have it.
Shapes seen_with(const Shapes& shapes, const std::string& prefix) {
  if (prefix.empty()) return shapes;
  Shapes seen;
  for (auto from = shapes.lower_bound(prefix); from != shapes.end() && from->first.starts_with(prefix); ++from)
    seen.emplace(from->first.substr(prefix.size()), from->second);
  for (const auto& [name, shape] : shapes)
    if (!name.starts_with(prefix)) seen.emplace(name, shape);
  return seen;
}

/// The shape with another extent.
Shape replaced(const Shape& shape, int axis, std::int64_t extent) {
  std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
  if (axis < std::ssize(extents)) extents[static_cast<std::size_t>(axis)] = extent;
  return Shape(std::span<const std::int64_t>(extents));
}

/// A network's tensors by one program's names, for any number of classes and of channels of the images.
class Candidate {
 public:
  Candidate(const models::ZooModel& model, const Graph& graph, std::string_view program, const Side& side)
      : model_(model.name),
        program_(program),
        side_(side),
        tensors_(torchvision_tensors(model.name, graph, program)),
        classifier_(side.torch ? torchvision_classifier(model.name, program) : "classifier/weight") {}

  /// Finds the prefixes before the network's names, wherever its first weight is found.
  std::set<std::string> prefixes(const Shapes& shapes) const {
    const std::string& first = tensors_.front().*side_.name;
    std::set<std::string> found;
    for (const auto& [name, shape] : shapes)
      if (name.ends_with(first) && (name.size() == first.size() || name[name.size() - first.size() - 1] == '.') &&
          is_first(shape) && found.size() < kMostPrefixes)
        found.insert(name.substr(0, name.size() - first.size()));
    return found;
  }

  Comparison compare(const Shapes& shapes, const std::string& prefix) const {
    Comparison result{.model = model_, .program = program_, .prefix = prefix, .expected = tensors_};
    const Shapes seen = seen_with(shapes, prefix);
    adapt(result, seen);
    std::set<std::string_view> known, modules;
    result.body = result.classifier = result.hidden = true;
    for (const TorchvisionTensor& tensor : result.expected) {
      const std::string& name = tensor.*side_.name;
      known.insert(name);
      if (!is_classifier(tensor) && !is_hidden(tensor)) modules.insert(module_of(name));
      const auto found = seen.find(name);
      if (found != seen.end() && found->second == tensor.*side_.shape) {
        ++result.agreeing;
        continue;
      }
      (is_classifier(tensor) ? result.classifier : is_hidden(tensor) ? result.hidden : result.body) = false;
      if (found == seen.end())
        result.missing.push_back(name);
      else
        result.other.push_back(
            fmt::format("{} is {}, expected {}", name, to_string(found->second), to_string(tensor.*side_.shape)));
    }
    const std::string_view head = std::string_view(classifier_).substr(0, classifier_.rfind('.') + 1);
    for (const auto& [name, shape] : seen) {
      if (known.contains(name)) continue;
      result.unexpected.push_back(name);
      result.grows =
          result.grows || (modules.contains(module_of(name)) && !name.starts_with(head) && is_of_a_layer(name));
    }
    result.body = result.body && !result.grows;
    return result;
  }

 private:
  static constexpr std::size_t kMostPrefixes = 16;
  static constexpr std::int64_t kMostChannels = 64;

  /// Whether a tensor of this shape may be the network's first weight, which reads images of any channels.
  bool is_first(const Shape& shape) const {
    const Shape& expected = tensors_.front().*side_.shape;
    return shape == expected || (side_.torch && channels_of(shape) > 0);
  }
  /// Channels of the images that a first weight of this shape reads; 0 where it is none.
  std::int64_t channels_of(const Shape& shape) const {
    const Shape& expected = tensors_.front().torch_shape;
    if (shape.rank() != 4 || expected.rank() != 4 || shape[1] < 1 || shape[1] > kMostChannels) return 0;
    return replaced(shape, 1, expected[1]) == expected ? shape[1] : 0;
  }

  /// More of these in a module of the network are of a larger network; any other tensor of a module (a mask, a count of
  /// operations, an observer's scale) is not.
  static bool is_of_a_layer(std::string_view name) {
    constexpr std::string_view kNames[] = {"weight", "bias",  "running_mean", "running_var",
                                           "gamma",  "scale", "layer_scale",  "layer_scale_parameter"};
    return std::ranges::find(kNames, name.substr(name.find_last_of("./") + 1)) != std::end(kNames);
  }

  /// Sets classes and channels to those of the file.
  void adapt(Comparison& result, const Shapes& seen) const {
    TorchvisionTensor& first = result.expected.front();
    if (const auto found = seen.find(first.*side_.name); side_.torch && found != seen.end())
      if (const std::int64_t channels = channels_of(found->second); channels > 0) {
        result.channels = channels;
        first.torch_shape = replaced(first.torch_shape, 1, channels);
        first.own_shape = replaced(first.own_shape, 3, channels);
        first.own_axes = replaced(first.own_axes, 3, channels);
      }
    adapt_positions(result, seen);
    std::string head = classifier_;
    if (side_.torch && !seen.contains(head)) head = other_head(result, seen).value_or(head);
    const auto found = seen.find(head);
    const bool has_classes = found != seen.end() && found->second.rank() == 2;
    for (TorchvisionTensor& tensor : result.expected) {
      if (!is_classifier(tensor)) continue;
      if (!has_classes) {
        result.classes = tensor.torch_shape[0];
        continue;
      }
      result.classes = std::clamp(found->second[0], std::int64_t{1}, kMostClasses);
      for (Shape TorchvisionTensor::*shape :
           {&TorchvisionTensor::own_shape, &TorchvisionTensor::torch_shape, &TorchvisionTensor::own_axes})
        tensor.*shape = replaced(tensor.*shape, 0, result.classes);
      if (head == classifier_) continue;
      const std::size_t module = head.size() - std::string_view("weight").size();
      tensor.torch = head.substr(0, module) + tensor.torch.substr(tensor.torch.rfind('.') + 1);
      result.head = head.substr(0, module - 1);
    }
  }

  /// Position embeddings are those of square images of any size: the number of their tokens is.
  void adapt_positions(Comparison& result, const Shapes& seen) const {
    const auto of = [&](std::string_view own) {
      return std::ranges::find(result.expected, own, &TorchvisionTensor::own);
    };
    const auto positions = of("position_embedding/embedding"), tokens = of("class_token/token"),
               stem = of("stem/weight");
    if (positions == result.expected.end() || tokens == result.expected.end() || stem == result.expected.end()) return;
    const auto found = seen.find((*positions).*side_.name);
    const bool of_image = positions->own_shape.rank() == 3;  // without the class token's
    const std::int64_t prefix = of_image ? 0 : tokens->own_shape[0];
    const std::int64_t channels = positions->torch_shape[2];
    if (found == seen.end() || found->second.rank() == 0 || found->second.elements() % channels != 0) return;
    const std::int64_t rows = found->second.elements() / channels;
    const auto grid = static_cast<std::int64_t>(
        std::lround(std::sqrt(static_cast<double>(std::max(rows - prefix, std::int64_t{0})))));
    if (grid < 1 || grid * grid + prefix != rows || rows == positions->torch_shape[1]) return;
    result.side = grid * stem->own_shape[1];
    positions->torch_shape = {1, rows, channels};
    positions->own_shape = positions->own_axes = of_image ? Shape{grid, grid, channels} : Shape{rows, channels};
  }

  /// The weight of the only linear layer beside the network, in the place of the classifier ("fc.1.weight") or under a
  /// usual name ("head.weight").
  std::optional<std::string> other_head(const Comparison& network, const Shapes& seen) const {
    std::set<std::string_view> known;
    std::int64_t features = 0;
    for (const TorchvisionTensor& tensor : network.expected) {
      known.insert(tensor.torch);
      if (tensor.own == "classifier/weight") features = tensor.torch_shape[1];
    }
    std::optional<std::string> only;
    for (const auto& [name, shape] : seen) {
      constexpr std::string_view kHeads[] = {"fc", "classifier", "head", "linear", "last_linear"};
      const std::string_view module = module_of(name);
      if (known.contains(name) || !name.ends_with(".weight") ||
          (module != module_of(classifier_) && std::ranges::find(kHeads, module) == std::end(kHeads)))
        continue;
      const auto bias = seen.find(name.substr(0, name.rfind('.')) + ".bias");
      const bool fits =
          shape.rank() == 2 && shape[1] == features && bias != seen.end() && bias->second == Shape{shape[0]};
      if (only || !fits) return std::nullopt;
      only = name;
    }
    return only;
  }

  std::string model_, program_;
  const Side& side_;
  std::vector<TorchvisionTensor> tensors_;
  std::string classifier_;
};

/// The zoo's networks whose names in other programs are known.
std::vector<const models::ZooModel*> networks() {
  std::vector<const models::ZooModel*> found;
  for (const models::ZooModel& model : models::zoo())
    if (has_known_names(model.name)) found.push_back(&model);
  return found;
}

const models::ZooModel& named_network(const std::string& name) {
  const models::ZooModel* model = models::find_zoo_model(name);
  if (model != nullptr && has_known_names(name)) return *model;
  std::vector<std::string> names;
  for (const models::ZooModel* each : networks()) names.emplace_back(each->name);
  const auto near = nearest(name, names);
  throw ConfigError(fmt::format("--model: {} '{}'{} the networks that torchvision or timm has as well are {}",
                                model != nullptr ? "torchvision has no" : "unknown network", shown(name),
                                near ? fmt::format("; did you mean '{}'?", *near) : ";", join(names, ", ", " and ")));
}

void check_width(const TorchvisionOptions& options) {
  if (!(options.width > 0 && options.width <= kMostWidth))
    throw ConfigError(
        fmt::format("--width: expected a number above 0 and up to {}, got {}", kMostWidth, options.width));
  if (options.width == 1 || options.model.empty() || torchvision_has_width(named_network(options.model).name)) return;
  throw ConfigError(
      fmt::format("--width: {}'s {} has no width", naming_program(options.model), torchvision_function(options.model)));
}

/// The networks that may be meant, by each program's names.
std::vector<Candidate> candidates(const TorchvisionOptions& options, const Side& side) {
  std::vector<Candidate> all;
  const auto add = [&](const models::ZooModel& model) {
    models::ZooOptions zoo = model.defaults;
    if (torchvision_has_width(model.name)) zoo.width = options.width;
    const Graph graph = model.build(zoo);
    for (const std::string_view program : naming_programs(model.name))
      if (side.torch || program == naming_program(model.name)) all.emplace_back(model, graph, program, side);
  };
  if (!options.model.empty()) {
    add(named_network(options.model));
    return all;
  }
  for (const models::ZooModel* model : networks())
    if (options.width == 1 || torchvision_has_width(model->name)) add(*model);
  return all;
}

/// Whether it is, by what stands before its names, a copy that another network is averaged into.
bool is_average(const std::string& prefix) {
  constexpr std::string_view kNames[] = {"ema", "teacher", "momentum", "average", "swa", "target", "encoder_k"};
  return std::ranges::any_of(kNames, [&](std::string_view name) { return prefix.find(name) != std::string::npos; });
}

std::string prefix_text(const std::string& prefix) {
  return prefix.empty() ? "names without a prefix" : fmt::format("'{}'", shown(prefix));
}

/// The network of these tensors, else the one with all but its classifier; nothing where there is none. Throws
/// DataError where there is more than one. `others`: the prefixes of more copies of it.
std::optional<Comparison> matching(const std::vector<Comparison>& all, const std::filesystem::path& path,
                                   std::vector<std::string>& others) {
  for (const bool whole : {true, false}) {
    std::vector<const Comparison*> found;
    for (const Comparison& network : all)
      if (whole ? network.whole() : network.body) found.push_back(&network);
    if (found.empty()) continue;
    std::vector<std::string> names;
    for (const Comparison* network : found)
      if (std::ranges::find(names, network->model) == names.end()) names.push_back(network->model);
    if (names.size() > 1)
      throw DataError(
          fmt::format("{}: has the tensors of {}: name one with --model", path.string(), join(names, ", ", " and ")));
    std::vector<const Comparison*> plain;
    for (const Comparison* network : found)
      if (!is_average(network->prefix)) plain.push_back(network);
    if (plain.empty()) plain = found;
    if (plain.size() > 1) {
      std::vector<std::string> prefixes;
      for (const Comparison* network : plain) prefixes.push_back(prefix_text(network->prefix));
      throw DataError(fmt::format("{}: has {} {} times, under {}: name one with --key, without the last dot",
                                  path.string(), names.front(), plain.size(), join(prefixes, ", ", " and ")));
    }
    for (const Comparison* network : found)
      if (network != plain.front()) others.push_back(network->prefix);
    return *plain.front();
  }
  return std::nullopt;
}

/// "conv1.weight (32, 1, 3, 3), conv1.bias (32) and 8 more".
std::string first_tensors(const Shapes& shapes) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : shapes) names.push_back(fmt::format("{} {}", shown(name, 60), to_string(shape)));
  return first_of(names);
}

/// `nearest`: the network that has most of the file's tensors. It is named where half of them are its own: the names
/// of any other would mislead.
[[noreturn]] void fail_no_network(const Comparison& nearest, const Shapes& shapes, const std::filesystem::path& path,
                                  const TorchvisionOptions& options, const Side& side) {
  const std::string faults = faults_text(nearest);
  if (!options.model.empty())
    throw DataError(fmt::format("{}: has other tensors than {}{}", path.string(), options.model, faults));
  const std::string width = options.width != 1 ? fmt::format(" with a width of {}", options.width) : "";
  const std::string road = side.torch ? "\n  any network comes as an ONNX model, which torch.onnx.export writes: "
                                        "`bantam import FILE.onnx`"
                                      : "\n  --onnx FILE writes any network, for inference elsewhere";
  if (2 * nearest.agreeing >= std::max(nearest.expected.size(), shapes.size()))
    throw DataError(fmt::format(
        "{}: has the tensors of no network that the zoo and torchvision or timm have{}; the nearest is {}, of which it "
        "has {} of {}{}{}",
        path.string(), width, nearest.model, nearest.agreeing, nearest.expected.size(), faults, road));
  std::vector<std::string> names;
  for (const models::ZooModel* each : networks()) names.emplace_back(each->name);
  throw DataError(
      fmt::format("{}: has the tensors of no network that the zoo and torchvision or timm have{}: {} tensor{}, {}\n  "
                  "these are {}{}",
                  path.string(), width, shapes.size(), shapes.size() == 1 ? "" : "s", first_tensors(shapes),
                  join(names, ", ", " and "), road));
}

/// Lists the shapes of all tensors, those that are read and those that are not.
Shapes shapes_of(const SafetensorsFile& file) {
  Shapes shapes;
  for (const auto& [name, tensor] : file.tensors) shapes.emplace(name, tensor.shape);
  for (const auto& [name, tensor] : file.skipped) shapes.emplace(name, tensor.shape);
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

/// Returns prefixes of most names, step by step, from none: networks are found whose first weight is not as expected.
std::vector<std::string> usual_prefixes(const Shapes& shapes, const Side& side) {
  constexpr std::size_t kMostSteps = 3;
  std::vector<std::string> prefixes = {""};
  while (side.torch && prefixes.size() <= kMostSteps) {
    const std::string longer = longer_prefix(shapes, prefixes.back());
    if (longer.empty()) break;
    prefixes.push_back(longer);
  }
  return prefixes;
}

/// Layers of vision transformers that the zoo's have not, by what their tensors' names begin with after the prefix of
/// the network: without them the network would be another function, with tensors that look like ours.
struct ForeignPart {
  std::string_view name, text;
};
constexpr ForeignPart kForeignParts[] = {
    {"dist_token", "a distillation token: this is a distilled DeiT, whose two classifiers are averaged"},
    {"embeddings.distillation_token",
     "a distillation token: this is a distilled DeiT, whose two classifiers are averaged"},
    {"reg_token", "register tokens"},
    {"norm_pre.", "a norm before its blocks, as CLIP's networks have"},
    {"attn_pool.", "attention in place of a class token to pool, as SigLIP's networks have"},
    {"fc_norm.", "the mean of all tokens in place of the class token (fc_norm)"},
    {"rope.", "rotary position embeddings (RoPE)"}};

/// Throws DataError where a vision transformer of timm or transformers has one of them.
void refuse_foreign_parts(const Shapes& shapes, const std::filesystem::path& path) {
  for (const std::string_view first : {"blocks.0.attn.", "encoder.layer.0.attention.", "layers.0.attention."})
    for (const auto& [name, shape] : shapes) {
      const std::size_t at = name.find(first);
      if (at == std::string::npos || (at > 0 && name[at - 1] != '.')) continue;
      const std::string prefix = name.substr(0, at);
      for (const ForeignPart& part : kForeignParts) {
        const std::string begin = prefix + std::string(part.name);
        const auto found = shapes.lower_bound(begin);
        if (found == shapes.end() || !found->first.starts_with(begin)) continue;
        throw DataError(fmt::format(
            "{}: is a vision transformer with {}: '{}'; the zoo's networks have none\n  any network comes as an ONNX "
            "model, which torch.onnx.export writes: `bantam import FILE.onnx`",
            path.string(), part.text, shown(found->first)));
      }
    }
}

/// Each network by each program's names, under what may stand before them. `key`, where it is not empty, begins them.
std::vector<Comparison> compare_all(const Shapes& shapes, const TorchvisionOptions& options, const Side& side,
                                    const std::string& key) {
  std::vector<Comparison> all;
  const std::vector<std::string> usual = usual_prefixes(shapes, side);
  for (const Candidate& candidate : candidates(options, side)) {
    std::set<std::string> prefixes(usual.begin(), usual.end());
    if (side.torch) prefixes.merge(candidate.prefixes(shapes));
    if (!key.empty()) prefixes.insert(key + ".");
    for (const std::string& prefix : prefixes)
      if (key.empty() || prefix.starts_with(key + ".")) all.push_back(candidate.compare(shapes, prefix));
  }
  return all;
}

/// The network that the tensors are of. Throws the error of the nearest one where there is none.
Comparison identify(const Shapes& shapes, const std::filesystem::path& path, const TorchvisionOptions& options,
                    const Side& side, const std::string& key, std::vector<std::string>& others) {
  check_width(options);
  if (side.torch) refuse_foreign_parts(shapes, path);
  const std::vector<Comparison> all = compare_all(shapes, options, side, key);
  if (!side.torch) {
    const auto fits = std::ranges::find_if(all, &Comparison::fits);
    if (fits != all.end()) return *fits;
  } else if (auto found = matching(all, path, others)) {
    return std::move(*found);
  }
  const auto nearest = std::ranges::max_element(all, {}, [](const Comparison& network) {
    return std::pair(network.agreeing, -static_cast<std::int64_t>(network.missing.size() + network.other.size()));
  });
  fail_no_network(*nearest, shapes, path, options, side);
}

/// Drops what data-parallel and compiled modules put before every name; returns it.
std::string drop_prefix(SafetensorsFile& file) {
  std::string dropped;
  const auto dropping = [](auto& tensors, const std::string& prefix) {
    std::remove_reference_t<decltype(tensors)> renamed;
    for (auto& [name, tensor] : tensors) renamed.emplace(name.substr(prefix.size()), std::move(tensor));
    tensors = std::move(renamed);
  };
  const auto all_begin = [](const auto& tensors, const std::string& prefix) {
    return std::ranges::all_of(tensors, [&](const auto& each) { return each.first.starts_with(prefix); });
  };
  for (const std::string prefix : {"_orig_mod.", "module.", "_orig_mod."}) {
    if (file.tensors.empty() || !all_begin(file.tensors, prefix) || !all_begin(file.skipped, prefix)) continue;
    dropping(file.tensors, prefix);
    dropping(file.skipped, prefix);
    dropped += prefix;
  }
  return dropped;
}

/// `key` is what remains of it for the names: nothing where it has led to a dictionary.
ConvertedWeights read_state_dict(const std::filesystem::path& path, std::string& key) {
  ConvertedWeights read;
  refuse_folder(path);
  const std::string begin = first_bytes(path, kFileKindBegin);
  if (is_torch_file(begin)) {
    TorchFile file = read_torch_file(path, key);
    if (!file.key_is_prefix) key.clear();
    read.file.tensors = std::move(file.tensors);
    read.file.skipped = std::move(file.skipped);
    read.found_at = std::move(file.found_at);
    read.module = std::move(file.module);
    read.ignored = std::move(file.others);
    if (!file.beside.empty())
      read.notes.push_back(fmt::format("the file also has {}, which --key reads in place of it",
                                       shown(join(file.beside, ", ", " and "), 200)));
  } else {
    refuse_other_kinds(path, begin);
    if (begin.size() < 9 || begin[8] != '{')
      throw DataError(
          fmt::format("{}: holds no weights that are read: it is neither a file of PyTorch nor safetensors, "
                      "and no format that is known",
                      path.string()));
    read.file = read_safetensors(path);
    const auto found = read.file.tensors.lower_bound(key + ".");
    if (!key.empty() && (found == read.file.tensors.end() || !found->first.starts_with(key + ".")))
      throw ConfigError(fmt::format("--key: {} has no tensor whose name begins with '{}.'", path.string(), shown(key)));
  }
  if (key.empty()) read.prefix = drop_prefix(read.file);
  for (std::string& note : rename_as_torch_does(read.file.tensors)) read.notes.push_back(std::move(note));
  std::erase_if(read.file.tensors, [&](const auto& each) {
    const bool counts = each.first.ends_with("num_batches_tracked");
    if (counts) read.ignored.push_back(each.first);
    return counts;
  });
  return read;
}

/// How many float32 values are not finite.
std::size_t not_finite(const std::vector<std::byte>& values) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < values.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, values.data() + i, sizeof(float));
    count += std::isfinite(value) ? 0 : 1;
  }
  return count;
}

/// A run would refuse them, much later.
void require_finite(const std::vector<std::byte>& values, const std::string& name, const std::filesystem::path& path) {
  if (const std::size_t count = not_finite(values); count > 0)
    throw DataError(fmt::format("{}: tensor '{}' has {} value{} that {} not finite, of {}: no run can begin with it",
                                path.string(), name, count, count == 1 ? "" : "s", count == 1 ? "is" : "are",
                                values.size() / sizeof(float)));
}

bool is_floating(DType type) { return type == DType::float32 || type == DType::float64 || is_half(type); }

/// Drops a classifier, and the dense layers before it, whose values are not finite: torchvision publishes a VGG16 for
/// detectors (IMAGENET1K_FEATURES) whose every value there is NaN. They are to be trained from the start.
void drop_head_that_is_not_finite(Comparison& network, ConvertedWeights& weights) {
  Tensors& tensors = weights.file.tensors;
  std::vector<std::string> names;
  std::size_t count = 0;
  for (const TorchvisionTensor& tensor : network.expected) {
    const auto found = tensors.find(tensor.torch);
    if ((!is_classifier(tensor) && !is_hidden(tensor)) || found == tensors.end() || !is_floating(found->second.dtype))
      continue;
    const std::size_t bad = not_finite(to_float32(found->second).bytes);
    if (bad == 0) continue;
    count += bad;
    names.push_back(tensor.torch);
    (is_hidden(tensor) ? network.hidden : network.classifier) = false;
  }
  if (names.empty()) return;
  weights.notes.push_back(
      fmt::format("{} {} {} value{} that {} not finite, and {} left out: the rest is a network "
                  "without its classifier",
                  first_of(names), names.size() == 1 ? "has" : "have", count, count == 1 ? "" : "s",
                  count == 1 ? "is" : "are", names.size() == 1 ? "is" : "are"));
  for (const TorchvisionTensor& tensor : network.expected)
    if (is_classifier(tensor) || (is_hidden(tensor) && !network.hidden)) tensors.erase(tensor.torch);
}

/// Float32, in the other order, under the other name; without tensors that `from` lacks.
Tensors converted(const SafetensorsFile& from, const Comparison& network, const std::filesystem::path& path,
                  bool to_own) {
  Tensors to;
  for (const TorchvisionTensor& tensor : network.expected) {
    const std::string& name = to_own ? tensor.torch : tensor.own;
    if (const auto skipped = from.skipped.find(name); skipped != from.skipped.end())
      throw DataError(fmt::format("{}: tensor '{}' is {}, expected floating-point numbers of 16, 32 or 64 bits",
                                  path.string(), name, shown(skipped->second.type)));
    const auto found = from.tensors.find(name);
    if (found == from.tensors.end()) continue;
    const HostTensor& source = found->second;
    if (!is_floating(source.dtype))
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
void keep_tensors_of(const Comparison& found, ConvertedWeights& weights) {
  std::set<std::string_view> expected;
  for (const TorchvisionTensor& tensor : found.expected)
    if ((found.classifier || !is_classifier(tensor)) && (found.hidden || !is_hidden(tensor)))
      expected.insert(tensor.torch);
  SafetensorsFile kept;
  const auto keep = [&](auto& from, auto& to) {
    for (const bool prefixed : {true, false})  // where both have a name, the network has that of its prefix
      for (auto& [name, tensor] : from) {
        if (name.starts_with(found.prefix) != prefixed) continue;
        std::string plain = without(name, found.prefix);
        const bool fresh = !kept.tensors.contains(plain) && !kept.skipped.contains(plain);
        if (fresh && expected.contains(plain))
          to.emplace(std::move(plain), std::move(tensor));
        else
          weights.ignored.push_back(name);
      }
  };
  keep(weights.file.tensors, kept.tensors);
  keep(weights.file.skipped, kept.skipped);
  weights.file.tensors = std::move(kept.tensors);
  weights.file.skipped = std::move(kept.skipped);
  weights.prefix += found.prefix;
}

/// Running variances as batch norms with our epsilon need them to be the same functions: variance + epsilon is theirs.
/// Where that would be less than nothing, the scale makes up for it.
void change_epsilon(Tensors& tensors, float from, float to) {
  for (auto& [name, tensor] : tensors) {
    constexpr std::string_view kVariance = "/running_variance";
    if (!name.ends_with(kVariance)) continue;
    const auto scale = tensors.find(name.substr(0, name.size() - kVariance.size()) + "/scale");
    if (scale == tensors.end() || scale->second.bytes.size() != tensor.bytes.size()) continue;
    for (std::size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
      float variance = 0, factor = 0;
      std::memcpy(&variance, tensor.bytes.data() + at, sizeof(float));
      std::memcpy(&factor, scale->second.bytes.data() + at, sizeof(float));
      float ours = variance + from - to;
      if (ours < 0) {
        factor *= std::sqrt(to / (variance + from));
        ours = 0;
      }
      std::memcpy(tensor.bytes.data() + at, &ours, sizeof(float));
      std::memcpy(scale->second.bytes.data() + at, &factor, sizeof(float));
    }
  }
}

/// Adds notes that the user should read: on the names, and on the file beside the network.
void add_notes(const Comparison& found, const std::vector<std::string>& others, ConvertedWeights& result) {
  for (const std::string& prefix : others)
    result.notes.push_back(
        fmt::format("the network is there more than once, also under {}{}", prefix_text(prefix),
                    prefix.empty() ? "" : fmt::format(": --key {}", prefix.substr(0, prefix.size() - 1))));
  if (found.program != "timm") return;
  if (found.model.starts_with("mobilenet") || found.model.starts_with("efficientnet"))
    result.notes.emplace_back(
        "timm's models whose names begin with tf_ have these tensors, too, but pad as TensorFlow does: their outputs "
        "are others here");
}

/// Names without the layers that the run is to begin anew.
void leave_out(const Comparison& found, const TorchvisionOptions& options, ConvertedWeights& result) {
  const bool keeps = found.classifier && found.hidden && (options.classes == 0 || options.classes == result.classes);
  for (const TorchvisionTensor& tensor : found.expected) {
    if (is_classifier(tensor) ? keeps : !is_hidden(tensor) || found.hidden) continue;
    result.file.tensors.erase(tensor.own);
    result.left_out.push_back(tensor.own);
  }
  std::ranges::sort(result.left_out);
}

}  // namespace

ConvertedWeights import_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options) {
  std::string key = options.key;
  ConvertedWeights result = read_state_dict(path, key);
  std::vector<std::string> others;
  Comparison found = identify(shapes_of(result.file), path, options, kTorch, key, others);
  keep_tensors_of(found, result);
  drop_head_that_is_not_finite(found, result);
  result.model = found.model;
  result.program = found.program;
  result.channels = found.channels;
  result.side = found.side;
  result.head = found.head;
  result.classes = found.classifier && found.hidden ? found.classes : 0;
  result.file.tensors = converted(result.file, found, path, true);
  result.file.skipped.clear();
  if (const float epsilon = other_epsilon(found.model, found.program); epsilon > 0)
    change_epsilon(result.file.tensors, epsilon, kMobileNetV3Epsilon);
  result.file.metadata = {{"format", "bantam"},
                          {"imported_from", found.program + " " + torchvision_function(result.model)}};
  leave_out(found, options, result);
  add_notes(found, others, result);
  return result;
}

ConvertedWeights export_torchvision(const std::filesystem::path& path, const TorchvisionOptions& options) {
  ConvertedWeights result{.file = read_safetensors(path)};
  std::vector<std::string> others;
  const Comparison network = identify(shapes_of(result.file), path, options, kOwn, "", others);
  result.model = network.model;
  result.classes = network.classes;
  result.side = network.side;
  result.file.tensors = converted(result.file, network, path, false);
  result.file.metadata = {{"format", "pt"}};
  return result;
}

}  // namespace bantam::run

// The short form, a path, and the long one.
#include "bantam/models/yaml/model_weights.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"

namespace bantam::models {
namespace {

bool is_wild(char c) { return c == '*' || c == '?'; }

WeightsOptions::Rename read_rename(const ConfigNode& item) {
  ConfigMap map = item.as_map();
  WeightsOptions::Rename rename;
  rename.from = map.text({"from",
                          "Names of tensors in the file: * is any text, ? one character. The first entry that matches "
                          "a name renames it.",
                          "\"backbone.*\""});
  const ConfigNode to =
      map.node({"to", "The new name: each * and ? is the text that the same one of `from` matched.", "\"*\""});
  rename.to = to.as_text();
  map.finish();
  if (std::ranges::count_if(rename.to, is_wild) > std::ranges::count_if(rename.from, is_wild))
    to.fail(fmt::format("'{}' has more * and ? than '{}'", rename.to, rename.from));
  return rename;
}

std::string read_sha256(ConfigMap& map) {
  const auto node = map.find({"sha256",
                              "The file's SHA-256: another file is an error. A run writes it into its config.yaml, so "
                              "that it is known what it began with.",
                              "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                              "that of the file when the run begins"});
  if (!node) return {};
  std::string text = node->as_text();
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (text.size() != 64 || !std::ranges::all_of(text, is_digit))
    node->fail(fmt::format("expected 64 lower-case hexadecimal digits, got '{}'", text));
  return text;
}

/// A file that may be missing where a run is resumed.
std::string read_file_path(const ConfigNode& node) {
  std::string path = as_path(node).string();
  if (path.empty()) node.fail("expected a file's path, got an empty text");
  return path;
}

ModelWeights read_map(ConfigMap map) {
  map.describe("The weights that a new run begins with. How to make a file of a torchvision network: PRETRAINED.md.",
               "weights:\n  file: resnet50.safetensors\n  skip: [\"classifier/*\"]");
  ModelWeights weights{.options = {.resizes_positions = true}};
  weights.file = read_file_path(
      map.node({"file", "A safetensors file with names and layouts as runs write them.", "resnet50.safetensors"}));
  if (const auto list =
          map.find({"rename",
                    "New names for tensors of the file, by the first entry whose `from` matches the whole name (* is "
                    "any text, ? one character). Each * and ? of `to` is the text that the same one of `from` matched.",
                    "[{from: \"backbone.*\", to: \"*\"}]", "the file's names"}))
    for (const ConfigNode& item : list->items()) weights.options.rename.push_back(read_rename(item));
  weights.options.skip = map.texts({"skip",
                                    "Tensors of the model that begin as the seed says, whatever the file has: a head "
                                    "of other classes. * is any text, ? one character.",
                                    "[\"classifier/*\"]"},
                                   {});
  weights.options.strict = map.boolean({"strict",
                                        "true: a tensor of the model that the file lacks, or of the file that the "
                                        "model lacks, is an error. false: the run says so and begins.",
                                        "false"},
                                       true);
  weights.sha256 = read_sha256(map);
  map.finish();
  return weights;
}

}  // namespace

std::optional<ModelWeights> read_model_weights(ConfigMap& model) {
  const auto node = model.find({"weights",
                                "A safetensors file that a new run begins with, or a map that says how its tensors "
                                "become the model's. Not read where a run is resumed.",
                                "resnet50.safetensors | {file: resnet50.safetensors, skip: [\"classifier/*\"]}",
                                "initial values by the seed"});
  if (!node) return std::nullopt;
  if (node->is_map()) return read_map(node->as_map());
  return ModelWeights{.file = read_file_path(*node), .options = {.resizes_positions = true}};
}

std::string to_yaml(const ModelWeights& weights) {
  const auto quoted = [](const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
    return out + "'";
  };
  std::string text = fmt::format("{{file: {}", quoted(weights.file));
  std::string list;
  for (const WeightsOptions::Rename& rename : weights.options.rename)
    list += fmt::format("{}{{from: {}, to: {}}}", list.empty() ? "" : ", ", quoted(rename.from), quoted(rename.to));
  if (!list.empty()) text += fmt::format(", rename: [{}]", list);
  list.clear();
  for (const std::string& skip : weights.options.skip) list += (list.empty() ? "" : ", ") + quoted(skip);
  text += fmt::format(", skip: [{}], strict: {}", list, weights.options.strict);
  if (!weights.sha256.empty()) text += fmt::format(", sha256: {}", quoted(weights.sha256));
  return text + "}";
}

}  // namespace bantam::models

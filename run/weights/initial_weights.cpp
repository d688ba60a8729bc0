// Tensors by their names, and what is said of them.
#include "bantam/run/weights/initial_weights.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/clock.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/run/weights/file_kinds.h"
#include "bantam/run/weights/torch_file.h"
#include "bantam/run/weights/whitening.h"

namespace bantam::run {
namespace {

/// "a, b, c and 5 others".
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::vector<std::string> first(names.begin(),
                                 names.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, names.size())));
  for (std::string& name : first) name = shown(name);
  if (names.size() > kMost) first.push_back(counted(names.size() - kMost, "other"));
  return join(first, ", ", names.size() > kMost ? " and " : ", ");
}

std::string text_of(const LoadedWeights& loaded, const std::filesystem::path& path) {
  std::string text = fmt::format("weights: {} of {} from {}", loaded.loaded,
                                 counted(loaded.loaded + loaded.initial.size(), "tensor"), path.string());
  if (!loaded.initial.empty())
    text += fmt::format("; {} begin{} as the seed says: {}", loaded.initial.size(),
                        loaded.initial.size() == 1 ? "s" : "", names_text(loaded.initial));
  if (!loaded.unused.empty())
    text += fmt::format("; {} of the file not used: {}", loaded.unused.size(), names_text(loaded.unused));
  for (const std::string& resized : loaded.resized) text += fmt::format("; {}, resized", resized);
  if (!loaded.converted.empty()) text += fmt::format("; {} converted to float32", loaded.converted.size());
  return text;
}

}  // namespace

void refuse_other_formats(std::string_view bytes, const std::filesystem::path& path) {
  const std::string_view begin = bytes.substr(0, kFileKindBegin);
  const std::string file = shown(path.string());
  if (is_torch_file(begin))
    throw DataError(fmt::format(
        "{}: is a file of PyTorch, not safetensors\n  `bantam import {} -o weights.safetensors` makes one of it, for a "
        "network of torchvision",
        path.string(), file));
  if (path.extension() == ".onnx")
    throw DataError(
        fmt::format("{}: is an ONNX model, not safetensors\n  `bantam import {}` makes a network and its "
                    "weights of it",
                    path.string(), file));
  refuse_other_kinds(path, begin);
}

InitialWeights load_named_weights(Model& model, const RunConfig& config) {
  const std::optional<models::ModelWeights>& weights = config.model.weights;
  const std::filesystem::path path = weights ? weights->file : config.train.initial_weights;
  if (path.empty()) return {};
  const std::string bytes = read_file(path);
  refuse_other_formats(bytes, path);
  if (weights && !weights->sha256.empty() && sha256_of(bytes) != weights->sha256)
    throw DataError(fmt::format("{}: is another file than model.weights.sha256 says: {}, expected {}", path.string(),
                                sha256_of(bytes), weights->sha256));
  const WeightsOptions options =
      weights ? weights->options
              : WeightsOptions{.strict = false, .skip_other_shapes = true, .resizes_positions = true};
  const LoadedWeights loaded = load_weights(model, parse_safetensors(bytes, path), path, options);
  return {.text = text_of(loaded, path), .warns = !options.strict && !loaded.initial.empty()};
}

InitialWeights load_initial_weights(Model& model, const RunConfig& config) {
  InitialWeights weights = load_named_weights(model, config);
  if (!weights.text.empty()) return weights;
  const auto begin = std::chrono::steady_clock::now();
  weights.text = whiten(model, config);
  weights.whiten_seconds = seconds_since(begin);
  return weights;
}

void require_weights(const RunConfig& config) {
  if (!config.model.weights) return;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(config.model.weights->file, error);
  if (error || std::filesystem::is_directory(status))
    throw DataError(fmt::format("model.weights: cannot read {}: {}", config.model.weights->file,
                                error ? error.message() : "it is a folder"));
}

std::string sha256_of_weights(const std::filesystem::path& path) {
  try {
    return sha256_of(read_file(path));
  } catch (const DataError& error) {
    throw DataError(fmt::format("model.weights: {}", error.what()));
  }
}

}  // namespace bantam::run

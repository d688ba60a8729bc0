// From a path to files, and from a file to its tensors' statistics.
#include "bantam/run/inspect/inspection.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/sha256.h"
#include "bantam/run/inspect/onnx_contents.h"
#include "bantam/run/weights/file_kinds.h"
#include "bantam/run/weights/torch_file.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kWeights = "weights/";

/// A weight in a file of all of a run's state.
bool is_of_state(const InspectedTensor& tensor) { return tensor.name.starts_with(kWeights); }

/// Combines the facts of the file's bytes with those of the tensors that were read from them.
InspectedFile inspected(const fs::path& path, const std::string& bytes, SafetensorsFile file) {
  InspectedFile found{.path = path,
                      .bytes = bytes.size(),
                      .sha256 = sha256_of(bytes),
                      .has_checksum = file.has_checksum,
                      .metadata = std::move(file.metadata)};
  for (const auto& [name, tensor] : file.tensors)
    found.tensors.push_back({.name = name,
                             .dtype = tensor.dtype,
                             .shape = tensor.shape,
                             .bytes = tensor.bytes.size(),
                             .statistics = statistics_of(tensor)});
  for (const auto& [name, tensor] : file.skipped)
    found.skipped.push_back(fmt::format("{} {} {}", name, tensor.type, to_string(tensor.shape)));
  return found;
}

/// The tensors of a file of PyTorch, as if it were one of safetensors.
SafetensorsFile torch_tensors(const fs::path& path) {
  TorchFile file = read_torch_file(path);
  SafetensorsFile made{.tensors = std::move(file.tensors), .skipped = std::move(file.skipped)};
  made.metadata["format"] = "PyTorch";
  if (!file.found_at.empty()) made.metadata["state_dict"] = file.found_at;
  if (!file.module.empty()) made.metadata["module"] = file.module;
  return made;
}

/// `names`: of the path within a run's folder; 0: it is a user's own file.
InspectedFile inspect_file(const fs::path& path, int names = 0) {
  const std::string bytes = names == 0 ? read_file(path) : read_file(FolderFile{.path = path, .names = names});
  const std::string_view begin = std::string_view(bytes).substr(0, kFileKindBegin);
  if (is_torch_file(begin)) return inspected(path, bytes, torch_tensors(path));
  refuse_other_kinds(path, begin);
  return inspected(path, bytes, parse_safetensors(bytes, path));
}

Inspection inspect_onnx(const fs::path& path) {
  const std::string bytes = read_file(path);
  OnnxContents contents = onnx_contents(bytes, path);
  return {.onnx = std::move(contents.facts), .files = {inspected(path, bytes, std::move(contents.tensors))}};
}

Inspection inspect_checkpoint(const Checkpoint& checkpoint) {
  Inspection found{.facts = checkpoint.read(), .checkpoint = checkpoint.path};
  found.files.push_back(inspect_file(checkpoint.state(), 3));
  found.files.push_back(inspect_file(checkpoint.weights(), 3));
  return found;
}

Inspection inspect_folder(const fs::path& path) {
  const Checkpoint checkpoint{.path = path};
  std::error_code error;
  if (fs::exists(checkpoint.facts(), error) || is_checkpoint(path)) return inspect_checkpoint(checkpoint);
  if (const std::vector<Checkpoint> checkpoints = CheckpointFolder(path).list(); !checkpoints.empty())
    return inspect_checkpoint(checkpoints.front());
  const fs::path weights = path / "weights.safetensors";
  if (fs::exists(weights, error)) return {.files = {inspect_file(weights, 1)}};
  if (fs::exists(path / "run.json", error))
    throw DataError(fmt::format("{} is a run without a checkpoint and without weights so far", path.string()));
  throw DataError(fmt::format("{} is a folder without a checkpoint or a run in it", path.string()));
}

}  // namespace

std::int64_t InspectedFile::elements() const {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const InspectedTensor& tensor) { return sum + tensor.shape.elements(); });
}

std::uint64_t InspectedFile::tensor_bytes() const {
  return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const InspectedTensor& tensor) { return sum + tensor.bytes; });
}

std::int64_t InspectedFile::parameters() const {
  if (std::ranges::none_of(tensors, is_of_state)) return elements();
  std::int64_t sum = 0;
  for (const InspectedTensor& tensor : tensors) sum += is_of_state(tensor) ? tensor.shape.elements() : 0;
  return sum;
}

std::vector<LayerSparsity> InspectedFile::sparsity() const {
  const bool state = std::ranges::any_of(tensors, is_of_state);
  std::map<std::string, LayerSparsity> layers;
  for (const InspectedTensor& tensor : tensors) {
    if (tensor.shape.rank() < 2 || (state && !is_of_state(tensor))) continue;
    const std::string name = state ? tensor.name.substr(kWeights.size()) : tensor.name;
    const std::size_t slash = name.find_last_of("/.");  // of other programs: "layer1.0.conv1.weight"
    LayerSparsity& layer = layers[slash == std::string::npos ? "" : name.substr(0, slash)];
    layer.weights += tensor.shape.elements();
    layer.zeros += tensor.statistics.zeros;
  }
  std::vector<LayerSparsity> list;
  for (auto& [name, layer] : layers) {
    layer.layer = name;
    list.push_back(layer);
  }
  return list;
}

Inspection inspect(const fs::path& given) {
  const fs::path path = given.has_filename() ? given : given.parent_path();  // of "runs/a/"
  std::error_code error;
  if (fs::is_directory(path, error)) return inspect_folder(path);
  if (path.extension() == ".onnx") return inspect_onnx(path);
  return {.files = {inspect_file(path)}};
}

}  // namespace bantam::run

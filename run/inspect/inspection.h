// Inspection: what is in a safetensors file or one of PyTorch, a checkpoint, or a run's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"
#include "bantam/run/inspect/tensor_statistics.h"
#include "bantam/run/train/checkpoint_folder.h"

namespace bantam::run {

struct InspectedTensor {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t bytes = 0;
  TensorStatistics statistics;
};

/// Zeros of one layer's weights, its tensors of more than one extent.
struct LayerSparsity {
  std::string layer;  ///< its path; empty: of a tensor without one
  std::int64_t weights = 0, zeros = 0;
};

/// A safetensors file that was read whole.
struct InspectedFile {
  std::filesystem::path path;
  std::uint64_t bytes = 0;    ///< of the file
  std::string sha256;         ///< of the file
  bool has_checksum = false;  ///< which is that of its tensors; files of other programs have none
  std::map<std::string, std::string> metadata;
  std::vector<InspectedTensor> tensors;  ///< by name
  std::vector<std::string> skipped;      ///< tensors of types that are not read: "mask BOOL (3, 4)"

  std::int64_t elements() const;
  std::uint64_t tensor_bytes() const;
  /// Elements of the model's weights: "weights/…" of a state file; in a file of weights alone every tensor, running
  /// statistics of batch norms included.
  std::int64_t parameters() const;
  /// Counts the zeros of each layer that `parameters` counts, by name.
  std::vector<LayerSparsity> sparsity() const;
};

/// Facts of an ONNX model beside its tensors.
struct OnnxFacts {
  std::int64_t ir_version = 0, opset = 0;
  std::string producer, graph_name;          ///< "pytorch 2.5.1"
  std::vector<std::string> inputs, outputs;  ///< "images float32 (batch, 3, 224, 224)"
  std::map<std::string, std::int64_t> ops;   ///< how many nodes each has
};

struct Inspection {
  std::optional<CheckpointFacts> facts;  ///< of a checkpoint
  std::optional<OnnxFacts> onnx;         ///< of an ONNX model
  std::filesystem::path checkpoint;      ///< its folder
  std::vector<InspectedFile> files;      ///< a checkpoint's state, then its weights; else the one file
};

/// `path`: a safetensors file, a file of PyTorch, an ONNX model (.onnx), a checkpoint's folder, or a run's folder,
/// which stands for its newest checkpoint, else its weights. Every byte is read. Throws DataError naming the file and
/// what is wrong: a file that is damaged or missing, or a folder that is neither.
Inspection inspect(const std::filesystem::path& path);

}  // namespace bantam::run

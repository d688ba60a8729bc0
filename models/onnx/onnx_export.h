// A graph with its weights as an ONNX model of inference.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {

/// y = (x * scale - mean) / std for each channel, as the first nodes of the graph.
struct Preprocessing {
  double scale = 1.0;
  std::vector<double> mean, std;  ///< a channel each
};

struct ExportOptions {
  std::int64_t opset = 17;  ///< 13 to 24; what an opset lacks is composed of what it has
  bool nhwc_input = false;  ///< images are (batch, height, width, channels); else (batch, channels, height, width)
  bool float16 = false;     ///< weights and computation; input and output are float32
  std::int64_t batch = 0;   ///< 0: any
  /// The graph's input is then uint8 pixels as a decoder writes them.
  std::optional<Preprocessing> preprocessing = {};
  std::vector<std::string> class_names = {};  ///< into the metadata, "class_names", as a JSON list
};

/// `weights` has all parameters and buffers of `graph`, by name (float32). Values after `flatten` are permuted to our
/// order by their weights, or by a Transpose where no weights follow. Throws ConfigError naming a layer that cannot be
/// written, DataError naming a tensor that is missing.
Model export_graph(const Graph& graph, const SafetensorsFile& weights, const ExportOptions& options);

}  // namespace bantam::onnx

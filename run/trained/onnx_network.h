// A trained network as an ONNX model: folded, preprocessed and named as its run says.
#pragma once

#include <cstdint>

#include "bantam/models/onnx/onnx_model.h"
#include "bantam/run/trained/input_stages.h"
#include "bantam/run/trained/trained_model.h"

namespace bantam::run {

struct OnnxOptions {
  std::int64_t opset = 17;  ///< 13 to 24
  bool fold_batch_norm = false;
  bool float16 = false;        ///< weights and computation
  bool nhwc_input = false;     ///< images are (batch, height, width, channels); else (batch, channels, height, width)
  std::int64_t batch = 0;      ///< 0: any
  bool preprocessing = false;  ///< the input is uint8 pixels; `normalize` of evaluation is in the graph
};

struct OnnxNetwork {
  onnx::Model model;
  int folded = 0;  ///< batch norms
  /// The stages by which the program that uses the file makes the input of an image; empty: the configuration does not
  /// say. They are in the model's metadata, too: "input_stages", as JSON.
  InputStages stages;
};

/// Throws ConfigError naming a layer that ONNX does not have, and, with `preprocessing`, where the configuration has no
/// data or they are not pixels; DataError naming a tensor.
OnnxNetwork onnx_network(const TrainedModel& trained, const OnnxOptions& options);

}  // namespace bantam::run

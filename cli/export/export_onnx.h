// `bantam export RUN --onnx FILE`: a run's network as an ONNX file.
#pragma once

#include <string>

#include "bantam/run/trained/onnx_network.h"

namespace CLI {
class App;
}  // namespace CLI

namespace bantam::cli {

struct OnnxFileOptions {
  std::string path, file;  ///< what is read; the file to write
  run::TrainedModelOptions model;
  run::OnnxOptions onnx;
  std::string config, input = "nchw";
  bool json = false;
};

/// The group of the flags that go with --onnx alone.
inline constexpr const char* kOfOnnx = "With --onnx";
void add_onnx_flags(CLI::App& command, OnnxFileOptions& options);

/// Writes the file and says what is in it; returns the exit code.
int export_onnx(OnnxFileOptions options);

}  // namespace bantam::cli

// `bantam import MODEL.onnx`: a network and its weights, to a configuration's `model:` and a file of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bantam::cli {

struct ImportOnnxOptions {
  std::string file;
  std::string out = {};  ///< NAME of NAME.yaml and NAME.safetensors; empty: that of the file, where neither is there
  std::vector<std::int64_t> size = {};  ///< height and width of the images, where the model has no numbers for them
  std::int64_t classes = 0;             ///< of the network to train; 0: the model's
  std::string output = {};              ///< the output to import, where the model has several
  bool json = false;
};

bool is_onnx_file(const std::string& file);

/// Writes both files and says what is in them; returns the exit code.
int import_onnx(const ImportOnnxOptions& options);

/// A file's name in YAML, in quotes where it needs them.
std::string yaml_text(const std::string& name);

}  // namespace bantam::cli

// For compare_import.py: a network imported from an ONNX file computes the outputs of a batch.
// onnx_logits MODEL.onnx INPUTS OUTPUTS: float32 values, images as (batch, height, width, channels).
#include <cstdio>
#include <cstring>
#include <exception>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/engine/model/model.h"
#include "tests/models/onnx/imported_model.h"

namespace bantam::onnx {
namespace {

int run(const char* model_file, const char* inputs, const char* outputs) {
  const ImportedNetwork network = import_model(read(model_file));
  Runtime runtime;
  const auto model = testing::bound(runtime, network);
  const std::string bytes = read_file(inputs);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  const std::vector<float> results = testing::outputs_of(*model, values);
  write_file_atomically(outputs, {reinterpret_cast<const char*>(results.data()), results.size() * sizeof(float)});
  write_file_atomically(std::string(outputs) + ".yaml", "model:\n" + testing::indented(network.yaml));
  for (const std::string& note : network.notes) fmt::print("note: {}\n", note);
  return 0;
}

}  // namespace
}  // namespace bantam::onnx

int main(int argc, char** argv) {
  try {
    if (argc == 4) return bantam::onnx::run(argv[1], argv[2], argv[3]);
    std::fprintf(stderr, "onnx_logits MODEL.onnx INPUTS OUTPUTS\n");
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

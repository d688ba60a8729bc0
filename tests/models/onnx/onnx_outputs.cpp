// A network with random weights as an ONNX file, and what it computes: what compare_with_onnxruntime.py compares.
//
//   onnx_outputs PREFIX MODEL [opset=N] [nhwc] [float16] [batch=N] [preprocessing] [fold] [images=N]
//
// MODEL is a configuration's `model` in one line ("{zoo: resnet18, classes: 10}"). Writes PREFIX.onnx, and
// PREFIX.safetensors with `images` (batch, height, width, channels) and `outputs`; with `preprocessing` the images are
// numbers from 0 to 255.
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "bantam/models/infer/fold_batch_norm.h"
#include "bantam/models/onnx/onnx_export.h"
#include "tests/models/onnx/random_network.h"
#include "tests/models/yaml/model_text.h"

namespace bantam::onnx {

using models::host_tensor;
using models::uniform;

namespace {

struct Arguments {
  ExportOptions options;
  std::int64_t images = 3;
  bool fold = false;
};

Arguments arguments_of(const std::vector<std::string>& words) {
  Arguments result;
  for (const std::string& word : words) {
    const auto number = [&](const std::string& key) { return std::stoll(word.substr(key.size())); };
    if (word.starts_with("opset=")) result.options.opset = number("opset=");
    if (word.starts_with("batch=")) result.options.batch = number("batch=");
    if (word.starts_with("images=")) result.images = number("images=");
    if (word == "nhwc") result.options.nhwc_input = true;
    if (word == "fold") result.fold = true;
    if (word == "float16") result.options.float16 = true;
    if (word == "preprocessing")
      result.options.preprocessing = Preprocessing{1.0 / 255.0, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  }
  return result;
}

/// (x·scale - mean) / std of pixels.
std::vector<float> preprocessed(std::vector<float> pixels, const Preprocessing& preprocessing) {
  const auto& [scale, mean, std] = preprocessing;
  for (std::size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = static_cast<float>((pixels[i] * scale - mean[i % mean.size()]) / std[i % std.size()]);
  return pixels;
}

Model exported(const Graph& graph, const SafetensorsFile& weights, const Arguments& arguments) {
  if (!arguments.fold) return export_graph(graph, weights, arguments.options);
  const InferenceGraph folded = fold_for_inference(graph, weights);
  return export_graph(folded.graph, folded.weights, arguments.options);
}

void run(const std::string& prefix, const std::string& model_text, const Arguments& arguments) {
  const Graph graph = models::model_from("model: " + model_text).graph;
  const std::int64_t count = arguments.images * graph.input_shape().elements();
  std::vector<float> images = uniform(count, -2.0f, 2.0f, 1);
  std::vector<float> inputs = images;
  if (arguments.options.preprocessing) {
    images = uniform(count, 0.0f, 255.99f, 1);
    for (float& pixel : images) pixel = std::floor(pixel);
    inputs = preprocessed(images, *arguments.options.preprocessing);
  }
  Runtime runtime({.threads = 2});
  const SafetensorsFile weights = models::random_weights(runtime, graph, inputs);
  std::ofstream(prefix + ".onnx", std::ios::binary) << serialize(exported(graph, weights, arguments));
  SafetensorsFile file;
  file.tensors.emplace("images", host_tensor(graph.input_shape().prepend(arguments.images), images));
  file.tensors.emplace("outputs", host_tensor(graph.output_shape().prepend(arguments.images),
                                              models::outputs_of(runtime, graph, weights, inputs)));
  write_safetensors(prefix + ".safetensors", file);
}

}  // namespace
}  // namespace bantam::onnx

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "onnx_outputs PREFIX MODEL [OPTION …]\n");
    return 2;
  }
  try {
    bantam::onnx::run(arguments[1], arguments[2], bantam::onnx::arguments_of({arguments + 3, arguments + count}));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onnx_outputs: %s\n", error.what());
    return 1;
  }
  return 0;
}

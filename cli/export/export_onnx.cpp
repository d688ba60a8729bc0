// Flags of an ONNX file, and what is said of it.
#include "bantam/cli/export/export_onnx.h"

#include <cstdio>
#include <filesystem>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/inspect/onnx_contents.h"

namespace bantam::cli {
namespace {

nlohmann::ordered_json shape_json(const onnx::Value& value) {
  nlohmann::ordered_json dims = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < value.dims.size(); ++i) {
    if (value.dims[i] < 0)
      dims.push_back(value.names[i]);
    else
      dims.push_back(value.dims[i]);
  }
  return dims;
}

void print_text(const OnnxFileOptions& options, const run::OnnxNetwork& network, std::size_t bytes) {
  const onnx::Model& model = network.model;
  print_out("{}: {}, opset {}, {}, {}, {}{}\n", printable_line(options.file), shown(model.graph_name), model.opset,
            counted(model.nodes.size(), "node"), counted(model.initializers.size(), "tensor"), format_byte_size(bytes),
            options.onnx.float16 ? ", float16" : "");
  if (options.onnx.fold_batch_norm) print_out("batch norms folded: {}\n", network.folded);
  print_out("{}, {}\n", run::value_text(model.inputs[0]),
            options.onnx.preprocessing         ? "pixels from 0 to 255, of the network's size"
            : model.inputs[0].dims.size() == 2 ? "rows of numbers, as the run's samples are after they are read"
                                               : "images after all stages of the run's evaluation pipeline");
  print_out("{}\n", run::value_text(model.outputs[0]));
  if (!network.stages.empty())
    print_out("{} becomes the input by {}\n", network.stages.decodes ? "an image" : "a row", to_text(network.stages));
}

void print_json(const OnnxFileOptions& options, const run::TrainedModel& trained, const run::OnnxNetwork& network,
                std::size_t bytes) {
  const onnx::Model& model = network.model;
  const auto value = [](const onnx::Value& v) {
    return nlohmann::ordered_json{{"name", v.name}, {"type", onnx::facts_of(v.type).name}, {"shape", shape_json(v)}};
  };
  const nlohmann::ordered_json json = {{"file", options.file},
                                       {"weights", trained.weights_file.string()},
                                       {"model", model.graph_name},
                                       {"opset", model.opset},
                                       {"nodes", model.nodes.size()},
                                       {"tensors", model.initializers.size()},
                                       {"bytes", bytes},
                                       {"folded", network.folded},
                                       {"float16", options.onnx.float16},
                                       {"input", value(model.inputs[0])},
                                       {"input_stages", to_json(network.stages)},
                                       {"output", value(model.outputs[0])}};
  print_out("{}\n", json_text(json));
}

}  // namespace

void add_onnx_flags(CLI::App& command, OnnxFileOptions& options) {
  const auto only = [](CLI::Option* option) { return option->group(kOfOnnx); };
  only(command.add_option("--opset", options.onnx.opset, "Version of ONNX' operators, 13 to 24"))
      ->check(CLI::Range(std::int64_t{13}, std::int64_t{24}))
      ->option_text("INT=17");
  only(command.add_flag("--fold-batch-norm", options.onnx.fold_batch_norm, "Batch norms become part of the weights"));
  only(command.add_flag("--float16", options.onnx.float16, "Computes in float16; input, output stay float32"));
  only(command.add_option("--input", options.input, "Order of images' axes: nchw or nhwc"))->capture_default_str();
  only(command.add_option("--batch", options.onnx.batch, "Images of a batch; default: any number"))
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->option_text("INT");
  only(command.add_flag("--preprocessing", options.onnx.preprocessing,
                        "The input is pixels, which the graph normalises"));
  only(command.add_option("--checkpoint", options.model.checkpoint, "best, last or a number of updates"));
  only(command.add_flag("--ema", options.model.ema, "The averaged weights (train.ema)"));
  only(command.add_option("--config", options.config, "Configuration of a weights file"));
}

namespace {

/// Throws ConfigError where the file to write is one that has been read: a run's weights or what belongs to them.
void require_other_file(const OnnxFileOptions& options, const run::TrainedModel& trained) {
  std::vector<std::filesystem::path> read = {trained.weights_file, options.config};
  if (!trained.run.empty())
    for (const char* name : {"config.yaml", "run.json"}) read.push_back(trained.run / name);
  std::error_code error;
  for (const std::filesystem::path& file : read)
    if (std::filesystem::equivalent(file, options.file, error))
      throw ConfigError(fmt::format("--onnx names a file that is read: {}", printable_line(file.string())));
}

}  // namespace

int export_onnx(OnnxFileOptions options) {
  if (options.input != "nchw" && options.input != "nhwc")
    throw ConfigError(fmt::format("--input: expected nchw or nhwc, got '{}'", shown(options.input)));
  std::error_code error;
  if (std::filesystem::equivalent(options.path, options.file, error))
    throw ConfigError("--onnx names the file that is read");
  options.onnx.nhwc_input = options.input == "nhwc";
  options.model.config = options.config;
  options.model.with_data = options.onnx.preprocessing;
  const run::TrainedModel trained = run::open_trained_model(options.path, options.model);
  require_other_file(options, trained);
  const run::OnnxNetwork network = run::onnx_network(trained, options.onnx);
  const std::string bytes = onnx::serialize(network.model);
  write_file_atomically(options.file, bytes);
  if (options.json)
    print_json(options, trained, network, bytes.size());
  else
    print_text(options, network, bytes.size());
  return 0;
}

}  // namespace bantam::cli

// From a trained network to the graph that is exported.
#include "bantam/run/trained/onnx_network.h"

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/models/infer/fold_batch_norm.h"
#include "bantam/models/onnx/onnx_export.h"
#include "bantam/run/train/library_versions.h"

namespace bantam::run {
namespace {

/// A value for each channel of a list that has one, or one for all.
std::vector<double> of_channels(const std::vector<double>& values, std::int64_t channels) {
  return values.size() == 1 ? std::vector<double>(static_cast<std::size_t>(channels), values[0]) : values;
}

/// `normalize` of evaluation.
onnx::Preprocessing preprocessing_of(const RunConfig& config) {
  const Shape& input = config.model.graph.input_shape();
  if (!config.data)
    throw ConfigError("--preprocessing: the configuration has no section data, whose pipeline would say what to do");
  const DatasetFacts facts = batch_facts(*config.data);
  if (facts.image_dtype != DType::uint8 || input.rank() != 3)
    throw ConfigError(fmt::format("--preprocessing: expected samples that are pixels, got {} {}",
                                  to_string(facts.image_dtype), to_string(facts.image_shape)));
  const NormalizeOptions normalize = evaluation_pipeline(config.data->pipeline).normalize;
  return {.scale = normalize.scale,
          .mean = of_channels(normalize.mean, input[2]),
          .std = of_channels(normalize.std, input[2])};
}

/// Returns the stages of evaluation that are not in the graph.
InputStages stages_before(const RunConfig& config, const OnnxOptions& options) {
  const Shape& output = config.model.graph.output_shape();
  InputStages stages = input_stages(config, output.rank() > 0 ? output[-1] : 1);
  if (options.preprocessing)
    std::erase_if(stages.steps, [](const PipelineStep& step) { return step.name == "normalize"; });
  return stages;
}

}  // namespace

OnnxNetwork onnx_network(const TrainedModel& trained, const OnnxOptions& options) {
  onnx::ExportOptions graph{.opset = options.opset,
                            .nhwc_input = options.nhwc_input,
                            .float16 = options.float16,
                            .batch = options.batch,
                            .class_names = trained.class_names};
  if (options.preprocessing) graph.preprocessing = preprocessing_of(trained.config);
  OnnxNetwork network;
  if (options.fold_batch_norm) {
    const InferenceGraph folded = fold_for_inference(trained.config.model.graph, trained.weights);
    network.model = onnx::export_graph(folded.graph, folded.weights, graph);
    network.folded = folded.folded;
  } else {
    network.model = onnx::export_graph(trained.config.model.graph, trained.weights, graph);
  }
  network.model.producer_version = program_version();
  network.model.graph_name = trained.config.model.name;
  network.stages = stages_before(trained.config, options);
  if (!network.stages.empty()) network.model.metadata["input_stages"] = to_json(network.stages).dump();
  return network;
}

}  // namespace bantam::run

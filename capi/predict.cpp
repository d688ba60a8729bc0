// Predictions: samples as the network reads them, or as the training samples are stored, through the stages of
// evaluation.
#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "bantam/capi/arrays.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/samples.h"
#include "bantam/capi/status.h"
#include "bantam/data/delivery/loader.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

/// Reads the stages of evaluation for samples like these, each read when its batch is made.
PipelineOptions stages_for(const run::RunConfig& config, const DatasetFacts& facts, std::int64_t batch_size) {
  const auto section = config.document.map().find("data");
  if (!section)
    throw BadArgument(
        "bantam_model_predict: BANTAM_INPUT_DATA needs the section `data` in the configuration; without it "
        "pass what the network reads (BANTAM_INPUT_NETWORK)");
  ConfigMap data = section->as_map();
  PipelineOptions options = read_pipeline(data.node("pipeline"), facts);
  if (const auto evaluation = data.find("evaluation"))
    options.evaluation = read_evaluation_stages(evaluation->as_map().node("pipeline"), facts);
  options = evaluation_pipeline(std::move(options));
  options.mix = {};
  options.cache = CacheKind::off;
  options.prefetch = {.depth = std::nullopt, .workers = 0};
  options.batch_size = batch_size;
  options.batch_size_is_auto = false;
  return options;
}

Context float_context(const bantam_model& model) { return Context::make(*model.runtime, model.config.device); }

using UseInputs = std::function<void(std::span<const float>, std::int64_t count)>;

void for_network_inputs(const bantam_model& model, const HostArray& samples, const UseInputs& use) {
  const Shape& expected = model.config.model.graph.input_shape();
  if (samples.shape.without_first() != expected)
    throw ShapeError(
        fmt::format("{}: the network reads {}", to_string(samples), to_string(expected.prepend(samples.samples()))));
  if (samples.dtype != DType::float32)
    throw DTypeError(fmt::format("{}: the network reads float32", to_string(samples)));
  const std::int64_t each = expected.elements();
  const auto* values = reinterpret_cast<const float*>(samples.data);
  for (std::int64_t first = 0; first < samples.samples(); first += model.most_batch) {
    const std::int64_t count = std::min(model.most_batch, samples.samples() - first);
    use({values + first * each, static_cast<std::size_t>(count * each)}, count);
  }
}

/// Calls `use` with float32 inputs of the network, some samples at a time, in order.
void for_inputs(const bantam_model& model, const HostArray& samples, std::int32_t input, const UseInputs& use) {
  if (input == BANTAM_INPUT_AUTO)
    input = model.config.document.map().find("data") ? BANTAM_INPUT_DATA : BANTAM_INPUT_NETWORK;
  if (input != BANTAM_INPUT_NETWORK && input != BANTAM_INPUT_DATA)
    throw BadArgument(fmt::format("bantam_model_predict: {} is no BANTAM_INPUT_…", input));
  if (input == BANTAM_INPUT_NETWORK) return for_network_inputs(model, samples, use);
  // Stages that mix targets (mixup, cutmix, one_hot) ask for the number of classes, though only the images count here.
  const Shape& output = model.config.model.graph.output_shape();
  const auto reader = images_reader(samples, output.rank() > 0 ? output[-1] : 1);
  const PipelineOptions stages = stages_for(model.config, reader->facts(), model.most_batch);
  ImageBatchSource source(*model.runtime, reader, {.pipeline = stages, .device = model.config.device});
  const Context context = float_context(model).at(model.runtime->intern("input"));
  Batch batch;
  for (source.start(0, 0); source.next(context, batch);) {
    const Tensor& images = batch.at(kImages);
    if (images.shape().without_first() != model.config.model.graph.input_shape())
      throw ShapeError(fmt::format("{}: the stages make {} of them, the network reads {}", to_string(samples),
                                   to_string(images.shape().without_first()),
                                   to_string(model.config.model.graph.input_shape())));
    use(to_host_floats(images, context.stream), batch.size);
  }
}

/// By a model that trains: its weights of now.
std::vector<float> forward(bantam_model& model, std::span<const float> inputs, std::int64_t count) {
  Model& network = model.session->model();
  const Context context = network.context(Pass::evaluate).at(network.runtime().intern("input"));
  const Tensor x = ops::cast(context, context.upload(network.graph().input_shape().prepend(count), inputs.data()),
                             context.precision.compute());
  return to_host_floats(network.forward(network.context(Pass::evaluate), x), context.stream);
}

}  // namespace

bantam_status bantam_model_predict(bantam_model* model, const bantam_array* samples, int32_t input, float* outputs,
                                   size_t output_count) {
  return guarded([&] {
    bantam_model& asked = required(model, "model");
    const HostArray array = read_array(required(samples, "samples"));
    const auto each = static_cast<std::size_t>(asked.config.model.graph.output_shape().elements());
    const auto expected = static_cast<std::size_t>(array.samples()) * each;
    if (output_count != expected)
      throw BadArgument(fmt::format("output_count is {}; expected {}: {} outputs for each of {} samples", output_count,
                                    expected, each, array.samples()));
    if (expected == 0) return;
    float* to = &required(outputs, "outputs");
    for_inputs(asked, array, input, [&](std::span<const float> inputs, std::int64_t count) {
      const std::span<float> place(to, static_cast<std::size_t>(count) * each);
      if (asked.predictor != nullptr)
        asked.predictor->predict(inputs, place);
      else
        std::ranges::copy(forward(asked, inputs, count), place.begin());
      to += place.size();
    });
  });
}

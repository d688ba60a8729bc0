// Which layers are whitened, and by which images.
#include "bantam/run/weights/whitening.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/delivery/loader.h"
#include "bantam/engine/autograd/host_floats.h"
#include "bantam/run/weights/patch_covariance.h"

namespace bantam::run {
namespace {

/// Images that are read at once. For a GPU, within some megabytes of the host's memory, so that all threads have work;
/// on the CPU, few: its memory is the run's, whose peak is that of updates.
std::int64_t images_at_once(Device device, const Shape& image) {
  if (!device.is_cuda()) return 32;
  constexpr std::int64_t kValues = std::int64_t{1} << 20, kMost = 1024, kEach = PatchCovariance::kImagesAtOnce;
  return std::clamp(kValues / std::max<std::int64_t>(1, image.elements()), kEach, kMost) / kEach * kEach;
}

/// A layer that is whitened, and what its weight is made from.
struct Whitened {
  Parameter* weight;
  WhitenOptions options;
  PatchCovariance covariance;
};

std::vector<Whitened> whitened_layers(Model& model) {
  std::vector<Whitened> all;
  for (const GraphNode& node : model.graph().nodes()) {
    const Conv2dOptions* const conv = node.layer != nullptr ? node.layer->options<Conv2dOptions>() : nullptr;
    if (conv == nullptr || !conv->whiten) continue;
    Parameter* const weight = model.parameters().find(node.name + "/weight");
    if (weight == nullptr) throw Error(fmt::format("whiten: layer '{}' has no weight", node.name));
    all.push_back({weight, *conv->whiten, {model.graph().input_shape(), *conv}});
  }
  return all;
}

/// The first training images in order, on the CPU: normalised as in training, through the stages that evaluation keeps.
std::unique_ptr<BatchSource> first_images(Runtime& runtime, const RunConfig& config, std::int64_t most) {
  PipelineOptions pipeline = config.data->pipeline;
  pipeline.evaluation.reset();  // whose normalization may be another
  pipeline = evaluation_pipeline(std::move(pipeline));
  pipeline.batch_size = std::min(most, images_at_once(config.device, config.model.graph.input_shape()));
  pipeline.cache = CacheKind::off;
  pipeline.prefetch = {.depth = 0, .workers = 0};
  return std::make_unique<ImageBatchSource>(
      runtime, open_splits(*config.data, config.seed).train,
      LoaderOptions{.pipeline = std::move(pipeline),
                    .device = Device::cpu(),
                    .broken = config.data->skips_broken ? std::make_shared<BrokenSamples>() : nullptr});
}

void read_images(Runtime& runtime, const RunConfig& config, std::span<Whitened> layers) {
  std::int64_t most = 0;
  for (const Whitened& layer : layers) most = std::max(most, layer.options.images);
  const std::unique_ptr<BatchSource> source = first_images(runtime, config, most);
  const Context context = Context::make(runtime, Device::cpu()).at(runtime.intern("whiten"));
  source->start(0, 0);
  Batch batch;
  for (std::int64_t done = 0; done < most && source->next(context, batch); done += batch.size) {
    synchronize(context.stream);
    const Tensor& images = batch.at(kImages);
    const std::int64_t each = images.shape().elements() / batch.size;
    for (Whitened& layer : layers) {
      const std::int64_t count = std::clamp<std::int64_t>(layer.options.images - done, 0, batch.size);
      layer.covariance.add({images.as<float>(), static_cast<std::size_t>(count * each)}, runtime.threads());
    }
  }
}

}  // namespace

std::string whiten(Model& model, const RunConfig& config) {
  std::vector<Whitened> layers = whitened_layers(model);
  if (layers.empty()) return {};
  read_images(model.runtime(), config, layers);
  const Stream stream = model.runtime().stream(model.device());
  std::vector<std::string> names;
  for (const Whitened& layer : layers) {
    const std::vector<float> weights = whitening_weights(layer.covariance.mean(), layer.covariance.patch(),
                                                         layer.weight->shape()[0], layer.options.epsilon);
    copy_floats(layer.weight->master(), weights, stream);
    synchronize(stream);  // the values are this loop's
    names.push_back(fmt::format("{} from {} images", layer.weight->name(), layer.covariance.images()));
  }
  model.parameters().refresh_compute(model.context(Pass::train));
  synchronize(stream);
  return "whitened: " + join(names, ", ", " and ");
}

}  // namespace bantam::run

// Images in batches through a model, and its outputs to answers.
#include "bantam/run/predict/prediction.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/loader.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/run/fit/rehearsal_runtime.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/predict/output_reading.h"
#include "bantam/run/train/algorithm_cache.h"
#include "bantam/run/trained/image_stages.h"
#include "bantam/run/trained/reserved_runtime.h"

namespace bantam::run {
namespace {

/// The class numbers of labels, as far as an output can have them.
std::int64_t classes_of(const RunConfig& config) {
  const Shape& output = config.model.graph.output_shape();
  return output.rank() > 0 ? output[-1] : 1;
}

/// Model and batches of a prediction on one device, which may be a meta device.
class PredictionSession {
 public:
  PredictionSession(Runtime& runtime, Device device, const RunConfig& config,
                    std::shared_ptr<const SampleReader> samples, LoaderOptions loading)
      : model_(runtime, device, config.model.graph, model_options(config)),
        source_(runtime, std::move(samples), std::move(loading)) {}

  Model& model() { return model_; }

  /// All batches, for as long as `go_on` says so before each. `outputs` are of the samples from `first` on, row by row;
  /// none on a meta device.
  void run(const std::function<bool(std::int64_t first)>& go_on,
           const std::function<void(std::int64_t first, std::span<const float> outputs)>& done) {
    const Context context = model_.context(Pass::evaluate);
    const Context input = context.at(model_.runtime().intern("input"));
    source_.start(0, 0);
    Batch batch;
    for (std::int64_t first = 0; go_on(first) && source_.next(input, batch); first += batch.size) {
      const Tensor output = ops::cast(context, model_.forward(context, batch.at(kImages)), DType::float32);
      if (context.device.meta) continue;
      host_.resize(static_cast<std::size_t>(output.elements()));
      copy_bytes(host_.data(), output.data(), output.bytes(), context.stream);
      synchronize(context.stream);
      done(first, host_);
    }
  }

 private:
  Model model_;
  ImageBatchSource source_;
  std::vector<float> host_;
};

/// Broken files by their numbers, as worker threads find them.
class BrokenFiles {
 public:
  BrokenFiles()
      : samples_(std::make_shared<BrokenSamples>(BrokenSamples::Place::zeros,
                                                 [this](std::int64_t index, const BrokenSamples::Sample& sample) {
                                                   const std::lock_guard lock(guard_);
                                                   errors_.emplace(index, sample.reason);
                                                 })) {}
  BrokenFiles(const BrokenFiles&) = delete;
  BrokenFiles& operator=(const BrokenFiles&) = delete;

  const std::shared_ptr<BrokenSamples>& samples() const { return samples_; }
  /// The error of file `index`, which is then forgotten; empty: it is sound.
  std::string extract(std::int64_t index) {
    const std::lock_guard lock(guard_);
    const auto found = errors_.extract(index);
    return found.empty() ? std::string() : found.mapped();
  }

 private:
  std::mutex guard_;
  std::map<std::int64_t, std::string> errors_;
  std::shared_ptr<BrokenSamples> samples_;
};

/// The stages, in batches of `batch` samples at most.
struct Work {
  RunConfig config;  ///< its network ends where the outputs are asked for
  PipelineOptions pipeline;
  std::shared_ptr<const SampleReader> samples;
  std::function<Prediction(std::int64_t sample)> answer;  ///< with file and name
  std::int64_t batch = 1;
  std::shared_ptr<std::atomic<std::int64_t>> resized = std::make_shared<std::atomic<std::int64_t>>(0);

  LoaderOptions loading(Device device, std::shared_ptr<BrokenSamples> broken) const {
    LoaderOptions options{.pipeline = pipeline, .device = device, .broken = std::move(broken)};
    options.pipeline.batch_size = batch;
    return options;
  }
};

/// The layers that `end` depends on, with their names.
Graph ending_at(const Graph& whole, NodeId end) {
  std::vector<bool> needed(static_cast<std::size_t>(end) + 1);
  needed.back() = true;
  for (NodeId node = end; node > 0; --node)
    if (needed[static_cast<std::size_t>(node)])
      for (const NodeId input : whole.node(node).inputs) needed[static_cast<std::size_t>(input)] = true;
  Graph part(whole.input_shape());
  std::vector<NodeId> places(needed.size(), part.input());
  for (NodeId node = 1; node <= end; ++node) {
    if (!needed[static_cast<std::size_t>(node)]) continue;
    const GraphNode& layer = whole.node(node);
    std::vector<NodeId> inputs;
    for (const NodeId input : layer.inputs) inputs.push_back(places[static_cast<std::size_t>(input)]);
    places[static_cast<std::size_t>(node)] = part.add(layer.name, layer.layer, std::move(inputs));
  }
  return part;
}

/// What a sample's outputs are as an answer: `at` of the options says that they are the answer.
class AnswerReading {
 public:
  AnswerReading(const RunConfig& config, const PredictOptions& options) {
    if (options.at.empty()) reading_.emplace(config, options.threshold);
  }
  void read(std::span<const float> outputs, Prediction& answer) const {
    if (reading_) return reading_->read(outputs, answer);
    answer.values.assign(outputs.begin(), outputs.end());
  }

 private:
  std::optional<OutputReading> reading_;
};

MemoryStats rehearse(const Work& work, std::uint64_t pool) {
  constexpr std::int64_t kFullBatches = 12;  // more than are alive at one time
  RehearsalRuntime rehearsal(work.config, pool);
  const std::int64_t size = work.samples->facts().size;
  const std::int64_t excerpt = std::min(size, kFullBatches * work.batch + size % work.batch);
  PredictionSession session(rehearsal.runtime(), rehearsal.device(), work.config, first_samples(work.samples, excerpt),
                            work.loading(rehearsal.device(), nullptr));
  session.run([](std::int64_t) { return true; }, [](std::int64_t, std::span<const float>) {});
  return rehearsal.stats();
}

void plan(const Work& work, PredictionSummary& summary) {
  summary.planned_peak_bytes = summary.planned_pool_bytes = 0;
  if (work.config.model.graph.first_without_meta() != 0) return;  // it is not known
  summary.planned_peak_bytes = rehearse(work, 0).peak_bytes;
  summary.planned_pool_bytes = least_pool([&](std::uint64_t pool) { return rehearse(work, pool); });
}

/// With the largest batch that fits, of the one that is asked for, its half, and so on: answers do not depend on it.
std::unique_ptr<Runtime> planned_runtime(Work& work, const PredictOptions& options, PredictionSummary& summary) {
  for (;; work.batch = (work.batch + 1) / 2) {
    plan(work, summary);
    try {
      std::unique_ptr<Runtime> runtime = reserved_runtime(work.config, options.threads, options.on_warning,
                                                          {.pool_bytes = summary.planned_pool_bytes});
      summary.batch_size = work.batch;
      return runtime;
    } catch (const OutOfMemory&) {
      if (work.batch == 1) throw;
    }
  }
}

std::int64_t batch_of(const RunConfig& config, const PipelineOptions& pipeline, std::int64_t asked,
                      std::int64_t samples) {
  constexpr std::int64_t kUsual = 32, kMost = 64;
  const std::int64_t trained = config.train.evaluation.batch_size > 0 ? config.train.evaluation.batch_size
                               : pipeline.batch_size_is_auto          ? kUsual
                                                                      : pipeline.batch_size;
  return std::min(asked > 0 ? asked : std::min(trained, kMost), samples);
}

Work work_of(const TrainedModel& trained, const std::vector<ListedImage>& images, const PredictOptions& options) {
  ImageStages stages = image_stages(trained.config, classes_of(trained.config));
  Work work{.config = trained.config, .pipeline = std::move(stages.pipeline), .samples = {}, .answer = {}};
  work.samples = samples_of(images, stages.channels, stages.size, work.resized, stages.values);
  work.answer = [&images](std::int64_t sample) {
    const ListedImage& image = images[static_cast<std::size_t>(sample)];
    return Prediction{.file = image.path.string(), .name = image.name};
  };
  work.batch = batch_of(work.config, work.pipeline, options.batch_size, std::ssize(images));
  return work;
}

Work work_of(const TrainedModel& trained, const PredictedTable& table, const PredictOptions& options) {
  DatasetFacts facts = table.samples->facts();
  facts.class_names = numbered_classes(classes_of(trained.config));
  Work work{.config = trained.config,
            .pipeline = sample_stages(trained.config, facts),
            .samples = table.samples,
            .answer = {}};
  work.answer = [&table](std::int64_t sample) {
    return Prediction{.file = table.names[static_cast<std::size_t>(sample)], .name = {}};
  };
  work.batch = batch_of(work.config, work.pipeline, options.batch_size, facts.size);
  return work;
}

}  // namespace

const GraphNode& feature_layer(const Graph& graph, const std::string& name) {
  std::vector<std::string> names;
  for (NodeId node = 1; node <= graph.output(); ++node) {
    if (graph.node(node).name == name) return graph.node(node);
    names.push_back(graph.node(node).name);
  }
  if (!name.empty()) {
    const auto near = nearest(name, names);
    throw ConfigError(fmt::format("the network has no layer '{}'; {}`bantam summary` lists its layers", shown(name),
                                  near ? fmt::format("did you mean '{}'? ", *near) : ""));
  }
  NodeId node = graph.output();
  while (node > 0 && graph.node(node).inputs.size() == 1 && graph.node(node).layer->kind() != "dense")
    node = graph.node(node).inputs[0];
  if (node == 0 || graph.node(node).inputs.size() != 1)
    throw ConfigError(
        "the network does not end with a dense layer, whose input would be the features; name a layer, of those that "
        "`bantam summary` lists");
  if (graph.node(node).inputs[0] == graph.input())
    throw ConfigError(
        fmt::format("the network's last dense layer, '{}', reads the samples themselves; name a layer, of those that "
                    "`bantam summary` lists",
                    graph.node(node).name));
  return graph.node(graph.node(node).inputs[0]);
}

std::vector<std::string> output_names(const TrainedModel& model) {
  std::vector<std::string> names = model.class_names;
  const auto count = static_cast<std::size_t>(classes_of(model.config));
  for (std::size_t c = names.size(); c < count; ++c) names.push_back(fmt::format("{}", c));
  names.resize(count);
  return names;
}

namespace {

PredictionSummary run_work(const TrainedModel& trained, Work work, const PredictOptions& options,
                           const std::function<void(const Prediction&)>& on_prediction) {
  PredictionSummary summary;
  if (!options.at.empty()) {
    const Graph& whole = trained.config.model.graph;
    const auto end = static_cast<NodeId>(&feature_layer(whole, options.at) - whole.nodes().data());
    work.config.model.graph = ending_at(whole, end);
  }
  const RunConfig& config = work.config;
  work.pipeline.batch_size_is_auto = false;
  const std::int64_t samples = work.samples->facts().size;
  const std::unique_ptr<Runtime> runtime = planned_runtime(work, options, summary);
  const AlgorithmCache algorithms(*runtime, config,
                                  {.run_file = trained.run.empty() ? "" : trained.run / "algorithms.json",
                                   .planned_pool_bytes = summary.planned_pool_bytes});
  BrokenFiles broken;
  PredictionSession session(*runtime, config.device, config, work.samples,
                            work.loading(config.device, broken.samples()));
  (void)load_weights(session.model(), trained.weights, trained.weights_file,
                     {.of_part = !options.at.empty(), .advises = false});
  const AnswerReading reading(config, options);
  const auto values = static_cast<std::size_t>(config.model.graph.output_shape().elements());
  const auto begin = std::chrono::steady_clock::now();
  const auto go_on = [&](std::int64_t first) {
    summary.stopped = first < samples && options.stop && options.stop();
    if (!summary.stopped && options.on_batch) options.on_batch(first, samples);
    return !summary.stopped;
  };
  session.run(go_on, [&](std::int64_t first, std::span<const float> outputs) {
    for (std::size_t row = 0; row * values < outputs.size(); ++row) {
      const std::int64_t sample = first + static_cast<std::int64_t>(row);
      Prediction answer = work.answer(sample);
      answer.error = broken.extract(sample);
      if (answer.error.empty()) reading.read(outputs.subspan(row * values, values), answer);
      ++summary.images;
      summary.broken += answer.error.empty() ? 0 : 1;
      on_prediction(answer);
    }
  });
  summary.seconds = seconds_since(begin);
  summary.resized = *work.resized;
  summary.peak_bytes = runtime->allocator(config.device).stats().peak_bytes;
  return summary;
}

}  // namespace

PredictionSummary predict(const TrainedModel& trained, const std::vector<ListedImage>& images,
                          const PredictOptions& options, const std::function<void(const Prediction&)>& on_prediction) {
  if (images.empty()) return {};
  require_device(trained.config);
  return run_work(trained, work_of(trained, images, options), options, on_prediction);
}

PredictionSummary predict(const TrainedModel& trained, const PredictedTable& table, const PredictOptions& options,
                          const std::function<void(const Prediction&)>& on_prediction) {
  require_device(trained.config);
  return run_work(trained, work_of(trained, table, options), options, on_prediction);
}

}  // namespace bantam::run

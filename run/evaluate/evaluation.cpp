// The batches of a set through a training step's evaluation, rehearsed first for their memory.
#include "bantam/run/evaluate/evaluation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/formats/class_names.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/model/frozen_norms.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/engine/program/step_program.h"
#include "bantam/engine/step/training_session.h"
#include "bantam/run/evaluate/target_confusion.h"
#include "bantam/run/fit/rehearsal_runtime.h"
#include "bantam/run/fit/run_plan.h"
#include "bantam/run/train/algorithm_cache.h"
#include "bantam/run/trained/reserved_runtime.h"

namespace bantam::run {
namespace {

constexpr std::array<std::string_view, 4> kSets = {"training", "validation", "test", "all"};

/// The configuration's samples of `set`.
std::shared_ptr<const SampleReader> samples_of(const RunConfig& config, EvaluatedSet set) {
  if (set == EvaluatedSet::all) {
    if (config.data->source.whole != nullptr) return config.data->source.whole;
    throw ConfigError(
        "--split all: the data have parts of their own; --split training, validation or test evaluates one of them");
  }
  const SampleSplits splits = open_splits(*config.data, config.seed);
  if (set == EvaluatedSet::training) return splits.train;
  if (set == EvaluatedSet::test && splits.test == nullptr)
    throw ConfigError(
        "--split test: the data have no test samples of their own beside the validation samples; --split validation "
        "evaluates those");
  return set == EvaluatedSet::test ? splits.test : splits.validation;
}

/// Whether classes have no names but their numbers, as those of .npy files.
bool are_numbers(const std::vector<std::string>& names) { return names == numbered_classes(std::ssize(names)); }

std::string all_names(const std::vector<std::string>& names) { return shown(join(names, ", ", " and "), 200); }

/// Class numbers of the samples mean what the model's outputs do.
void require_same_classes(const std::vector<std::string>& trained, const std::vector<std::string>& found) {
  if (are_numbers(trained) || are_numbers(found) || found == trained) return;
  const auto [own, other] = std::ranges::mismatch(trained, found);
  const auto nth = [&](const std::vector<std::string>& names, auto at) {
    return at == names.end() ? "missing" : fmt::format("'{}'", shown(*at, 40));
  };
  throw DataError(
      fmt::format("the model's classes are {}, but the data's are {}: class {} is {} of the model and {} in the data; "
                  "where the data have the model's classes in another order, or some of them, list the model's: "
                  "data.classes=[…]",
                  all_names(trained), all_names(found), own - trained.begin(), nth(trained, own), nth(found, other)));
}

/// Samples of class numbers whose classes are some of the model's, or in another order: with the model's numbers.
class Renumbered : public WrappedReader {
 public:
  Renumbered(std::shared_ptr<const SampleReader> samples, std::vector<std::string> names,
             std::vector<std::int32_t> numbers)
      : WrappedReader(std::move(samples)), names_(std::move(names)), numbers_(std::move(numbers)) {}

  DatasetFacts facts() const override {
    DatasetFacts facts = WrappedReader::facts();
    facts.class_names = names_;
    return facts;
  }
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override {
    WrappedReader::read(index, fields);
    renumber(fields[1]);
  }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    WrappedReader::fetch(index, fields);
    renumber(fields[1]);
  }
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override {
    WrappedReader::read_targets(index, targets);
    renumber(targets[0]);
  }

 private:
  void renumber(std::span<std::byte> field) const {
    std::int32_t label = 0;
    std::memcpy(&label, field.data(), sizeof label);
    label = numbers_.at(static_cast<std::size_t>(label));
    std::memcpy(field.data(), &label, sizeof label);
  }

  std::vector<std::string> names_;
  std::vector<std::int32_t> numbers_;  // of the model, by the samples' own
};

/// Class numbers by the model's names; throws DataError for a class that the model does not have.
std::shared_ptr<const SampleReader> with_classes_of_model(std::shared_ptr<const SampleReader> samples,
                                                          const std::vector<std::string>& trained) {
  const DatasetFacts facts = samples->facts();
  const std::vector<std::string>& found = facts.class_names;
  const bool one_label = !facts.targets.empty() && facts.targets[0].name == kLabels &&
                         facts.targets[0].shape.rank() == 0 && facts.targets[0].encoding == FieldEncoding::values;
  const bool are_known = std::ranges::all_of(
      found, [&](const std::string& name) { return std::ranges::find(trained, name) != trained.end(); });
  // Numbers in place of names go by their places, but where all of them are classes of the model: digits may be names.
  const bool by_place = (are_numbers(trained) || are_numbers(found)) && !are_known;
  if (!one_label || found == trained || found.empty() || by_place) {
    require_same_classes(trained, found);
    return samples;
  }
  std::vector<std::int32_t> numbers;
  std::vector<std::string> unknown, known;
  for (const std::string& name : found) {
    const auto own = std::ranges::find(trained, name);
    (own == trained.end() ? unknown : known).push_back(name);
    numbers.push_back(static_cast<std::int32_t>(own - trained.begin()));
  }
  if (!unknown.empty())
    throw DataError(fmt::format(
        "the data have the class{} {}, which the model does not know: its classes are {}; {}",
        unknown.size() == 1 ? "" : "es", all_names(unknown), all_names(trained),
        known.empty() ? "class folders, or labels of a table, have the model's names"
                      : fmt::format("data.classes=[{}] evaluates the others", shown(join(known, ", ", ", "), 200))));
  return std::make_shared<Renumbered>(std::move(samples), trained, std::move(numbers));
}

/// Returns the metrics that are counted beside the configuration's own, by the task.
std::vector<MetricPtr> more_metrics(const RunConfig& config) {
  const Shape& output = config.model.graph.output_shape();
  const std::int64_t classes = output.rank() > 0 ? output[-1] : 1;
  ClassMetricOptions counted{.training = false};
  if (const auto ignored = config.train.loss.loss->ignored_label()) counted.ignore_label = *ignored;
  const bool matrix = classes <= kMostMatrixClasses;
  switch (task_of(config)) {
    case Task::classes:
    case Task::segmentation: {
      if (!reads_labels(config))
        return matrix && output.rank() == 1 ? std::vector{target_confusion()} : std::vector<MetricPtr>();
      std::vector<MetricPtr> more = {matrix ? confusion_matrix(counted) : f1(counted)};
      if (output.rank() == 1 && classes > 5) more.push_back(top_k(5, counted));
      return more;
    }
    case Task::multi_label:
    case Task::masks: {
      counted.multi_label = true;
      std::vector<MetricPtr> more = {f1(counted)};
      if (output.rank() == 1) more.push_back(auc(counted));
      return more;
    }
    case Task::values:
      break;
  }
  return {mse({.training = false}), mae({.training = false}), r2({.training = false})};
}

/// Whether the model's end runs as one op with the loss where no metric reads the output: another metric would change
/// the loss's bits.
bool fuses_loss(const Model& model, const LossOptions& loss) {
  if (loss.views) return false;  // of whose outputs the mean is taken
  if (std::ranges::any_of(loss.metrics, [](const MetricPtr& metric) { return !metric->counted_by_loss(); }))
    return false;
  const std::vector<NodePlan>& nodes = model.program().segments.back().nodes;
  return !nodes.empty() && nodes.back().fusion != nullptr && nodes.back().fusion->makes_loss;
}

LossOptions with_metrics(LossOptions loss, const std::vector<MetricPtr>& more) {
  loss.metrics.insert(loss.metrics.end(), more.begin(), more.end());
  return loss;
}

/// One without state of its own: nothing is updated.
OptimizerOptions no_optimizer() { return {.rule = sgd()}; }

/// Shapes of a network's parameters and buffers, by name.
std::map<std::string, Shape> tensor_shapes(const Graph& graph) {
  ParameterArena parameters;
  BufferArena buffers;
  declare_tensors(graph, parameters, buffers);
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : parameters.all()) shapes.emplace(parameter.name(), parameter.shape());
  return shapes;
}

/// The same layers for images of another size. Throws ConfigError naming the layer that does not allow it.
Graph resized(const Graph& graph, const Shape& image) {
  Graph result(image);
  const auto refuse = [&](std::string_view layer, std::string_view why) {
    throw ConfigError(fmt::format(
        "the samples are {} after the stages of data.evaluation.pipeline, the model was trained with {}, "
        "and layer '{}' allows no other size ({}): a network whose last window is global_average_pool and that "
        "has no position_embedding does",
        to_string(image), to_string(graph.input_shape()), layer, why));
  };
  for (const GraphNode& node : graph.nodes()) {
    if (node.layer == nullptr) continue;
    try {
      result.add(node.name, node.layer, node.inputs);
    } catch (const ShapeError& error) {
      refuse(node.name, error.what());
    }
  }
  const std::map<std::string, Shape> own = tensor_shapes(graph), other = tensor_shapes(result);
  for (const auto& [name, shape] : own)
    if (const auto found = other.find(name); found != other.end() && found->second != shape)
      refuse(block_of(name),
             fmt::format("its {} would be {}, not {}", name, to_string(found->second), to_string(shape)));
  return result;
}

/// The configuration with a model of the size that validation's stages make.
RunConfig with_evaluated_size(RunConfig config) {
  const Shape image = evaluated_image(*config.data), &trained = config.model.graph.input_shape();
  if (image.rank() == 3 && trained.rank() == 3 && image != trained && image[2] == trained[2])
    config.model.graph = resized(config.model.graph, image);
  return config;
}

/// Model, steps and batches of one evaluation on one device, which may be a meta device.
class EvaluationSession {
 public:
  /// `of_set`: samples of the set that `samples` are, or stand for.
  EvaluationSession(Runtime& runtime, Device device, const RunConfig& config,
                    std::shared_ptr<const SampleReader> samples, std::shared_ptr<BrokenSamples> broken,
                    std::int64_t of_set)
      : of_set_(of_set),
        may_halve_(config.memory.on_oom != OnOutOfMemory::fail),
        model_(runtime, device, config.model.graph, model_options(config)),
        optimizer_(model_, no_optimizer()),
        source_(open_evaluated(runtime, std::move(samples), *config.data, device, std::move(broken))) {
    const std::vector<MetricPtr> more = more_metrics(config);
    const LossOptions own = config.train.loss;
    const bool apart = !more.empty() && fuses_loss(model_, own);
    steps_.push_back(std::make_unique<TrainingStep>(model_, optimizer_, apart ? own : with_metrics(own, more)));
    if (apart)
      steps_.push_back(std::make_unique<TrainingStep>(
          model_, optimizer_, LossOptions{.loss = own.loss, .metrics = more, .mean = own.mean}));
    for (const auto& step : steps_) step->check_fits(source_->tensors(), "evaluated");
  }

  Model& model() { return model_; }

  /// All batches, for as long as `go_on` says so before each; whether it did to the end.
  bool run(const std::function<bool(std::int64_t done, std::int64_t batches)>& go_on) {
    if (steps_.front()->loss().views) {
      const std::int64_t batches = source_->batches_per_epoch() * evaluation_passes(*steps_.front());
      return evaluate_views(*steps_.front(), *source_, of_set_, may_halve_,
                            [&](std::int64_t done) { return go_on(done, batches); });
    }
    const Context context = model_.context(Pass::evaluate).at(model_.runtime().intern("input"));
    source_->start(0, 0);
    Batch batch;
    std::vector<MicroBatches> parts;
    for (const auto& step : steps_) parts.emplace_back(*step);
    const std::int64_t batches = source_->batches_per_epoch();
    for (std::int64_t done = 0; done < batches; ++done) {
      if (!go_on(done, batches)) return false;
      if (!source_->next(context, batch)) break;
      for (MicroBatches& part : parts) part.evaluate(batch, may_halve_);
    }
    return go_on(batches, batches);
  }

  /// Reads the batches' metrics: the configuration's own into `metrics`, the others into `more`.
  void read(const LossOptions& own, Evaluation& result) {
    result.metrics = steps_.front()->read_evaluation();
    const auto counted = std::ssize(metrics_with_values(own.metrics));
    std::vector<MetricValue>& values = result.metrics.values;
    result.more.assign(values.begin() + counted, values.end());
    values.resize(static_cast<std::size_t>(counted));
    if (steps_.size() > 1) result.more = steps_.back()->read_evaluation().values;
  }

 private:
  std::int64_t of_set_;
  bool may_halve_;
  Model model_;
  Optimizer optimizer_;
  std::unique_ptr<BatchSource> source_;
  std::vector<std::unique_ptr<TrainingStep>> steps_;
};

/// The set's samples in short: as many full batches as are alive at one time, and a short last one.
std::shared_ptr<const SampleReader> excerpt_of(const RunConfig& config, std::shared_ptr<const SampleReader> samples) {
  constexpr std::int64_t kFoundAtRunTime = 8, kSpare = 4;
  const PrefetchOptions& prefetch = config.data->pipeline.prefetch;
  const std::int64_t batch = evaluated_batch(*config.data), size = samples->facts().size;
  const std::int64_t full =
      (std::max(prefetch.depth.value_or(kFoundAtRunTime), prefetch.workers.value_or(0) + 1) + kSpare) * batch;
  return size <= full ? std::move(samples) : first_samples(std::move(samples), full + size % batch);
}

/// Plans an evaluation's memory: runs it on a stand-in of the device, with `excerpt` in place of `samples` samples.
MemoryStats rehearse(const RunConfig& config, const std::shared_ptr<const SampleReader>& excerpt, std::int64_t samples,
                     std::uint64_t pool) {
  RehearsalRuntime rehearsal(config, pool);
  EvaluationSession session(rehearsal.runtime(), rehearsal.device(), config, excerpt, nullptr, samples);
  (void)session.run([](std::int64_t, std::int64_t) { return true; });
  return rehearsal.stats();
}

void plan(const RunConfig& config, const std::shared_ptr<const SampleReader>& samples, Evaluation& result) {
  if (!without_meta(config.model.graph, config.train.loss, no_optimizer()).empty()) return;  // it is not known
  const std::shared_ptr<const SampleReader> excerpt = excerpt_of(config, samples);
  const std::int64_t size = samples->facts().size;
  result.planned_peak_bytes = rehearse(config, excerpt, size, 0).peak_bytes;
  result.planned_pool_bytes = least_pool([&](std::uint64_t pool) { return rehearse(config, excerpt, size, pool); });
}

/// A batch size that training would have to find is none of an evaluation's.
RunConfig with_batch(RunConfig config) {
  constexpr std::int64_t kUsual = 32;
  if (!config.data) config.document.root().fail_at_key("missing key 'data': an evaluation needs data");
  if (std::exchange(config.data->pipeline.batch_size_is_auto, false)) config.data->pipeline.batch_size = kUsual;
  return config;
}

void run_batches(EvaluationSession& session, const EvaluateOptions& options) {
  const bool whole = session.run([&](std::int64_t done, std::int64_t batches) {
    if (done < batches && options.stop && options.stop()) return false;
    if (options.on_batch) options.on_batch(done, batches);
    return true;
  });
  if (!whole) throw EvaluationStopped("stopped before the last batch: there is no result");
}

}  // namespace

std::string_view to_string(EvaluatedSet set) { return kSets[static_cast<std::size_t>(set)]; }

EvaluatedSet parse_evaluated_set(std::string_view text) {
  const auto found = std::ranges::find(kSets, text);
  if (found == kSets.end())
    throw ConfigError(fmt::format("--split: expected training, validation, test or all, got '{}'", text));
  return static_cast<EvaluatedSet>(found - kSets.begin());
}

Evaluation evaluate(const TrainedModel& trained, const EvaluateOptions& options) {
  const RunConfig config = with_evaluated_size(with_batch(trained.config));
  require_device(config);
  const std::shared_ptr<const SampleReader> samples =
      with_classes_of_model(samples_of(config, options.set), trained.class_names);
  if (options.on_warning)
    for (const std::string& note : samples->notes()) options.on_warning(note);
  const auto broken = config.data->skips_broken ? std::make_shared<BrokenSamples>() : nullptr;
  Evaluation result{.task = task_of(config), .set = options.set, .batch_size = evaluated_batch(*config.data)};
  plan(config, samples, result);
  const std::unique_ptr<Runtime> runtime =
      reserved_runtime(config, options.threads, options.on_warning,
                       {.pool_bytes = result.planned_pool_bytes,
                        .must_fit = config.memory.on_oom == OnOutOfMemory::fail});  // else batches may be halved
  // The run's own choices: other algorithms have other bits.
  const AlgorithmCache algorithms(*runtime, config,
                                  {.run_file = trained.run.empty() ? "" : trained.run / "algorithms.json",
                                   .planned_pool_bytes = result.planned_pool_bytes});
  EvaluationSession session(*runtime, config.device, config, samples, broken, samples->facts().size);
  (void)load_weights(session.model(), trained.weights, trained.weights_file, {.advises = false});
  const auto begin = std::chrono::steady_clock::now();
  run_batches(session, options);
  session.read(config.train.loss, result);
  result.seconds = seconds_since(begin);
  result.peak_bytes = runtime->allocator(config.device).stats().peak_bytes;
  if (broken == nullptr) return result;
  result.broken_samples = broken->count();
  for (const BrokenSamples::Sample& sample : broken->first()) result.broken_reasons.push_back(sample.reason);
  return result;
}

}  // namespace bantam::run

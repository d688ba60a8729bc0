// All held-out samples once for their losses, then those that are shown once more for what was said of them.
#include "bantam/run/report/held_out.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>

#include <fmt/format.h>

#include "bantam/data/delivery/data_config.h"
#include "bantam/data/survey/sample_views.h"
#include "bantam/engine/model/model.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/run/evaluate/evaluation.h"
#include "bantam/run/predict/output_reading.h"
#include "bantam/run/train/algorithm_cache.h"
#include "bantam/run/trained/reserved_runtime.h"

namespace bantam::run {
namespace {

/// Values of a batch in host memory, a row a sample.
struct HostRows {
  std::string name;
  Shape row;  // without the batch axis
  DType dtype = DType::float32;
  std::vector<std::byte> bytes;

  std::size_t row_bytes() const { return static_cast<std::size_t>(row.elements()) * size_of(dtype); }
  template <class T>
  std::span<const T> of(std::size_t sample) const {
    const auto count = static_cast<std::size_t>(row.elements());
    return std::span(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)).subspan(sample * count, count);
  }
};

Shape with_batch_of_one(const Shape& row) {
  std::vector<std::int64_t> extents = {1};
  for (int axis = 0; axis < row.rank(); ++axis) extents.push_back(row[axis]);
  return Shape(extents);
}

HostRows on_host(const TensorFacts& facts, const Tensor& tensor, Stream stream) {
  HostRows rows{.name = facts.name, .row = facts.shape, .dtype = tensor.dtype()};
  rows.bytes.resize(tensor.bytes());
  copy_bytes(rows.bytes.data(), tensor.data(), tensor.bytes(), stream);
  synchronize(stream);
  return rows;
}

std::int32_t largest(std::span<const float> values) {
  return static_cast<std::int32_t>(std::ranges::max_element(values) - values.begin());
}

/// The loss of one sample, and the share of its positions that are right; NaN where none is right or wrong.
struct Answer {
  double loss = 0, right = std::numeric_limits<double>::quiet_NaN();
};

/// Answers are compared with the targets that the loss reads.
class Comparison {
 public:
  explicit Comparison(const RunConfig& config)
      : reading_(config, 0.5), classes_(std::max<std::int64_t>(config.model.graph.output_shape()[-1], 1)) {
    if (const auto ignored = config.train.loss.loss->ignored_label()) ignored_ = *ignored;
    const Task task = reading_.task();
    if ((task == Task::classes || task == Task::segmentation) && classes_ <= kMostMatrixClasses)
      matrix.columns = classes_;
    matrix.values.assign(static_cast<std::size_t>(matrix.columns * matrix.columns), 0);
  }

  const OutputReading& reading() const { return reading_; }

  /// The share of right positions of one sample (NaN where none is right or wrong), added to the matrix.
  double count(std::span<const float> output, const HostRows& target, std::size_t sample) {
    const Task task = reading_.task();
    if (task != Task::classes && task != Task::segmentation) return std::numeric_limits<double>::quiet_NaN();
    const auto width = static_cast<std::size_t>(classes_);
    double right = 0, counted = 0;
    for (std::size_t place = 0; place * width < output.size(); ++place) {
      const std::int32_t said = largest(output.subspan(place * width, width));
      const std::int32_t label = target.dtype == DType::int32
                                     ? target.of<std::int32_t>(sample)[place]
                                     : largest(target.of<float>(sample).subspan(place * width, width));
      if (label < 0 || label >= classes_ || label == ignored_) continue;
      ++counted;
      right += said == label ? 1 : 0;
      if (matrix.columns > 0) ++matrix.values[static_cast<std::size_t>(label * classes_ + said)];
    }
    return counted > 0 ? right / counted : std::numeric_limits<double>::quiet_NaN();
  }

  MetricTable matrix;

 private:
  OutputReading reading_;
  std::int64_t classes_;
  std::optional<std::int32_t> ignored_;
};

/// A model whose outputs and losses are read sample by sample.
class AnsweringSession {
 public:
  AnsweringSession(Runtime& runtime, const TrainedModel& trained, const RunConfig& config)
      : config_(config), model_(runtime, config.device, config.model.graph, model_options(config)) {
    (void)load_weights(model_, trained.weights, trained.weights_file, {.advises = false});
  }

  /// One sample's output, loss and number; its target is row `row` of `targets`.
  struct Answered {
    std::int64_t index = 0;
    std::size_t row = 0;
    std::span<const float> output;
    const HostRows& targets;
    double loss = 0;
  };
  using OnSample = std::function<void(const Answered&)>;

  /// `go_on` is asked before each batch.
  void run(const std::shared_ptr<const SampleReader>& samples, const std::shared_ptr<BrokenSamples>& broken,
           const std::function<bool(std::int64_t done)>& go_on, const OnSample& on_sample) {
    const auto source = open_evaluated(model_.runtime(), samples, *config_.data, config_.device, broken);
    const Context context = model_.context(Pass::evaluate);
    const Context input = context.at(model_.runtime().intern("input"));
    source->start(0, 0);
    Batch batch;
    for (std::int64_t first = 0; go_on(first) && source->next(input, batch); first += batch.size) {
      const Tensor output = model_.forward(context, batch.at(kImages));
      const std::vector<float> values = to_host_floats(output, context.stream);
      std::vector<HostRows> targets;
      for (const TensorFacts& facts : config_.train.loss.loss->targets(config_.model.graph.output_shape()))
        targets.push_back(on_host(facts, batch.at(facts.name), context.stream));
      const std::size_t width = values.size() / static_cast<std::size_t>(batch.size);
      for (std::size_t s = 0; s < static_cast<std::size_t>(batch.size); ++s) {
        const auto row = std::span(values).subspan(s * width, width);
        on_sample({.index = first + static_cast<std::int64_t>(s),
                   .row = s,
                   .output = row,
                   .targets = targets.front(),
                   .loss = loss_of(context, row, output.dtype(), targets, s)});
      }
    }
  }

 private:
  /// The configuration's loss of a batch of this sample alone.
  double loss_of(const Context& context, std::span<const float> row, DType dtype, const std::vector<HostRows>& targets,
                 std::size_t sample) const {
    const Shape& shape = config_.model.graph.output_shape();
    const Tensor output = ops::cast(context, context.upload(with_batch_of_one(shape), row.data()), dtype);
    TensorMap batch;
    for (const HostRows& target : targets)
      batch.set(target.name, context.upload_bytes(with_batch_of_one(target.row), target.dtype,
                                                  target.bytes.data() + sample * target.row_bytes(), Category::input));
    const Tensor loss = config_.train.loss.loss->forward(context, output, batch, {.divisor = 1});
    return static_cast<double>(to_host_floats(loss, context.stream).front());
  }

  const RunConfig& config_;
  Model model_;
};

RunConfig evaluated_config(RunConfig config) {
  constexpr std::int64_t kUsual = 32;
  if (!config.data) config.document.root().fail_at_key("missing key 'data': held-out samples need data");
  if (std::exchange(config.data->pipeline.batch_size_is_auto, false)) config.data->pipeline.batch_size = kUsual;
  return config;
}

std::shared_ptr<const SampleReader> spread_over(std::shared_ptr<const SampleReader> samples, std::int64_t most) {
  const std::int64_t size = samples->facts().size;
  if (size <= most) return samples;
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < most; ++i) chosen.push_back(static_cast<std::int32_t>((2 * i + 1) * size / (2 * most)));
  return chosen_samples(std::move(samples), std::move(chosen));
}

/// Numbers of the samples of the largest losses, the largest first.
std::vector<std::int32_t> worst_of(const std::vector<Answer>& answers, std::vector<std::int32_t> sound,
                                   std::size_t most) {
  const auto badness = [&](std::int32_t i) {
    const double loss = answers[static_cast<std::size_t>(i)].loss;
    return std::isfinite(loss) ? loss : std::numeric_limits<double>::infinity();
  };
  std::ranges::stable_sort(sound, [&](std::int32_t a, std::int32_t b) { return badness(a) > badness(b); });
  sound.resize(std::min(sound.size(), most));
  return sound;
}

/// The same ones wherever the seed is the same.
std::vector<std::int32_t> random_of(std::vector<std::int32_t> sound, std::size_t most, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::size_t count = std::min(sound.size(), most);
  for (std::size_t i = 0; i < count; ++i) std::swap(sound[i], sound[i + random() % (sound.size() - i)]);
  sound.resize(count);
  std::ranges::sort(sound);
  return sound;
}

/// Class numbers, or positions' presence, as colours.
Image said_picture(const Prediction& prediction) {
  if (prediction.masks.empty()) return {};
  std::vector<std::int32_t> labels(prediction.masks[0].pixels.size(), 0);
  for (std::size_t m = 0; m < prediction.masks.size(); ++m)
    for (std::size_t p = 0; p < labels.size(); ++p) {
      const std::uint8_t pixel = prediction.masks[m].pixels[p];
      if (prediction.masks.size() == 1)
        labels[p] = pixel;
      else if (pixel != 0)
        labels[p] = static_cast<std::int32_t>(m) + 1;
    }
  return class_picture(prediction.masks[0].size, labels);
}

/// Puts an answer in words, by names of outputs: the most likely first, numbers in their order.
std::vector<std::pair<std::string, double>> said_of(const Prediction& prediction, Task task,
                                                    const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  std::vector<std::pair<std::string, double>> said;
  if (prediction.counts.empty()) {
    for (std::size_t i = 0; i < prediction.values.size(); ++i)
      said.emplace_back(i < names.size() ? names[i] : fmt::format("{}", i), prediction.values[i]);
  } else {
    const double positions =
        std::max<double>(1, static_cast<double>(prediction.masks.empty()
                                                    ? std::reduce(prediction.counts.begin(), prediction.counts.end())
                                                    : std::ssize(prediction.masks[0].pixels)));
    for (std::size_t i = 0; i < prediction.counts.size(); ++i)
      said.emplace_back(names[i], static_cast<double>(prediction.counts[i]) / positions);
  }
  if (task != Task::values)
    std::ranges::stable_sort(said, [](const auto& a, const auto& b) { return a.second > b.second; });
  said.resize(std::min(said.size(), kMost));
  return said;
}

/// One pass for all, one for those that are shown.
class HeldOutPasses {
 public:
  HeldOutPasses(const TrainedModel& trained, const HeldOutOptions& options)
      : trained_(trained),
        options_(options),
        config_(evaluated_config(trained.config)),
        all_(open_splits(*config_.data, config_.seed).validation),
        samples_(spread_over(all_, options.most_samples)),
        runtime_((require_device(config_), reserved_runtime(config_, options.threads, options.on_warning, {}))),
        algorithms_(*runtime_, config_, {.run_file = trained.run.empty() ? "" : trained.run / "algorithms.json"}),
        session_(*runtime_, trained, config_),
        comparison_(config_) {}

  HeldOutAnswers answers() {
    HeldOutAnswers result{.task = comparison_.reading().task(),
                          .samples = samples_->facts().size,
                          .of = all_->facts().size,
                          .names = names()};
    const std::vector<Answer> all = count_all();
    result.matrix = comparison_.matrix;
    result.loss = mean(all, &Answer::loss);
    result.accuracy = mean(all, &Answer::right);
    result.worst = shown(worst_of(all, sound_, options_.shown), all, result.names);
    result.random = shown(random_of(sound_, options_.shown, config_.seed), all, result.names);
    return result;
  }

 private:
  std::vector<Answer> count_all() {
    samples_->check(config_.data->verify, runtime_->threads());
    std::vector<bool> broken(static_cast<std::size_t>(samples_->facts().size), false);
    const auto on_broken = [&](std::int64_t index, const BrokenSamples::Sample&) {
      broken[static_cast<std::size_t>(index)] = true;
    };
    const auto skipped =
        config_.data->skips_broken ? std::make_shared<BrokenSamples>(BrokenSamples::Place::next, on_broken) : nullptr;
    std::vector<Answer> answers(broken.size());
    session_.run(
        samples_, skipped, [&](std::int64_t done) { return go_on(done); },
        [&](const AnsweringSession::Answered& one) {
          answers[static_cast<std::size_t>(one.index)] = {one.loss,
                                                          comparison_.count(one.output, one.targets, one.row)};
        });
    for (std::size_t i = 0; i < answers.size(); ++i)
      if (!broken[i]) sound_.push_back(static_cast<std::int32_t>(i));
    return answers;
  }
  /// Class names are not those of numbers.
  std::vector<std::string> names() const {
    std::vector<std::string> names = output_names(trained_);
    if (comparison_.reading().task() == Task::values)
      for (std::size_t i = 0; i < names.size(); ++i) names[i] = fmt::format("{}", i);
    return names;
  }
  bool go_on(std::int64_t done) const {
    const std::int64_t samples = samples_->facts().size;
    if (done < samples && options_.stop && options_.stop())
      throw EvaluationStopped("stopped before the last batch: there is no result");
    if (options_.on_batch) options_.on_batch(done, samples);
    return true;
  }

  double mean(const std::vector<Answer>& answers, double Answer::*part) const {
    double sum = 0, counted = 0;
    for (const std::int32_t i : sound_) {
      const double value = answers[static_cast<std::size_t>(i)].*part;
      if (std::isnan(value)) continue;
      sum += value;
      ++counted;
    }
    return counted > 0 ? sum / counted : std::numeric_limits<double>::quiet_NaN();
  }

  std::vector<AnsweredSample> shown(const std::vector<std::int32_t>& chosen, const std::vector<Answer>& answers,
                                    const std::vector<std::string>& names) {
    if (chosen.empty()) return {};
    const auto reader = chosen_samples(samples_, chosen);
    const auto views = sample_views(*runtime_, reader, evaluation_pipeline(config_.data->pipeline), config_.seed, 1);
    std::vector<AnsweredSample> list(chosen.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Answer& answer = answers[static_cast<std::size_t>(chosen[i])];
      const SampleView& view = views[0][i];
      list[i] = {.index = chosen[i],
                 .name = samples_->name_of(chosen[i]),
                 .truth = view.target,
                 .said = {},
                 .loss = answer.loss,
                 .right = answer.right,
                 .image = view.image,
                 .truth_mask = view.mask};
    }
    const OutputReading& reading = comparison_.reading();
    session_.run(
        reader, nullptr, [](std::int64_t) { return true; },
        [&](const AnsweringSession::Answered& one) {
          Prediction prediction;
          reading.read(one.output, prediction);
          AnsweredSample& sample = list[static_cast<std::size_t>(one.index)];
          sample.said = said_of(prediction, reading.task(), names);
          sample.said_mask = said_picture(prediction);
        });
    return list;
  }

  const TrainedModel& trained_;
  const HeldOutOptions& options_;
  RunConfig config_;
  std::shared_ptr<const SampleReader> all_, samples_;
  std::unique_ptr<Runtime> runtime_;
  AlgorithmCache algorithms_;
  AnsweringSession session_;
  Comparison comparison_;
  std::vector<std::int32_t> sound_;  // samples that could be read
};

}  // namespace

HeldOutAnswers answer_held_out(const TrainedModel& model, const HeldOutOptions& options) {
  return HeldOutPasses(model, options).answers();
}

}  // namespace bantam::run

// Evaluations with views: by hand, against outputs of views that the test makes itself, planned as eager, and what is
// refused.
#include "bantam/engine/step/evaluation_views.h"

#include <algorithm>
#include <cmath>

#include "bantam/base/error.h"
#include "bantam/kernels/input/image_views_reference.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/message_of.h"

namespace bantam::testing::evaluation_views_test {
namespace {

using Crop = EvaluationViews::Crop;

/// One model with a step of its own.
struct Evaluated {
  Evaluated(Runtime& runtime, Device device, Graph graph, std::optional<EvaluationViews> views,
            Precision precision = {}, std::vector<MetricPtr> metrics = {})
      : model(runtime, device, std::move(graph), {.precision = precision, .seed = 3}),
        optimizer(model, {}),
        step(model, optimizer, {.metrics = std::move(metrics), .views = std::move(views)}) {}
  Metrics run(BatchSource& source, bool may_halve = false) {
    EXPECT_TRUE(evaluate_views(step, source, source.epoch_samples(), may_halve, [](std::int64_t) { return true; }));
    return step.read_evaluation();
  }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

class EvaluationViewsTest : public EngineTest {
 protected:
  /// Images (1, 2, 1) of the given pairs.
  struct Pairs : MemorySource {
    Pairs(std::vector<float> values, std::vector<std::int32_t> its_labels, std::int64_t batch)
        : MemorySource({1, 2, 1}, 2, static_cast<std::int64_t>(its_labels.size()), batch),
          pairs(std::move(values)),
          labels(std::move(its_labels)) {}
    void start(std::int64_t epoch, std::int64_t first) override {
      MemorySource::start(epoch, first);
      place = first;
    }
    bool next(const Context& context, Batch& batch) override {
      if (place >= batches_per_epoch()) return false;
      const std::int64_t size = size_of(place), at = place * batch_size();
      batch = {.tensors = {{kImages, context.upload({size, 1, 2, 1}, pairs.data() + 2 * at)},
                           {kLabels, context.upload({size}, labels.data() + at)}},
               .size = size,
               .index = place++};
      return true;
    }
    std::vector<float> pairs;
    std::vector<std::int32_t> labels;
    std::int64_t place = 0;
  };
  /// Its outputs are the two values.
  static Graph identity() {
    Graph graph({1, 2, 1});
    graph.add(flatten());
    graph.add("head", dense({.units = 2, .bias = false}));
    return graph;
  }
  static void set_identity(Model& model) {
    const std::vector<float> weights = {1, 0, 0, 1};
    Parameter* const weight = model.parameters().find("head/weight");
    const Stream stream = model.runtime().stream(model.device());
    copy_bytes(weight->master().data(), weights.data(), weights.size() * sizeof(float), stream);
    synchronize(stream);
    model.parameters().refresh_compute(model.context(Pass::train));
  }
  Metrics of_pairs(const EvaluationViews& views, std::vector<float> pairs, std::vector<std::int32_t> labels) {
    Evaluated run(runtime(), device(), identity(), views);
    set_identity(run.model);
    Pairs source(std::move(pairs), std::move(labels), 2);
    return run.run(source);
  }
  /// Mean outputs of the samples as the test makes them: (samples, outputs), in float32.
  std::vector<float> mean_outputs(Evaluated& run, MemorySource& source, const EvaluationViews& views) {
    const Context context = run.model.context(Pass::evaluate);
    const std::int64_t samples = source.epoch_samples(), outputs = run.model.graph().output_shape()[0];
    std::vector<float> means;
    std::vector<std::vector<float>> of_views;
    Batch batch;
    for (std::int64_t number = 0; number < views.count(); ++number) {
      std::vector<float>& all = of_views.emplace_back();
      source.start(0, 0);
      while (source.next(context, batch)) {
        const Shape shape = batch.at(kImages).shape();
        kernels::ImageViewShape view{.count = shape[0], .height = shape[1], .width = shape[2], .channels = shape[3]};
        view.pad_mode = views.reflect ? kernels::PadMode::reflect : kernels::PadMode::zero;
        const std::int64_t place = views.flip ? number / 2 : number;
        view.flip = views.flip && number % 2 == 1;
        if (place > 0) {
          view.top = static_cast<std::int32_t>(views.crops[static_cast<std::size_t>(place - 1)].top - views.padding);
          view.left = static_cast<std::int32_t>(views.crops[static_cast<std::size_t>(place - 1)].left - views.padding);
        }
        const std::vector<float> images = to_host_floats(batch.at(kImages), context.stream);
        std::vector<float> seen(images.size());
        kernels::reference::image_views(view, images.data(), nullptr, seen.data());
        const Tensor x = ops::cast(context, context.upload(shape, seen.data()), context.precision.compute());
        const std::vector<float> y = to_host_floats(run.model.forward(context, x), context.stream);
        all.insert(all.end(), y.begin(), y.end());
      }
    }
    means = of_views[0];
    std::vector<std::int32_t> chosen =
        kernels::reference::least_certain({samples, outputs, views.samples_of(samples)}, means.data());
    for (const std::int32_t sample : chosen)
      for (std::int64_t c = 0; c < outputs; ++c) {
        float sum = 0;
        for (const std::vector<float>& of_view : of_views)
          sum += of_view[static_cast<std::size_t>(sample * outputs + c)];
        means[static_cast<std::size_t>(sample * outputs + c)] = sum / static_cast<float>(views.count());
      }
    return means;
  }
  /// Of a network with every kind of layer, in batches with a short last one.
  void expect_of_means(const EvaluationViews& views, Precision precision = {}) {
    Evaluated run(runtime(), device(), small_network(), views, precision);
    MemorySource source({8, 8, 3}, 5, 43, 8);
    const std::vector<float> means = mean_outputs(run, source, views);
    double loss = 0, right = 0;
    for (std::int64_t n = 0; n < 43; ++n) {
      const float* row = means.data() + n * 5;
      const auto label = static_cast<std::int64_t>((n * 7 + 3) % 5);  // as make_batch has it
      double sum = 0;
      for (int c = 0; c < 5; ++c) sum += std::exp(static_cast<double>(row[c]));
      loss += std::log(sum) - row[label];
      right += std::max_element(row, row + 5) - row == label ? 1 : 0;
    }
    const Metrics found = run.run(source);
    EXPECT_EQ(found.samples, 43);
    EXPECT_NEAR(found.loss, loss / 43, 2e-6);  // float32 over 5 classes, where the test has float64
    EXPECT_EQ(found.accuracy, right / 43);
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(EvaluationViewsTest);

// The mean of (a, b) and (b, a) has equal logits, so its loss is ln 2.
TEST_P(EvaluationViewsTest, ByHandOfAllSamples) {
  const Metrics found = of_pairs({}, {3, 0, 0, 1, 5, 2}, {1, 0, 0});
  EXPECT_EQ(found.samples, 3);
  EXPECT_NEAR(found.loss, std::log(2.0), 1e-6);
  EXPECT_EQ(found.accuracy, 2.0 / 3.0) << "the first of equal outputs is the prediction";
}

// Differences of 3, 1, 4 and -1: the second and the fourth are the least certain, and equally so.
TEST_P(EvaluationViewsTest, ByHandOfAShare) {
  const std::vector<float> pairs = {3, 0, 0, 1, 0, 4, 2, 1};
  const std::vector<std::int32_t> labels = {0, 1, 1, 0};
  const auto loss = [](double difference) { return std::log1p(std::exp(-difference)); };  // of the right class
  const Metrics half = of_pairs({.share = 0.5}, pairs, labels);
  EXPECT_NEAR(half.loss, (loss(3) + loss(4) + 2 * std::log(2.0)) / 4, 1e-6);
  EXPECT_EQ(half.accuracy, 3.0 / 4.0) << "of the second the mean prefers the first class";
  const Metrics one = of_pairs({.share = 0.25}, pairs, labels);  // of equal ones the first
  EXPECT_NEAR(one.loss, (loss(3) + loss(4) + loss(1) + std::log(2.0)) / 4, 1e-6);
  EXPECT_EQ(one.accuracy, 3.0 / 4.0);
  EXPECT_EQ(of_pairs({.share = 0.1}, pairs, labels).loss, one.loss) << "at least one sample";
}

TEST_P(EvaluationViewsTest, TheMeanOfAllViews) {
  expect_of_means({});
  expect_of_means({.flip = false, .padding = 2, .crops = {{0, 0}, {4, 1}, {3, 3}}});
  expect_of_means({.padding = 1, .reflect = false, .crops = {{0, 0}, {2, 2}}});
}

// Shares with full batches of views and a rest, less than a batch, and none but full batches.
TEST_P(EvaluationViewsTest, TheMeanOfAShare) {
  for (const double share : {0.5, 0.1, 0.38})  // 21, 4 and 16 of 43, in batches of 8
    expect_of_means({.padding = 1, .crops = {{0, 0}, {2, 2}}, .share = share});
  expect_of_means({.share = 1.0 / 43});
}

TEST_P(EvaluationViewsTest, MetricsAreOfTheMean) {
  const std::vector<float> pairs = {3, 0, 0, 1, 0, 4, 2, 1};
  Evaluated run(runtime(), device(), identity(), EvaluationViews{.share = 0.5}, {}, {confusion_matrix()});
  set_identity(run.model);
  Pairs source(pairs, {0, 1, 1, 0}, 3);
  const Metrics found = run.run(source);
  ASSERT_EQ(found.values.size(), 1u);
  EXPECT_EQ(found.values[0].sums, (std::vector<double>{2, 0, 1, 1}));
}

// The same bits planned and eager, in each pass anew; planned, every allocation of a part is where the plan has it.
TEST_P(EvaluationViewsTest, PlannedAsEager) {
  for (const double share : {1.0, 0.4}) {
    const EvaluationViews views{.padding = 1, .crops = {{0, 0}, {2, 2}}, .share = share};
    MemorySource source({8, 8, 3}, 5, 43, 8);
    Evaluated eager(runtime(), device(), small_network(), views), planned(runtime(), device(), small_network(), views);
    planned.step.prepare(
        {.batches = {8}, .evaluation_batches = {8, 3}, .viewed_batches = viewed_batches(views, 43, 8)});
    const Metrics first = eager.run(source), second = planned.run(source), third = planned.run(source);
    EXPECT_EQ(first.loss, second.loss);
    EXPECT_EQ(first.accuracy, second.accuracy);
    EXPECT_EQ(first.loss, third.loss);
    EXPECT_EQ(runtime().allocator(device()).stats().departures, 0u);
  }
}

TEST_P(EvaluationViewsTest, HalfPrecisionToo) {
  if (!device().is_cuda()) GTEST_SKIP() << "the CPU's float16 has its own tests";
  expect_of_means({.padding = 1, .crops = {{0, 0}, {2, 2}}, .share = 0.3}, {PrecisionKind::mixed_float16});
}

TEST_P(EvaluationViewsTest, AStopCountsNothingOfAShare) {
  Evaluated run(runtime(), device(), small_network(), EvaluationViews{.share = 0.5});
  MemorySource source({8, 8, 3}, 5, 43, 8);
  std::int64_t asked = 0;
  EXPECT_FALSE(evaluate_views(run.step, source, 43, false, [&](std::int64_t done) {
    asked = done;
    return done < 9;
  }));
  EXPECT_EQ(asked, 9) << "in the second pass over six batches";
  EXPECT_EQ(run.step.read_evaluation().samples, 0);
  EXPECT_EQ(evaluation_passes(run.step), 2);
}

TEST(EvaluationViewsChecks, SaysWhatWasExpected) {
  const LossPtr loss = softmax_cross_entropy(), values = mse_loss();
  const auto message = [&](const EvaluationViews& views, const Loss& of, int replicas = 1) {
    return message_of([&] { check_views(views, of, replicas); });
  };
  EXPECT_EQ(message({}, *loss), "nothing was thrown");
  EXPECT_NE(message({.flip = false}, *loss).find("no view beside the image itself"), std::string::npos);
  EXPECT_NE(message({.padding = 1, .crops = {{0, 3}}}, *loss).find("places from 0 to 2"), std::string::npos);
  EXPECT_NE(message({.share = 0}, *loss).find("above 0 and at most 1"), std::string::npos);
  EXPECT_NE(message({.share = 0.5}, *values).find("'mse' makes none"), std::string::npos);
  EXPECT_EQ(message({}, *values), "nothing was thrown");
  EXPECT_NE(message({.share = 0.5}, *loss, 2).find("2 replicas"), std::string::npos);
  EXPECT_EQ(message({}, *loss, 2), "nothing was thrown");
  Graph flat({4});
  flat.add("head", dense({.units = 3}));
  EXPECT_NE(message_of([&] { check_views({}, flat); }).find("reads (4)"), std::string::npos);
  Graph mask({4, 4, 1});
  mask.add("head", conv2d({.filters = 3}));
  EXPECT_NE(message_of([&] { check_views({}, mask); }).find("one axis"), std::string::npos);
}

TEST(EvaluationViewsChecks, SharesAndSizes) {
  const EvaluationViews quarter{.share = 0.25}, all;
  EXPECT_EQ(quarter.samples_of(10000), 2500);
  EXPECT_EQ((EvaluationViews{.share = 0.29}).samples_of(100), 29);
  EXPECT_EQ(quarter.samples_of(3), 1);
  EXPECT_EQ(all.samples_of(3), 3);
  EXPECT_EQ(viewed_batches(quarter, 10000, 1536), (std::vector<std::int64_t>{1536, 964}));
  EXPECT_EQ(viewed_batches(quarter, 4000, 1000), (std::vector<std::int64_t>{1000}));
  EXPECT_EQ(viewed_batches(quarter, 100, 64), (std::vector<std::int64_t>{25}));
  EXPECT_TRUE(viewed_batches(all, 10000, 1536).empty());
  EXPECT_EQ((EvaluationViews{.padding = 1, .crops = {{0, 0}, {2, 2}}}).count(), 6);
}

}  // namespace
}  // namespace bantam::testing::evaluation_views_test

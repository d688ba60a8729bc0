// Values of the built-in metrics: against scikit-learn's (tests/oracles/metrics.py), over short batches; by hand where
// classes do not occur; in training beside evaluations.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/train/regression.h"

namespace bantam::metric_values_test {
namespace {

constexpr std::int64_t kSamples = 300, kClasses = 6, kLabelled = 5, kTargetsOf = 3;
constexpr double kTolerance = 1e-5;  // relative

std::int32_t label_of(std::int64_t i) { return static_cast<std::int32_t>((i * 7 + i / 3) % kLabelled); }

std::vector<float> class_outputs() {
  std::vector<float> values;
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (std::int64_t c = 0; c < kClasses; ++c) {
      const auto wave = static_cast<double>(i * kClasses + c), turn = static_cast<double>(i * i);
      values.push_back(static_cast<float>(2 * std::sin(0.37 * wave + 0.2 * turn) + (c == label_of(i) ? 0.9 : 0) -
                                          (c == 5 ? 10.0 : 0)));
    }
  return values;
}

std::vector<std::int32_t> class_labels() {
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < kSamples; ++i) labels.push_back(label_of(i));
  return labels;
}

struct Values {
  std::vector<float> outputs, targets;
};

Values multi_label() {
  Values v;
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (std::int64_t t = 0; t < kTargetsOf; ++t) {
      const auto x = static_cast<double>(i), y = static_cast<double>(t);
      const double target = std::sin(1.3 * x + 2.1 * y) > 0.2 ? 1 : 0;
      v.targets.push_back(static_cast<float>(target));
      v.outputs.push_back(
          static_cast<float>(1.5 * std::sin(0.71 * (x * kTargetsOf + y) + 0.1 * x * x) + 1.2 * target - 0.8));
    }
  return v;
}

Values regression() {
  Values v;
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (std::int64_t t = 0; t < kTargetsOf; ++t) {
      const auto x = static_cast<double>(i), y = static_cast<double>(t);
      const float target = static_cast<float>(std::sin(0.3 * x + 1.1 * y)) * static_cast<float>(t + 1);
      v.targets.push_back(target);
      v.outputs.push_back(static_cast<float>(static_cast<double>(target) + 0.4 * std::sin(0.9 * (x * kTargetsOf + y))));
    }
  return v;
}

class MetricValuesTest : public testing::EngineTest {
 protected:
  /// The metric over `rows` rows of outputs in batches of 77, the last one short; `truth` names the targets' tensor.
  template <class Truth>
  MetricValue over(const MetricPtr& metric, const Shape& output, const std::vector<float>& outputs,
                   std::string_view name, const std::vector<Truth>& truth) {
    const Context c = context();
    const MetricPtr bound = metrics_for(output, {metric}).at(0);
    const Tensor sums = c.allocate({bound->sums()}, DType::float64, Category::other);
    zero_bytes(sums.data(), sums.bytes(), c.stream);
    const std::int64_t of_output = output.elements(), samples = static_cast<std::int64_t>(outputs.size()) / of_output;
    const Shape truth_shape = bound->targets(output).at(0).shape;
    for (std::int64_t first = 0; first < samples; first += 77) {
      const std::int64_t count = std::min<std::int64_t>(77, samples - first);
      TensorMap batch;
      batch.set(name, c.upload(truth_shape.prepend(count), truth.data() + first * truth_shape.elements()));
      bound->accumulate(c, c.upload(output.prepend(count), outputs.data() + first * of_output), batch,
                        {sums.as<double>(), nullptr});
    }
    std::vector<double> counted(static_cast<std::size_t>(bound->sums()));
    copy_bytes(counted.data(), sums.data(), sums.bytes(), c.stream);
    synchronize(c.stream);
    return {bound, counted};
  }
  MetricValue of_labels(const MetricPtr& metric) {
    return over(metric, {kClasses}, class_outputs(), kLabels, class_labels());
  }
  MetricValue of_targets(const MetricPtr& metric, const Values& values) {
    return over(metric, {kTargetsOf}, values.outputs, testing::kTargets, values.targets);
  }
};

#define EXPECT_VALUE(actual, expected) EXPECT_NEAR(actual, expected, kTolerance* std::abs(expected))

void expect_table(const MetricValue& value, const std::vector<double>& expected) {
  const MetricTable table = value.table();
  ASSERT_GE(table.values.size(), expected.size());
  EXPECT_FALSE(table.is_matrix());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_VALUE(table.values[i], expected[i]) << "class " << i;
  for (std::size_t i = expected.size(); i < table.values.size(); ++i)
    EXPECT_TRUE(std::isnan(table.values[i])) << "class " << i << " does not occur";
}

/// Whatever the loss makes of the outputs: the largest one against the largest target.
TEST_P(MetricValuesTest, ClassAccuracyIsTop1OfTargets) {
  std::vector<float> one_hot(static_cast<std::size_t>(kSamples * kClasses));
  for (std::int64_t i = 0; i < kSamples; ++i) one_hot[static_cast<std::size_t>(i * kClasses + label_of(i))] = 1;
  const MetricValue accuracy = over(class_accuracy(), {kClasses}, class_outputs(), testing::kTargets, one_hot);
  EXPECT_EQ(accuracy.name(), "accuracy");
  EXPECT_TRUE(accuracy.metric->is_accuracy());
  EXPECT_EQ(accuracy.sums[2], kSamples);
  EXPECT_DOUBLE_EQ(accuracy.value(), of_labels(top_k(1)).value());
  EXPECT_THROW((void)metrics_for({}, {class_accuracy()}), ShapeError);
}

TEST_P(MetricValuesTest, OfLabelsAreScikitLearns) {
  EXPECT_VALUE(of_labels(top_k(2)).value(), 0.6966666666666667);
  EXPECT_VALUE(of_labels(precision()).value(), 0.6895143334125045);
  EXPECT_VALUE(of_labels(recall()).value(), 0.5433333333333333);
  EXPECT_VALUE(of_labels(f1()).value(), 0.5726540253814764);
  EXPECT_VALUE(of_labels(mean_iou()).value(), 0.41717382793904684);
  EXPECT_VALUE(of_labels(auc()).value(), 0.8346875);
  EXPECT_VALUE(of_labels(mean_iou({.ignore_label = 3})).value(), 0.30574300561011525);
}

TEST_P(MetricValuesTest, OfEachClassAreScikitLearns) {
  expect_table(of_labels(precision()),
               {0.32954545454545453, 0.8809523809523809, 1.0, 0.9069767441860465, 0.3300970873786408});
  expect_table(of_labels(recall()), {0.48333333333333334, 0.6166666666666667, 0.4, 0.65, 0.5666666666666667});
  expect_table(of_labels(f1()),
               {0.3918918918918919, 0.7254901960784313, 0.5714285714285714, 0.7572815533980582, 0.4171779141104294});
  expect_table(of_labels(mean_iou()), {0.24369747899159663, 0.5692307692307692, 0.4, 0.609375, 0.26356589147286824});
}

TEST_P(MetricValuesTest, AConfusionMatrixIsScikitLearns) {
  const MetricValue value = of_labels(confusion_matrix());
  const MetricTable table = value.table();
  EXPECT_EQ(table.columns, kClasses);
  EXPECT_EQ(table.values, (std::vector<double>{29, 0, 0, 4,  27, 0, 0,  37, 0, 0, 23, 0, 17, 0, 24, 0, 19, 0,
                                               21, 0, 0, 39, 0,  0, 21, 5,  0, 0, 34, 0, 0,  0, 0,  0, 0,  0}));
  EXPECT_DOUBLE_EQ(value.value(), (29.0 + 37 + 24 + 39 + 34) / 300);
}

TEST_P(MetricValuesTest, OfSeveralLabelsAreScikitLearns) {
  const Values values = multi_label();
  const ClassMetricOptions options{.multi_label = true, .threshold = 0.3};
  EXPECT_VALUE(of_targets(precision(options), values).value(), 0.5526851640738727);
  EXPECT_VALUE(of_targets(recall(options), values).value(), 0.8012886582618567);
  EXPECT_VALUE(of_targets(f1(options), values).value(), 0.6538558589305857);
  expect_table(of_targets(f1(options), values), {0.664576802507837, 0.6343042071197411, 0.6626865671641791});
  EXPECT_VALUE(of_targets(auc(options), values).value(), 0.7809957848231455);
}

TEST_P(MetricValuesTest, OfValuesAreScikitLearns) {
  const Values values = regression();
  EXPECT_VALUE(of_targets(mse(), values).value(), 0.0800080112450098);
  EXPECT_VALUE(of_targets(mae(), values).value(), 0.2546741280906523);
  EXPECT_VALUE(of_targets(r2(), values).value(), 0.9276790889531373);
}

// Two images of two pixels and two classes; 255 is no class. Pixels: 0 right, 1 taken for 0, 1 right.
TEST_P(MetricValuesTest, PixelsCountAsSamples) {
  const MetricValue value =
      over(mean_iou(), {1, 2, 2}, {2, 1, 3, 1, 0, 4, 9, 0}, kLabels, std::vector<std::int32_t>{0, 1, 1, 255});
  EXPECT_EQ(value.table().values, (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(value.value(), 0.5);
}

// scikit-learn: targets that are all the same are explained wholly, or not at all.
TEST_P(MetricValuesTest, ConstantTargetsAreExplainedOrNot) {
  const std::vector<float> targets = {0.1f, 5, 0.1f, 7, 0.1f, 9};
  EXPECT_DOUBLE_EQ(over(r2(), {2}, targets, testing::kTargets, targets).value(), 1);
  EXPECT_DOUBLE_EQ(over(r2(), {2}, {0.2f, 5, 0.1f, 7, 0.1f, 9}, testing::kTargets, targets).value(), 0.5);
}

TEST_P(MetricValuesTest, AnAreaNeedsBothKinds) {
  const MetricValue value =
      over(auc({.multi_label = true}), {2}, {-1, 0, 1, 0}, testing::kTargets, std::vector<float>{0, 1, 1, 1});
  EXPECT_EQ(value.table().values[0], 1);
  EXPECT_TRUE(std::isnan(value.table().values[1])) << "all are positive";
  EXPECT_EQ(value.value(), 1);
}

TEST(MetricOptions, OutOfRangeAreRefused) {
  EXPECT_THROW((void)top_k(0), ConfigError);
  EXPECT_THROW((void)f1({.threshold = 1}), ConfigError);
  EXPECT_THROW((void)confusion_matrix({.multi_label = true}), ConfigError);
  EXPECT_THROW((void)metrics_for({2, 3}, {r2()}), ShapeError);
  EXPECT_THROW((void)f1()->sums(), Error) << "the model is not known";
}

/// What updates of two micro-batches, the second one short, and an evaluation of the same batches count, of all metrics
/// at once.
struct Counted {
  Metrics update, evaluation;
};

Counted count(Runtime& runtime, Device device, const LossOptions& loss, bool planned) {
  Model model(runtime, device, testing::small_network(false), {.seed = 2});
  Optimizer optimizer(model, {.rule = sgd()});
  TrainingStep step(model, optimizer, loss);
  if (planned) step.prepare({.batches = {8, 5}, .evaluation_batches = {8, 5}, .accumulates = true});
  const Batch first = testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 0, 8),
              second = testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, 8, 5);
  step.evaluate(first);
  step.evaluate(second);
  const Metrics evaluation = step.read_evaluation();
  step.micro_batch(first, 0, 13);
  step.micro_batch(second, 8, 13);
  step.update();
  EXPECT_GT(step.read_metrics().at(0).samples, 0);
  step.micro_batch(first, 0, 13);
  step.micro_batch(second, 8, 13);
  step.update();
  return {step.read_metrics().at(0), evaluation};
}

const LossOptions kAll{
    .metrics = {accuracy(), confusion_matrix(), f1(), auc(), top_k(2), precision(), recall(), mean_iou()}};

TEST_P(MetricValuesTest, StepsCountAllAtOnce) {
  const Counted eager = count(runtime(), device(), kAll, false), planned = count(runtime(), device(), kAll, true);
  ASSERT_EQ(eager.evaluation.values.size(), 7u);
  const std::vector<double>& matrix = eager.evaluation.values[0].sums;
  EXPECT_EQ(matrix.size(), 25u);
  EXPECT_NEAR(eager.evaluation.values[0].value(), eager.evaluation.accuracy, 1e-12) << "the loss counts the same";
  ASSERT_EQ(eager.update.values.size(), 5u) << "confusion_matrix and auc are counted by evaluations alone";
  EXPECT_EQ(eager.update.values[0].name(), "f1");
  const MetricValue& top = eager.update.values[1];
  EXPECT_EQ(top.sums[1], 13);
  EXPECT_GE(top.value(), eager.update.accuracy) << "the best is among the best two";
  EXPECT_EQ(numbers_of(eager.update), numbers_of(planned.update));
  EXPECT_EQ(numbers_of(eager.evaluation), numbers_of(planned.evaluation));
}

TEST_P(MetricValuesTest, ThoseOfEvaluationsLeaveTrainingAsItIs) {
  const Counted plain = count(runtime(), device(), {.metrics = {accuracy()}}, true);
  const Counted beside = count(runtime(), device(), {.metrics = {accuracy(), confusion_matrix()}}, true);
  EXPECT_EQ(numbers_of(plain.update), numbers_of(beside.update));
  EXPECT_TRUE(beside.update.values.empty());
  EXPECT_EQ(beside.evaluation.values.size(), 1u);
}

BANTAM_INSTANTIATE_ON_DEVICES(MetricValuesTest);

}  // namespace
}  // namespace bantam::metric_values_test

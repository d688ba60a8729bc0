// Softmax cross-entropy: by hand, against the reference and finite differences, extreme logits, bad labels, metrics.
#include "bantam/kernels/head/softmax_cross_entropy.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "bantam/kernels/head/softmax_cross_entropy_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::softmax_cross_entropy_test {
namespace {

using kernels::LogSumExp;
using kernels::MetricSums;
using kernels::SoftmaxCrossEntropyShape;
using Labels = std::vector<std::int32_t>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Outputs {
  std::vector<float> losses, loss, dlogits, correct;
  std::vector<LogSumExp<float>> saved;

  std::vector<float> log_sum_exp() const {
    std::vector<float> sums;
    for (const auto& row : saved) sums.push_back(row.top + row.log_sum);
    return sums;
  }
};

/// The reference in double: losses, their sum over `divisor`, and gradients with `upstream`.
struct Expected {
  Expected(const SoftmaxCrossEntropyShape& s, const std::vector<double>& logits, const Labels& labels, double divisor,
           double upstream)
      : losses(labels.size()), saved(labels.size()), dlogits(logits.size()) {
    loss = kernels::reference::softmax_cross_entropy_forward(s, logits.data(), labels.data(), divisor, losses.data(),
                                                             saved.data());
    kernels::reference::softmax_cross_entropy_grad(s, logits.data(), labels.data(), saved.data(), upstream, divisor,
                                                   dlogits.data());
  }
  std::vector<double> log_sum_exp() const {
    std::vector<double> sums;
    for (const auto& row : saved) sums.push_back(row.top + row.log_sum);
    return sums;
  }
  double loss = 0;
  std::vector<double> losses;
  std::vector<LogSumExp<double>> saved;
  std::vector<double> dlogits;
};

/// Forward with `divisor`, then the gradient with `upstream`. Adds metrics to ring[*slot] where there is a ring.
Outputs run(KernelDevice& device, const SoftmaxCrossEntropyShape& s, DType dtype, const std::vector<float>& logits,
            const Labels& labels, float divisor, float upstream, MetricSums* ring = nullptr,
            const std::int32_t* slot = nullptr) {
  const DeviceBuffer in(device, logits, dtype), dlogits(device, s.batch * s.classes, dtype);
  const DeviceArray<std::int32_t> where(device, labels);
  const DeviceBuffer losses(device, s.batch, DType::float32);
  const DeviceArray<LogSumExp<float>> lse(device, std::vector<LogSumExp<float>>(labels.size()));
  const DeviceBuffer loss(device, 1, DType::float32), up(device, std::vector<float>{upstream}, DType::float32);
  const DeviceBuffer correct(device, s.batch, DType::uint8);
  const kernels::SoftmaxCrossEntropyOutputs out{losses.as<float>(),         lse.data(), loss.as<float>(),
                                                correct.as<std::uint8_t>(), ring,       slot};
  BANTAM_KERNEL(device.exec(), softmax_cross_entropy_forward, s, dtype, in.data(), where.data(), divisor, out);
  BANTAM_KERNEL(device.exec(), softmax_cross_entropy_grad, s, dtype,
                {.logits = in.data(),
                 .labels = where.data(),
                 .log_sum_exp = lse.data(),
                 .upstream = up.as<float>(),
                 .divisor = divisor},
                dlogits.data());
  return {losses.download(), loss.download(), dlogits.download(), correct.download(), lse.download()};
}

Labels random_labels(const SoftmaxCrossEntropyShape& s, std::uint64_t seed) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  Labels labels;
  for (std::int64_t n = 0; n < s.batch; ++n) {
    labels.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(s.classes))));
  }
  return labels;
}

class SoftmaxCrossEntropyTest : public DeviceTest {};

TEST_P(SoftmaxCrossEntropyTest, ByHand) {
  const double tolerance = 8 * unit_roundoff(DType::float32);
  Outputs out = run(device(), {2, 3, 0.0f}, DType::float32, {1, 2, 3, 0, 0, 0}, {2, 0}, 2, 4);
  expect_close(out.losses, std::vector<double>{0.4076059644443803, 1.0986122886681098}, tolerance);
  expect_close(out.log_sum_exp(), std::vector<double>{3.4076059644443803, 1.0986122886681098}, tolerance);
  expect_close(out.loss, std::vector<double>{0.7531091265562450}, tolerance);
  // (softmax - onehot)·4/2.
  expect_close(out.dlogits,
               std::vector<double>{0.1800611463409, 0.4894569421038, -0.6695180884447, -4.0 / 3, 2.0 / 3, 2.0 / 3},
               4 * tolerance);
  // Smoothing 0.1: q = (1/30, 1/30, 1/30 + 0.9) for label 2; loss = 3.40760596 - (0.9·3 + 6/30).
  out = run(device(), {1, 3, 0.1f}, DType::float32, {1, 2, 3}, {2}, 1, 1);
  expect_close(out.losses, std::vector<double>{0.5076059644443803}, tolerance);
  expect_close(out.dlogits, std::vector<double>{0.0566972398371, 0.2113951377186, -0.2680923775557}, tolerance);
}

// Sums of `classes` positive terms in at least 8 partial sums lose at most classes/8 units (and a few in exp and log);
// the gradient's exp(l - top - log_sum) loses as many from the rounding of log_sum, and then is rounded to the type.
TEST_P(SoftmaxCrossEntropyTest, IsTheReference) {
  for (SoftmaxCrossEntropyShape s :
       {SoftmaxCrossEntropyShape{3, 10}, {1, 2}, {127, 5}, {128, 1000}, {7, 1503}, {1027, 31}}) {
    for (const float smoothing : {0.0f, 0.1f}) {
      s.smoothing = smoothing;
      const double units = (static_cast<double>(s.classes) / 8 + 32) * unit_roundoff(DType::float32);
      const Labels labels = random_labels(s, 1);
      for (const DType dtype : kernel_dtypes()) {
        SCOPED_TRACE(std::to_string(s.batch) + "x" + std::to_string(s.classes) + " " + std::string(to_string(dtype)));
        const std::vector<float> logits = random_values(s.batch * s.classes, 2, dtype, -4, 4);
        // Upstream = batch: gradients are then of size 1, and float16 keeps its digits.
        const auto batch = static_cast<float>(s.batch);
        const Expected expected(s, to_double(logits), labels, batch, batch);
        const Outputs out = run(device(), s, dtype, logits, labels, batch, batch);
        expect_close(out.losses, expected.losses, units);
        expect_close(out.log_sum_exp(), expected.log_sum_exp(), units);
        expect_close(out.loss, std::vector<double>{expected.loss}, units);
        EXPECT_LE(relative_error(out.dlogits, expected.dlogits), units + unit_roundoff(dtype));
      }
    }
  }
}

TEST_P(SoftmaxCrossEntropyTest, ExtremeLogitsStayFinite) {
  const SoftmaxCrossEntropyShape s{3, 3, 0.1f};
  const std::vector<float> logits = {1e4f, -1e4f, 0, -1e4f, -1e4f, -1e4f, 1e4f, 1e4f, -1e4f};
  const Labels labels = {1, 2, 0};
  const Expected expected(s, to_double(logits), labels, 1, 1);
  const Outputs out = run(device(), s, DType::float32, logits, labels, 1, 1);
  expect_close(out.losses, expected.losses, 16 * unit_roundoff(DType::float32));
  expect_close(out.dlogits, expected.dlogits, 16 * unit_roundoff(DType::float32));
}

// Logits N(0, 1) + shift: l - top is exact (neither is twice the other), so that the gradient is as good as without the
// shift: a few units from exp, log and the rounding of l - top - log_sum.
TEST_P(SoftmaxCrossEntropyTest, LargeLogitsCostNoDigitsOfTheGradient) {
  for (const float shift : {0.0f, 100.0f, 1000.0f, -1000.0f}) {
    for (const std::int64_t classes : {10, 1000}) {
      SCOPED_TRACE(std::to_string(shift) + ", " + std::to_string(classes) + " classes");
      const SoftmaxCrossEntropyShape s{256, classes, 0.0f};
      const std::vector<float> logits = normal_values(s.batch * classes, 13, shift);
      const Labels labels = random_labels(s, 14);
      const Expected expected(s, to_double(logits), labels, 256, 256);
      const Outputs out = run(device(), s, DType::float32, logits, labels, 256, 256);
      EXPECT_LE(relative_error(out.dlogits, expected.dlogits), 4 * unit_roundoff(DType::float32));
      EXPECT_LE(relative_error(out.losses, expected.losses), 4 * unit_roundoff(DType::float32));
    }
  }
}

TEST_P(SoftmaxCrossEntropyTest, LabelsOutOfRangeMakeNaN) {
  const SoftmaxCrossEntropyShape s{4, 3, 0.0f};
  const std::vector<float> logits = random_values(12, 3);
  const Outputs out = run(device(), s, DType::float32, logits, {0, 3, -1, 2}, 4, 1);
  EXPECT_TRUE(std::isnan(out.loss[0]));
  for (std::size_t n = 0; n < 4; ++n) {
    const bool bad = n == 1 || n == 2;
    EXPECT_EQ(std::isnan(out.losses[n]), bad) << n;
    EXPECT_TRUE(std::isfinite(out.saved[n].top + out.saved[n].log_sum)) << n;
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(std::isnan(out.dlogits[n * 3 + c]), bad) << n;
  }
}

TEST_P(SoftmaxCrossEntropyTest, NonFiniteLogitsMakeNonFiniteLosses) {
  const SoftmaxCrossEntropyShape s{2, 3, 0.0f};
  const Outputs out = run(device(), s, DType::float32, {1, kNaN, 2, 3, INFINITY, 4}, {0, 0}, 1, 1);
  EXPECT_FALSE(std::isfinite(out.losses[0]));
  EXPECT_FALSE(std::isfinite(out.losses[1]));
}

TEST_P(SoftmaxCrossEntropyTest, GradientMayAliasLogits) {
  const SoftmaxCrossEntropyShape s{5, 1030, 0.1f};
  const Labels labels = random_labels(s, 4);
  for (const DType dtype : kernel_dtypes()) {
    const std::vector<float> logits = random_values(s.batch * s.classes, 5, dtype, -4, 4);
    const Outputs expected = run(device(), s, dtype, logits, labels, 5, 32);
    const DeviceBuffer in(device(), logits, dtype);
    const DeviceArray<LogSumExp<float>> lse(device(), expected.saved);
    const DeviceBuffer up(device(), std::vector<float>{32}, DType::float32);
    const DeviceArray<std::int32_t> where(device(), labels);
    BANTAM_KERNEL(exec(), softmax_cross_entropy_grad, s, dtype,
                  {.logits = in.data(),
                   .labels = where.data(),
                   .log_sum_exp = lse.data(),
                   .upstream = up.as<float>(),
                   .divisor = 5},
                  in.data());
    EXPECT_EQ(in.download(), expected.dlogits);
  }
}

TEST_P(SoftmaxCrossEntropyTest, TheFirstOfEqualLogitsWinsAndNaNNever) {
  const SoftmaxCrossEntropyShape s{5, 3, 0.0f};
  const std::vector<float> logits = {1, 2, 2, 3, 1, 3, kNaN, 1, 0, -5, -4, -3, kNaN, kNaN, kNaN};
  const Labels labels = {1, 2, 1, 2, 0};  // predictions 1 (first of 1, 2), 0 (of 0, 2), 1 (NaN never), 2, 0 (none)
  for (const DType dtype : kernel_dtypes())
    EXPECT_EQ(run(device(), s, dtype, logits, labels, 5, 1).correct, (std::vector<float>{1, 0, 1, 1, 1}));
}

TEST_P(SoftmaxCrossEntropyTest, MetricsAddUpInTheirSlot) {
  const SoftmaxCrossEntropyShape s{2, 3, 0.0f};
  const DeviceArray<MetricSums> sums(device(), {{1, 2, 3}, {100, 10, 20}, {4, 5, 6}});
  const DeviceArray<std::int32_t> slot(device(), {1});
  for (int repeat = 0; repeat < 2; ++repeat)  // log 3 a sample; the first sample is correct
    run(device(), s, DType::float16, {2, 2, 2, 1, 1, 1}, {0, 2}, 2, 1, sums.data(), slot.data());
  const std::vector<MetricSums> ring = sums.download();
  EXPECT_EQ(ring[0].loss + ring[2].loss, 5) << "neighbouring slots stay";
  EXPECT_NEAR(ring[1].loss, 100 + 4 * std::log(3.0), 1e-6);
  EXPECT_EQ(ring[1].correct, 12);
  EXPECT_EQ(ring[1].samples, 24);
}

TEST_P(SoftmaxCrossEntropyTest, MetricsAreTheReference) {
  for (const SoftmaxCrossEntropyShape s : {SoftmaxCrossEntropyShape{1, 10}, {1500, 7}, {33, 1000}, {4099, 2}}) {
    const std::vector<float> logits = random_values(s.batch * s.classes, 6);
    const Labels labels = random_labels(s, 8);
    const DeviceArray<MetricSums> sums(device(), {MetricSums{}});
    const Outputs out = run(device(), s, DType::float32, logits, labels, 1, 1, sums.data());
    MetricSums expected;
    kernels::reference::classification_metrics(s, logits.data(), labels.data(), out.losses.data(), &expected);
    const MetricSums actual = sums.download()[0];
    EXPECT_NEAR(actual.loss, expected.loss, 1e-10 * std::max(1.0, expected.loss));
    EXPECT_EQ(actual.correct, expected.correct);
    EXPECT_EQ(actual.samples, expected.samples);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SoftmaxCrossEntropyTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(SoftmaxCrossEntropyReference, GradientIsTheDerivative) {
  for (const float smoothing : {0.0f, 0.2f}) {
    const SoftmaxCrossEntropyShape s{4, 6, smoothing};
    const Labels labels = random_labels(s, 9);
    const std::vector<double> logits = to_double(random_values(24, 10, DType::float32, -2, 2));
    expect_gradient(logits, Expected(s, logits, labels, 3.0, 1.7).dlogits,
                    [&](const std::vector<double>& at) { return 1.7 * Expected(s, at, labels, 3.0, 1.7).loss; });
  }
}

TEST(SoftmaxCrossEntropyCpu, BitsDoNotDependOnThreads) {
  const SoftmaxCrossEntropyShape s{300, 101, 0.1f};
  const std::vector<float> logits = random_values(s.batch * s.classes, 11, DType::float32, -4, 4);
  const Labels labels = random_labels(s, 12);
  std::vector<Outputs> results;
  for (const int threads : {1, 2, 3}) {
    KernelDevice device(Device::cpu(), threads);
    results.push_back(run(device, s, DType::float32, logits, labels, 300, 2));
  }
  for (const Outputs& out : results) {
    EXPECT_EQ(out.losses, results[0].losses);
    EXPECT_EQ(out.loss, results[0].loss);
    EXPECT_EQ(out.dlogits, results[0].dlogits);
  }
}

}  // namespace
}  // namespace bantam::testing::softmax_cross_entropy_test

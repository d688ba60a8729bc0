// The losses' kernels: PyTorch's values, the reference over shapes and types, finite differences, hand cases, labels
// that are ignored or wrong, NaN, metric sums, and the same bits with any number of threads.
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "bantam/kernels/loss/losses_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/loss/loss_oracle.h"

namespace bantam::testing::losses_test {
namespace {

using kernels::ClassLossShape;
using kernels::DiceLossShape;
using kernels::MetricSums;
using kernels::ValueLossKind;
using kernels::ValueLossShape;
using Labels = std::vector<std::int32_t>;
using Operands = kernels::reference::LossOperands<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kOracle = 1e-5;  // relative, of values that PyTorch computed in float64

std::size_t workspace_of(const ClassLossShape& s) { return kernels::class_loss_workspace_bytes(s); }
std::size_t workspace_of(const ValueLossShape& s) { return kernels::value_loss_workspace_bytes(s); }
std::size_t workspace_of(const DiceLossShape& s) { return kernels::dice_loss_workspace_bytes(s); }

/// Operands on a device.
struct OnDevice {
  OnDevice(KernelDevice& device, const Operands& in, DType dtype)
      : x(device, in.x, dtype),
        targets(device, in.targets.empty() ? std::vector<float>{0} : in.targets, DType::float32),
        weights(device, in.weights.empty() ? std::vector<float>{0} : in.weights, DType::float32),
        labels(device, in.labels.empty() ? Labels{0} : in.labels),
        upstream(device, std::vector<float>{in.upstream}, DType::float32),
        scale{in.mean, in.divisor, upstream.as<float>()},
        has_targets(!in.targets.empty()),
        has_weights(!in.weights.empty()),
        has_labels(!in.labels.empty()) {}

  const std::int32_t* labels_or_null() const { return has_labels ? labels.data() : nullptr; }
  const float* targets_or_null() const { return has_targets ? targets.as<float>() : nullptr; }
  const float* weights_or_null() const { return has_weights ? weights.as<float>() : nullptr; }

  DeviceBuffer x, targets, weights;
  DeviceArray<std::int32_t> labels;
  DeviceBuffer upstream;
  kernels::LossScale scale;
  bool has_targets, has_weights, has_labels;
};

void call(const kernels::Exec& exec, const ClassLossShape& s, DType dtype, const OnDevice& in,
          const kernels::LossOutputs& out, kernels::Workspace workspace) {
  const kernels::ClassLossInputs inputs{in.x.data(), in.labels_or_null(), in.targets_or_null(), in.weights_or_null(),
                                        in.scale};
  BANTAM_KERNEL(exec, class_loss, s, dtype, inputs, out, workspace);
}
void call(const kernels::Exec& exec, const ValueLossShape& s, DType dtype, const OnDevice& in,
          const kernels::LossOutputs& out, kernels::Workspace workspace) {
  const kernels::ValueLossInputs inputs{in.x.data(), in.targets_or_null(), in.weights_or_null(), in.scale};
  BANTAM_KERNEL(exec, value_loss, s, dtype, inputs, out, workspace);
}
void call(const kernels::Exec& exec, const DiceLossShape& s, DType dtype, const OnDevice& in,
          const kernels::LossOutputs& out, kernels::Workspace workspace) {
  const kernels::DiceLossInputs inputs{in.x.data(), in.labels_or_null(), in.targets_or_null(), in.scale};
  BANTAM_KERNEL(exec, dice_loss, s, dtype, inputs, out, workspace);
}

struct Outputs {
  float loss = 0;
  std::vector<float> dx;
  MetricSums sums;
};

/// Loss, sums and gradient of one call; then the loss without a gradient and the gradient without a loss, which have
/// the same bits.
template <class Shape>
Outputs run(KernelDevice& device, const Shape& s, const Operands& in, DType dtype = DType::float32) {
  const OnDevice on(device, in, dtype);
  const DeviceBuffer loss(device, 1, DType::float32), again(device, 1, DType::float32);
  const auto count = static_cast<std::int64_t>(in.x.size());
  const DeviceBuffer dx(device, count, dtype), alone(device, count, dtype);
  const DeviceArray<MetricSums> ring(device, {{}, {100, 10, 20}});
  const DeviceArray<std::int32_t> slot(device, {1});
  const TestWorkspace workspace(device, workspace_of(s));
  call(device.exec(), s, dtype, on, {loss.as<float>(), dx.data(), ring.data(), slot.data()}, workspace.get());
  call(device.exec(), s, dtype, on, {.loss = again.as<float>()}, workspace.get());
  call(device.exec(), s, dtype, on, {.dx = alone.data()}, workspace.get());
  EXPECT_EQ(bits_of(again.download()), bits_of(loss.download()));
  EXPECT_EQ(bits_of(alone.download()), bits_of(dx.download()));
  const std::vector<MetricSums> sums = ring.download();
  EXPECT_EQ(sums[0].loss + sums[0].correct + sums[0].samples, 0) << "the other slot stays";
  return {loss.download()[0], dx.download(), {sums[1].loss - 100, sums[1].correct - 10, sums[1].samples - 20}};
}

kernels::reference::LossOperands<double> in_double(const Operands& in) {
  return {to_double(in.x), to_double(in.targets), to_double(in.weights), in.labels, in.mean, in.divisor, in.upstream};
}

auto expected_of(const ClassLossShape& s, const kernels::reference::LossOperands<double>& in) {
  return kernels::reference::class_loss(s, in);
}
auto expected_of(const ValueLossShape& s, const kernels::reference::LossOperands<double>& in) {
  return kernels::reference::value_loss(s, in);
}
auto expected_of(const DiceLossShape& s, const kernels::reference::LossOperands<double>& in) {
  return kernels::reference::dice_loss(s, in);
}

// The operands of tests/oracles/losses.py.
constexpr std::int64_t kBatch = 3, kClasses = 4;

std::vector<float> oracle_values(std::int64_t positions, double (*value)(double)) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < kBatch * positions * kClasses; ++i)
    values.push_back(static_cast<float>(value(static_cast<double>(i))));
  return values;
}
std::vector<float> oracle_logits(std::int64_t positions) {
  return oracle_values(positions, [](double i) { return 2 * std::sin(0.7 * i + 0.3); });
}
std::vector<float> oracle_floats(std::int64_t positions) {
  return oracle_values(positions, [](double i) { return (1 + std::sin(1.3 * i)) / 2; });
}
std::vector<float> oracle_binary(std::int64_t positions) {
  return oracle_values(positions, [](double i) { return (1 + std::sin(1.3 * i)) / 2 >= 0.5 ? 1.0 : 0.0; });
}
std::vector<float> oracle_soft(std::int64_t positions) {
  std::vector<float> t = oracle_floats(positions);
  for (std::size_t row = 0; row < t.size(); row += kClasses) {
    double sum = 0;
    for (std::size_t c = 0; c < kClasses; ++c) sum += static_cast<double>(t[row + c]);
    for (std::size_t c = 0; c < kClasses; ++c) t[row + c] = static_cast<float>(static_cast<double>(t[row + c]) / sum);
  }
  return t;
}
Labels oracle_labels(std::int64_t positions, bool ignored) {
  Labels labels;
  for (std::int32_t i = 0; i < kBatch * positions; ++i)
    labels.push_back(ignored && i % 5 == 0 ? 255 : (7 * i + 3) % static_cast<std::int32_t>(kClasses));
  return labels;
}
const std::vector<float> kWeights = {0.5f, 0.75f, 1.0f, 1.25f};

class LossesTest : public DeviceTest {
 protected:
  /// Loss and gradient are PyTorch's, and the sums add up to the loss.
  template <class Shape>
  void expect_oracle(const oracle::LossCase& expected, const Shape& s, const Operands& in) {
    const Outputs out = run(device(), s, in);
    EXPECT_NEAR(out.loss, expected.loss, kOracle * expected.loss);
    EXPECT_LE(relative_error(out.dx, expected.gradient), kOracle);
    EXPECT_NEAR(out.sums.loss, expected.loss * static_cast<double>(in.divisor), 2 * kOracle * out.sums.loss);
    EXPECT_EQ(out.sums.samples, s.batch);
  }
  /// As the reference: `units` roundings of float32, then one of the type.
  template <class Shape>
  void expect_reference(const Shape& s, const Operands& in, DType dtype, double units) {
    const auto expected = expected_of(s, in_double(in));
    const Outputs out = run(device(), s, in, dtype);
    const double bound = units * unit_roundoff(DType::float32);
    EXPECT_NEAR(out.loss, expected.loss, bound * std::max(1.0, expected.loss));
    EXPECT_LE(relative_error(out.dx, expected.dx), bound + unit_roundoff(dtype));
    EXPECT_NEAR(out.sums.correct, expected.correct, 1e-9);
  }
};

TEST_P(LossesTest, ClassLossesArePyTorchs) {
  const auto classes = [](std::int64_t positions, bool ignored = false) {
    return ClassLossShape{
        .batch = kBatch, .positions = positions, .classes = kClasses, .has_ignored = ignored, .ignored = 255};
  };
  const auto labelled = [](std::int64_t positions, bool ignored, std::vector<float> weights = {}) {
    return Operands{.x = oracle_logits(positions),
                    .weights = std::move(weights),
                    .labels = oracle_labels(positions, ignored),
                    .divisor = kBatch};
  };
  expect_oracle(oracle::kPlain, classes(1), labelled(1, false));
  expect_oracle(oracle::kPixels, classes(6, true), labelled(6, true));
  ClassLossShape smoothed = classes(1);
  smoothed.smoothing = 0.1f;
  // PyTorch divides by the weights that were met: 3.25 in three samples.
  Operands weighted = labelled(1, false, kWeights);
  expect_oracle(oracle::kWeighted, smoothed, weighted);
  Operands sum = labelled(6, true, kWeights);
  sum.mean = false;
  sum.divisor = 1;
  expect_oracle(oracle::kWeightedSum, classes(6, true), sum);
  smoothed.smoothing = 0.2f;
  expect_oracle(oracle::kSoft, smoothed,
                {.x = oracle_logits(1), .targets = oracle_soft(1), .weights = kWeights, .divisor = kBatch});
  expect_oracle(oracle::kSoftPixels, classes(6), {.x = oracle_logits(6), .targets = oracle_soft(6), .divisor = kBatch});
  ClassLossShape poly1 = classes(1);
  poly1.epsilon = 1;
  expect_oracle(oracle::kPoly1, poly1, labelled(1, false));
  poly1 = classes(6, true);
  poly1.smoothing = 0.1f;
  poly1.epsilon = -0.5f;
  expect_oracle(oracle::kPoly1Weighted, poly1, labelled(6, true, kWeights));
  poly1 = classes(6);
  poly1.epsilon = 2;
  expect_oracle(oracle::kPoly1Soft, poly1, {.x = oracle_logits(6), .targets = oracle_soft(6), .divisor = kBatch});
  ClassLossShape focal = classes(6);
  focal.gamma = 2;
  expect_oracle(oracle::kFocal, focal, labelled(6, false, kWeights));
  focal.positions = 1;
  focal.gamma = 0.5f;
  expect_oracle(oracle::kFocalRoot, focal, labelled(1, false, kWeights));
}

TEST_P(LossesTest, ValueLossesArePyTorchs) {
  const Operands floats{.x = oracle_logits(2), .targets = oracle_floats(2), .divisor = kBatch};
  ValueLossShape s{.batch = kBatch, .values = 2 * kClasses, .channels = kClasses};
  expect_oracle(oracle::kSquared, s, floats);
  Operands sum = floats;
  sum.mean = false;
  sum.divisor = 1;
  expect_oracle(oracle::kSquaredSum, s, sum);
  s.kind = ValueLossKind::absolute;
  expect_oracle(oracle::kAbsolute, s, floats);
  s.kind = ValueLossKind::huber;
  s.delta = 0.75f;
  expect_oracle(oracle::kHuber, s, floats);
  Operands binary{.x = oracle_logits(2), .targets = oracle_binary(2), .divisor = kBatch};
  s.kind = ValueLossKind::binary_cross_entropy;
  expect_oracle(oracle::kBinary, s, binary);
  s.kind = ValueLossKind::binary_focal;
  s.alpha = 0.25f;
  expect_oracle(oracle::kBinaryFocal, s, binary);
  s.kind = ValueLossKind::binary_cross_entropy;
  s.smoothing = 0.1f;
  binary.weights = kWeights;
  expect_oracle(oracle::kBinaryWeighted, s, binary);
}

TEST_P(LossesTest, DiceLossesArePyTorchs) {
  DiceLossShape s{.batch = kBatch, .positions = 6, .classes = kClasses, .has_ignored = true, .ignored = 255};
  expect_oracle(oracle::kDice, s, {.x = oracle_logits(6), .labels = oracle_labels(6, true), .divisor = kBatch});
  s.has_ignored = false;
  s.smooth = 0.5f;
  expect_oracle(oracle::kSigmoidDice, s, {.x = oracle_logits(6), .targets = oracle_binary(6), .divisor = kBatch});
}

// One sample of three classes: p = (1/4, 1/4, 1/2), so that log p is (-2, -2, -1)·log 2.
TEST_P(LossesTest, ByHand) {
  const double log2 = std::log(2.0);
  const auto half = static_cast<float>(log2);
  const Operands one{.x = {0, 0, half}, .labels = {1}, .upstream = 8};
  Outputs out = run(device(), ClassLossShape{.batch = 1, .classes = 3}, one);
  EXPECT_NEAR(out.loss, 2 * log2, 1e-6);
  expect_close(out.dx, std::vector<double>{2, -6, 4}, 1e-6);  // 8·(p - onehot)
  EXPECT_EQ(out.sums.correct, 0);
  // The label's p is 1/4: 2·(1 - p) is 3/2, and its derivatives 2·p_c·(1/4 - onehot) are (1/8, -3/8, 1/4).
  out = run(device(), ClassLossShape{.batch = 1, .classes = 3, .epsilon = 2}, one);
  EXPECT_NEAR(out.loss, 2 * log2 + 1.5, 1e-6);
  expect_close(out.dx, std::vector<double>{3, -9, 6}, 1e-6);
  out = run(device(), ClassLossShape{.batch = 1, .classes = 3, .gamma = 2}, one);
  EXPECT_NEAR(out.loss, 2 * log2 * 9 / 16, 1e-6);  // (3/4)²
  // f' = 9/16 + 2·(3/4)·(1/4)·2 log 2.
  const double factor = 9.0 / 16 + 0.75 * log2;
  expect_close(out.dx, std::vector<double>{2 * factor, -6 * factor, 4 * factor}, 1e-6);
  out = run(device(), ValueLossShape{.batch = 2, .values = 2},
            {.x = {1, 2, 3, 4}, .targets = {0, 4, 3, 3.5f}, .divisor = 2, .upstream = 4});
  EXPECT_EQ(out.loss, (1.0f + 4.0f + 0.25f) / 4);
  EXPECT_EQ(out.dx, (std::vector<float>{2, -4, 0, 1}));
  // Dice of sigmoids 1/2 against (1, 0) with smooth 1: I = 1/2, P = 1, T = 1: 1 - 2/3.
  out = run(device(), DiceLossShape{.batch = 1, .positions = 2, .classes = 1},
            {.x = {0, 0}, .targets = {1, 0}, .upstream = 36});
  EXPECT_NEAR(out.loss, 1.0 / 3, 1e-6);
  // d/dp = 2/9 - 2t/3, times p(1 - p) = 1/4.
  expect_close(out.dx, std::vector<double>{-4, 2}, 1e-5);
  EXPECT_EQ(out.sums.correct, 0.5) << "x > 0 is false at both, right at one";
}

// Sums of up to 200 positive terms in float32, then exp and log: some tens of units.
TEST_P(LossesTest, ClassLossIsTheReference) {
  for (ClassLossShape s : {ClassLossShape{.batch = 5, .classes = 10},
                           {.batch = 130, .classes = 3},
                           {.batch = 2, .positions = 201, .classes = 21},
                           {.batch = 3, .positions = 65, .classes = 70},
                           {.batch = 1, .positions = 130, .classes = 2}}) {
    for (const DType dtype : kernel_dtypes()) {
      SCOPED_TRACE(std::to_string(s.batch) + "x" + std::to_string(s.positions) + "x" + std::to_string(s.classes) + " " +
                   std::string(to_string(dtype)));
      const std::int64_t rows = s.batch * s.positions;
      Operands in{.x = random_values(rows * s.classes, 2, dtype, -4, 4),
                  .weights = random_values(s.classes, 3, DType::float32, 0.5f, 2),
                  .divisor = static_cast<float>(s.batch),
                  .upstream = static_cast<float>(rows)};
      for (std::int64_t i = 0; i < rows; ++i)
        in.labels.push_back(i % 7 == 2 ? -1 : static_cast<std::int32_t>((i * 5 + 1) % s.classes));
      s.has_ignored = true;
      s.ignored = -1;
      s.smoothing = 0.1f;
      s.gamma = 0;
      expect_reference(s, in, dtype, 64);
      s.epsilon = 1.5f;
      expect_reference(s, in, dtype, 128);
      s.epsilon = 0;
      s.smoothing = 0;
      s.gamma = 1.5f;
      expect_reference(s, in, dtype, 128);
      s.gamma = 0;
      s.has_ignored = false;
      in.labels.clear();
      in.targets = random_values(rows * s.classes, 4, DType::float32, 0, 1);
      expect_reference(s, in, dtype, 64);
      s.epsilon = -1;
      expect_reference(s, in, dtype, 128);
    }
  }
}

TEST_P(LossesTest, ValueLossIsTheReference) {
  for (const std::int64_t values : {1, 10, 1024, 5003}) {
    for (const auto kind : {ValueLossKind::squared, ValueLossKind::absolute, ValueLossKind::huber,
                            ValueLossKind::binary_cross_entropy, ValueLossKind::binary_focal}) {
      for (const DType dtype : kernel_dtypes()) {
        SCOPED_TRACE(std::to_string(values) + ", kind " + std::to_string(static_cast<int>(kind)) + " " +
                     std::string(to_string(dtype)));
        const ValueLossShape s{.batch = 3,
                               .values = values,
                               .kind = kind,
                               .delta = 0.5f,
                               .smoothing = 0.1f,
                               .gamma = 1.5f,
                               .alpha = 0.25f};
        Operands in{.x = random_values(3 * values, 5, dtype, -4, 4),
                    .targets = random_values(3 * values, 6, DType::float32, 0, 1),
                    .mean = values % 2 == 0,
                    .divisor = 3,
                    .upstream = static_cast<float>(values)};
        expect_reference(s, in, dtype, 64);
      }
    }
  }
}

// Sums over up to 600 positions in float32, of positive terms.
TEST_P(LossesTest, DiceLossIsTheReference) {
  for (DiceLossShape s : {DiceLossShape{.batch = 2, .positions = 4, .classes = 3},
                          {.batch = 3, .positions = 600, .classes = 21},
                          {.batch = 2, .positions = 257, .classes = 70},
                          {.batch = 1, .positions = 300, .classes = 300}}) {
    for (const DType dtype : kernel_dtypes()) {
      SCOPED_TRACE(std::to_string(s.positions) + "x" + std::to_string(s.classes) + " " + std::string(to_string(dtype)));
      const std::int64_t rows = s.batch * s.positions;
      Operands in{.x = random_values(rows * s.classes, 7, dtype, -4, 4),
                  .divisor = static_cast<float>(s.batch),
                  .upstream = static_cast<float>(rows * s.classes)};
      for (std::int64_t i = 0; i < rows; ++i)
        in.labels.push_back(i % 7 == 2 ? 255 : static_cast<std::int32_t>((i * 5 + 1) % s.classes));
      s.has_ignored = true;
      s.ignored = 255;
      expect_reference(s, in, dtype, 256);
      s.has_ignored = false;
      in.labels.clear();
      in.targets = random_values(rows * s.classes, 8, DType::float32, 0, 1);
      expect_reference(s, in, dtype, 256);
    }
  }
}

TEST_P(LossesTest, ExtremeLogitsStayFinite) {
  const std::vector<float> x = {1e4f, -1e4f, 0, -1e4f, -1e4f, -1e4f, 1e4f, 1e4f, -1e4f};
  for (const float gamma : {0.0f, 0.5f, 2.0f}) {
    const Outputs out = run(device(), ClassLossShape{.batch = 3, .classes = 3, .gamma = gamma},
                            {.x = x, .labels = {1, 2, 0}, .divisor = 3});
    EXPECT_TRUE(std::isfinite(out.loss)) << gamma;
    for (const float g : out.dx) EXPECT_TRUE(std::isfinite(g)) << gamma;
  }
  const Outputs poly1 = run(device(), ClassLossShape{.batch = 3, .classes = 3, .smoothing = 0.1f, .epsilon = 2},
                            {.x = x, .labels = {1, 2, 0}, .divisor = 3});
  EXPECT_TRUE(std::isfinite(poly1.loss));
  for (const float g : poly1.dx) EXPECT_TRUE(std::isfinite(g));
  for (const auto kind : {ValueLossKind::binary_cross_entropy, ValueLossKind::binary_focal}) {
    const Outputs out = run(device(), ValueLossShape{.batch = 3, .values = 3, .kind = kind, .gamma = 0.5f},
                            {.x = x, .targets = {1, 0, 1, 0, 1, 0, 1, 0, 1}});
    EXPECT_TRUE(std::isfinite(out.loss));
    for (const float g : out.dx) EXPECT_TRUE(std::isfinite(g));
  }
}

TEST_P(LossesTest, LabelsOutOfRangeMakeNaN) {
  const std::vector<float> x = random_values(12, 9);
  Outputs out;
  for (const float epsilon : {0.0f, 1.0f}) {
    out =
        run(device(), ClassLossShape{.batch = 4, .classes = 3, .epsilon = epsilon}, {.x = x, .labels = {0, 3, -1, 2}});
    EXPECT_TRUE(std::isnan(out.loss));
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(out.dx[i]), i / 3 == 1 || i / 3 == 2) << i;
  }
  out = run(device(), DiceLossShape{.batch = 2, .positions = 2, .classes = 3}, {.x = x, .labels = {0, 3, 1, 2}});
  EXPECT_TRUE(std::isnan(out.loss));
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(std::isnan(out.dx[i]), i < 6) << "the other sample stays";
}

TEST_P(LossesTest, NaNReachesLossAndGradient) {
  const Operands values{.x = {1, kNaN, 2}, .targets = {0, 1, 1}};
  for (const auto kind : {ValueLossKind::squared, ValueLossKind::absolute, ValueLossKind::huber,
                          ValueLossKind::binary_cross_entropy, ValueLossKind::binary_focal}) {
    const Outputs out = run(device(), ValueLossShape{.batch = 1, .values = 3, .kind = kind}, values);
    EXPECT_TRUE(std::isnan(out.loss));
    EXPECT_TRUE(std::isnan(out.dx[1]));
    EXPECT_TRUE(std::isfinite(out.dx[0]) && std::isfinite(out.dx[2]));
  }
  for (const float epsilon : {0.0f, 1.0f}) {
    const Outputs out =
        run(device(), ClassLossShape{.batch = 1, .classes = 3, .epsilon = epsilon}, {.x = {1, kNaN, 2}, .labels = {0}});
    EXPECT_TRUE(std::isnan(out.loss));
    EXPECT_TRUE(std::isnan(out.dx[0]));
  }
}

TEST_P(LossesTest, IgnoredPositionsCountNothing) {
  const std::vector<float> x = random_values(24, 10);
  // Of sample 0 all four positions are ignored, of sample 1 one: its mean is over three.
  const Labels labels = {9, 9, 9, 9, 9, 0, 1, 2};
  const ClassLossShape s{.batch = 2, .positions = 4, .classes = 3, .has_ignored = true, .ignored = 9};
  const Outputs out = run(device(), s, {.x = x, .labels = labels, .divisor = 2});
  const Outputs three = run(device(), ClassLossShape{.batch = 1, .positions = 3, .classes = 3},
                            {.x = {x.begin() + 15, x.end()}, .labels = {0, 1, 2}, .divisor = 2});
  EXPECT_NEAR(out.loss, three.loss, 1e-6);
  EXPECT_EQ(out.sums.samples, 1) << "sample 0 counts in no metric";
  EXPECT_EQ(out.sums.correct, three.sums.correct);
  for (std::size_t i = 0; i < 15; ++i) EXPECT_EQ(out.dx[i], 0) << i;
  EXPECT_LE(relative_error({out.dx.begin() + 15, out.dx.end()}, three.dx), 1e-6);
  const Outputs none =
      run(device(), DiceLossShape{.batch = 1, .positions = 4, .classes = 3, .has_ignored = true, .ignored = 9},
          {.x = {x.begin(), x.begin() + 12}, .labels = {9, 9, 9, 9}});
  EXPECT_EQ(none.loss, 0) << "smooth/smooth";
  EXPECT_EQ(none.dx, std::vector<float>(12, 0.0f));
}

TEST_P(LossesTest, ConstantsArriveWhole) {
  const std::vector<float> values = random_values(1300, 11);
  const DeviceBuffer to(device(), 1300, DType::float32);
  BANTAM_KERNEL(exec(), store_constants, values.data(), 1300, to.as<float>());
  EXPECT_EQ(to.download(), values);
}

INSTANTIATE_TEST_SUITE_P(Devices, LossesTest, ::testing::ValuesIn(test_devices()), device_test_name);

template <class Shape>
void expect_derivative(const Shape& s, kernels::reference::LossOperands<double> in) {
  in.divisor = 3;
  in.upstream = 1.7;
  expect_gradient(in.x, expected_of(s, in).dx, [&](const std::vector<double>& at) {
    in.x = at;
    return 1.7 * expected_of(s, in).loss;
  });
}

TEST(LossesReference, GradientsAreTheDerivatives) {
  const std::vector<double> x = to_double(random_values(24, 12, DType::float32, -2, 2)),
                            t = to_double(random_values(24, 13, DType::float32, 0, 1));
  ClassLossShape classes{
      .batch = 2, .positions = 3, .classes = 4, .smoothing = 0.1f, .has_ignored = true, .ignored = 7};
  expect_derivative(classes, {.x = x, .weights = {1, 2, 0.5, 1.5}, .labels = {0, 7, 3, 2, 1, 1}});
  expect_derivative(classes, {.x = x, .targets = t, .weights = {1, 2, 0.5, 1.5}});
  classes.epsilon = 1.5f;
  expect_derivative(classes, {.x = x, .weights = {1, 2, 0.5, 1.5}, .labels = {0, 7, 3, 2, 1, 1}});
  expect_derivative(classes, {.x = x, .targets = t, .weights = {1, 2, 0.5, 1.5}});
  classes.epsilon = 0;
  classes.smoothing = 0;
  classes.gamma = 1.5f;
  expect_derivative(classes, {.x = x, .weights = {1, 2, 0.5, 1.5}, .labels = {0, 7, 3, 2, 1, 1}});
  for (const auto kind : {ValueLossKind::squared, ValueLossKind::absolute, ValueLossKind::huber,
                          ValueLossKind::binary_cross_entropy, ValueLossKind::binary_focal})
    expect_derivative(
        ValueLossShape{
            .batch = 2, .values = 12, .kind = kind, .delta = 0.6f, .smoothing = 0.1f, .gamma = 1.5f, .alpha = 0.3f},
        {.x = x, .targets = t});
  DiceLossShape dice{.batch = 2, .positions = 3, .classes = 4, .has_ignored = true, .ignored = 7};
  expect_derivative(dice, {.x = x, .labels = {0, 7, 3, 2, 1, 1}});
  expect_derivative(dice, {.x = x, .targets = t});
}

TEST(LossesCpu, BitsDoNotDependOnThreads) {
  const std::vector<float> x = random_values(3 * 700 * 5, 14, DType::float32, -4, 4),
                           t = random_values(3 * 700 * 5, 15, DType::float32, 0, 1);
  const auto all = [&](int threads) {
    KernelDevice device(Device::cpu(), threads);
    const Operands in{.x = x, .targets = t};
    std::vector<Outputs> outputs = {run(device, ClassLossShape{.batch = 3, .positions = 700, .classes = 5}, in),
                                    run(device, ValueLossShape{.batch = 3, .values = 3500}, in),
                                    run(device, DiceLossShape{.batch = 3, .positions = 700, .classes = 5}, in)};
    std::vector<float> values;
    for (const Outputs& out : outputs) {
      values.push_back(out.loss);
      values.insert(values.end(), out.dx.begin(), out.dx.end());
    }
    return bits_of(values);
  };
  EXPECT_EQ(all(1), all(2));
  EXPECT_EQ(all(1), all(3));
}

}  // namespace
}  // namespace bantam::testing::losses_test

// The fused head against its reference, forward and all gradients, over odd shapes; sums, targets and bits.
#include "bantam/kernels/head/classifier_head.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "bantam/kernels/head/classifier_head_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_workspace.h"

namespace bantam::testing::classifier_head_test {
namespace {

using kernels::classifier_head_supports;
using kernels::ClassifierHeadShape;
using kernels::MetricSums;
using Inputs = kernels::reference::ClassifierHeadInputs<double>;
using Result = kernels::reference::ClassifierHeadResult<double>;

/// Multiples of `step`, at most `most` of them from zero: sums of products of such numbers are exact in float32.
std::vector<double> on_grid(std::int64_t count, std::uint64_t seed, double step, double most, double shift = 0) {
  std::vector<double> values;
  for (const float v : random_values(count, seed)) values.push_back(std::round(v * most) * step + shift);
  return values;
}

/// x·w1ᵀ is a multiple of 1/512 and b1 an odd one of 1/1024, so that no rounding decides on which side of ReLU's corner
/// a unit lies, and the hidden units are exact but for their own rounding.
Inputs random_inputs(const ClassifierHeadShape& s) {
  Inputs in{.x = on_grid(s.batch * s.inputs, 1, 1.0 / 8, 8),
            .w1 = on_grid(s.hidden * s.inputs, 2, 1.0 / 64, 8),
            .b1 = on_grid(s.hidden, 3, 2.0 / 1024, 60, 1.0 / 1024),
            .w2 = on_grid(s.classes * s.hidden, 4, 1.0 / 64, 16),
            .b2 = on_grid(s.classes, 5, 1.0 / 64, 32),
            .labels = {}};
  PhiloxSequence random(philox_key(6, RandomPurpose::test));
  for (std::int64_t n = 0; n < s.batch; ++n)
    in.labels.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(s.classes))));
  return in;
}

std::vector<float> to_float(const std::vector<double>& values) { return {values.begin(), values.end()}; }

/// Everything on a device, with gradients poisoned until they are written.
struct Head {
  Head(KernelDevice& on, const ClassifierHeadShape& shape, DType type, const Inputs& in)
      : device(on),
        s(shape),
        dtype(type),
        x(on, to_float(in.x), type),
        w1(on, to_float(in.w1), type),
        b1(on, to_float(in.b1), type),
        w2(on, to_float(in.w2), type),
        b2(on, to_float(in.b2), type),
        loss(on, 1, DType::float32),
        upstream(on, std::vector<float>{static_cast<float>(shape.batch)}, DType::float32),
        dhidden(on, s.batch * s.hidden, type),
        partials(on, classifier_head_partials(s, on.exec().device.kind), DType::float32),
        dx(on, s.batch * s.inputs, type),
        dw1(on, s.hidden * s.inputs, DType::float32),
        db1(on, s.hidden, DType::float32),
        dw2(on, s.classes * s.hidden, DType::float32),
        db2(on, s.classes, DType::float32),
        labels(on, in.labels),
        ring(on, std::vector<MetricSums>(3, MetricSums{1, 2, 3})),
        slot(on, {2}) {}

  /// The mean loss; gradients of a mean times the batch, so that they are of size 1.
  void forward(bool gradients = true) {
    GuardedWorkspace workspace(device, classifier_head_workspace_bytes(s, dtype, device.exec().device.kind));
    const kernels::ClassifierHeadLoss to{.labels = labels.data(),
                                         .divisor = static_cast<float>(s.batch),
                                         .upstream = gradients ? upstream.as<float>() : nullptr,
                                         .loss = loss.as<float>(),
                                         .ring = ring.data(),
                                         .slot = slot.data()};
    const kernels::ClassifierHeadWeights weights{w1.data(), b1.data(), w2.data(), b2.data()};
    BANTAM_KERNEL(device.exec(), classifier_head_forward, s, dtype, x.data(), weights, to,
                  gradients ? saved() : kernels::ClassifierHeadSaved{}, workspace.get());
    device.synchronize();
    workspace.expect_guard_intact();
  }
  void backward(const kernels::ClassifierHeadGradients& to) {
    GuardedWorkspace workspace(device, classifier_head_backward_workspace_bytes(s, dtype, device.exec().device.kind));
    BANTAM_KERNEL(device.exec(), classifier_head_backward, s, dtype, x.data(), w1.data(), saved(), to, workspace.get());
    device.synchronize();
    workspace.expect_guard_intact();
  }
  kernels::ClassifierHeadSaved saved() { return {dhidden.data(), partials.as<float>()}; }
  kernels::ClassifierHeadGradients all(bool accumulate) {
    return {dx.data(),
            {dw1.as<float>(), accumulate},
            {db1.as<float>(), accumulate},
            {dw2.as<float>(), accumulate},
            {db2.as<float>(), accumulate}};
  }
  std::vector<std::vector<std::uint8_t>> bytes() const {
    return {loss.download_bytes(), dx.download_bytes(),  dw1.download_bytes(),
            db1.download_bytes(),  dw2.download_bytes(), db2.download_bytes()};
  }

  KernelDevice& device;
  ClassifierHeadShape s;
  DType dtype;
  DeviceBuffer x, w1, b1, w2, b2, loss, upstream, dhidden, partials, dx, dw1, db1, dw2, db2;
  DeviceArray<std::int32_t> labels;
  DeviceArray<MetricSums> ring;
  DeviceArray<std::int32_t> slot;
};

Result expected_of(const ClassifierHeadShape& s, DType dtype, const Inputs& in) {
  const auto batch = static_cast<double>(s.batch);
  return kernels::reference::classifier_head<double>(
      s, in, batch, batch, [&](double h) { return static_cast<double>(rounded(static_cast<float>(h), dtype)); });
}

/// Samples whose largest logit is the label's: those where rounding of logits cannot matter, and the doubtful ones.
struct Correct {
  double sure = 0, doubtful = 0;
};
Correct count_correct(const ClassifierHeadShape& s, const Result& expected, const Inputs& in) {
  Correct count;
  const auto classes = static_cast<std::size_t>(s.classes);
  for (std::size_t n = 0; n < in.labels.size(); ++n) {
    const auto row = expected.logits.begin() + static_cast<std::ptrdiff_t>(n * classes);
    const double label = row[in.labels[n]];
    double other = -1e30;
    for (std::size_t c = 0; c < classes; ++c)
      if (static_cast<std::int32_t>(c) != in.labels[n]) other = std::max(other, row[static_cast<std::ptrdiff_t>(c)]);
    if (std::abs(label - other) < 0.1) {
      ++count.doubtful;
    } else if (label > other) {
      ++count.sure;
    }
  }
  return count;
}

const std::vector<ClassifierHeadShape>& shapes() {
  static const std::vector<ClassifierHeadShape> all = {
      {1, 8, 8, 1},        {3, 64, 64, 10},     {16, 1352, 64, 10, 0.1f}, {17, 200, 24, 3},  {130, 72, 128, 64, 0.1f},
      {64, 136, 72, 33},   {300, 1096, 64, 10}, {1027, 40, 64, 10, 0.1f}, {5000, 16, 16, 7}, {257, 344, 120, 40},
      {100, 5416, 64, 10}, {33, 520, 96, 16},   {1, 712, 128, 17, 0.1f},  {31, 328, 40, 2},  {129, 648, 104, 32},
      {48, 1096, 128, 5}};
  return all;
}

class ClassifierHeadTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ClassifierHeadTest, ::testing::ValuesIn(test_devices()), device_test_name);

// Rounding to the type happens to h (in the reference too), dhidden and dx, and on the CPU to logits and dlogits: 4
// unit roundoffs, with logits up to 8 whose errors reach the gradients: 32. Sums of n float32 terms add √n units.
double tolerance(const ClassifierHeadShape& s, DType dtype) {
  const double terms = static_cast<double>(std::max({s.batch, s.inputs, s.hidden}));
  return 4 * std::sqrt(terms) * unit_roundoff(DType::float32) + 32 * unit_roundoff(dtype);
}

TEST_P(ClassifierHeadTest, IsTheReference) {
  for (const ClassifierHeadShape& s : shapes()) {
    const Inputs in = random_inputs(s);
    for (const DType dtype : kernel_dtypes()) {
      SCOPED_TRACE(std::to_string(s.batch) + "x" + std::to_string(s.inputs) + "x" + std::to_string(s.hidden) + "x" +
                   std::to_string(s.classes) + " " + std::string(to_string(dtype)));
      const Result expected = expected_of(s, dtype, in);
      const double bound = tolerance(s, dtype);
      Head head(device(), s, dtype, in);
      head.forward();
      head.backward(head.all(false));
      expect_close(head.loss.download(), std::vector<double>{expected.loss}, bound);
      EXPECT_LE(relative_error(head.dw2.download(), expected.dw2), bound) << "dw2";
      EXPECT_LE(relative_error(head.db2.download(), expected.db2), bound) << "db2";
      EXPECT_LE(relative_error(head.db1.download(), expected.db1), bound) << "db1";
      EXPECT_LE(relative_error(head.dw1.download(), expected.dw1), bound) << "dw1";
      EXPECT_LE(relative_error(head.dx.download(), expected.dx), bound) << "dx";
      const std::vector<MetricSums> sums = head.ring.download();
      const auto batch = static_cast<double>(s.batch);
      const Correct correct = count_correct(s, expected, in);
      EXPECT_NEAR(sums[2].loss, 1 + expected.loss * batch, bound * batch * std::max(1.0, expected.loss));
      EXPECT_GE(sums[2].correct, 2 + correct.sure);
      EXPECT_LE(sums[2].correct, 2 + correct.sure + correct.doubtful);
      EXPECT_EQ(sums[2].samples, 3 + batch);
      EXPECT_EQ(sums[0].samples + sums[1].samples, 6) << "other slots";
    }
  }
}

// Hidden units are 0 and logits are b2: N(0, 1) + shift, without a rounding. What is left of the gradient's error is
// that of the loss, as good as without the shift: 4 units as in softmax_cross_entropy_test, and √batch of sums.
TEST_P(ClassifierHeadTest, LargeLogitsCostNoDigitsOfTheGradient) {
  const ClassifierHeadShape s{16, 64, 64, 10};
  for (const double shift : {0.0, 100.0, 1000.0}) {
    SCOPED_TRACE(shift);
    Inputs in = random_inputs(s);
    std::fill(in.b1.begin(), in.b1.end(), -1e3);
    in.b2 = to_double(normal_values(s.classes, 7, shift));
    Head head(device(), s, DType::float32, in);
    head.forward();
    head.backward(head.all(false));
    EXPECT_LE(relative_error(head.db2.download(), expected_of(s, DType::float32, in).db2),
              8 * unit_roundoff(DType::float32));
  }
}

TEST_P(ClassifierHeadTest, EvaluationFindsTheSameLossAndSums) {
  for (const ClassifierHeadShape& s : {shapes()[2], shapes()[4]}) {
    const Inputs in = random_inputs(s);
    Head trained(device(), s, DType::float16, in), evaluated(device(), s, DType::float16, in);
    trained.forward();
    evaluated.forward(false);
    EXPECT_EQ(trained.loss.download_bytes(), evaluated.loss.download_bytes());
    EXPECT_EQ(trained.ring.download()[2].loss, evaluated.ring.download()[2].loss);
    EXPECT_EQ(trained.ring.download()[2].correct, evaluated.ring.download()[2].correct);
  }
}

TEST_P(ClassifierHeadTest, AddsToGradientsAndSkipsThoseNotWanted) {
  const ClassifierHeadShape s = shapes()[4];
  for (const DType dtype : kernel_dtypes()) {
    Head head(device(), s, dtype, random_inputs(s));
    head.forward();
    head.backward(head.all(false));
    const std::vector<float> once = head.dw1.download(), dw2 = head.dw2.download();
    const std::vector<float> db1 = head.db1.download(), db2 = head.db2.download();
    head.backward(head.all(true));
    const auto doubled = [](std::vector<float> values) {
      for (float& v : values) v *= 2;  // exact
      return values;
    };
    EXPECT_EQ(head.dw1.download(), doubled(once));
    EXPECT_EQ(head.dw2.download(), doubled(dw2));
    EXPECT_EQ(head.db1.download(), doubled(db1));
    EXPECT_EQ(head.db2.download(), doubled(db2));
    const auto before = head.bytes();
    head.backward({});
    EXPECT_EQ(head.bytes(), before);
  }
}

TEST_P(ClassifierHeadTest, SameCallComputesSameBits) {
  for (const ClassifierHeadShape& s : {shapes()[2], shapes()[6], shapes()[7]}) {
    for (const DType dtype : kernel_dtypes()) {
      std::vector<std::vector<std::vector<std::uint8_t>>> runs;
      for (int run = 0; run < 2; ++run) {
        Head head(device(), s, dtype, random_inputs(s));
        head.forward();
        head.backward(head.all(false));
        runs.push_back(head.bytes());
      }
      EXPECT_EQ(runs[0], runs[1]);
    }
  }
}

TEST_P(ClassifierHeadTest, LabelsOutOfRangeAndNonFiniteInputsShow) {
  const ClassifierHeadShape s = shapes()[1];
  Inputs in = random_inputs(s);
  in.labels[1] = 10;
  Head bad_label(device(), s, DType::float32, in);
  bad_label.forward();
  bad_label.backward(bad_label.all(false));
  EXPECT_TRUE(std::isnan(bad_label.loss.download()[0]));
  EXPECT_TRUE(std::isnan(bad_label.db2.download()[0]));
  in.labels[1] = 0;
  in.x[70] = std::numeric_limits<double>::quiet_NaN();
  Head bad_input(device(), s, DType::float32, in);
  bad_input.forward();
  EXPECT_TRUE(std::isnan(bad_input.loss.download()[0]));
}

TEST_P(ClassifierHeadTest, RefusesWhatItDoesNotSupport) {
  EXPECT_TRUE(classifier_head_supports({16, 10816, 64, 10}, DType::float16));
  EXPECT_FALSE(classifier_head_supports({16, 10816, 136, 10}, DType::float16)) << "hidden";
  EXPECT_FALSE(classifier_head_supports({16, 10816, 64, 65}, DType::float16)) << "classes";
  EXPECT_FALSE(classifier_head_supports({16, 10812, 64, 10}, DType::float16)) << "rows of x";
  EXPECT_TRUE(classifier_head_supports({16, 10812, 64, 10}, DType::float32));
  EXPECT_FALSE(classifier_head_supports({16, 10816, 64, 10}, DType::int32)) << "type";
  Head head(device(), shapes()[1], DType::float32, random_inputs(shapes()[1]));
  const kernels::ClassifierHeadWeights weights{head.w1.data(), head.b1.data(), head.w2.data(), head.b2.data()};
  const kernels::ClassifierHeadLoss loss{.labels = head.labels.data(), .loss = head.loss.as<float>()};
  EXPECT_THROW(BANTAM_KERNEL(exec(), classifier_head_forward, head.s, head.dtype, head.x.data(), weights, loss,
                             kernels::ClassifierHeadSaved{}, kernels::Workspace{}),
               Error);
  EXPECT_THROW(BANTAM_KERNEL(exec(), classifier_head_forward, ClassifierHeadShape{3, 64, 64, 65}, head.dtype,
                             head.x.data(), weights, loss, kernels::ClassifierHeadSaved{}, kernels::Workspace{}),
               Error);
}

}  // namespace
}  // namespace bantam::testing::classifier_head_test

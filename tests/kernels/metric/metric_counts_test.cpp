// Counts and sums of metrics: by hand, against the reference in all types, slots of a ring, labels that do not count.
#include "bantam/kernels/metric/metric_counts.h"

#include <functional>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "bantam/kernels/metric/metric_counts_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::metric_counts_test {
namespace {

using kernels::ErrorShape;
using kernels::LabelCount;
using kernels::LabelCountShape;
using kernels::MetricTarget;
using kernels::ScoreShape;
using kernels::TargetCountShape;
using Labels = std::vector<std::int32_t>;
using Sums = std::vector<double>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// What `call` adds to slot 2 of a ring of three, whose other slots it must leave alone.
Sums added(KernelDevice& device, std::size_t count, const std::function<void(const MetricTarget&)>& call) {
  const Sums before(3 * count, 7.0);
  const DeviceArray<double> ring(device, before);
  const DeviceArray<std::int32_t> slot(device, std::vector<std::int32_t>{2});
  call({ring.data(), slot.data(), static_cast<std::int64_t>(count)});
  device.synchronize();
  Sums after = ring.download();
  for (std::size_t i = 0; i < 2 * count; ++i) EXPECT_EQ(after[i], 7.0) << "another slot's sum " << i;
  Sums slot_sums(after.begin() + static_cast<std::ptrdiff_t>(2 * count), after.end());
  for (double& sum : slot_sums) sum -= 7.0;
  return slot_sums;
}

Sums labels_counted(KernelDevice& device, const LabelCountShape& s, DType dtype, const std::vector<float>& output,
                    const Labels& labels, std::size_t count) {
  const DeviceBuffer in(device, output, dtype);
  const DeviceArray<std::int32_t> where(device, labels);
  return added(device, count, [&](const MetricTarget& to) {
    BANTAM_KERNEL(device.exec(), label_counts, s, dtype, in.data(), where.data(), to);
  });
}

Sums targets_counted(KernelDevice& device, const TargetCountShape& s, DType dtype, const std::vector<float>& output,
                     const std::vector<float>& targets) {
  const DeviceBuffer in(device, output, dtype), truth(device, targets, DType::float32);
  return added(device, static_cast<std::size_t>(3 * s.classes), [&](const MetricTarget& to) {
    BANTAM_KERNEL(device.exec(), target_counts, s, dtype, in.data(), truth.as<float>(), to);
  });
}

Sums histograms(KernelDevice& device, const ScoreShape& s, DType dtype, const std::vector<float>& output,
                const Labels* labels, const std::vector<float>* targets) {
  const DeviceBuffer in(device, output, dtype);
  const DeviceArray<std::int32_t> where(device, labels != nullptr ? *labels : Labels{0});
  const DeviceBuffer truth(device, targets != nullptr ? *targets : std::vector<float>{0}, DType::float32);
  const kernels::ScoreTruth of{labels != nullptr ? where.data() : nullptr,
                               targets != nullptr ? truth.as<float>() : nullptr};
  return added(device, static_cast<std::size_t>(s.classes * 2 * s.bins), [&](const MetricTarget& to) {
    BANTAM_KERNEL(device.exec(), score_histograms, s, dtype, in.data(), of, to);
  });
}

Sums errors(KernelDevice& device, const ErrorShape& s, DType dtype, const std::vector<float>& output,
            const std::vector<float>& targets) {
  const DeviceBuffer in(device, output, dtype), truth(device, targets, DType::float32);
  const TestWorkspace workspace(device, kernels::error_sums_workspace(s));
  return added(device, static_cast<std::size_t>(kernels::kErrorSums * s.columns + 1), [&](const MetricTarget& to) {
    BANTAM_KERNEL(device.exec(), error_sums, s, dtype, in.data(), truth.as<float>(), to, workspace.get());
  });
}

Labels some_labels(std::int64_t rows, std::int64_t classes) {
  PhiloxSequence random(philox_key(5, RandomPurpose::test));
  Labels labels;
  for (std::int64_t n = 0; n < rows; ++n)  // some are no class
    labels.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(classes + 2))) - 1);
  return labels;
}

class MetricCountsTest : public DeviceTest {};

// Rows: 1 right; 2 right by the first of two equal outputs; 0 taken for 2; a NaN is never predicted; -1 does not count.
TEST_P(MetricCountsTest, LabelsByHand) {
  const std::vector<float> output = {0, 3, 1, 0, 5, 5, 1, 0, 2, kNaN, 1, 4, 9, 9, 9};
  const Labels labels = {1, 1, 0, 2, -1};
  const auto run = [&](LabelCount kind, std::int64_t k, std::size_t count) {
    return labels_counted(device(), {5, 3, kind, k}, DType::float32, output, labels, count);
  };
  EXPECT_EQ(run(LabelCount::confusion, 1, 9), (Sums{0, 0, 1, 0, 2, 0, 0, 0, 1}));
  EXPECT_EQ(run(LabelCount::classes, 1, 9), (Sums{0, 2, 1, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(run(LabelCount::top_k, 1, 2), (Sums{3, 4}));
  EXPECT_EQ(run(LabelCount::top_k, 2, 2), (Sums{4, 4}));
}

TEST_P(MetricCountsTest, AnIgnoredLabelDoesNotCount) {
  const LabelCountShape s{.rows = 3, .classes = 2, .kind = LabelCount::confusion, .ignored = 1};
  EXPECT_EQ(labels_counted(device(), s, DType::float32, {1, 0, 0, 1, 0, 1}, {0, 1, 0}, 4), (Sums{1, 1, 0, 0}));
}

TEST_P(MetricCountsTest, LabelsAreTheReference) {
  for (const auto& [rows, classes] : {std::pair{1, 2}, {37, 10}, {513, 3}, {9000, 21}, {129, 1000}}) {
    const Labels labels = some_labels(rows, classes);
    for (const DType dtype : kernel_dtypes()) {
      const std::vector<float> output = random_values(rows * classes, 3, dtype, -2, 2);  // half types have equal ones
      for (const LabelCount kind : {LabelCount::top_k, LabelCount::confusion, LabelCount::classes}) {
        SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(classes) + " " + std::string(to_string(dtype)));
        const LabelCountShape s{.rows = rows, .classes = classes, .kind = kind, .k = 3};
        const Sums expected = kernels::reference::label_counts(s, output.data(), labels.data());
        EXPECT_EQ(labels_counted(device(), s, dtype, output, labels, expected.size()), expected);
      }
    }
  }
}

// Class 0 of row 0: true positive; class 1: false positive; row 1: false negative, and neither.
TEST_P(MetricCountsTest, TargetsByHand) {
  EXPECT_EQ(targets_counted(device(), {2, 2, 0.5f}, DType::float32, {0.5f, 2, 0.25f, kNaN}, {1, 0, 1, 0}),
            (Sums{1, 0, 0, 1, 1, 0}));
}

TEST_P(MetricCountsTest, TargetsAreTheReference) {
  for (const auto& [rows, classes] : {std::pair{1, 1}, {37, 10}, {4001, 7}, {3, 2000}}) {
    const std::vector<float> targets = random_values(rows * classes, 4, DType::float32, 0, 1);
    for (const DType dtype : kernel_dtypes()) {
      const std::vector<float> output = random_values(rows * classes, 3, dtype, -2, 2);
      const TargetCountShape s{rows, classes, 0.25f};
      EXPECT_EQ(targets_counted(device(), s, dtype, output, targets),
                kernels::reference::target_counts(s, output.data(), targets.data()));
    }
  }
}

// sigmoid(0) = 0.5 is bin 2 of 4, sigmoid(-30) is bin 0, sigmoid(30) bin 3; a NaN is in bin 0.
TEST_P(MetricCountsTest, ScoresByHand) {
  const std::vector<float> targets = {1, 0, 1, 0};
  EXPECT_EQ(histograms(device(), {4, 1, 4}, DType::float32, {0, -30, 30, kNaN}, nullptr, &targets),
            (Sums{2, 0, 0, 0, 0, 0, 1, 1}));
  // softmax (0.8808, 0.1192) of label 0, (0.5, 0.5) of label 1; the last row's label is none.
  const Labels labels = {0, 1, 2};
  EXPECT_EQ(histograms(device(), {3, 2, 4}, DType::float32, {2, 0, 1, 1, 5, 5}, &labels, nullptr),
            (Sums{0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0}));
}

// Scores that exp in float32 puts into another bin than exp in double are few: of scores that lie evenly, some ulps
// around `bins` edges. The counts of all bins together are exact.
TEST_P(MetricCountsTest, ScoresAreTheReferenceButForEdges) {
  for (const auto& [rows, classes, bins] : {std::tuple{1000, 3, 200}, {257, 40, 200}, {64, 1, 50}}) {
    const Labels labels = some_labels(rows, classes);
    const std::vector<float> targets = random_values(rows * classes, 4, DType::float32, 0, 1);
    for (const bool softmax : {false, true}) {
      const std::vector<float> output = random_values(rows * classes, 6, DType::float32, -3, 3);
      const ScoreShape s{rows, classes, bins};
      const kernels::ScoreTruth truth{softmax ? labels.data() : nullptr, softmax ? nullptr : targets.data()};
      const Sums expected = kernels::reference::score_histograms(s, output.data(), truth);
      const Sums counted =
          histograms(device(), s, DType::float32, output, softmax ? &labels : nullptr, softmax ? nullptr : &targets);
      ASSERT_EQ(counted.size(), expected.size());
      double moved = 0, all = 0, all_expected = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        moved += std::abs(counted[i] - expected[i]) / 2;
        all += counted[i];
        all_expected += expected[i];
      }
      EXPECT_EQ(all, all_expected);
      EXPECT_LE(moved, 1 + 1e-3 * all_expected);
    }
  }
}

TEST_P(MetricCountsTest, ErrorsByHand) {
  EXPECT_EQ(errors(device(), {2, 2}, DType::float32, {1, 2, 3, 4}, {0, 4, 3, 1}),
            (Sums{1, 4 + 9, 1, 2 + 3, 3, 5, 9, 17, 2}));
}

// Sums in double of terms of at most 25: orders differ, each addition rounds by 1e-16 of the sum, and roundings cancel.
TEST_P(MetricCountsTest, ErrorsAreTheReference) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {300, 5}, {5000, 3}, {200000, 1}, {4, 3000}}) {
    const std::vector<float> targets = random_values(rows * columns, 4, DType::float32, -2, 3);
    for (const DType dtype : kernel_dtypes()) {
      const std::vector<float> output = random_values(rows * columns, 3, dtype, -2, 2);
      const ErrorShape s{rows, columns};
      const Sums expected = kernels::reference::error_sums(s, output.data(), targets.data());
      const Sums counted = errors(device(), s, dtype, output, targets);
      ASSERT_EQ(counted.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(counted[i], expected[i], 1e-12 * rows) << rows << "x" << columns << " sum " << i;
      EXPECT_EQ(counted, errors(device(), s, dtype, output, targets)) << "the same bits each time";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MetricCountsTest, ::testing::ValuesIn(test_devices()), device_test_name);

}  // namespace
}  // namespace bantam::testing::metric_counts_test

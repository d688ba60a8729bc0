// Convolutions that compute the batch statistics of their output: the output against plain loops in double, the
// statistics against what the output holds; means that are large beside the deviation; bits from call to call.
#include "bantam/kernels/conv/conv2d_statistics.h"

#include "bantam/kernels/common/algorithm_choices.h"
#include "bantam/kernels/conv/conv2d_reference.h"
#include "tests/kernels/conv/conv2d_shapes.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/guarded_workspace.h"

namespace bantam::testing::conv2d_statistics_test {
namespace {

class Conv2dStatisticsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Conv2dStatisticsTest, ::testing::ValuesIn(test_devices()), device_test_name);

constexpr float kEpsilon = 1e-3f, kRate = 0.25f;

struct Result {
  std::vector<float> y, mean, inv_std, running_mean, running_variance;
  bool operator==(const Result&) const = default;
};

Result run(KernelDevice& device, const Conv2dShape& s, DType dtype, const std::vector<float>& x_values,
           const std::vector<float>& w_values, bool moves = true, bool wanted = true) {
  const DeviceBuffer x(device, x_values, dtype), w(device, w_values, dtype);
  const std::vector<float> ones(static_cast<std::size_t>(s.out_channels), 1.0f);
  DeviceBuffer y(device, s.y_elements(), dtype), mean(device, s.out_channels, DType::float32),
      inv_std(device, s.out_channels, DType::float32), running_mean(device, ones, DType::float32),
      running_variance(device, ones, DType::float32);
  GuardedWorkspace workspace(device, conv2d_statistics_workspace_bytes(s, dtype, device.exec().device.kind));
  const kernels::StatisticsOutput statistics{.epsilon = kEpsilon,
                                             .update = {.rate = kRate, .unbiased = true},
                                             .running_mean = moves ? running_mean.as<float>() : nullptr,
                                             .running_variance = moves ? running_variance.as<float>() : nullptr,
                                             .mean = wanted ? mean.as<float>() : nullptr,
                                             .inv_std = wanted ? inv_std.as<float>() : nullptr};
  BANTAM_KERNEL(device.exec(), conv2d_forward_statistics, s, dtype, x.data(), w.data(), y.data(), statistics,
                workspace.get());
  device.synchronize();
  workspace.expect_guard_intact();
  return {y.download(), mean.download(), inv_std.download(), running_mean.download(), running_variance.download()};
}

/// The statistics of what y holds. Sums of float32 terms relative to a value of the channel: some 10 roundings a value
/// in a row are left of the order that kernels add in, and the square of the origin's distance, of a few deviations.
void expect_statistics_of_y(const Conv2dShape& s, const Result& r) {
  constexpr double kTolerance = 4e-5;
  const std::int64_t rows = s.y_elements() / s.out_channels;
  for (std::int64_t c = 0; c < s.out_channels; ++c) {
    const auto at = static_cast<std::size_t>(c);
    double sum = 0, squares = 0;
    for (std::int64_t row = 0; row < rows; ++row) sum += r.y[static_cast<std::size_t>(row * s.out_channels + c)];
    const double mean = sum / static_cast<double>(rows);
    for (std::int64_t row = 0; row < rows; ++row) {
      const double apart = r.y[static_cast<std::size_t>(row * s.out_channels + c)] - mean;
      squares += apart * apart;
    }
    const double variance = squares / static_cast<double>(rows), inv_std = 1 / std::sqrt(variance + kEpsilon);
    const double unbiased = rows > 1 ? squares / static_cast<double>(rows - 1) : variance;
    const double off = kTolerance * std::sqrt(variance) + 1e-7 * std::abs(mean) + 1e-7;
    ASSERT_NEAR(r.mean[at], mean, off) << "channel " << c;
    ASSERT_NEAR(r.inv_std[at], inv_std, kTolerance * inv_std) << "channel " << c;
    ASSERT_NEAR(r.running_mean[at], 1 + kRate * (mean - 1), off + 1e-7) << "channel " << c;
    ASSERT_NEAR(r.running_variance[at], 1 + kRate * (unbiased - 1), kTolerance * (1 + unbiased)) << "channel " << c;
  }
}

/// Products that warpgroups make: 64, 128 and 256 columns a block, the last tile and block cut, channels that are no
/// multiple of 64, more tiles than a part's, every second pixel of images that are even, odd or of odd height.
std::vector<Conv2dShape> warpgroup_shapes() {
  Conv2dShape oblong = base(3, 14, 72, 200, 1, 2);
  oblong.in_w = 13;
  return {base(1, 3, 8, 8, 1),        base(3, 13, 64, 256, 1),     base(5, 9, 256, 64, 1),
          base(3, 11, 200, 136, 1),   base(2, 12, 512, 128, 1),    base(2, 11, 456, 264, 1),
          base(4, 10, 128, 520, 1),   base(6, 56, 64, 64, 1),      base(7, 30, 16, 776, 1),
          base(3, 14, 64, 136, 1, 2), base(2, 28, 256, 320, 1, 2), base(2, 56, 72, 40, 1, 2),
          base(9, 14, 208, 64, 1, 2), base(2, 13, 64, 64, 1, 2),   oblong};
}

/// 3x3 convolutions that warpgroups compute: tiles of one image and of several, small images, odd batches, images that
/// end within a tile.
std::vector<Conv2dShape> conv3x3_shapes() {
  const auto same = [](std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out) {
    return with_padding(base(batch, size, in, out, 3), 1, 1, 1, 1);
  };
  Conv2dShape oblong = same(3, 31, 64, 64);
  oblong.in_w = 23;
  return {same(2, 32, 64, 64),   same(3, 16, 128, 128), same(5, 8, 256, 256),
          same(19, 4, 512, 128), same(3, 15, 64, 256),  same(7, 24, 128, 64),
          same(1, 8, 64, 128),   same(1, 4, 64, 64),    oblong};
}

std::vector<Conv2dShape> all_shapes() {
  std::vector<Conv2dShape> all = shapes();
  for (const Conv2dShape& s : image_shapes()) all.push_back(s);
  for (const Conv2dShape& s : warpgroup_shapes()) all.push_back(s);
  for (const Conv2dShape& s : conv3x3_shapes()) all.push_back(s);
  all.push_back(with_padding(base(9, 100, 3, 8, 3), 1, 1, 1, 1));  // more tiles than blocks
  all.push_back(base(3, 40, 64, 64, 1));
  all.push_back(with_padding(base(4, 28, 64, 128, 3, 2), 1, 1, 1, 1));
  return all;
}

TEST_P(Conv2dStatisticsTest, MatchTheOutputAndItTheReference) {
  if (auto* choices = kernels::algorithm_choices(exec().libraries)) choices->set_timing(true);
  for (const Conv2dShape& s : all_shapes())
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      const auto x = random_values(s.x_elements(), 1, dtype), w = random_values(s.w_elements(), 2, dtype);
      const std::vector<double> x64(x.begin(), x.end()), w64(w.begin(), w.end());
      std::vector<double> y(static_cast<std::size_t>(s.y_elements()));
      kernels::reference::conv2d_forward(s, x64.data(), w64.data(), y.data());
      const Result r = run(device(), s, dtype, x, w);
      const double products = static_cast<double>(s.kernel_h * s.kernel_w * s.in_channels / s.groups);
      EXPECT_LE(relative_error(r.y, y),
                4 * std::sqrt(products + 1) * unit_roundoff(DType::float32) + unit_roundoff(dtype));
      expect_statistics_of_y(s, r);
      EXPECT_EQ(run(device(), s, dtype, x, w), r) << "the same bits again";
      EXPECT_EQ(run(device(), s, dtype, x, w, false, false).y, r.y) << "the same output where no statistics are wanted";
    }
}

TEST_P(Conv2dStatisticsTest, LargeMeansCostNoDigits) {
  if (auto* choices = kernels::algorithm_choices(exec().libraries)) choices->set_timing(true);
  for (const Conv2dShape& s : {base(5, 40, 3, 64, 3), base(6, 30, 64, 64, 3), base(6, 28, 64, 96, 1),
                               base(6, 28, 256, 64, 1), base(4, 28, 72, 512, 1), base(6, 28, 256, 136, 1, 2)})
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      const auto w = random_values(s.w_elements(), 2, dtype, 0.25f, 0.75f);
      expect_statistics_of_y(s, run(device(), s, dtype, random_values(s.x_elements(), 1, dtype, 99.0f, 101.0f), w));
      const Result constant = run(device(), s, dtype, random_values(s.x_elements(), 1, dtype, 7.0f, 7.0f), w);
      expect_statistics_of_y(s, constant);
      for (const float inv_std : constant.inv_std) ASSERT_FLOAT_EQ(inv_std, 1 / std::sqrt(kEpsilon));
    }
}

/// Images at whose border outputs are smaller by a third.
TEST_P(Conv2dStatisticsTest, LargeMeansOfPaddedImagesCostNoDigits) {
  if (auto* choices = kernels::algorithm_choices(exec().libraries)) choices->set_timing(true);
  for (const Conv2dShape& s : conv3x3_shapes())
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      const auto w = random_values(s.w_elements(), 2, dtype, 0.25f / 9, 0.75f / 9);
      expect_statistics_of_y(s, run(device(), s, dtype, random_values(s.x_elements(), 1, dtype, 9.0f, 11.0f), w));
    }
}

/// Several tiles a part, so that what lies in shared memory goes round, with whole and broken numbers of tiles a round:
/// the same image many times.
TEST_P(Conv2dStatisticsTest, ManyTilesAreEachAsTheFirst) {
  constexpr std::int64_t kImages = 90;
  for (const Conv2dShape& one :
       {base(1, 14, 256, 512, 1), base(1, 14, 512, 256, 1), base(1, 14, 72, 320, 1), base(1, 14, 448, 128, 1),
        base(1, 14, 320, 64, 1), base(1, 14, 192, 256, 1), base(1, 14, 136, 72, 1),
        with_padding(base(1, 64, 64, 64, 3), 1, 1, 1, 1), with_padding(base(1, 32, 64, 128, 3), 1, 1, 1, 1),
        with_padding(base(1, 8, 128, 512, 3), 1, 1, 1, 1), with_padding(base(1, 4, 64, 1024, 3), 1, 1, 1, 1)})
    for (const DType dtype : {DType::float16, DType::bfloat16}) {
      Conv2dShape s = one;
      s.batch = kImages;
      SCOPED_TRACE(describe(s, dtype, Conv2dPass::forward));
      const auto image = random_values(one.x_elements(), 1, dtype), w = random_values(one.w_elements(), 2, dtype);
      std::vector<float> x;
      for (std::int64_t i = 0; i < kImages; ++i) x.insert(x.end(), image.begin(), image.end());
      std::vector<double> expected(static_cast<std::size_t>(one.y_elements()));
      kernels::reference::conv2d_forward(one, std::vector<double>(image.begin(), image.end()).data(),
                                         std::vector<double>(w.begin(), w.end()).data(), expected.data());
      const Result r = run(device(), s, dtype, x, w);
      const auto end = r.y.begin() + one.y_elements();
      EXPECT_LE(relative_error({r.y.begin(), end}, expected),
                4 * std::sqrt(static_cast<double>(s.kernel_h * s.kernel_w * s.in_channels + 1)) *
                        unit_roundoff(DType::float32) +
                    unit_roundoff(dtype));
      for (auto y = end; y != r.y.end(); y += one.y_elements()) ASSERT_TRUE(std::equal(r.y.begin(), end, y));
      expect_statistics_of_y(s, r);
    }
}

TEST_P(Conv2dStatisticsTest, RunningStatisticsAreLeftAloneWhereNotWanted) {
  const Conv2dShape s = with_padding(base(3, 16, 3, 32, 3), 1, 1, 1, 1);
  const auto x = random_values(s.x_elements(), 1, DType::float16), w = random_values(s.w_elements(), 2, DType::float16);
  const Result moved = run(device(), s, DType::float16, x, w), left = run(device(), s, DType::float16, x, w, false);
  EXPECT_EQ(left.mean, moved.mean);
  EXPECT_EQ(left.inv_std, moved.inv_std);
  EXPECT_NE(moved.running_mean, left.running_mean);
  EXPECT_EQ(left.running_mean, std::vector<float>(32, 1.0f));
  EXPECT_EQ(left.running_variance, std::vector<float>(32, 1.0f));
}

}  // namespace
}  // namespace bantam::testing::conv2d_statistics_test

// Softmax: by hand, ONNX' and PyTorch's values, the reference, finite differences, extreme rows, in place.
#include "bantam/kernels/head/softmax.h"

#include <cmath>
#include <limits>

#include "bantam/kernels/head/softmax_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::softmax_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SoftmaxTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SoftmaxTest, ::testing::ValuesIn(test_devices()), device_test_name);

struct Size {
  std::int64_t rows, columns;
};
// One lane, a few and all of a warp, and a block a row; with packs and without.
constexpr Size kSizes[] = {{1, 1},   {5, 3},     {300, 8},  {33, 10},  {7, 21},   {64, 32},  {1000, 100}, {9, 130},
                           {5, 999}, {17, 1000}, {3, 1024}, {2, 2047}, {4, 2048}, {3, 5001}, {1, 9001}};

std::vector<float> forward(KernelDevice& device, Size size, DType dtype, const std::vector<float>& x) {
  const DeviceBuffer in(device, x, dtype);
  GuardedBuffer y(device, size.rows * size.columns, dtype);
  BANTAM_KERNEL(device.exec(), softmax_forward, size.rows, size.columns, dtype, in.data(), y.data());
  return y.download();
}

std::vector<float> grad(KernelDevice& device, Size size, DType dtype, const std::vector<float>& y,
                        const std::vector<float>& dy) {
  const DeviceBuffer saved(device, y, dtype), up(device, dy, dtype);
  GuardedBuffer dx(device, size.rows * size.columns, dtype);
  BANTAM_KERNEL(device.exec(), softmax_grad, size.rows, size.columns, dtype, saved.data(), up.data(), dx.data());
  return dx.download();
}

constexpr double kTolerance = 1e-6;  // a few roundings of float32 beside values below 1

TEST_P(SoftmaxTest, ByHand) {
  const float ln2 = std::log(2.0f);
  expect_close(forward(device(), {2, 3}, DType::float32, {0, ln2, 0, 5, 5, 5}),
               std::vector<double>{0.25, 0.5, 0.25, 1.0 / 3, 1.0 / 3, 1.0 / 3}, kTolerance);
  // Σ y·dy = 0.25·1 + 0.5·2 + 0.25·7 = 3
  expect_close(grad(device(), {1, 3}, DType::float32, {0.25f, 0.5f, 0.25f}, {1, 2, 7}),
               std::vector<double>{-0.5, -0.5, 1.0}, kTolerance);
}

// The node tests softmax_example and softmax_large_number of the onnx package.
TEST_P(SoftmaxTest, OnnxExamples) {
  expect_close(forward(device(), {1, 3}, DType::float32, {-1, 0, 1}),
               std::vector<double>{0.09003058, 0.24472848, 0.66524094}, kTolerance);
  const std::vector<double> row = {0.032058604, 0.08714432, 0.23688284, 0.6439143};
  std::vector<double> both = row;
  both.insert(both.end(), row.begin(), row.end());
  expect_close(forward(device(), {2, 4}, DType::float32, {0, 1, 2, 3, 10000, 10001, 10002, 10003}), both, kTolerance);
}

// torch.softmax of PyTorch 2.5.1 in double, at x[i] = 3·sin(0.7·i), dy[i] = cos(0.3·i).
TEST_P(SoftmaxTest, PyTorchsValues) {
  std::vector<float> x, dy;
  for (int i = 0; i < 15; ++i) {
    x.push_back(static_cast<float>(3 * std::sin(0.7 * i)));
    dy.push_back(static_cast<float>(std::cos(0.3 * i)));
  }
  const std::vector<double> y = {0.023152391, 0.15993239,  0.44516598,  0.3085013,   0.063247939,
                                 0.20817709,  0.043641631, 0.031292577, 0.089742,    0.6271467,
                                 0.1689419,   0.45627688,  0.30563509,  0.061306763, 0.0078393643};
  const std::vector<double> dx = {0.0056019792,  0.031554285,  0.029958232,  -0.042088483,  -0.025026013,
                                  0.14882285,    0.018196226,  0.0043591345, -0.0083680043, -0.1630102,
                                  -0.0084045837, -0.021552519, 0.013290754,  0.013138765,   0.0035275832};
  const std::vector<float> actual = forward(device(), {3, 5}, DType::float32, x);
  expect_close(actual, y, kTolerance);
  expect_close(grad(device(), {3, 5}, DType::float32, actual, dy), dx, kTolerance);
}

TEST_P(SoftmaxTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const Size size : kSizes) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << size.rows << "x" << size.columns);
      const std::int64_t count = size.rows * size.columns;
      const std::vector<float> x = random_values(count, 1, dtype, -4, 4), dy = random_values(count, 2, dtype);
      // exp is good to 3 units in the last place; sums of positive terms do not cancel.
      const double sums = sum_tolerance(DType::float32, std::min<std::int64_t>(size.columns, 512));
      EXPECT_LT(
          relative_error(forward(device(), size, dtype, x), reference::softmax_forward(size.columns, as_double(x))),
          unit_roundoff(dtype) + sums);
      const std::vector<float> y = random_values(count, 3, dtype, 0, 1);
      EXPECT_LT(relative_error(grad(device(), size, dtype, y, dy),
                               reference::softmax_grad(size.columns, as_double(y), as_double(dy))),
                unit_roundoff(dtype) + sums);
    }
  }
}

TEST_P(SoftmaxTest, OutputsMayAliasInputs) {
  for (const Size size : kSizes)
    for (const DType dtype : kFloatingTypes) {
      const std::int64_t count = size.rows * size.columns;
      const std::vector<float> x = random_values(count, 1, dtype, -4, 4), dy = random_values(count, 2, dtype);
      const std::vector<float> y = forward(device(), size, dtype, x);
      const DeviceBuffer in(device(), x, dtype), up(device(), dy, dtype), saved(device(), y, dtype);
      BANTAM_KERNEL(exec(), softmax_forward, size.rows, size.columns, dtype, in.data(), in.data());
      BANTAM_KERNEL(exec(), softmax_grad, size.rows, size.columns, dtype, saved.data(), up.data(), up.data());
      EXPECT_EQ(in.download(), y);
      EXPECT_EQ(up.download(), grad(device(), size, dtype, y, dy));
    }
}

TEST_P(SoftmaxTest, InfinitiesAndNan) {
  for (const std::int64_t columns : {3, 40, 3000}) {
    SCOPED_TRACE(columns);
    const auto row = [&](float first) {
      std::vector<float> x(static_cast<std::size_t>(columns), -kInfinity);
      x[0] = first;
      return forward(device(), {1, columns}, DType::float32, x);
    };
    std::vector<float> expected(static_cast<std::size_t>(columns), 0.0f);
    expected[0] = 1;
    EXPECT_EQ(row(-1000), expected);
    for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()})
      for (const float value : row(bad)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(SoftmaxTest, NothingOfNothing) {
  BANTAM_KERNEL(exec(), softmax_forward, 0, 3, DType::float32, nullptr, nullptr);
  BANTAM_KERNEL(exec(), softmax_grad, 3, 0, DType::float32, nullptr, nullptr, nullptr);
}

TEST(SoftmaxCpuTest, SameBitsForAllThreads) {
  for (const Size size : kSizes) {
    const std::vector<float> x = random_values(size.rows * size.columns, 1);
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      const DeviceBuffer in(device, x, DType::float32), y(device, size.rows * size.columns, DType::float32);
      BANTAM_KERNEL(device.exec(), softmax_forward, size.rows, size.columns, DType::float32, in.data(), y.data());
      return y.download_bytes();
    });
  }
}

TEST(SoftmaxReferenceTest, GradientIsTheDerivative) {
  const std::vector<double> x = as_double(random_values(12, 1, DType::float32, -2, 2)),
                            weight = as_double(random_values(12, 2));
  const auto loss = [&](const std::vector<double>& at) {
    const std::vector<double> y = reference::softmax_forward(4, at);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
    return sum;
  };
  expect_gradient(x, reference::softmax_grad(4, reference::softmax_forward(4, x), weight), loss);
}

}  // namespace
}  // namespace bantam::kernels::softmax_test

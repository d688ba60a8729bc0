// Bias and its gradient against hand values and the reference, on every device.
#include "bantam/kernels/elementwise/bias.h"

#include "bantam/kernels/elementwise/bias_reference.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::bias_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class BiasTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, BiasTest, ::testing::ValuesIn(test_devices()), device_test_name);

struct Size {
  std::int64_t rows, channels;
};
// Scalar, whole-vector and mixed channel counts; one part and many parts.
constexpr Size kSizes[] = {{1, 1},     {5, 3},     {40, 8},   {33, 20},    {64, 32},  {100, 64}, {70, 65},
                           {7000, 64}, {30000, 3}, {3, 1000}, {2000, 260}, {1, 4097}, {9000, 1}};

std::vector<std::uint8_t> gradient_bytes(KernelDevice& device, Size size, DType dtype) {
  const DeviceBuffer dy(device, random_values(size.rows * size.channels, 3, dtype), dtype);
  GuardedBuffer db(device, size.channels, DType::float32);
  GuardedBytes workspace(device, bias_grad_workspace_bytes(size.rows, size.channels, device.exec().device.kind));
  BANTAM_KERNEL(device.exec(), bias_grad, size.rows, size.channels, dtype, dy.data(), db.as<float>(), false,
                workspace.workspace());
  return db.download_bytes();
}

TEST_P(BiasTest, HandComputed) {
  const DeviceBuffer x(device(), {1, 2, 3, 4, 5, 6}, DType::float32), b(device(), {10, 20}, DType::float32);
  GuardedBuffer y(device(), 6, DType::float32), db(device(), std::vector<float>{100, 200});
  BANTAM_KERNEL(exec(), bias_forward, 3, 2, DType::float32, x.data(), b.data(), y.data());
  EXPECT_EQ(y.download(), (std::vector<float>{11, 22, 13, 24, 15, 26}));
  GuardedBytes workspace(device(), bias_grad_workspace_bytes(3, 2, GetParam().kind));
  BANTAM_KERNEL(exec(), bias_grad, 3, 2, DType::float32, x.data(), db.as<float>(), true, workspace.workspace());
  EXPECT_EQ(db.download(), (std::vector<float>{109, 212}));
  BANTAM_KERNEL(exec(), bias_grad, 3, 2, DType::float32, x.data(), db.as<float>(), false, workspace.workspace());
  EXPECT_EQ(db.download(), (std::vector<float>{9, 12}));
}

TEST_P(BiasTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const Size size : kSizes) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << size.rows << "x" << size.channels);
      const std::int64_t count = size.rows * size.channels;
      const std::vector<float> x = random_values(count, 1, dtype), b = random_values(size.channels, 2, dtype);
      const DeviceBuffer x_buffer(device(), x, dtype), b_buffer(device(), b, dtype);
      GuardedBuffer y(device(), count, dtype);
      BANTAM_KERNEL(exec(), bias_forward, size.rows, size.channels, dtype, x_buffer.data(), b_buffer.data(), y.data());
      const auto expected = reference::bias_forward(size.rows, size.channels, as_double(x), as_double(b));
      EXPECT_LT(relative_error(y.download(), expected), sum_tolerance(dtype, 2));

      const std::vector<float> start = random_values(size.channels, 4);
      GuardedBuffer db(device(), start);
      GuardedBytes workspace(device(), bias_grad_workspace_bytes(size.rows, size.channels, GetParam().kind));
      BANTAM_KERNEL(exec(), bias_grad, size.rows, size.channels, dtype, x_buffer.data(), db.as<float>(), true,
                    workspace.workspace());
      auto sums = reference::bias_grad(size.rows, size.channels, as_double(x));
      for (std::size_t c = 0; c < sums.size(); ++c) sums[c] += start[c];
      // Sums run in blocks of at most 512 terms or so, and blocks are few.
      EXPECT_LT(relative_error(db.download(), sums),
                sum_tolerance(DType::float32, std::min<std::int64_t>(size.rows, 512)));
    }
  }
}

TEST_P(BiasTest, OutputMayBeTheInput) {
  for (const DType dtype : kFloatingTypes) {
    for (const std::int64_t channels : {3, 65, 300}) {
      const std::vector<float> x = random_values(50 * channels, 1, dtype), b = random_values(channels, 2, dtype);
      const DeviceBuffer in_place(device(), x, dtype), apart(device(), x, dtype), b_buffer(device(), b, dtype);
      GuardedBuffer y(device(), 50 * channels, dtype);
      BANTAM_KERNEL(exec(), bias_forward, 50, channels, dtype, apart.data(), b_buffer.data(), y.data());
      BANTAM_KERNEL(exec(), bias_forward, 50, channels, dtype, in_place.data(), b_buffer.data(), in_place.data());
      EXPECT_EQ(in_place.download_bytes(), y.download_bytes());
    }
  }
}

TEST_P(BiasTest, GradientIsDeterministic) {
  for (const Size size : kSizes) {
    EXPECT_EQ(gradient_bytes(device(), size, DType::float16), gradient_bytes(device(), size, DType::float16));
  }
}

TEST_P(BiasTest, NothingOfNothing) {
  GuardedBuffer db(device(), std::vector<float>{5, 6, 7});
  BANTAM_KERNEL(exec(), bias_forward, 0, 3, DType::float32, nullptr, nullptr, nullptr);
  BANTAM_KERNEL(exec(), bias_grad, 0, 3, DType::float32, nullptr, db.as<float>(), true, Workspace{});
  EXPECT_EQ(db.download(), (std::vector<float>{5, 6, 7}));
  BANTAM_KERNEL(exec(), bias_grad, 0, 3, DType::float32, nullptr, db.as<float>(), false, Workspace{});
  EXPECT_EQ(db.download(), (std::vector<float>{0, 0, 0}));
}

TEST_P(BiasTest, RefusesTooSmallWorkspace) {
  const std::size_t needed = bias_grad_workspace_bytes(70000, 64, GetParam().kind);
  ASSERT_GT(needed, 256u);
  GuardedBuffer db(device(), 64, DType::float32), dy(device(), 70000 * 64, DType::float16);
  GuardedBytes workspace(device(), needed - 1);
  EXPECT_THROW(BANTAM_KERNEL(exec(), bias_grad, 70000, 64, DType::float16, dy.data(), db.as<float>(), false,
                             workspace.workspace()),
               Error);
}

TEST(BiasCpuTest, SameBitsForAllThreads) {
  for (const Size size : kSizes) {
    expect_same_bits_for_all_threads(
        [&](KernelDevice& device) { return gradient_bytes(device, size, DType::float32); });
  }
}

TEST(BiasReferenceTest, GradientIsTheDerivative) {
  const std::vector<double> x = as_double(random_values(12, 1)), weight = as_double(random_values(12, 2));
  const auto loss = [&](const std::vector<double>& b) {
    const std::vector<double> y = reference::bias_forward(4, 3, x, b);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i] * y[i];
    return sum;
  };
  const std::vector<double> b = as_double(random_values(3, 5));
  std::vector<double> dy = reference::bias_forward(4, 3, x, b);
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= 2 * weight[i];
  expect_gradient(b, reference::bias_grad(4, 3, dy), loss);
}

}  // namespace
}  // namespace bantam::kernels::bias_test

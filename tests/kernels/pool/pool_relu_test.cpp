// Max pooling's gradient multiplied by relu', and its sums: by hand, every device against the reference in double,
// guards, determinism.
#include "bantam/kernels/pool/pool_relu.h"

#include "bantam/kernels/pool/pool2d_reference.h"
#include "tests/kernels/image/image_values.h"

namespace bantam::kernels::pool_relu_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = Pool2dShape;

class PoolReluTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PoolReluTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// Pairs of rows and columns (one pass on CUDA), with few and many windows and channels that packs divide or not; then
/// others: an odd row, padding, windows that overlap, positions between windows.
std::vector<S> shapes() {
  std::vector<S> all;
  for (const std::int64_t c : {1, 4, 8, 20, 65, 128}) {
    all.push_back({3, 8, 6, c, 2, 2, 2, 2});
    all.push_back({5, 2, 2, c, 2, 2, 2, 2});
    all.push_back({2, 7, 6, c, 2, 2, 2, 2});
    all.push_back({1, 7, 9, c, 2, 2, 2, 2, 0, 1, 1, 0});
    all.push_back({2, 9, 8, c, 3, 3, 2, 2, 1, 1, 1, 1});
    all.push_back({1, 11, 8, c, 2, 2, 3, 3});
  }
  all.push_back({4, 64, 48, 64, 2, 2, 2, 2});
  return all;
}

/// What relu wrote, of which a window in four is 0 everywhere.
std::vector<float> activated(const S& s, DType dtype) {
  std::vector<float> x = random_values(s.x_elements(), 1, dtype, -3, 1);
  for (float& v : x) v = v > 0 ? v : 0.0f;
  return x;
}

struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const std::vector<float>& x_values,
          const std::vector<float>& dy_values)
      : y(device, s.y_elements(), dtype),
        winner(device, static_cast<std::size_t>(s.y_elements()) * 2),
        dz(device, s.x_elements(), dtype),
        sums(device, s.channels, DType::float32) {
    const DeviceBuffer x(device, x_values, dtype), dy(device, dy_values, dtype);
    GuardedBytes workspace(device, max_pool2d_relu_grad_workspace_bytes(s, dtype, device.exec().device.kind));
    BANTAM_KERNEL(device.exec(), max_pool2d_forward, s, dtype, x.data(), y.data(), winner.as<std::uint16_t>());
    BANTAM_KERNEL(device.exec(), max_pool2d_relu_grad, s, dtype, dy.data(), y.data(), winner.as<const std::uint16_t>(),
                  dz.data(), sums.as<float>(), workspace.workspace());
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = dz.download_bytes();
    const std::vector<std::uint8_t> more = sums.download_bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  GuardedBuffer y;
  GuardedBytes winner;
  GuardedBuffer dz, sums;
};

TEST_P(PoolReluTest, HandComputed) {
  const S s{
      .batch = 1, .in_h = 2, .in_w = 6, .channels = 1, .window_h = 2, .window_w = 2, .stride_h = 2, .stride_w = 2};
  const std::vector<float> x{1, 2, 0, 0, 5, 0, 0, 0, 0, 0, 0, 6}, dy{3, 7, -11};
  const Results r(device(), s, DType::float32, x, dy);
  EXPECT_EQ(r.dz.download(), (std::vector<float>{0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, -11}));
  EXPECT_EQ(r.sums.download(), (std::vector<float>{-8}));
}

TEST_P(PoolReluTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : shapes()) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << s.in_h << "x" << s.in_w << "x" << s.channels
                                        << " window " << s.window_h << " stride " << s.stride_h);
      const std::vector<float> x = activated(s, dtype), dy = random_values(s.y_elements(), 2, dtype, 0.5f, 1.5f);
      const auto winner = reference::max_pool2d_forward(s, as_double(x)).winner;
      std::vector<double> dz = reference::max_pool2d_grad_input(s, as_double(dy), winner);
      std::vector<double> sums(static_cast<std::size_t>(s.channels));
      for (std::size_t i = 0; i < dz.size(); ++i) {
        if (!(x[i] > 0)) dz[i] = 0;
        sums[i % sums.size()] += dz[i];
      }
      const Results r(device(), s, dtype, x, dy);
      EXPECT_LT(relative_error(r.dz.download(), dz), sum_tolerance(dtype, s.window_h * s.window_w));
      EXPECT_LT(relative_error(r.sums.download(), sums),
                sum_tolerance(DType::float32, s.batch * s.out_h() * s.out_w()));
      EXPECT_EQ(Results(device(), s, dtype, x, dy).bytes(), r.bytes()) << "the same bits";
    }
  }
}

TEST_P(PoolReluTest, EmptyBatchHasSumsOfZero) {
  const S s{
      .batch = 0, .in_h = 4, .in_w = 4, .channels = 8, .window_h = 2, .window_w = 2, .stride_h = 2, .stride_w = 2};
  EXPECT_EQ(Results(device(), s, DType::float16, {}, {}).sums.download(), std::vector<float>(8, 0.0f));
}

TEST(PoolReluCpuTest, SameBitsForAllThreads) {
  for (const S& s : shapes()) {
    const std::vector<float> x = activated(s, DType::float32), dy = random_values(s.y_elements(), 2);
    expect_same_bits_for_all_threads(
        [&](KernelDevice& device) { return Results(device, s, DType::float32, x, dy).bytes(); });
  }
}

}  // namespace
}  // namespace bantam::kernels::pool_relu_test

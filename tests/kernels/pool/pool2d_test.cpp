// Pooling: hand values, ties and NaN, every device against the reference in double, guards, determinism.
#include "bantam/kernels/pool/pool2d.h"

#include <limits>

#include "bantam/kernels/pool/pool2d_reference.h"
#include "tests/kernels/image/image_values.h"

namespace bantam::kernels::pool2d_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = Pool2dShape;

class Pool2dTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, Pool2dTest, ::testing::ValuesIn(test_devices()), device_test_name);

std::vector<S> shapes() {
  std::vector<S> all;
  for (const std::int64_t c : {1, 3, 8, 20, 32, 64, 65}) {
    const auto add = [&](std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t window, std::int64_t stride,
                         std::array<std::int64_t, 4> pad) {
      all.push_back({n, h, w, c, window, window, stride, stride, pad[0], pad[1], pad[2], pad[3]});
    };
    add(2, 8, 6, 2, 2, {});
    add(2, 7, 9, 2, 2, {});            // the last row and column are in no window
    add(1, 7, 9, 2, 2, {0, 1, 1, 0});  // padded at one side only
    add(2, 9, 8, 3, 2, {1, 1, 1, 1});  // windows overlap
    add(3, 10, 13, 3, 2, {0, 0, 0, 0});
    add(1, 8, 7, 3, 2, {1, 2, 1, 0});
    add(2, 4, 5, 3, 2, {0, 2, 0, 1});
    add(1, 9, 9, 3, 2, {2, 0, 2, 0});
    add(1, 6, 7, 3, 1, {0, 2, 1, 1});
    add(1, 11, 8, 2, 3, {});  // positions between windows
    all.push_back({.batch = 3, .in_h = 9, .in_w = 10, .channels = c, .window_h = 9, .window_w = 10});  // global
    all.push_back({2, 5, 12, c, 1, 4, 1, 3, 0, 0, 2, 1});
    all.push_back({2, 9, 8, c, 3, 2, 2, 1, 1, 1, 1, 0, 2, 3});        // dilated
    all.push_back({1, 11, 7, c, 2, 3, 3, 2, 0, 2, 2, 1, 4, 2});       // and padded more than a window has rows
    all.push_back({2, 7, 8, c, 2, 3, 2, 2, 0, 0, 0, 1, 1, 1, 1, 0});  // ceil mode
    all.push_back({1, 8, 6, c, 3, 2, 3, 4, 1, 0, 0, 1, 1, 1, 0, 1});
    all.push_back({1, 9, 10, c, 9, 9, 8, 8, 0, 0, 0, 0, 1, 1, 8, 7});   // large windows, most of which is not there
    all.push_back({2, 20, 20, c, 8, 8, 2, 4, 0, 0, 0, 0, 2, 2, 1, 3});  // large windows, dilated
    all.push_back({2, 10, 10, c, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1});  // 3x3 at stride 2 with ceil mode
    all.push_back({2, 7, 7, c, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1});    // 2x2 at stride 2 with ceil mode
  }
  return all;
}

std::string name(const S& s) {
  return (::testing::Message() << s.batch << "x" << s.in_h << "x" << s.in_w << "x" << s.channels << " window "
                               << s.window_h << "x" << s.window_w << " stride " << s.stride_h << "," << s.stride_w
                               << " dilation " << s.dilation_h << "," << s.dilation_w << " overhang " << s.overhang_h
                               << "," << s.overhang_w)
      .GetString();
}

/// All four passes on a device.
struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, bool count_padding, const std::vector<float>& x_values,
          const std::vector<float>& dy_values)
      : max(device, s.y_elements(), dtype),
        winner(device, static_cast<std::size_t>(s.y_elements()) * 2),
        max_dx(device, s.x_elements(), dtype),
        mean(device, s.y_elements(), dtype),
        mean_dx(device, s.x_elements(), dtype) {
    const DeviceBuffer x(device, x_values, dtype), dy(device, dy_values, dtype);
    const Exec& exec = device.exec();
    BANTAM_KERNEL(exec, max_pool2d_forward, s, dtype, x.data(), max.data(), winner.as<std::uint16_t>());
    BANTAM_KERNEL(exec, max_pool2d_grad_input, s, dtype, dy.data(), winner.as<const std::uint16_t>(), max_dx.data());
    BANTAM_KERNEL(exec, avg_pool2d_forward, s, dtype, count_padding, x.data(), mean.data());
    BANTAM_KERNEL(exec, avg_pool2d_grad_input, s, dtype, count_padding, dy.data(), mean_dx.data());
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = winner.download_bytes();
    for (const GuardedBuffer* buffer : {&max, &max_dx, &mean, &mean_dx}) {
      const std::vector<std::uint8_t> more = buffer->download_bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  GuardedBuffer max;
  GuardedBytes winner;
  GuardedBuffer max_dx, mean, mean_dx;
};

TEST_P(Pool2dTest, HandComputed) {
  // 3x3, window 2, stride 2, one row and column of padding at the end: windows {1 2 4 5}, {3 6}, {7 8}, {9}.
  const S s{.batch = 1,
            .in_h = 3,
            .in_w = 3,
            .channels = 1,
            .window_h = 2,
            .window_w = 2,
            .stride_h = 2,
            .stride_w = 2,
            .pad_bottom = 1,
            .pad_right = 1};
  const std::vector<float> x{1, 2, 3, 4, 5, 6, 7, 8, 9}, dy{4, 8, 12, 16};
  const Results real(device(), s, DType::float32, false, x, dy);
  EXPECT_EQ(real.max.download(), (std::vector<float>{5, 6, 8, 9}));
  EXPECT_EQ(real.winner.download_as<std::uint16_t>(), (std::vector<std::uint16_t>{3, 2, 1, 0}));
  EXPECT_EQ(real.max_dx.download(), (std::vector<float>{0, 0, 0, 0, 4, 8, 0, 12, 16}));
  EXPECT_EQ(real.mean.download(), (std::vector<float>{3, 4.5, 7.5, 9}));
  EXPECT_EQ(real.mean_dx.download(), (std::vector<float>{1, 1, 4, 1, 1, 4, 6, 6, 16}));
  const Results padded(device(), s, DType::float32, true, x, dy);
  EXPECT_EQ(padded.mean.download(), (std::vector<float>{3, 2.25, 3.75, 2.25}));
  EXPECT_EQ(padded.mean_dx.download(), (std::vector<float>{1, 1, 2, 1, 1, 2, 3, 3, 4}));
}

TEST_P(Pool2dTest, HasPyTorchsValuesWithCeilModeAndDilation) {
  using namespace testing::oracle;  // NOLINT: its cases
  const auto check = [&](const S& s, const ImageCase& maximum) {
    const Results r(device(), s, DType::float32, false, oracle_x(s.x_elements()), oracle_dy(s.y_elements()));
    expect_oracle(r.max.download(), r.max_dx.download(), maximum);
  };
  check({1, 6, 7, 2, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 0}, kMaxCeil);
  check({1, 7, 6, 2, 3, 2, 2, 1, 1, 1, 0, 0, 2, 3}, kMaxDilated);
  check({2, 6, 8, 1, 2, 2, 3, 2, 1, 1, 1, 1, 3, 2, 2, 1}, kMaxDilatedCeil);
  const auto check_mean = [&](const S& s, bool count_padding, const ImageCase& mean) {
    const Results r(device(), s, DType::float32, count_padding, oracle_x(s.x_elements()), oracle_dy(s.y_elements()));
    expect_oracle(r.mean.download(), r.mean_dx.download(), mean);
  };
  check_mean({1, 6, 7, 2, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 0}, false, kAverageCeil);
  check_mean({1, 6, 7, 2, 3, 2, 2, 3, 1, 1, 1, 1, 1, 1, 1, 0}, true, kAverageCeilCounted);
  check_mean({1, 5, 5, 1, 2, 2, 3, 3, 1, 1, 1, 1}, true, kAverageBeginsInside);
}

TEST_P(Pool2dTest, TheFirstOfEqualsWins) {
  for (const std::int64_t channels : {1, 8}) {
    const S s{.batch = 1,
              .in_h = 2,
              .in_w = 4,
              .channels = channels,
              .window_h = 2,
              .window_w = 2,
              .stride_h = 2,
              .stride_w = 2};
    std::vector<float> x, dy(static_cast<std::size_t>(2 * channels), 3.0f);
    for (const float v : {1.0f, 7.0f, -2.0f, -2.0f, 7.0f, 7.0f, -2.0f, -2.0f})
      x.insert(x.end(), static_cast<std::size_t>(channels), v);
    const Results r(device(), s, DType::float16, false, x, dy);
    const auto winner = r.winner.download_as<std::uint16_t>();
    EXPECT_EQ(winner.front(), 1);
    EXPECT_EQ(winner.back(), 0);
    EXPECT_EQ(r.max.download().front(), 7.0f);
    EXPECT_EQ(r.max.download().back(), -2.0f);
    const auto dx = r.max_dx.download();
    EXPECT_EQ(dx[static_cast<std::size_t>(channels)], 3.0f);      // position 1
    EXPECT_EQ(dx[static_cast<std::size_t>(2 * channels)], 3.0f);  // position 2
    EXPECT_EQ(dx[static_cast<std::size_t>(4 * channels)], 0.0f);  // an equal that came later
  }
}

TEST_P(Pool2dTest, NaNWinsAndSoDoesTheFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const DType dtype : kFloatingTypes) {
    for (const std::int64_t channels : {1, 16}) {
      const S s{.batch = 1, .in_h = 1, .in_w = 9, .channels = channels, .window_h = 1, .window_w = 3, .stride_w = 3};
      std::vector<float> x;
      for (const float v : {inf, nan, nan, nan, 1.0f, inf, -inf, -inf, -inf}) {
        x.insert(x.end(), static_cast<std::size_t>(channels), v);
      }
      const Results r(device(), s, dtype, false, x, std::vector<float>(static_cast<std::size_t>(3 * channels), 1.0f));
      const auto y = r.max.download();
      const auto winner = r.winner.download_as<std::uint16_t>();
      for (std::size_t c = 0, n = static_cast<std::size_t>(channels); c < n; ++c) {
        EXPECT_TRUE(std::isnan(y[c]) && std::isnan(y[n + c]));
        EXPECT_EQ(y[2 * n + c], -inf);
        EXPECT_EQ(winner[c], 1);
        EXPECT_EQ(winner[n + c], 0);
        EXPECT_EQ(winner[2 * n + c], 0);
      }
    }
  }
}

TEST_P(Pool2dTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : shapes()) {
      for (const bool count_padding : {false, true}) {
        SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << name(s) << " " << count_padding);
        const auto x = random_values(s.x_elements(), 1, dtype), dy = random_values(s.y_elements(), 2, dtype);
        const Results r(device(), s, dtype, count_padding, x, dy);
        const auto max = reference::max_pool2d_forward(s, as_double(x));
        EXPECT_EQ(as_double(r.max.download()), max.y);  // a maximum is not rounded
        EXPECT_EQ(r.winner.download_as<std::uint16_t>(), max.winner);
        const std::int64_t places = s.window_h * s.window_w;
        EXPECT_LT(relative_error(r.max_dx.download(), reference::max_pool2d_grad_input(s, as_double(dy), max.winner)),
                  sum_tolerance(dtype, places));
        EXPECT_LT(relative_error(r.mean.download(), reference::avg_pool2d_forward(s, count_padding, as_double(x))),
                  sum_tolerance(dtype, places));
        EXPECT_LT(
            relative_error(r.mean_dx.download(), reference::avg_pool2d_grad_input(s, count_padding, as_double(dy))),
            sum_tolerance(dtype, places));
      }
    }
  }
}

TEST_P(Pool2dTest, WinnersMayBeLeftOut) {
  const S s{2, 9, 8, 20, 3, 3, 2, 2, 1, 1, 1, 1};
  const auto x = random_values(s.x_elements(), 1, DType::bfloat16);
  const DeviceBuffer x_buffer(device(), x, DType::bfloat16);
  GuardedBuffer y(device(), s.y_elements(), DType::bfloat16);
  BANTAM_KERNEL(exec(), max_pool2d_forward, s, DType::bfloat16, x_buffer.data(), y.data(), nullptr);
  EXPECT_EQ(as_double(y.download()), reference::max_pool2d_forward(s, as_double(x)).y);
}

TEST_P(Pool2dTest, EmptyBatch) {
  const S s{.batch = 0, .in_h = 4, .in_w = 4, .channels = 8, .window_h = 2, .window_w = 2};
  EXPECT_NO_THROW(Results(device(), s, DType::float16, false, {}, {}));
}

TEST(Pool2dCpuTest, SameBitsForAllThreads) {
  for (const S& s : shapes()) {
    const auto x = random_values(s.x_elements(), 1), dy = random_values(s.y_elements(), 2);
    expect_same_bits_for_all_threads(
        [&](KernelDevice& device) { return Results(device, s, DType::float32, false, x, dy).bytes(); });
  }
}

TEST(Pool2dReferenceTest, GradientsAreTheDerivatives) {
  for (const bool count_padding : {false, true}) {
    const S s{2, 5, 6, 2, 3, 2, 2, 1, 1, 1, 1, 0};
    const auto x = as_double(random_values(s.x_elements(), 1)), dy = as_double(random_values(s.y_elements(), 2));
    const auto weighted = [&](const std::vector<double>& y) {
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    // Steps of 1e-5 change no winner: two values of a window are that near with a chance of about one in a thousand.
    expect_gradient(x, reference::max_pool2d_grad_input(s, dy, reference::max_pool2d_forward(s, x).winner),
                    [&](const auto& v) { return weighted(reference::max_pool2d_forward(s, v).y); });
    expect_gradient(x, reference::avg_pool2d_grad_input(s, count_padding, dy),
                    [&](const auto& v) { return weighted(reference::avg_pool2d_forward(s, count_padding, v)); });
  }
}

}  // namespace
}  // namespace bantam::kernels::pool2d_test

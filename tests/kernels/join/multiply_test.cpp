// Means and products of whole arrays against hand values and the reference, on every device.
#include "bantam/kernels/join/multiply.h"

#include <memory>

#include "bantam/kernels/join/join_reference.h"
#include "bantam/kernels/join/mean.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::multiply_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class MultiplyTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, MultiplyTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST_P(MultiplyTest, HandComputed) {
  const DeviceBuffer a(device(), {1, 2, 3}, DType::float32), b(device(), {4, -5, 6}, DType::float32);
  const DeviceBuffer dy(device(), {1, 10, 100}, DType::float32);
  GuardedBuffer y(device(), 3, DType::float32), da(device(), 3, DType::float32), db(device(), 3, DType::float32);
  BANTAM_KERNEL(exec(), multiply, 3, DType::float32, a.data(), b.data(), y.data());
  EXPECT_EQ(y.download(), (std::vector<float>{4, -10, 18}));
  BANTAM_KERNEL(exec(), multiply_grad, 3, DType::float32, {.a = a.data(), .b = b.data(), .dy = dy.data()},
                {.da = da.data(), .db = db.data()});
  EXPECT_EQ(da.download(), (std::vector<float>{4, -50, 600}));
  EXPECT_EQ(db.download(), (std::vector<float>{1, 20, 300}));
  MeanInputs inputs{.data = {a.data(), b.data(), dy.data()}, .count = 3};
  BANTAM_KERNEL(exec(), mean_of, 3, DType::float32, inputs, y.data());
  expect_close(y.download(), std::vector<double>{2, 7.0 / 3, 109.0 / 3}, 1e-6);
}

TEST_P(MultiplyTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes)
    for (const std::int64_t count : odd_counts()) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << count);
      const std::vector<float> a = random_values(count, 1, dtype), b = random_values(count, 2, dtype);
      const std::vector<float> dy = random_values(count, 3, dtype);
      const DeviceBuffer a_buffer(device(), a, dtype), b_buffer(device(), b, dtype), in_place(device(), dy, dtype);
      GuardedBuffer y(device(), count, dtype), db(device(), count, dtype), lone(device(), count, dtype);
      BANTAM_KERNEL(exec(), multiply, count, dtype, a_buffer.data(), b_buffer.data(), y.data());
      const double rounding = 1.01 * unit_roundoff(dtype);
      EXPECT_LT(relative_error(y.download(), reference::multiply(as_double(a), as_double(b))), rounding);
      BANTAM_KERNEL(exec(), multiply_grad, count, dtype, {.b = b_buffer.data(), .dy = in_place.data()},
                    {.da = lone.data()});
      BANTAM_KERNEL(exec(), multiply_grad, count, dtype,
                    {.a = a_buffer.data(), .b = b_buffer.data(), .dy = in_place.data()},
                    {.da = in_place.data(), .db = db.data()});
      EXPECT_LT(relative_error(in_place.download(), reference::multiply(as_double(dy), as_double(b))), rounding);
      EXPECT_LT(relative_error(db.download(), reference::multiply(as_double(dy), as_double(a))), rounding);
      EXPECT_EQ(lone.download(), in_place.download());
    }
}

TEST_P(MultiplyTest, MeansMatchReference) {
  for (const DType dtype : kFloatingTypes)
    for (const std::int64_t count : odd_counts())
      for (const int inputs : {1, 2, 5, kMostAveraged}) {
        if (inputs > 5 && count > 1000) continue;
        SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << inputs << " of " << count);
        std::vector<std::vector<double>> values;
        std::vector<std::unique_ptr<DeviceBuffer>> buffers;
        MeanInputs from{.count = inputs};
        for (int i = 0; i < inputs; ++i) {
          const std::vector<float> one = random_values(count, 1 + static_cast<std::uint64_t>(i), dtype);
          values.push_back(as_double(one));
          buffers.push_back(std::make_unique<DeviceBuffer>(device(), one, dtype));
          from.data[i] = buffers.back()->data();
        }
        GuardedBuffer y(device(), count, dtype);
        BANTAM_KERNEL(exec(), mean_of, count, dtype, from, y.data());
        EXPECT_LT(relative_error(y.download(), reference::mean_of(values)), sum_tolerance(dtype, inputs + 1));
        BANTAM_KERNEL(exec(), mean_of, count, dtype, from, buffers[0]->data());
        EXPECT_EQ(buffers[0]->download(), y.download());
      }
}

TEST(MultiplyCpuTest, SameBitsForAllThreads) {
  expect_same_bits_for_all_threads([&](KernelDevice& device) {
    constexpr std::int64_t kCount = 100003;
    const GuardedBuffer a(device, random_values(kCount, 1)), b(device, random_values(kCount, 2));
    GuardedBuffer da(device, kCount, DType::float32);
    BANTAM_KERNEL(device.exec(), multiply_grad, kCount, DType::float32, {.b = b.data(), .dy = a.data()},
                  {.da = da.data()});
    return da.download_bytes();
  });
}

}  // namespace
}  // namespace bantam::kernels::multiply_test

// Permutation of axes: NumPy's values, every order of up to four axes and larger arrays against plain indices on every
// device, its inverse, and the same bits for any number of threads.
#include "bantam/kernels/image/permute.h"

#include <algorithm>
#include <numeric>

#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/work_case.h"

namespace bantam::kernels::permute_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class PermuteTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PermuteTest, ::testing::ValuesIn(test_devices()), device_test_name);

using Order = std::vector<int>;

Shape permuted_shape(const Shape& x, const Order& order) {
  std::vector<std::int64_t> extents;
  for (const int axis : order) extents.push_back(x[axis]);
  return Shape(extents);
}

/// For each element of y, which of x it is.
std::vector<std::size_t> sources(const Shape& x, const Order& order) {
  const Shape y = permuted_shape(x, order);
  std::vector<std::size_t> from;
  for (std::int64_t element = 0; element < y.elements(); ++element) {
    std::vector<std::int64_t> at(order.size());  // along x's axes
    std::int64_t rest = element;
    for (int axis = y.rank() - 1; axis >= 0; --axis) {
      at[static_cast<std::size_t>(order[static_cast<std::size_t>(axis)])] = rest % y[axis];
      rest /= y[axis];
    }
    std::int64_t source = 0;
    for (int axis = 0; axis < x.rank(); ++axis) source = source * x[axis] + at[static_cast<std::size_t>(axis)];
    from.push_back(static_cast<std::size_t>(source));
  }
  return from;
}

/// There and back on a device.
void expect_permuted(KernelDevice& device, const Shape& shape, const Order& order, DType dtype) {
  const PermuteShape there = permute_shape(shape, order);
  if (there.is_view()) return;
  SCOPED_TRACE(::testing::Message() << to_string(shape) << " " << ::testing::PrintToString(order) << " "
                                    << to_string(dtype));
  Order inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) inverse[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  const PermuteShape way_back = permute_shape(permuted_shape(shape, order), inverse);
  const std::vector<float> values = random_values(shape.elements(), 1, dtype);
  const DeviceBuffer x(device, values, dtype);
  GuardedBuffer y(device, shape.elements(), dtype), back(device, shape.elements(), dtype);
  BANTAM_KERNEL(device.exec(), permute, there, dtype, x.data(), y.data());
  BANTAM_KERNEL(device.exec(), permute, way_back, dtype, y.data(), back.data());
  device.synchronize();
  std::vector<float> expected;
  for (const std::size_t source : sources(shape, order)) expected.push_back(values[source]);
  EXPECT_EQ(y.download(), expected);
  EXPECT_EQ(back.download(), values);
}

// NumPy: np.arange(1, 13).reshape(2, 2, 3).transpose(0, 2, 1) and transpose(2, 1, 0).
TEST_P(PermuteTest, HasNumPysValues) {
  const auto permuted = [&](const Order& order) {
    std::vector<float> values(12);
    std::iota(values.begin(), values.end(), 1.0f);
    const DeviceBuffer x(device(), values, DType::float32);
    GuardedBuffer y(device(), 12, DType::float32);
    BANTAM_KERNEL(exec(), permute, permute_shape({2, 2, 3}, order), DType::float32, x.data(), y.data());
    device().synchronize();
    return y.download();
  };
  EXPECT_EQ(permuted({0, 2, 1}), (std::vector<float>{1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12}));
  EXPECT_EQ(permuted({2, 1, 0}), (std::vector<float>{1, 7, 4, 10, 2, 8, 5, 11, 3, 9, 6, 12}));
}

TEST_P(PermuteTest, EveryOrderIsItsIndices) {
  Order order{0, 1, 2, 3};
  do {
    expect_permuted(device(), {3, 2, 5, 4}, order, DType::float32);
    expect_permuted(device(), {2, 35, 1, 8}, order, DType::float16);
  } while (std::ranges::next_permutation(order).found);
}

// Tokens and channels, with whole tiles and parts of them; images to channels first and back; runs in packs and not;
// and eight axes, none of which stays beside another.
TEST_P(PermuteTest, EveryShapeIsItsIndices) {
  for (const DType dtype : kFloatingTypes) {
    expect_permuted(device(), {3, 64, 96}, {0, 2, 1}, dtype);
    expect_permuted(device(), {2, 197, 65}, {0, 2, 1}, dtype);
    expect_permuted(device(), {1000, 3}, {1, 0}, dtype);
    expect_permuted(device(), {2, 33, 40, 3}, {0, 3, 1, 2}, dtype);
    expect_permuted(device(), {2, 3, 33, 40}, {0, 2, 3, 1}, dtype);
    expect_permuted(device(), {2, 7, 9, 16}, {0, 2, 1, 3}, dtype);
    expect_permuted(device(), {2, 7, 9, 5}, {0, 2, 1, 3}, dtype);
    expect_permuted(device(), {3, 2, 2, 3, 2, 3, 2, 2}, {6, 4, 2, 0, 7, 5, 3, 1}, dtype);
  }
}

TEST(PermuteShapeTest, NeighboursThatStayAreOneAxis) {
  const auto axes = [](const Shape& shape, const Order& order) { return permute_shape(shape, order).axes; };
  EXPECT_EQ(axes({2, 5, 6, 3}, Order{0, 3, 1, 2}), 3);
  EXPECT_EQ(axes({2, 5, 6, 3}, Order{2, 3, 0, 1}), 2);
  EXPECT_EQ(axes({4, 1, 6, 1}, Order{3, 0, 2, 1}), 1);
  EXPECT_TRUE(permute_shape({4, 1, 6}, Order{1, 0, 2}).is_view());
}

TEST(PermuteWorkTest, ReadsAndWritesEachElementOnce) {
  const PermuteShape shape = permute_shape({4, 5, 6}, Order{0, 2, 1});
  expect_work({{"permute", [=](const Exec& e) { work::permute(e, shape, kHalf, kSome, kSome); }, 2 * 2 * 120, 0}});
}

TEST(PermuteCpuTest, SameBitsForAllThreads) {
  for (const Order& order : {Order{0, 2, 1}, Order{1, 0, 2}})
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      const Shape shape{9, 197, 65};
      const DeviceBuffer x(device, random_values(shape.elements(), 2, DType::float16), DType::float16);
      GuardedBuffer y(device, shape.elements(), DType::float16);
      BANTAM_KERNEL(device.exec(), permute, permute_shape(shape, order), DType::float16, x.data(), y.data());
      return y.download_bytes();
    });
}

}  // namespace
}  // namespace bantam::kernels::permute_test

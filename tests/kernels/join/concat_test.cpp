// Concat and its gradient against hand values and the reference, on every device.
#include "bantam/kernels/join/concat.h"

#include <memory>

#include "bantam/kernels/join/join_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::concat_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class ConcatTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ConcatTest, ::testing::ValuesIn(test_devices()), device_test_name);

struct Sizes {
  std::int64_t rows;
  std::vector<std::int64_t> widths;
};
/// Whole vectors, groups of four, odd ones, one array, as many as a call can, and more rows than a grid has.
std::vector<Sizes> sizes() {
  return {{1, {1}},
          {5, {3, 1, 7}},
          {40, {8, 16}},
          {33, {4, 12, 4}},
          {300, {64, 32, 32, 32}},
          {70, {65, 8}},
          {9, std::vector<std::int64_t>(kMostJoined, 8)},
          {9, std::vector<std::int64_t>(kMostJoined, 3)},
          {70000, {8, 24}},
          {2, {1000, 4096}}};
}

JoinShape shape_of(const Sizes& sizes, std::int64_t before = 0, std::int64_t after = 0) {
  JoinShape shape{.rows = sizes.rows, .count = static_cast<int>(sizes.widths.size())};
  shape.begin[0] = before;
  for (int i = 0; i < shape.count; ++i) shape.begin[i + 1] = shape.begin[i] + sizes.widths[static_cast<std::size_t>(i)];
  shape.channels = shape.begin[shape.count] + after;
  return shape;
}

std::vector<std::vector<float>> random_inputs(const Sizes& sizes, DType dtype, std::uint64_t seed = 1) {
  std::vector<std::vector<float>> inputs;
  for (const std::int64_t width : sizes.widths) inputs.push_back(random_values(sizes.rows * width, seed++, dtype));
  return inputs;
}

using Buffers = std::vector<std::unique_ptr<GuardedBuffer>>;

TEST_P(ConcatTest, HandComputed) {
  const Sizes two{2, {2, 1}};
  const JoinShape shape = shape_of(two);
  const DeviceBuffer a(device(), {1, 2, 4, 5}, DType::float32), b(device(), {3, 6}, DType::float32);
  GuardedBuffer y(device(), 6, DType::float32), da(device(), std::vector<float>{10, 20, 30, 40});
  BANTAM_KERNEL(exec(), concat, shape, DType::float32, {.data = {a.data(), b.data()}}, y.data());
  EXPECT_EQ(y.download(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  BANTAM_KERNEL(exec(), split, shape, DType::float32, {y.data()}, {.data = {da.data()}, .addend = {da.data()}});
  EXPECT_EQ(da.download(), (std::vector<float>{11, 22, 34, 45}));  // b's part goes nowhere
}

TEST_P(ConcatTest, MatchesReferenceToTheBit) {
  for (const DType dtype : kFloatingTypes)
    for (const Sizes& size : sizes()) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << size.rows << " rows, " << size.widths.size());
      const JoinShape shape = shape_of(size);
      const std::vector<std::vector<float>> inputs = random_inputs(size, dtype);
      std::vector<std::unique_ptr<DeviceBuffer>> buffers;
      ConcatInputs from;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device(), inputs[i], dtype));
        from.data[i] = buffers[i]->data();
      }
      GuardedBuffer y(device(), shape.rows * shape.channels, dtype);
      BANTAM_KERNEL(exec(), concat, shape, dtype, from, y.data());
      EXPECT_EQ(y.download(), reference::concat(size.rows, inputs));

      Buffers parts;
      SplitOutputs to;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        parts.push_back(std::make_unique<GuardedBuffer>(device(), size.rows * size.widths[i], dtype));
        to.data[i] = parts[i]->data();
      }
      BANTAM_KERNEL(exec(), split, shape, dtype, {y.data()}, to);
      for (std::size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(parts[i]->download(), inputs[i]) << "part " << i;
    }
}

TEST_P(ConcatTest, PartsAreAddedInPlaceOrApart) {
  for (const DType dtype : kFloatingTypes)
    for (const Sizes& size : sizes()) {
      const JoinShape shape = shape_of(size);
      const std::vector<std::vector<float>> parts = random_inputs(size, dtype), there = random_inputs(size, dtype, 100);
      const DeviceBuffer x(device(), reference::concat(size.rows, parts), dtype);
      std::vector<std::unique_ptr<DeviceBuffer>> addends;
      Buffers apart;
      SplitOutputs to;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        addends.push_back(std::make_unique<DeviceBuffer>(device(), there[i], dtype));
        apart.push_back(std::make_unique<GuardedBuffer>(device(), static_cast<std::int64_t>(parts[i].size()), dtype));
        to.addend[i] = addends[i]->data();
        to.data[i] = i % 2 == 0 ? addends[i]->data() : apart[i]->data();
      }
      BANTAM_KERNEL(exec(), split, shape, dtype, {x.data()}, to);
      for (std::size_t i = 0; i < parts.size(); ++i) {
        std::vector<double> sum = as_double(parts[i]);
        for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += there[i][k];
        const std::vector<float> got = i % 2 == 0 ? addends[i]->download() : apart[i]->download();
        EXPECT_LT(relative_error(got, sum), sum_tolerance(dtype, 2)) << "part " << i;
      }
    }
}

// As `add` and then `split` would: the sum of both is rounded before the addend comes.
TEST_P(ConcatTest, SplitsASumOfTwo) {
  for (const DType dtype : kFloatingTypes)
    for (const Sizes& size : sizes()) {
      const JoinShape shape = shape_of(size);
      const std::int64_t all = shape.rows * shape.channels, first = shape.rows * shape.width(0);
      const std::vector<float> a = random_values(all, 1, dtype), b = random_values(all, 2, dtype);
      std::vector<float> sum;
      for (std::size_t i = 0; i < a.size(); ++i) sum.push_back(rounded(a[i] + b[i], dtype));
      const DeviceBuffer x(device(), a, dtype), other(device(), b, dtype), both(device(), sum, dtype);
      const DeviceBuffer addend(device(), random_values(first, 3, dtype), dtype);
      const auto parts = [&](const SplitInput& input) {
        Buffers to;
        SplitOutputs outputs{.addend = {addend.data()}};
        for (int i = 0; i < shape.count; ++i) {
          to.push_back(std::make_unique<GuardedBuffer>(device(), shape.rows * shape.width(i), dtype));
          outputs.data[i] = to.back()->data();
        }
        BANTAM_KERNEL(exec(), split, shape, dtype, input, outputs);
        std::vector<std::vector<float>> values;
        for (const auto& part : to) values.push_back(part->download());
        return values;
      };
      EXPECT_EQ(parts({.x = x.data(), .other = other.data()}), parts({.x = both.data()}));
    }
}

TEST_P(ConcatTest, CoversOnlyItsColumns) {
  for (const std::int64_t before : {8, 3}) {
    const Sizes size{50, {16, 8}};
    const JoinShape shape = shape_of(size, before, 5);
    const std::vector<std::vector<float>> inputs = random_inputs(size, DType::float16);
    const std::vector<float> start = random_values(shape.rows * shape.channels, 9, DType::float16);
    const DeviceBuffer a(device(), inputs[0], DType::float16), b(device(), inputs[1], DType::float16);
    const DeviceBuffer y(device(), start, DType::float16);
    BANTAM_KERNEL(exec(), concat, shape, DType::float16, {.data = {a.data(), b.data()}}, y.data());
    std::vector<float> expected = start;
    for (std::int64_t r = 0; r < size.rows; ++r)
      for (std::int64_t c = 0; c < 24; ++c)
        expected[static_cast<std::size_t>(r * shape.channels + before + c)] =
            c < 16 ? inputs[0][static_cast<std::size_t>(r * 16 + c)]
                   : inputs[1][static_cast<std::size_t>(r * 8 + c - 16)];
    EXPECT_EQ(y.download(), expected);
  }
}

TEST_P(ConcatTest, NothingOfNothing) {
  const JoinShape shape = shape_of({0, {3, 4}});
  BANTAM_KERNEL(exec(), concat, shape, DType::float32, {}, nullptr);
  BANTAM_KERNEL(exec(), split, shape, DType::float32, {}, {});
}

TEST(ConcatCpuTest, SameBitsForAllThreads) {
  for (const Sizes& size : sizes())
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      const JoinShape shape = shape_of(size);
      const DeviceBuffer x(device, random_values(shape.rows * shape.channels, 2, DType::float16), DType::float16);
      const DeviceBuffer first(device, random_values(shape.rows * shape.width(0), 3), DType::float16);
      GuardedBuffer to(device, shape.rows * shape.width(0), DType::float16);
      const SplitOutputs outputs{.data = {to.data()}, .addend = {first.data()}};
      BANTAM_KERNEL(device.exec(), split, shape, DType::float16, {x.data()}, outputs);
      return to.download_bytes();
    });
}

}  // namespace
}  // namespace bantam::kernels::concat_test

// Padding, resizing and depth to space: hand values, PyTorch's values, every device against the reference, gradients
// against differences in double, determinism, guards.
#include "bantam/kernels/image/axis_maps.h"
#include "bantam/kernels/image/image_ops_reference.h"
#include "tests/kernels/image/image_values.h"

namespace bantam::kernels::image_ops_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

class ImageOpsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ImageOpsTest, ::testing::ValuesIn(test_devices()), device_test_name);

void forward(const Exec& exec, const Pad2dShape& s, DType dtype, const void* x, void* y) {
  BANTAM_KERNEL(exec, pad2d_forward, s, dtype, x, y);
}
void forward(const Exec& exec, const Resize2dShape& s, DType dtype, const void* x, void* y) {
  BANTAM_KERNEL(exec, resize2d_forward, s, dtype, x, y);
}
void backward(const Exec& exec, const Pad2dShape& s, DType dtype, const void* dy, void* dx) {
  BANTAM_KERNEL(exec, pad2d_grad_input, s, dtype, dy, dx);
}
void backward(const Exec& exec, const Resize2dShape& s, DType dtype, const void* dy, void* dx) {
  BANTAM_KERNEL(exec, resize2d_grad_input, s, dtype, dy, dx);
}

/// y and dx on a device.
struct Results {
  template <class ImageShape>
  Results(KernelDevice& device, const ImageShape& s, DType dtype, const std::vector<float>& x_values,
          const std::vector<float>& dy_values)
      : y(device, s.y_elements(), dtype), dx(device, s.x_elements(), dtype) {
    const DeviceBuffer x(device, x_values, dtype), dy(device, dy_values, dtype);
    forward(device.exec(), s, dtype, x.data(), y.data());
    backward(device.exec(), s, dtype, dy.data(), dx.data());
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = y.download_bytes(), more = dx.download_bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  GuardedBuffer y, dx;
};

constexpr EdgeMode kModes[] = {EdgeMode::zeros, EdgeMode::replicate, EdgeMode::reflect, EdgeMode::circular};
constexpr ResizeMode kResizes[] = {ResizeMode::nearest, ResizeMode::bilinear, ResizeMode::bilinear_align_corners};

TEST_P(ImageOpsTest, PaddingByHand) {
  const auto padded = [&](EdgeMode mode, std::int64_t left, std::int64_t right) {
    const Pad2dShape s{.batch = 1, .in_h = 1, .in_w = 4, .channels = 1, .left = left, .right = right, .mode = mode};
    const Results r(device(), s, DType::float32, {1, 2, 3, 4}, std::vector<float>(8, 1.0f));
    std::vector<float> all = r.y.download();
    const std::vector<float> dx = r.dx.download();
    all.insert(all.end(), dx.begin(), dx.end());
    return all;
  };
  using Values = std::vector<float>;
  EXPECT_EQ(padded(EdgeMode::zeros, 1, 3), (Values{0, 1, 2, 3, 4, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(padded(EdgeMode::replicate, 1, 3), (Values{1, 1, 2, 3, 4, 4, 4, 4, 2, 1, 1, 4}));
  EXPECT_EQ(padded(EdgeMode::reflect, 1, 3), (Values{2, 1, 2, 3, 4, 3, 2, 1, 2, 3, 2, 1}));
  EXPECT_EQ(padded(EdgeMode::circular, 1, 3), (Values{4, 1, 2, 3, 4, 1, 2, 3, 2, 2, 2, 2}));
  EXPECT_EQ(padded(EdgeMode::zeros, -1, 5), (Values{2, 3, 4, 0, 0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST_P(ImageOpsTest, ResizingByHand) {
  const auto resized = [&](ResizeMode mode, std::int64_t out) {
    const Resize2dShape s{.batch = 1, .in_h = 1, .in_w = 2, .channels = 1, .out_h = 1, .out_w = out, .mode = mode};
    const Results r(device(), s, DType::float32, {0, 12}, {1, 2, 4, 8});
    std::vector<float> all = r.y.download();
    const std::vector<float> dx = r.dx.download();
    all.insert(all.end(), dx.begin(), dx.end());
    return all;
  };
  using Values = std::vector<float>;
  EXPECT_EQ(resized(ResizeMode::nearest, 4), (Values{0, 0, 12, 12, 3, 12}));
  EXPECT_EQ(resized(ResizeMode::bilinear, 4), (Values{0, 3, 9, 12, 3.5, 11.5}));  // places -1/4, 1/4, 3/4, 5/4
  const Values aligned = resized(ResizeMode::bilinear_align_corners, 4);          // places 0, 1/3, 2/3, 1
  const std::vector<double> expected{0, 4, 8, 12, 1 + 4.0 / 3 + 4.0 / 3, 2.0 / 3 + 8.0 / 3 + 8};
  expect_close(aligned, expected, 1e-6);
}

TEST_P(ImageOpsTest, HasPyTorchsValues) {
  using namespace testing::oracle;  // NOLINT: its cases
  const auto check = [&](const auto& s, const ImageCase& wanted) {
    const Results r(device(), s, DType::float32, oracle_x(s.x_elements()), oracle_dy(s.y_elements()));
    expect_oracle(r.y.download(), r.dx.download(), wanted);
  };
  check(Resize2dShape{1, 2, 3, 2, 5, 6, ResizeMode::nearest}, kNearestUp);
  check(Resize2dShape{2, 5, 7, 1, 3, 2, ResizeMode::nearest}, kNearestDown);
  check(Resize2dShape{1, 2, 3, 2, 5, 6, ResizeMode::bilinear}, kBilinearUp);
  check(Resize2dShape{2, 5, 7, 1, 3, 2, ResizeMode::bilinear}, kBilinearDown);
  check(Resize2dShape{1, 3, 2, 2, 5, 4, ResizeMode::bilinear_align_corners}, kBilinearAligned);
  check(Resize2dShape{1, 3, 4, 2, 1, 6, ResizeMode::bilinear_align_corners}, kBilinearAlignedOne);
  check(Pad2dShape{1, 2, 3, 2, 1, 0, -1, 2, EdgeMode::zeros}, kPadZeros);
  check(Pad2dShape{1, 2, 3, 2, 1, 2, 3, 0, EdgeMode::replicate}, kPadReplicate);
  check(Pad2dShape{2, 3, 4, 1, 2, 1, 2, -1, EdgeMode::reflect}, kPadReflect);
  check(Pad2dShape{2, 3, 4, 1, 3, 1, -1, 2, EdgeMode::circular}, kPadCircular);
}

/// Every mode with odd extents; channels that do and do not make packs.
std::vector<Pad2dShape> pad_shapes() {
  std::vector<Pad2dShape> all;
  for (const std::int64_t c : {1, 3, 8, 20, 64})
    for (const EdgeMode mode : kModes) {
      all.push_back({2, 5, 7, c, 1, 2, 3, 4, mode});
      all.push_back({1, 6, 5, c, -2, 1, 0, -3, mode});
      all.push_back({3, 1, 9, c, 0, 0, -4, 4, mode});
    }
  return all;
}

std::vector<Resize2dShape> resize_shapes() {
  std::vector<Resize2dShape> all;
  for (const std::int64_t c : {1, 3, 8, 20, 64})
    for (const ResizeMode mode : kResizes) {
      all.push_back({2, 3, 5, c, 6, 10, mode});
      all.push_back({1, 7, 4, c, 3, 9, mode});
      all.push_back({2, 1, 6, c, 5, 1, mode});
      all.push_back({1, 49, 2, c, 31, 98, mode});
    }
  return all;
}

template <class ImageShape>
void expect_reference(KernelDevice& device, const ImageShape& s, DType dtype) {
  SCOPED_TRACE(::testing::Message() << to_string(dtype) << " channels " << s.channels << ", mode "
                                    << static_cast<int>(s.mode) << ", " << s.in_h << "x" << s.in_w);
  const auto x = random_values(s.x_elements(), 1, dtype), dy = random_values(s.y_elements(), 2, dtype);
  const Results r(device, s, dtype, x, dy);
  // A pixel is read by at most 49/31 · 98/2 rounded up outputs: 2 times 98, and a few more where places are clamped.
  EXPECT_LT(relative_error(r.y.download(), reference::image_forward(s, as_double(x))), sum_tolerance(dtype, 4));
  EXPECT_LT(relative_error(r.dx.download(), reference::image_grad_input(s, as_double(dy))), sum_tolerance(dtype, 256));
  EXPECT_EQ(r.bytes(), Results(device, s, dtype, x, dy).bytes()) << "the same bits every time";
}

TEST_P(ImageOpsTest, MatchTheReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const Pad2dShape& s : pad_shapes()) expect_reference(device(), s, dtype);
    for (const Resize2dShape& s : resize_shapes()) expect_reference(device(), s, dtype);
  }
}

/// Both are linear: Σ dy·f(x + direction) - Σ dy·f(x) is Σ dx·direction, for the reference in double.
template <class ImageShape>
void expect_gradient(const ImageShape& s) {
  const auto x = as_double(random_values(s.x_elements(), 1, DType::float32));
  const auto direction = as_double(random_values(s.x_elements(), 2, DType::float32));
  const auto dy = as_double(random_values(s.y_elements(), 3, DType::float32));
  std::vector<double> moved = x;
  for (std::size_t i = 0; i < x.size(); ++i) moved[i] += direction[i];
  const auto weighted = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  const double difference =
      weighted(reference::image_forward(s, moved), dy) - weighted(reference::image_forward(s, x), dy);
  EXPECT_NEAR(difference, weighted(reference::image_grad_input(s, dy), direction), 1e-9);
}

TEST(ImageReference, GradientsAreTheFunctions) {
  for (const Pad2dShape& s : pad_shapes()) expect_gradient(s);
  for (const Resize2dShape& s : resize_shapes()) expect_gradient(s);
}

/// Every reader of every input, by for_each_reader, is what the outputs say they read, in order.
template <class Axis, class Reads>
void expect_readers(const Axis& axis, Reads&& reads) {
  for (std::int32_t i = 0; i < axis.in; ++i) {
    std::vector<std::int32_t> found, expected;
    axis.for_each_reader(i, [&](std::int32_t o, float) { found.push_back(o); });
    for (std::int32_t o = 0; o < axis.out; ++o)
      if (reads(o, i)) expected.push_back(o);
    ASSERT_EQ(found, expected) << axis.in << " to " << axis.out << ", input " << i;
  }
}

TEST(AxisMaps, AnInputsReadersAreThoseThatReadIt) {
  for (const std::int64_t in : {1, 2, 3, 7, 16, 49})
    for (std::int64_t out = 1; out <= 100; ++out) {
      const NearestAxis nearest = nearest_axis(in, out);
      expect_readers(nearest, [&](std::int32_t o, std::int32_t i) { return nearest.source(o) == i; });
      for (const bool align : {false, true}) {
        const BilinearAxis bilinear = bilinear_axis(in, out, align);
        expect_readers(bilinear, [&](std::int32_t o, std::int32_t i) {
          return bilinear.blend(o).low == i || bilinear.blend(o).low == i - 1;
        });
      }
    }
  for (const EdgeMode mode : kModes)
    for (std::int64_t before = -3; before <= 4; ++before)
      for (std::int64_t after = -1; after <= 4; ++after) {
        const PadAxis pad = pad_axis(9, before, after, mode);
        expect_readers(pad, [&](std::int32_t o, std::int32_t i) { return pad.source(o) == i; });
      }
}

/// Both directions on a device.
void expect_depth_to_space(KernelDevice& device, const DepthToSpaceShape& s, DType dtype) {
  SCOPED_TRACE(::testing::Message() << to_string(dtype) << " channels " << s.channels << ", block " << s.block << ", "
                                    << (s.channel_first ? "channel first" : "depth first"));
  const auto deep = random_values(s.elements(), 1, dtype);
  const DeviceBuffer from(device, deep, dtype);
  GuardedBuffer wide(device, s.elements(), dtype), back(device, s.elements(), dtype);
  BANTAM_KERNEL(device.exec(), depth_to_space, s, dtype, from.data(), wide.data());
  BANTAM_KERNEL(device.exec(), space_to_depth, s, dtype, wide.data(), back.data());
  device.synchronize();
  std::vector<float> expected;
  for (const std::size_t source : reference::depth_to_space_sources(s)) expected.push_back(deep[source]);
  EXPECT_EQ(wide.download(), expected);
  EXPECT_EQ(back.download(), deep);
}

TEST_P(ImageOpsTest, DepthToSpaceMatchesTheReference) {
  for (const DType dtype : kFloatingTypes)
    for (const std::int64_t channels : {1, 3, 8, 20, 64})
      for (const std::int64_t block : {1, 2, 3, 4})
        for (const bool channel_first : {false, true})
          expect_depth_to_space(device(), {2, 3, 5, channels, block, channel_first}, dtype);
}

TEST_P(ImageOpsTest, DepthToSpaceHasPyTorchsValues) {
  const DepthToSpaceShape s{1, 2, 3, 2, 2, true};
  const DeviceBuffer x(device(), oracle_x(s.elements()), DType::float32),
      dy(device(), oracle_dy(s.elements()), DType::float32);
  GuardedBuffer y(device(), s.elements(), DType::float32), dx(device(), s.elements(), DType::float32);
  BANTAM_KERNEL(exec(), depth_to_space, s, DType::float32, x.data(), y.data());
  BANTAM_KERNEL(exec(), space_to_depth, s, DType::float32, dy.data(), dx.data());
  device().synchronize();
  expect_oracle(y.download(), dx.download(), testing::oracle::kPixelShuffle);
}

}  // namespace
}  // namespace bantam::kernels::image_ops_test

// Image batches: by hand, and the same bits as the reference for every crop, pad, flip and shape.
#include "bantam/kernels/input/image_batch.h"

#include <cmath>

#include <gtest/gtest.h>

#include "bantam/kernels/input/image_batch_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::image_batch_test {
namespace {

using kernels::ImageBatchShape;
using kernels::ImagePlacement;
using kernels::PadMode;

/// Neither whole numbers nor of one sign.
std::vector<float> random_floats(std::int64_t count, std::uint64_t seed) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& v : values) v = static_cast<float>(random.below(20001)) / 977.0f - 10.0f;
  return values;
}

std::vector<std::uint8_t> random_bytes(std::int64_t count, std::uint64_t seed) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::test));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random.next());
  return bytes;
}

/// Scales and shifts like those of a normalised data set: neither is exact in binary.
ImageBatchShape normalised(ImageBatchShape shape) {
  for (int c = 0; c < 8; ++c) {
    shape.scale[c] = 1.0f / (255.0f * (0.2f + 0.01f * static_cast<float>(c)));
    shape.shift[c] = -0.47f / (0.2f + 0.01f * static_cast<float>(c));
    shape.erased[c] = static_cast<float>(100 + 3 * c);
  }
  return shape;
}

template <class S>
std::vector<float> run(KernelDevice& device, const ImageBatchShape& s, const std::vector<S>& images,
                       const std::vector<ImagePlacement>& placements, DType dtype) {
  const DeviceArray<S> in(device, images);
  const DeviceArray<ImagePlacement> where(device, placements);
  const DeviceBuffer y(device, s.batch * s.out_h * s.out_w * s.channels, dtype);
  BANTAM_KERNEL(device.exec(), image_batch, s, in.data(), where.data(), dtype, y.data());
  return y.download();
}

class ImageBatchTest : public DeviceTest {};

// One 2x3 image, one channel:  1 2 3
//                              4 5 6
TEST_P(ImageBatchTest, ByHand) {
  ImageBatchShape s{.batch = 1, .in_h = 2, .in_w = 3, .channels = 1, .out_h = 2, .out_w = 2};
  s.scale[0] = 2;
  s.shift[0] = 0.5f;
  const std::vector<std::uint8_t> image = {1, 2, 3, 4, 5, 6};
  const auto crop = [&](ImagePlacement p) { return run(device(), s, image, {p}, DType::float32); };
  EXPECT_EQ(crop({0, 0, 0, 0}), (std::vector<float>{2.5f, 4.5f, 8.5f, 10.5f}));
  EXPECT_EQ(crop({0, 0, 1, 0}), (std::vector<float>{4.5f, 6.5f, 10.5f, 12.5f}));
  EXPECT_EQ(crop({0, 0, 1, 1}), (std::vector<float>{6.5f, 4.5f, 12.5f, 10.5f}));
  EXPECT_EQ(crop({0, 1, 2, 0}), (std::vector<float>{12.5f, 0.5f, 0.5f, 0.5f}));
  EXPECT_EQ(crop({0, -1, -1, 1}), (std::vector<float>{0.5f, 0.5f, 2.5f, 0.5f}));
  s.erased[0] = 7;  // column 1 of row 0, whichever pixel that is
  EXPECT_EQ(crop({0, 0, 1, 0, 0, 1, 1, 1}), (std::vector<float>{4.5f, 14.5f, 10.5f, 12.5f}));
  EXPECT_EQ(crop({0, 0, 1, 1, 0, 1, 1, 1}), (std::vector<float>{6.5f, 14.5f, 12.5f, 10.5f}));
  ImagePlacement changed{0, -1, -1, 1};  // padding and what is erased change, too
  changed.offset = 0.25f, changed.factor = 2;
  EXPECT_EQ(crop(changed), (std::vector<float>{1.5f, 1.5f, 5.5f, 1.5f}));
  changed.erase_height = changed.erase_width = 1, changed.offset = 0, changed.factor = -1;
  EXPECT_EQ(crop(changed), (std::vector<float>{-14.5f, -0.5f, -2.5f, -0.5f}));
  s.pad_mode = PadMode::reflect;
  EXPECT_EQ(crop({0, 1, 2, 0}), (std::vector<float>{12.5f, 10.5f, 6.5f, 4.5f}));
  EXPECT_EQ(crop({0, -1, -1, 0}), (std::vector<float>{10.5f, 8.5f, 4.5f, 2.5f}));
}

struct Case {
  std::int64_t batch, in_h, in_w, channels, out_h, out_w;
  int reach;  // how far crops go beyond the image
};

// Crops with padding as CIFAR has them, 1 to 8 channels, rows of more than one block, images of one pixel, sizes not a
// multiple of 4, padding wider than the image; more channels than have factors of their own, and than fit a block;
// vectors of features.
const Case kCases[] = {{16, 32, 32, 3, 32, 32, 4}, {5, 5, 7, 1, 6, 4, 3},     {3, 9, 11, 8, 7, 13, 2},
                       {2, 6, 150, 3, 5, 141, 9},  {4, 1, 1, 3, 3, 3, 2},     {3, 4, 3, 2, 9, 8, 11},
                       {2, 8, 70, 5, 8, 65, 6},    {1, 3, 200, 4, 3, 200, 0}, {3, 5, 4, 9, 4, 4, 2},
                       {2, 3, 2, 1027, 3, 3, 1},   {5, 1, 777, 1, 1, 777, 0}};

constexpr std::int64_t kStored = 6;

std::vector<ImagePlacement> random_placements(const Case& c) {
  PhiloxSequence random(philox_key(2, RandomPurpose::test));
  std::vector<ImagePlacement> placements;
  const auto offset = [&] {
    return static_cast<std::int16_t>(static_cast<int>(random.below(2 * c.reach + 1)) - c.reach);
  };
  for (std::int64_t b = 0; b < c.batch; ++b) {
    placements.push_back({static_cast<std::int32_t>(random.below(kStored)), offset(), offset(),
                          static_cast<std::int32_t>(random.below(2))});
    ImagePlacement& p = placements.back();
    if (b % 2 == 1) p.offset = random.uniform(-0.2f, 0.2f), p.factor = random.uniform(0.8f, 1.2f);
    if (b % 3 == 1) continue;  // these have no rectangle
    const auto below = [&](std::int64_t bound) { return static_cast<std::int16_t>(random.below(bound)); };
    p.erase_top = below(c.out_h), p.erase_left = below(c.out_w);
    p.erase_height = below(c.out_h - p.erase_top + 1), p.erase_width = below(c.out_w - p.erase_left + 1);
  }
  return placements;
}

template <class S>
void expect_reference_bits(KernelDevice& device, const ImageBatchShape& s, const std::vector<S>& images,
                           const std::vector<ImagePlacement>& placements) {
  std::vector<float> expected(static_cast<std::size_t>(s.batch * s.out_h * s.out_w * s.channels));
  kernels::reference::image_batch(s, images.data(), placements.data(), expected.data());
  std::vector<double> exact(expected.size());
  kernels::reference::image_batch(s, images.data(), placements.data(), exact.data());
  EXPECT_LE(relative_error(expected, exact), 4 * unit_roundoff(DType::float32));
  for (const DType dtype : kernel_dtypes()) {
    std::vector<float> narrowed;
    for (const float v : expected) narrowed.push_back(rounded(v, dtype));
    ASSERT_EQ(bits_of(run(device, s, images, placements, dtype)), bits_of(narrowed)) << s.in_w << " " << s.channels;
  }
}

TEST_P(ImageBatchTest, IsTheReferenceBitForBit) {
  for (const Case& c : kCases) {
    for (const PadMode mode : {PadMode::zero, PadMode::reflect}) {
      ImageBatchShape s{c.batch, c.in_h, c.in_w, c.channels, c.out_h, c.out_w, mode, {}, {}};
      s = normalised(s);
      const std::int64_t values = kStored * c.in_h * c.in_w * c.channels;
      const std::vector<ImagePlacement> placements = random_placements(c);
      expect_reference_bits(device(), s, random_bytes(values, 1), placements);
      s.stored = DType::float32;
      expect_reference_bits(device(), s, random_floats(values, 1), placements);
    }
  }
}

TEST_P(ImageBatchTest, WithoutBrightnessAndContrastNoBitChanges) {
  ImageBatchShape s{.batch = 2, .in_h = 1, .in_w = 2, .channels = 1, .out_h = 1, .out_w = 2};
  s.scale[0] = 1, s.shift[0] = -0.0f, s.stored = DType::float32;
  std::vector<ImagePlacement> placements(2);
  placements[1].offset = 0.5f;
  const std::vector<float> y = run(device(), s, std::vector<float>{-0.0f, 1}, placements, DType::float32);
  EXPECT_EQ(y, (std::vector<float>{0, 1, 0.5f, 1.5f}));
  EXPECT_TRUE(std::signbit(y[0]));
}

TEST_P(ImageBatchTest, RefusesOtherStoredTypes) {
  ImageBatchShape s{.batch = 1, .in_h = 1, .in_w = 1, .channels = 1, .out_h = 1, .out_w = 1};
  s.stored = DType::int32;
  EXPECT_THROW((void)run(device(), s, std::vector<std::int32_t>{1}, {{}}, DType::float32), DTypeError);
}

// Shows that the bit-for-bit test would notice a fused multiply-add: for these scales it computes other bits.
TEST(ImageBatchReference, AFusedMultiplyAddWouldDiffer) {
  const ImageBatchShape s = normalised({});
  int different = 0;
  for (int pixel = 0; pixel < 256; ++pixel) {
    volatile float product = static_cast<float>(pixel) * s.scale[0];
    different += std::fma(static_cast<float>(pixel), s.scale[0], s.shift[0]) != product + s.shift[0] ? 1 : 0;
  }
  EXPECT_GT(different, 20);
}

TEST_P(ImageBatchTest, LabelsFollowTheirImages) {
  std::vector<std::int32_t> labels, expected;
  std::vector<ImagePlacement> placements;
  for (std::int32_t i = 0; i < 300; ++i) labels.push_back(1000 - i);
  for (std::int32_t b = 0; b < 1003; ++b) {
    placements.push_back({(b * 7) % 300, 0, 0, 0});
    expected.push_back(1000 - (b * 7) % 300);
  }
  const DeviceArray<std::int32_t> in(device(), labels), out(device(), std::vector<std::int32_t>(1003, -1));
  const DeviceArray<ImagePlacement> where(device(), placements);
  BANTAM_KERNEL(exec(), label_batch, 1003, in.data(), where.data(), out.data());
  EXPECT_EQ(out.download(), expected);
}

// Batches of an epoch from its table: the images and labels of the placements from the cursor on, which moves on.
TEST_P(ImageBatchTest, AnEpochIsReadFromTheCursorOn) {
  const ImageBatchShape s =
      normalised({.batch = 3, .in_h = 5, .in_w = 6, .channels = 3, .out_h = 4, .out_w = 4, .pad_mode = PadMode::zero});
  const std::vector<std::uint8_t> images = random_bytes(7 * 5 * 6 * 3, 2);
  const std::vector<std::int32_t> labels = {70, 71, 72, 73, 74, 75, 76};
  std::vector<ImagePlacement> placements;
  for (std::int32_t k = 0; k < 12; ++k)
    placements.push_back({(k * 5) % 7, static_cast<std::int16_t>(k % 3 - 1), static_cast<std::int16_t>(k % 2), k % 2});
  const DeviceArray<std::uint8_t> in(device(), images);
  const DeviceArray<std::int32_t> classes(device(), labels);
  const DeviceArray<ImagePlacement> where(device(), placements);
  const DeviceArray<std::int64_t> cursor(device(), {2});
  const kernels::EpochTable epoch{in.data(), classes.data(), where.data(), cursor.data()};
  for (const std::int64_t first : {2, 6}) {
    for (const std::int64_t offset : {0, 3}) {
      const DeviceBuffer y(device(), s.batch * s.out_h * s.out_w * s.channels, DType::float16);
      const DeviceArray<std::int32_t> labels_out(device(), {-1, -1, -1});
      BANTAM_KERNEL(exec(), epoch_batch, s, epoch, offset, DType::float16, y.data(), labels_out.data());
      const auto begin = placements.begin() + first + offset;
      EXPECT_EQ(y.download(), run(device(), s, images, {begin, begin + 3}, DType::float16));
      for (std::size_t b = 0; b < 3; ++b)
        EXPECT_EQ(labels_out.download()[b], 70 + (begin + static_cast<std::ptrdiff_t>(b))->image);
    }
    BANTAM_KERNEL(exec(), advance_epoch, epoch, 4);
    EXPECT_EQ(cursor.download()[0], first + 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ImageBatchTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(ImageBatchCpu, BitsDoNotDependOnThreads) {
  const ImageBatchShape s = normalised({9, 32, 32, 3, 32, 32, PadMode::reflect, {}, {}});
  const std::vector<std::uint8_t> images = random_bytes(9 * 32 * 32 * 3, 3);
  std::vector<ImagePlacement> placements;
  for (std::int16_t b = 0; b < 9; ++b) {
    placements.push_back({b, static_cast<std::int16_t>(b - 4), static_cast<std::int16_t>(4 - b), b % 2});
  }
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    KernelDevice device(Device::cpu(), threads);
    results.push_back(run(device, s, images, placements, DType::float32));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace bantam::testing::image_batch_test

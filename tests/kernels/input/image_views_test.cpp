// Views of images: by hand, and the same bits as the reference for every size, type, place and border.
#include "bantam/kernels/input/image_views.h"

#include <numeric>

#include <gtest/gtest.h>

#include "bantam/kernels/input/image_views_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::image_views_test {
namespace {

using kernels::ImageViewShape;
using kernels::PadMode;

class ImageViewsTest : public DeviceTest {
 protected:
  std::vector<float> view(const ImageViewShape& s, const std::vector<float>& images, DType dtype,
                          const std::vector<std::int32_t>& rows = {}) {
    const DeviceBuffer x(device(), images, dtype);
    const DeviceBuffer y(
        device(), std::vector<float>(static_cast<std::size_t>(s.count * s.height * s.width * s.channels)), dtype);
    const DeviceArray<std::int32_t> table(device(), rows.empty() ? std::vector<std::int32_t>(1) : rows);
    BANTAM_KERNEL(device().exec(), image_views, s, dtype, x.data(), rows.empty() ? nullptr : table.data(), y.data());
    return y.download();
  }
};

// One image of 3x3 pixels, 1 … 9, padded by 1 and cropped.
TEST_P(ImageViewsTest, ByHand) {
  const std::vector<float> image = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  ImageViewShape s{.count = 1, .height = 3, .width = 3, .channels = 1, .pad_mode = PadMode::reflect};
  for (const DType dtype : kernel_dtypes()) {
    EXPECT_EQ(view(s, image, dtype), image);
    s.flip = true;
    EXPECT_EQ(view(s, image, dtype), (std::vector<float>{3, 2, 1, 6, 5, 4, 9, 8, 7}));
    s.flip = false;
    s.top = s.left = -1;  // the corner above and left
    EXPECT_EQ(view(s, image, dtype), (std::vector<float>{5, 4, 5, 2, 1, 2, 5, 4, 5}));
    s.top = s.left = 1;
    EXPECT_EQ(view(s, image, dtype), (std::vector<float>{5, 6, 5, 8, 9, 8, 5, 6, 5}));
    s.pad_mode = PadMode::zero;
    EXPECT_EQ(view(s, image, dtype), (std::vector<float>{5, 6, 0, 8, 9, 0, 0, 0, 0}));
    s.flip = true;  // of the crop, not of the image
    EXPECT_EQ(view(s, image, dtype), (std::vector<float>{0, 6, 5, 0, 9, 8, 0, 0, 0}));
    s = {.count = 1, .height = 3, .width = 3, .channels = 1, .pad_mode = PadMode::reflect};
  }
}

// Four images of one pixel each, of which numbers 5 to 8 are there.
TEST_P(ImageViewsTest, RowsAreGathered) {
  const ImageViewShape s{.count = 3, .height = 1, .width = 1, .channels = 2, .first_row = 5};
  const std::vector<float> images = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const DType dtype : kernel_dtypes())
    EXPECT_EQ(view(s, images, dtype, {5, 8, 6}), (std::vector<float>{1, 2, 7, 8, 3, 4}));
}

// Sizes that are no multiple of 4, a row longer than a block, one row and one column, shifts beyond the image.
TEST_P(ImageViewsTest, IsTheReferenceBitForBit) {
  const ImageViewShape shapes[] = {{5, 32, 32, 3}, {4, 5, 7, 1},   {3, 1, 9, 2},
                                   {3, 9, 1, 3},   {2, 2, 700, 3}, {1, 3, 3, 5}};
  PhiloxSequence random(philox_key(9, RandomPurpose::test));
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(end)));
  };
  for (ImageViewShape s : shapes) {
    const std::int64_t stored = s.count + 3;
    for (int repeat = 0; repeat < 8; ++repeat) {
      s.pad_mode = repeat % 2 == 0 ? PadMode::reflect : PadMode::zero;
      s.flip = below(2) == 1;
      s.top = below(9) - 4, s.left = below(9) - 4;
      s.first_row = below(100);
      std::vector<std::int32_t> rows;
      if (repeat >= 4)
        for (std::int64_t n = 0; n < s.count; ++n) rows.push_back(s.first_row + below(stored));
      for (const DType dtype : kernel_dtypes()) {
        const std::vector<float> x = random_values(stored * s.height * s.width * s.channels, 7, dtype, -2.0f, 2.0f);
        std::vector<float> expected(static_cast<std::size_t>(s.count * s.height * s.width * s.channels));
        kernels::reference::image_views(s, x.data(), rows.empty() ? nullptr : rows.data(), expected.data());
        ASSERT_EQ(bits_of(view(s, x, dtype, rows)), bits_of(expected)) << s.width << " " << s.top << " " << s.left;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ImageViewsTest, ::testing::ValuesIn(test_devices()), device_test_name);

}  // namespace
}  // namespace bantam::testing::image_views_test

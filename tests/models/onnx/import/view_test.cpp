// Views by hand: images flattened, cut into groups, and back.
#include "bantam/models/onnx/import/view.h"

#include <gtest/gtest.h>

namespace bantam::onnx::view_test {
namespace {

using Extents = std::vector<std::int64_t>;

View image() { return image_view(3, {4, 5, 6}); }  // (batch, 6, 4, 5) in (4, 5, 6)

TEST(OnnxView, OfAnImage) {
  const View view = image();
  EXPECT_EQ(view.layer, 3);
  EXPECT_EQ(view.extents(), (Extents{6, 4, 5}));
  EXPECT_EQ(view.elements(), 120);
  constexpr std::size_t kOurs[] = {1, 2, 0}, kTheirs[] = {0, 1, 2};
  EXPECT_TRUE(is_in_order(view, kOurs));
  EXPECT_FALSE(is_in_order(view, kTheirs));
  EXPECT_TRUE(is_innermost(view, 0, 6));
  EXPECT_FALSE(is_innermost(view, 1, 4));
}

TEST(OnnxView, AxesOfOneValueAreInAnyOrder) {
  const View view = image_view(0, {1, 1, 6});
  constexpr std::size_t kTheirs[] = {0, 1, 2};
  EXPECT_TRUE(is_in_order(view, kTheirs));
  EXPECT_TRUE(same_arrangement(*reshaped(view, Extents{6}), view_of(0, {6}, std::vector<int>{0})));
}

TEST(OnnxView, FlattenedPlacesAreTheChannelsFirst) {
  const View flat = *reshaped(image(), Extents{120});
  const std::vector<std::int64_t> places = value_places(flat);
  ASSERT_EQ(places.size(), 120u);
  for (std::int64_t y = 0; y < 4; ++y)
    for (std::int64_t x = 0; x < 5; ++x)
      for (std::int64_t c = 0; c < 6; ++c)
        EXPECT_EQ(places[static_cast<std::size_t>((y * 5 + x) * 6 + c)], (c * 4 + y) * 5 + x);
}

TEST(OnnxView, ReshapesCutAndMerge) {
  const auto groups = reshaped(image(), Extents{2, 60});  // group norm's
  ASSERT_TRUE(groups);
  EXPECT_EQ(groups->atoms, (Extents{4, 5, 2, 3}));
  EXPECT_EQ(groups->axes, (std::vector<std::vector<int>>{{2}, {3, 0, 1}}));
  const auto back = reshaped(*groups, Extents{6, 4, 5});
  ASSERT_TRUE(back);
  EXPECT_TRUE(same_arrangement(*back, image()));
  EXPECT_FALSE(reshaped(image(), Extents{4, 30}));  // would cut channels and rows together
  EXPECT_FALSE(reshaped(image(), Extents{6, 4}));
  EXPECT_FALSE(reshaped(image(), Extents{6, 4, 5, 2}));
}

TEST(OnnxView, ShuffledChannelsAreNotInOrder) {
  View view = *reshaped(image(), Extents{2, 3, 4, 5});
  std::swap(view.axes[0], view.axes[1]);
  const auto shuffled = reshaped(view, Extents{6, 4, 5});
  ASSERT_TRUE(shuffled);
  constexpr std::size_t kOurs[] = {1, 2, 0};
  EXPECT_FALSE(is_in_order(*shuffled, kOurs));
  EXPECT_FALSE(same_arrangement(*shuffled, image()));
  EXPECT_TRUE(is_innermost(*shuffled, 0, 6));
}

}  // namespace
}  // namespace bantam::onnx::view_test

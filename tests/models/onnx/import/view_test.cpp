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

TEST(OnnxView, ExtentsEndWithinAxesThatFollowEachOther) {
  const View image = view_of(0, {4, 5, 6}, std::vector<int>{0, 1, 2});
  const auto rows = reshaped(image, Extents{15, 8});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->extents(), (Extents{15, 8}));
  EXPECT_TRUE(same_arrangement(*reshaped(*rows, Extents{4, 5, 6}), image));
}

// The batch behind the tokens, in one axis with the heads, and back.
TEST(OnnxView, TheBatchMoves) {
  for (const std::int64_t batch : {std::int64_t{1}, std::int64_t{6}, kOpenBatch}) {
    const View tokens = view_of(0, {5, 12}, std::vector<int>{0, 1});
    View view = with_batch(tokens, batch);
    EXPECT_EQ(view.extents(), (Extents{batch, 5, 12}));
    std::swap(view.axes[0], view.axes[1]);
    if (batch > 1) {
      EXPECT_FALSE(without_batch(view, batch));
      EXPECT_EQ(place_of_batch(view, batch)->axis, 1u);
    }
    View heads = *reshaped(view, Extents{5, batch * 3, 4});
    EXPECT_EQ(heads.extents(), (Extents{5, batch * 3, 4}));
    std::swap(heads.axes[0], heads.axes[1]);
    View split = *reshaped(heads, Extents{batch, 3, 5, 4});
    const auto plain = without_batch(split, batch);
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->extents(), (Extents{3, 5, 4}));
    constexpr std::size_t kOrder[] = {1, 0, 2};
    EXPECT_TRUE(is_in_order(*plain, kOrder));
    const auto back = batch_put(batch_taken(heads, batch), *place_of_batch(heads, batch), batch);
    ASSERT_TRUE(back);
    EXPECT_TRUE(same_arrangement(*back, heads));
  }
  const View flat = with_whole_batch(*reshaped(with_batch(image(), 6), Extents{6 * 120}), 6);
  EXPECT_EQ(place_of_batch(flat, 6)->axis, 0u);
  EXPECT_FALSE(place_of_batch(*reshaped(with_batch(image(), 6), Extents{2, 360}), 6));  // samples taken apart
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

// Narrow gradients: the list of spans, widening in place, and an update that reads them: the bits of wide ones.
#include "bantam/kernels/update/narrow_gradients.h"

#include <cmath>
#include <limits>
#include <string>

#include "bantam/base/error.h"
#include "tests/kernels/update/update_arena.h"

namespace bantam::testing::narrow_gradients_test {
namespace {

using kernels::kWeightBlockSize;
using kernels::NarrowGradients;
using kernels::UpdateControl;
using kernels::UpdateKind;

constexpr DType kHalfTypes[] = {DType::float16, DType::bfloat16};

class NarrowGradientsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NarrowGradientsTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(NarrowGradientsListTest, FindsTheSpanOfAWeightBlock) {
  NarrowGradients narrow;
  for (std::int64_t weight_block : {0, 1, 1000}) EXPECT_EQ(narrow.begin_of(weight_block), -1);
  for (const NarrowGradients::Range range : {NarrowGradients::Range{20, 23}, {0, 1}, {23, 24}, {7, 12}})
    narrow.add(range);
  const auto expected = [](std::int64_t g) {
    return g < 1 ? 0 : g >= 7 && g < 12 ? 7 : g >= 20 && g < 23 ? 20 : g == 23 ? 23 : -1;
  };
  for (std::int64_t weight_block = 0; weight_block < 40; ++weight_block)
    EXPECT_EQ(narrow.begin_of(weight_block), expected(weight_block));
  EXPECT_TRUE(narrow.contain(7));
  EXPECT_FALSE(narrow.contain(8));
  EXPECT_FALSE(narrow.remove(8));
  EXPECT_TRUE(narrow.remove(7));
  EXPECT_EQ(narrow.count, 3);
  for (std::int64_t weight_block = 0; weight_block < 40; ++weight_block)
    EXPECT_EQ(narrow.begin_of(weight_block), expected(weight_block) == 7 ? -1 : expected(weight_block));
}

TEST(NarrowGradientsListTest, HoldsNoMoreThanItHasRoomFor) {
  NarrowGradients narrow;
  for (std::int32_t i = NarrowGradients::kMost; i > 0; --i) narrow.add({2 * i, 2 * i + 1});
  for (std::int32_t i = 1; i <= NarrowGradients::kMost; ++i) {
    EXPECT_EQ(narrow.begin_of(2 * i), 2 * i);
    EXPECT_EQ(narrow.begin_of(2 * i + 1), -1);
  }
  EXPECT_THROW(narrow.add({0, 1}), Error);
}

/// Writes `values` into the arena's gradients, those of `spans` narrow, with NaN after them in their places.
void upload_narrow(KernelDevice& device, TestArena& arena, const std::vector<float>& values, DType dtype,
                   const std::vector<std::size_t>& spans, const std::vector<std::int64_t>& weight_blocks) {
  arena.gradient.upload(values);
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const std::size_t begin = arena.offset(spans[i]),
                      count = static_cast<std::size_t>(weight_blocks[i] * kWeightBlockSize);
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    const DeviceBuffer halves(device, {first, first + static_cast<std::ptrdiff_t>(count)}, dtype);
    const std::vector<std::uint8_t> nan(count * sizeof(float), 0xff);
    copy_bytes(arena.gradient.as<float>() + begin, nan.data(), nan.size(), device.stream());
    copy_bytes(arena.gradient.as<float>() + begin, halves.data(), halves.bytes(), device.stream());
    device.synchronize();
    const auto at = static_cast<std::int32_t>(begin / kWeightBlockSize);
    arena.narrow.add({at, at + static_cast<std::int32_t>(weight_blocks[i])});
  }
}

TEST_P(NarrowGradientsTest, AreMadeWideInPlace) {
  const std::vector<std::int64_t> weight_blocks = {1, 2, 3, 4, 5, 63, 64, 65, 127, 129, 1000, 2049};
  for (const DType dtype : kHalfTypes) {
    std::vector<TestSpan> layout;
    std::vector<std::size_t> spans;
    for (const std::int64_t n : weight_blocks) {
      spans.push_back(layout.size());
      layout.push_back({n * kWeightBlockSize, {}});
      layout.push_back({100, {}});  // stays as it is
    }
    TestArena arena(device(), layout, {{}}, dtype);
    std::vector<float> values = arena.random_padded(3, -70000, 70000);
    for (float& v : values) v = rounded(v, dtype);
    for (const std::size_t span : spans) {
      values[arena.offset(span)] = -0.0f;
      values[arena.offset(span) + 5] = std::numeric_limits<float>::infinity();
      values[arena.offset(span) + 127] = rounded(3e-7f, dtype);  // subnormal in float16
    }
    upload_narrow(device(), arena, values, dtype, spans, weight_blocks);
    EXPECT_NE(bits_of(arena.gradient.download()), bits_of(values));
    BANTAM_KERNEL(device().exec(), widen_gradients, arena.gradient.as<float>(), arena.narrow, dtype);
    EXPECT_EQ(bits_of(arena.gradient.download()), bits_of(values));
  }
}

/// An arena with wide, frozen and narrow spans in two groups.
struct Update {
  Update(KernelDevice& on, DType dtype, bool is_narrow)
      : device(on),
        arena(on,
              {{5000, {.compute_copy = 1}},
               {128, {.group = 1, .compute_copy = 1}},
               {70, {.frozen = 1, .compute_copy = 1}},
               {384, {.compute_copy = 1}},
               {89600, {.compute_copy = 1}},
               {27, {.group = 1}},
               {640, {.group = 1, .compute_copy = 1}}},
              {{.learning_rate = 0.1f, .weight_decay = 0.1f}, {.learning_rate = 0.03f}}, dtype) {
    arena.control.upload({{.loss_scale = 8, .growth_interval = 5, .updates = 3, .clip_norm = 0.5f}});
    arena.master.upload(arena.random_padded(1));
    arena.moment1.upload(arena.random_padded(20));
    arena.moment2.upload(arena.random_padded(40, 0, 1));
    std::vector<float> gradient = arena.random_padded(60);
    for (float& g : gradient) g = rounded(g, dtype);
    write(gradient, dtype, is_narrow);
  }
  void write(const std::vector<float>& gradient, DType dtype, bool is_narrow) {
    arena.narrow = {};
    if (is_narrow)
      upload_narrow(device, arena, gradient, dtype, {1, 3, 4, 6}, {1, 3, 700, 5});
    else
      arena.gradient.upload(gradient);
  }
  std::vector<std::vector<std::uint8_t>> state() const {
    return {arena.master.download_bytes(), arena.moment1.download_bytes(), arena.moment2.download_bytes(),
            arena.compute.download_bytes()};
  }

  KernelDevice& device;
  TestArena arena;
};

TEST_P(NarrowGradientsTest, AnUpdateReadsThemAsIfTheyWereWide) {
  for (const DType dtype : kHalfTypes) {
    for (const kernels::UpdateRuleFacts& rule : kernels::kUpdateRules) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::string(rule.name));
      Update wide(device(), dtype, false), narrow(device(), dtype, true);
      const std::vector<std::uint8_t> before = narrow.arena.gradient.download_bytes();
      wide.arena.step(rule.kind);
      narrow.arena.step(rule.kind);
      const UpdateControl a = wide.arena.control_now(), b = narrow.arena.control_now();
      EXPECT_EQ(b.updates, 4);
      EXPECT_EQ(bits_of({a.gradient_norm, a.gradient_factor}), bits_of({b.gradient_norm, b.gradient_factor}));
      EXPECT_EQ(narrow.state(), wide.state());
      EXPECT_EQ(narrow.arena.gradient.download_bytes(), before);
    }
  }
}

TEST_P(NarrowGradientsTest, WhatIsNotFiniteInThemIsFound) {
  for (const DType dtype : kHalfTypes) {
    for (const float bad : {INFINITY, NAN}) {
      for (const auto& [span, at] : {std::pair<std::size_t, std::size_t>{1, 0}, {3, 383}, {4, 45000}, {6, 639}}) {
        Update update(device(), dtype, true);
        std::vector<float> gradient = update.arena.random_padded(60);
        gradient[update.arena.offset(span) + at] = bad;
        update.write(gradient, dtype, true);
        const auto before = update.state();
        update.arena.step(UpdateKind::adam);
        EXPECT_EQ(update.arena.control_now().found_nonfinite, 1) << bad << " in " << span << " at " << at;
        EXPECT_EQ(update.arena.control_now().updates, 3);
        EXPECT_EQ(update.state(), before);
      }
    }
  }
}

}  // namespace
}  // namespace bantam::testing::narrow_gradients_test

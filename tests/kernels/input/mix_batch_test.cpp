// Mixed pairs: by hand, and the same bits as the reference for every size, type, share and window.
#include "bantam/kernels/input/mix_batch.h"

#include <cmath>

#include <gtest/gtest.h>

#include "bantam/kernels/input/mix_batch_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::mix_batch_test {
namespace {

using kernels::MixShape;
using kernels::SampleMix;
using kernels::TargetMixShape;

class MixBatchTest : public DeviceTest {
 protected:
  std::vector<float> mix(const MixShape& s, const std::vector<SampleMix>& mixes, const std::vector<float>& images,
                         DType dtype) {
    const DeviceArray<SampleMix> table(device(), mixes);
    const DeviceBuffer x(device(), images, dtype);
    BANTAM_KERNEL(device().exec(), mix_images, s, table.data(), dtype, x.data());
    return x.download();
  }
  struct Targets {
    std::vector<float> values;
    std::vector<std::int32_t> labels;
  };
  /// From labels where `values` is empty.
  Targets mix(TargetMixShape s, const std::vector<SampleMix>* mixes, std::vector<float> values,
              const std::vector<std::int32_t>& labels) {
    s.from_labels = values.empty();
    values.resize(static_cast<std::size_t>(s.batch * s.classes), -1.0f);
    const DeviceArray<SampleMix> table(device(), mixes != nullptr ? *mixes : std::vector<SampleMix>(1));
    const DeviceArray<float> to(device(), values);
    const DeviceArray<std::int32_t> classes(device(), labels);
    BANTAM_KERNEL(device().exec(), mix_targets, s, mixes != nullptr ? table.data() : nullptr, classes.data(),
                  to.data());
    return {to.download(), classes.download()};
  }
};

// Five images of 2x2 pixels, one channel: image b holds 10b + 1 … 10b + 4.
TEST_P(MixBatchTest, ImagesByHand) {
  std::vector<float> images;
  for (int b = 0; b < 5; ++b)
    for (int k = 1; k <= 4; ++k) images.push_back(static_cast<float>(10 * b + k));
  // 0 is blended with 4, of which a column is 0's; 1 stays, and 3 is a quarter of itself; 2 has no partner.
  const std::vector<SampleMix> mixes = {{.share = 0.5f},
                                        {},
                                        {.share = 0.25f},
                                        {.share = 0.25f},
                                        {.share = 0.5f, .top = 0, .left = 1, .bottom = 2, .right = 2}};
  const std::vector<float> expected = {21, 22, 23, 24, 11, 12, 13, 14, 21, 22, 23, 24, 16, 17, 18, 19, 41, 2, 43, 4};
  for (const DType dtype : kernel_dtypes()) EXPECT_EQ(mix({5, 2, 2, 1}, mixes, images, dtype), expected);
}

TEST_P(MixBatchTest, TargetsByHand) {
  const std::vector<SampleMix> mixes = {{.share = 0.75f}, {.share = 0.0f}, {.share = 0.25f}};
  const Targets plain = mix({.batch = 3, .classes = 4}, nullptr, {}, {2, 0, 3});
  EXPECT_EQ(plain.values, (std::vector<float>{0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 1}));
  EXPECT_EQ(plain.labels, (std::vector<std::int32_t>{2, 0, 3}));
  const Targets mixed = mix({.batch = 3, .classes = 4}, &mixes, {}, {2, 0, 3});
  EXPECT_EQ(mixed.values, (std::vector<float>{0, 0, 0.75f, 0.25f, 1, 0, 0, 0, 0, 0, 0.75f, 0.25f}));
  EXPECT_EQ(mixed.labels, (std::vector<std::int32_t>{2, 0, 2}));
  const Targets smooth = mix({.batch = 3, .classes = 4, .smoothing = 0.5f}, &mixes, {}, {2, 0, 3});
  EXPECT_EQ(smooth.values, (std::vector<float>{0.125f, 0.125f, 0.5f, 0.25f, 0.625f, 0.125f, 0.125f, 0.125f, 0.125f,
                                               0.125f, 0.5f, 0.25f}));
  const Targets stored = mix({.batch = 3, .classes = 2}, &mixes, {1, 2, 3, 4, 5, 6}, {2, 0, 3});
  EXPECT_EQ(stored.values, (std::vector<float>{2, 3, 3, 4, 2, 3}));
  EXPECT_EQ(stored.labels, (std::vector<std::int32_t>{2, 0, 2}));
}

TEST_P(MixBatchTest, ALabelThatIsNoClassIsNotANumber) {
  const std::vector<SampleMix> mixes = {{}, {.share = 0.5f}, {.share = 0.5f}, {}};
  const Targets mixed = mix({.batch = 4, .classes = 3}, &mixes, {}, {0, 1, 3, -1});
  for (std::size_t b = 0; b < 4; ++b)
    for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(std::isnan(mixed.values[3 * b + c]), b != 0) << b;
}

std::vector<SampleMix> random_mixes(const MixShape& s, PhiloxSequence& random) {
  std::vector<SampleMix> mixes;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    SampleMix mix{.share = random.uniform()};
    const auto place = [&](std::int64_t most) {
      return static_cast<std::int16_t>(random.below(static_cast<std::uint64_t>(most + 1)));
    };
    if (random.below(3) == 0) mix.share = 1.0f;
    if (random.below(2) == 0) {
      mix.top = place(s.height), mix.bottom = place(s.height);
      mix.left = place(s.width), mix.right = place(s.width);
    }
    mixes.push_back(mix);
  }
  return mixes;
}

// Odd and even batches, sizes that are no multiple of 4, rows longer than a block.
TEST_P(MixBatchTest, IsTheReferenceBitForBit) {
  const MixShape shapes[] = {{6, 32, 32, 3}, {7, 5, 7, 1}, {1, 3, 3, 3}, {2, 2, 700, 3}, {9, 1, 1, 5}, {4, 9, 6, 2}};
  PhiloxSequence random(philox_key(3, RandomPurpose::test));
  for (const MixShape& s : shapes) {
    for (int repeat = 0; repeat < 4; ++repeat) {
      const std::vector<SampleMix> mixes = random_mixes(s, random);
      const std::int64_t count = s.batch * s.height * s.width * s.channels;
      for (const DType dtype : kernel_dtypes()) {
        const std::vector<float> x = random_values(count, 5, dtype, -2.0f, 2.0f);
        std::vector<float> expected(x.size());
        kernels::reference::mix_images(s, mixes.data(), x.data(), expected.data());
        for (float& v : expected) v = rounded(v, dtype);
        ASSERT_EQ(bits_of(mix(s, mixes, x, dtype)), bits_of(expected)) << s.batch << " " << s.width;
      }
      const TargetMixShape t{.batch = s.batch, .classes = 11, .smoothing = 0.1f};
      std::vector<std::int32_t> labels;
      std::vector<float> rows(static_cast<std::size_t>(s.batch * t.classes)), expected(rows.size());
      for (std::size_t b = 0; b < static_cast<std::size_t>(s.batch); ++b) {
        labels.push_back(static_cast<std::int32_t>(random.below(11)));
        rows[b * 11 + static_cast<std::size_t>(labels.back())] = 1.0f;
      }
      kernels::reference::mix_targets(t, mixes.data(), rows.data(), expected.data());
      EXPECT_EQ(bits_of(mix(t, &mixes, {}, labels).values), bits_of(expected));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MixBatchTest, ::testing::ValuesIn(test_devices()), device_test_name);

}  // namespace
}  // namespace bantam::testing::mix_batch_test

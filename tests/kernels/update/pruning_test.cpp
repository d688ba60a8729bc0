// Masks by hand and against sorting, when they change, and what of weights, copies and averages becomes zero.
#include "bantam/kernels/update/pruning.h"

#include <gtest/gtest.h>

#include "bantam/kernels/update/pruning_reference.h"
#include "bantam/kernels/update/pruning_rules.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::pruning_test {
namespace {

using kernels::kWeightBlockSize;
using kernels::PrunedTensor;
using kernels::PrunePattern;
using kernels::PruneRule;
using kernels::UpdateControl;

/// Tensors in an arena, each after a weight block that is not pruned.
class PrunedArena {
 public:
  PrunedArena(KernelDevice& device, const std::vector<std::vector<float>>& tensors, DType compute = DType::float16)
      : device_(device),
        layout_(lay_out(tensors)),
        weight_blocks_(weight_blocks_of(layout_)),
        control(device, std::vector<UpdateControl>(1)),
        tensors_(device, layout_),
        weight_block_list_(device, weight_blocks_),
        weights(device, values(tensors), DType::float32),
        compute(device, values(tensors), compute),
        average(device, std::vector<float>(elements(), 0.5f), DType::float32),
        mask(device, std::vector<float>(elements(), 1.0f), DType::uint8),
        compute_dtype_(compute) {}

  std::size_t elements() const { return static_cast<std::size_t>((weight_blocks_.back() + 1) * kWeightBlockSize); }
  /// After the `update`-th update.
  void prune(const PruneRule& rule, std::int64_t update, bool skipped = false) {
    control.upload({{.found_nonfinite = skipped ? 1 : 0, .updates = update}});
    BANTAM_KERNEL(device_.exec(), prune_weights, rule,
                  {.tensor_count = static_cast<std::int64_t>(layout_.size()),
                   .tensors = tensors_.data(),
                   .weight_blocks = static_cast<std::int64_t>(weight_blocks_.size()),
                   .weight_block_list = weight_block_list_.data(),
                   .weights = weights.as<float>(),
                   .compute = compute.data(),
                   .compute_dtype = compute_dtype_,
                   .average = average.as<float>(),
                   .mask = mask.as<std::uint8_t>()},
                  control.data());
  }
  std::vector<float> of(const DeviceBuffer& slot, std::size_t tensor) const {
    const std::vector<float> all = slot.download();
    const auto first = all.begin() + layout_[tensor].begin;
    return {first, first + layout_[tensor].elements};
  }
  std::vector<std::uint8_t> mask_of(std::size_t tensor) const {
    const std::vector<float> values = of(mask, tensor);
    return {values.begin(), values.end()};
  }
  std::vector<float> values(const std::vector<std::vector<float>>& tensors) const {
    std::vector<float> all(elements(), 3.0f);  // also where nothing is pruned
    for (std::size_t t = 0; t < tensors.size(); ++t)
      std::copy(tensors[t].begin(), tensors[t].end(), all.begin() + layout_[t].begin);
    return all;
  }

 private:
  static std::vector<PrunedTensor> lay_out(const std::vector<std::vector<float>>& tensors) {
    std::vector<PrunedTensor> layout;
    std::int64_t at = 0;
    for (const auto& tensor : tensors) {
      const auto elements = static_cast<std::int64_t>(tensor.size());
      layout.push_back({.begin = at + kWeightBlockSize, .elements = elements});
      at += kWeightBlockSize * (1 + (elements + kWeightBlockSize - 1) / kWeightBlockSize);
    }
    return layout;
  }
  static std::vector<std::int32_t> weight_blocks_of(const std::vector<PrunedTensor>& layout) {
    std::vector<std::int32_t> list;
    for (const PrunedTensor& tensor : layout)
      for (std::int64_t i = 0; i < tensor.elements; i += kWeightBlockSize)
        list.push_back(static_cast<std::int32_t>((tensor.begin + i) / kWeightBlockSize));
    return list;
  }

  KernelDevice& device_;
  std::vector<PrunedTensor> layout_;
  std::vector<std::int32_t> weight_blocks_;

 public:
  DeviceArray<UpdateControl> control;

 private:
  DeviceArray<PrunedTensor> tensors_;
  DeviceArray<std::int32_t> weight_block_list_;

 public:
  DeviceBuffer weights, compute, average, mask;

 private:
  DType compute_dtype_;
};

PruneRule constant(double sparsity) {
  return {.polynomial = false, .final_sparsity = sparsity, .begin = 1, .end = 1'000'000, .frequency = 10};
}

using Mask = std::vector<std::uint8_t>;

class PruningTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PruningTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST_P(PruningTest, ByHand) {
  PrunedArena arena(device(), {{0.5f, -4.0f, 0.25f, 3.0f, -0.125f}, {-1.0f, 2.0f}});
  arena.prune(constant(0.6), 1);
  EXPECT_EQ(arena.mask_of(0), (Mask{0, 1, 0, 1, 0})) << "5·0.4 = 2 stay";
  EXPECT_EQ(arena.of(arena.weights, 0), (std::vector<float>{0, -4, 0, 3, 0}));
  EXPECT_EQ(arena.of(arena.compute, 0), (std::vector<float>{0, -4, 0, 3, 0}));
  EXPECT_EQ(arena.of(arena.average, 0), (std::vector<float>{0, 0.5f, 0, 0.5f, 0}));
  EXPECT_EQ(arena.of(arena.weights, 1), (std::vector<float>{0, 2})) << "2·0.4 is nearest to 1";
  const std::vector<float> all = arena.weights.download();
  for (std::size_t i = 0; i < static_cast<std::size_t>(kWeightBlockSize); ++i)
    ASSERT_EQ(all[i], 3.0f) << "not pruned, " << i;
}

TEST_P(PruningTest, EqualMagnitudesStayTogetherAndOneWeightAlwaysStays) {
  PrunedArena arena(device(), {{2, -2, 2, 1}, {0, 0, 0, 0}, {1, 5, 3, 2}});
  arena.prune(constant(0.75), 1);
  EXPECT_EQ(arena.mask_of(0), (Mask{1, 1, 1, 0})) << "as many as the largest has equals";
  EXPECT_EQ(arena.mask_of(1), (Mask{1, 1, 1, 1}));
  arena.prune(constant(0.99), 11);
  EXPECT_EQ(arena.mask_of(2), (Mask{0, 1, 0, 0}));
}

/// Sizes around quads, weight blocks and a block's threads, with values of all magnitudes and repeated ones.
TEST_P(PruningTest, IsSorting) {
  for (const DType compute : kernel_dtypes()) {
    std::vector<std::vector<float>> tensors;
    std::uint64_t seed = 1;
    for (const std::int64_t count : {1, 2, 3, 4, 127, 128, 129, 1023, 4096, 70001})
      tensors.push_back(normal_values(count, seed++, 0));
    tensors.push_back(random_values(5000, seed, DType::bfloat16, -1, 1));  // few values, often
    tensors.push_back({1e-42f, -3e-45f, 0.0f, -0.0f, 1e38f, -1e-20f, 2e-42f});
    PrunedArena arena(device(), tensors, compute);
    for (const double sparsity : {0.0, 0.2, 0.5, 0.8, 0.999}) {
      arena.weights.upload(arena.values(tensors));
      arena.prune(constant(sparsity), 1);
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const Mask mask = kernels::reference::magnitude_mask(tensors[t], sparsity);
        ASSERT_EQ(arena.mask_of(t), mask) << "tensor " << t << ", sparsity " << sparsity;
        std::vector<float> w = tensors[t];
        for (std::size_t i = 0; i < w.size(); ++i) w[i] = mask[i] != 0 ? w[i] : 0.0f;
        ASSERT_EQ(arena.of(arena.weights, t), w);
      }
    }
  }
}

TEST_P(PruningTest, TwoOfFour) {
  const PruneRule rule{.pattern = PrunePattern::two_of_four, .begin = 1, .end = 1};
  const std::vector<float> random = random_values(4 * 1000, 5);
  PrunedArena arena(device(), {{1, -3, 2, 0.5f, 1, 1, -1, 1, 0, 0, 7, 0}, random});
  arena.prune(rule, 1);
  EXPECT_EQ(arena.mask_of(0), (Mask{0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(arena.mask_of(1), kernels::reference::two_of_four_mask(random));
}

/// Between two changes, masks hold whatever the update wrote; at a change, a weight may come back.
TEST_P(PruningTest, MasksHoldUntilTheyChange) {
  for (const DType compute : kernel_dtypes()) {
    PrunedArena arena(device(), {{1, 2, 3, 4, 5}}, compute);
    arena.prune(constant(0.6), 1);
    arena.weights.upload(arena.values({{9, 9, 9, 4, 5}}));
    arena.compute.upload(arena.values({{9, 9, 9, 4, 5}}));
    arena.average.upload(arena.values({{9, 9, 9, 4, 5}}));
    arena.prune(constant(0.6), 2);
    EXPECT_EQ(arena.of(arena.weights, 0), (std::vector<float>{0, 0, 0, 4, 5}));
    EXPECT_EQ(arena.of(arena.compute, 0), (std::vector<float>{0, 0, 0, 4, 5}));
    EXPECT_EQ(arena.of(arena.average, 0), (std::vector<float>{9, 9, 9, 4, 5})) << "at changes only";
    arena.weights.upload(arena.values({{9, 1, 1, 4, 5}}));
    arena.prune(constant(0.6), 11);
    EXPECT_EQ(arena.mask_of(0), (Mask{1, 0, 0, 0, 1}));
    EXPECT_EQ(arena.of(arena.average, 0), (std::vector<float>{9, 0, 0, 0, 5}));
  }
}

TEST_P(PruningTest, ASkippedUpdateChangesNothing) {
  const std::vector<float> w = {1, 2, 3, 4, 5};
  PrunedArena arena(device(), {w});
  arena.prune(constant(0.6), 1, true);
  EXPECT_EQ(arena.of(arena.weights, 0), w);
  EXPECT_EQ(arena.mask_of(0), (Mask{1, 1, 1, 1, 1}));
}

TEST_P(PruningTest, SparsityFollowsThePolynomial) {
  const PruneRule rule{.initial = 0.2, .final_sparsity = 0.8, .begin = 10, .end = 45, .frequency = 10};
  const std::vector<float> w = random_values(1000, 3);
  PrunedArena arena(device(), {w});
  double sparsity = 0;
  for (std::int64_t t = 1; t <= 60; ++t) {
    if (t == 10 || t == 20 || t == 30 || t == 40 || t == 45)
      sparsity = kernels::reference::polynomial_sparsity(0.2, 0.8, 10, 45, static_cast<double>(t));
    arena.weights.upload(arena.values({w}));
    arena.prune(rule, t);
    const Mask mask = arena.mask_of(0);
    EXPECT_EQ(std::ranges::count(mask, 0), std::lround(1000 * sparsity)) << "update " << t;
  }
  EXPECT_DOUBLE_EQ(sparsity, 0.8);
}

TEST(PruneRules, MasksChangeFromBeginToEnd) {
  const auto changes = [](const PruneRule& rule) {
    std::vector<std::int64_t> found;
    for (std::int64_t t = 0; t < 30; ++t)
      if (t > 0 && kernels::masks_change(rule, t)) found.push_back(t);
    return found;
  };
  using Updates = std::vector<std::int64_t>;
  EXPECT_EQ(changes({.begin = 3, .end = 20, .frequency = 8}), (Updates{3, 11, 19, 20}));
  EXPECT_EQ(changes({.begin = 0, .end = 20, .frequency = 10}), (Updates{1, 10, 20}));
  EXPECT_EQ(changes({.begin = 5, .end = 5, .frequency = 10}), (Updates{5}));
}

}  // namespace
}  // namespace bantam::testing::pruning_test

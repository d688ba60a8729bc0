// Sums of a tree over replicas: a hand-computed one, chains of every length against the tree's definition, results that
// lie on a term, trees of float16, and a root in its update's slot.
#include "bantam/kernels/update/tree_sum.h"

#include <limits>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/kernels/update/update_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::tree_sum_test {
namespace {

using kernels::TreeTerms;

class TreeSumTest : public DeviceTest {
 protected:
  template <class T>
  void add(const std::vector<const DeviceArray<T>*>& terms, std::int64_t elements, double factor, T* out) {
    TreeTerms arrays;
    for (const DeviceArray<T>* term : terms) arrays.add(term->data());
    BANTAM_KERNEL(exec(), tree_sum, DTypeOf<T>::value, elements, arrays, factor, out);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, TreeSumTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// Values whose sums round, so that another order has other bits.
template <class T>
std::vector<T> values(std::int64_t count, std::uint64_t seed) {
  std::vector<T> result;
  for (const float value : random_values(count, seed))
    result.push_back(static_cast<T>(value) * static_cast<T>(1.000000119) + static_cast<T>(value) / 3);
  return result;
}

TEST_P(TreeSumTest, IsWhatAHandComputes) {
  // 1 + (1 + 2^24) in float32: 1 + 2^24 rounds to 2^24 (to even), and again; (1 + 1) + 2^24 were 2^24 + 2.
  const float large = 0x1p24f;
  const DeviceArray<float> leaf(device(), {large, 1, 3, 0.5f, 7}), one(device(), {1, 2, 4, 0.25f, 8}),
      two(device(), {1, 4, 5, 0.125f, 9});
  DeviceArray<float> out(device(), std::vector<float>(5));
  add<float>({&leaf, &one, &two}, 5, 1.0, out.data());
  EXPECT_EQ(out.download(), (std::vector<float>{large, 7, 12, 0.875f, 24}));
  add<float>({&leaf, &one}, 5, 0.5, out.data());
  EXPECT_EQ(out.download(), (std::vector<float>{0x1p23f, 1.5f, 3.5f, 0.375f, 7.5f}));
  add<float>({&leaf}, 5, 1.0, out.data());
  EXPECT_EQ(out.download(), leaf.download());
}

/// Leaf `count` - 1 of so many completes the root: its terms are the leaf and one sum of each level.
template <class T>
void expect_root(KernelDevice& device, const kernels::Exec& exec, int levels, std::int64_t elements) {
  std::vector<std::vector<T>> replicas;
  for (std::size_t r = 0; r < std::size_t{1} << levels; ++r) replicas.push_back(values<T>(elements, 10 + r));
  std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
  arrays.push_back(std::make_unique<DeviceArray<T>>(device, replicas.back()));
  for (int level = 0; level < levels; ++level) {
    const std::size_t first = replicas.size() - (std::size_t{2} << level);
    arrays.push_back(std::make_unique<DeviceArray<T>>(device, kernels::reference::tree_node(replicas, level, first)));
  }
  TreeTerms terms;
  for (const auto& array : arrays) terms.add(array->data());
  T* const out = arrays.back()->data();  // over the left operand, as the engine has it
  BANTAM_KERNEL(exec, tree_sum, DTypeOf<T>::value, elements, terms, 1.0, out);
  EXPECT_EQ(arrays.back()->download(), kernels::reference::tree_node(replicas, levels, 0)) << levels << " " << elements;
}

TEST_P(TreeSumTest, ChainsOfEveryLengthAreTheTree) {
  for (int levels = 1; levels <= 6; ++levels) {
    for (const std::int64_t elements : {1, 3, 128, 1027, 70001}) {
      expect_root<float>(device(), exec(), levels, elements);
      expect_root<double>(device(), exec(), levels, elements);
    }
  }
}

TEST_P(TreeSumTest, TheResultMayLieOnTheLeaf) {
  const std::vector<float> a = values<float>(5000, 1), b = values<float>(5000, 2);
  const DeviceArray<float> leaf(device(), a), left(device(), b);
  add<float>({&leaf, &left}, 5000, 0.25, leaf.data());
  std::vector<float> expected;
  for (std::size_t i = 0; i < a.size(); ++i) expected.push_back(0.25f * (b[i] + a[i]));
  EXPECT_EQ(leaf.download(), expected);
}

TEST_P(TreeSumTest, RefusesWhatItCannotAdd) {
  const DeviceArray<float> x(device(), {1, 2});
  TreeTerms terms;
  EXPECT_THROW(BANTAM_KERNEL(exec(), tree_sum, DType::float32, 2, terms, 1.0, x.data()), Error);
  for (int i = 0; i < TreeTerms::kMost; ++i) terms.add(x.data());
  EXPECT_THROW(terms.add(x.data()), Error);
  EXPECT_THROW(BANTAM_KERNEL(exec(), tree_sum, DType::float16, 2, terms, 1.0, x.data()), Error);
  EXPECT_THROW(BANTAM_KERNEL(exec(), narrow_tree_sum, 2, terms, DType::float64, x.data()), Error);
  EXPECT_THROW(BANTAM_KERNEL(exec(), narrow_tree_sum, 2, TreeTerms{}, DType::float16, x.data()), Error);
}

TEST_P(TreeSumTest, NarrowSumsAreWhatAHandComputes) {
  // float16 has 11 bits: 2049 rounds to 2048 (to even), 1 + 2048 = 2049 again, and 4098 = 2 x 2049 is exact. 1 + 2^-11
  // rounds to 1. 65519 rounds to 65504, 65520 to infinity; 65504 + 16 is half a unit above, and rounds there, too.
  // 2^-25 rounds to 0, more than it to 2^-24.
  const float infinite = std::numeric_limits<float>::infinity();
  const DeviceArray<float> leaf(device(), {2049, 4098, 1 + 0x1p-11f, 65519, 65520, 65504, 0x1p-25f, 0x1.8p-25f, -3}),
      one(device(), {1, 4, 0, 0, 0, 16, 0, 0, 3});
  DeviceArray<float> floats(device(), std::vector<float>(9));
  DeviceArray<Half> halves(device(), std::vector<Half>(9));
  const auto add_narrow = [&](const std::vector<const DeviceArray<float>*>& from, DType to, void* out) {
    TreeTerms terms;
    for (const DeviceArray<float>* term : from) terms.add(term->data());
    BANTAM_KERNEL(exec(), narrow_tree_sum, 9, terms, to, out);
  };
  add_narrow({&leaf}, DType::float32, floats.data());
  EXPECT_EQ(floats.download(), (std::vector<float>{2048, 4096, 1, 65504, infinite, 65504, 0, 0x1p-24f, -3}));
  add_narrow({&leaf, &one}, DType::float16, halves.data());
  const std::vector<float> expected = {2048, 4100, 1, 65504, infinite, infinite, 0, 0x1p-24f, 0};
  const std::vector<Half> found = halves.download();
  EXPECT_EQ(std::vector<float>(found.begin(), found.end()), expected);
  add_narrow({&leaf, &one}, DType::float32, leaf.data());  // over the leaf
  EXPECT_EQ(leaf.download(), expected);
}

TEST_P(TreeSumTest, NarrowChainsAreTheTreeOfFloat16) {
  for (int levels = 0; levels <= 6; ++levels) {
    for (const std::int64_t elements : {1, 3, 128, 1027, 70001}) {
      std::vector<std::vector<Half>> replicas;
      std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
      TreeTerms terms;
      for (std::size_t r = 0; r < std::size_t{1} << levels; ++r) {
        const std::vector<float> leaf = values<float>(elements, 10 + r);
        std::vector<Half>& rounded = replicas.emplace_back();
        for (const float value : leaf) rounded.emplace_back(value);
        // The last one completes the root; the first of two is not rounded yet, as a leaf that waits.
        if (r + 1 == std::size_t{1} << levels) arrays.push_back(std::make_unique<DeviceArray<float>>(device(), leaf));
        if (levels > 0 && r + 2 == std::size_t{1} << levels)
          arrays.push_back(std::make_unique<DeviceArray<float>>(device(), leaf));
      }
      if (levels > 0) std::swap(arrays[0], arrays[1]);
      for (int level = 1; level < levels; ++level) {
        const std::vector<Half> sum =
            kernels::reference::tree_node(replicas, level, replicas.size() - (std::size_t{2} << level));
        arrays.push_back(std::make_unique<DeviceArray<float>>(device(), std::vector<float>(sum.begin(), sum.end())));
      }
      for (const auto& array : arrays) terms.add(array->data());
      const std::vector<Half> root = kernels::reference::tree_node(replicas, levels, 0);
      const DeviceArray<Half> halves(device(), std::vector<Half>(root.size()));
      BANTAM_KERNEL(exec(), narrow_tree_sum, elements, terms, DType::float16, halves.data());
      const std::vector<Half> found = halves.download();
      for (std::size_t i = 0; i < root.size(); ++i) ASSERT_EQ(found[i].bits, root[i].bits) << levels << ", " << i;
      BANTAM_KERNEL(exec(), narrow_tree_sum, elements, terms, DType::float32, arrays.back()->data());
      EXPECT_EQ(arrays.back()->download(), std::vector<float>(root.begin(), root.end()));
    }
  }
}

TEST_P(TreeSumTest, ARootIsStoredInItsSlot) {
  const DeviceArray<double> sums(device(), {1.5, 2.5, 3.5}), ring(device(), std::vector<double>(12, -1));
  const DeviceArray<std::int32_t> slot(device(), {2});
  BANTAM_KERNEL(exec(), store_at_slot, 3, sums.data(), slot.data(), ring.data());
  EXPECT_EQ(ring.download(), (std::vector<double>{-1, -1, -1, -1, -1, -1, 1.5, 2.5, 3.5, -1, -1, -1}));
}

}  // namespace
}  // namespace bantam::testing::tree_sum_test

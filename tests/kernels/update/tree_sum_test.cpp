// Sums of a tree over replicas: a hand-computed one, chains of every length against the tree's definition, results that
// lie on a term, and a root in its update's slot.
#include "bantam/kernels/contracts/update/tree_sum.h"

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/kernels/reference/update.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing {
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
}

TEST_P(TreeSumTest, ARootIsStoredInItsSlot) {
  const DeviceArray<double> sums(device(), {1.5, 2.5, 3.5}), ring(device(), std::vector<double>(12, -1));
  const DeviceArray<std::int32_t> slot(device(), {2});
  BANTAM_KERNEL(exec(), store_at_slot, 3, sums.data(), slot.data(), ring.data());
  EXPECT_EQ(ring.download(), (std::vector<double>{-1, -1, -1, -1, -1, -1, 1.5, 2.5, 3.5, -1, -1, -1}));
}

}  // namespace
}  // namespace bantam::testing

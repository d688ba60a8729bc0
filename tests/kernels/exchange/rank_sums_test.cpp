// Sums finished among ranks, here threads with a stream each: a hand-computed one, trees of all kinds against their
// definition, many exchanges in a row, and what a failed rank leaves.
#include "bantam/kernels/exchange/rank_sums.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/kernels/update/update_reference.h"
#include "tests/kernels/arrays.h"

namespace bantam::testing::rank_sums_test {
namespace {

using kernels::RankRegion;
using kernels::RankRegions;
using kernels::SumSpan;
using kernels::SumTree;
using kernels::reference::tree_node;

class RankSumsTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, RankSumsTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// A node of the tree over replicas.
struct Node {
  int first = 0, level = 0;
  int rank = 0;
};

/// The largest nodes within replicas first … end - 1.
std::vector<Node> nodes_of(int rank, int first, int end) {
  std::vector<Node> nodes;
  while (first < end) {
    int level = 0;
    while (first % (2 << level) == 0 && first + (2 << level) <= end) ++level;
    nodes.push_back({first, level, rank});
    first += 1 << level;
  }
  return nodes;
}

constexpr std::uint64_t kAlign = 256;

/// Three spans of a place: float32 with a factor, float64, float16.
struct Layout {
  std::int64_t floats = 0, doubles = 0, halves = 0;
  std::uint64_t doubles_at() const { return (static_cast<std::uint64_t>(floats) * 4 + kAlign) / kAlign * kAlign; }
  std::uint64_t halves_at() const {
    return doubles_at() + (static_cast<std::uint64_t>(doubles) * 8 + kAlign) / kAlign * kAlign;
  }
  std::uint64_t place_bytes() const {
    return halves_at() + (static_cast<std::uint64_t>(halves) * 2 + kAlign) / kAlign * kAlign;
  }
  std::vector<SumSpan> spans() const {
    return {{.dtype = DType::float32, .elements = floats, .factor = 0.25},
            {.dtype = DType::float64, .offset = doubles_at(), .elements = doubles},
            {.dtype = DType::float16, .offset = halves_at(), .elements = halves}};
  }
  /// Of the span of T.
  template <class T>
  std::uint64_t offset() const {
    return sizeof(T) == 4 ? 0 : sizeof(T) == 8 ? doubles_at() : halves_at();
  }
  template <class T>
  std::size_t elements() const {
    return static_cast<std::size_t>(sizeof(T) == 4 ? floats : sizeof(T) == 8 ? doubles : halves);
  }
};

std::vector<std::uint16_t> bits_of(const std::vector<Half>& values) {
  std::vector<std::uint16_t> bits;
  for (const Half value : values) bits.push_back(value.bits);
  return bits;
}

template <class T>
std::vector<T> uneven_values(std::int64_t count, std::uint64_t seed) {
  std::vector<T> result;  // whose sums round, so that another order has other bits
  for (const float value : random_values(count, seed))
    result.push_back(static_cast<T>(value) * static_cast<T>(1.000000119) + static_cast<T>(value) / 3);
  return result;
}

/// Replicas dealt to ranks, their partial sums in regions of one device.
class Ranks {
 public:
  Ranks(Device device, const std::vector<int>& dealt, const Layout& layout) : layout_(layout) {
    int first = 0;
    for (std::size_t rank = 0; rank < dealt.size(); first += dealt[rank], ++rank)
      for (const Node& node : nodes_of(static_cast<int>(rank), first, first + dealt[rank])) nodes_.push_back(node);
    for (int r = 0; r < first; ++r) {
      floats_.push_back(uneven_values<float>(layout.floats, 10 + static_cast<std::uint64_t>(r)));
      doubles_.push_back(uneven_values<double>(layout.doubles, 500 + static_cast<std::uint64_t>(r)));
      std::vector<Half>& halves = halves_.emplace_back();
      for (const float value : uneven_values<float>(layout.halves, 900 + static_cast<std::uint64_t>(r)))
        halves.emplace_back(value);
    }
    tree_.ranks = static_cast<int>(dealt.size());
    tree_.sums = static_cast<int>(nodes_.size());
    regions_.home = RankRegion::header_bytes(tree_.sums);
    lay_out();
    for (std::size_t rank = 0; rank < dealt.size(); ++rank) make_region(device, static_cast<int>(rank));
  }

  /// Every rank but `missing` at once, `times` times; each adds up what the one before has left.
  void run(int times, int blocks, const std::uint32_t* failed = nullptr, int missing = -1) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < tree_.ranks; ++rank) {
      if (rank == missing) continue;
      threads.emplace_back([this, rank, times, blocks, failed] {
        RankRegions own = regions_;
        own.rank = rank;
        own.failed = failed;
        const std::vector<SumSpan> spans = layout_.spans();
        KernelDevice& device = *devices_[static_cast<std::size_t>(rank)];
        // One launch at a time: streams of a device may share a queue, in which a rank's next exchange, which waits for
        // its last one, would keep that of another rank from beginning.
        for (int i = 0; i < times; ++i, device.synchronize())
          BANTAM_KERNEL(device.exec(), exchange_sums, tree_, own, spans, blocks);
      });
    }
    threads.clear();
    for (const auto& device : devices_) device->synchronize();
  }

  /// Enqueues one meeting of a rank.
  void meet(int rank, const std::uint32_t* failed) {
    RankRegions own = regions_;
    own.rank = rank;
    own.failed = failed;
    BANTAM_KERNEL(devices_[static_cast<std::size_t>(rank)]->exec(), meet_ranks, tree_, own);
  }

  /// What `rank` has in home.
  template <class T>
  std::vector<T> root(int rank) const {
    const std::vector<std::byte> region = memory_[static_cast<std::size_t>(rank)]->download();
    std::vector<T> found(layout_.elements<T>());
    const std::span to = std::as_writable_bytes(std::span(found));
    std::copy_n(region.begin() + static_cast<std::ptrdiff_t>(regions_.home + layout_.offset<T>()), to.size(),
                to.begin());
    return found;
  }
  std::vector<float> expected_floats() const {
    std::vector<float> root = tree_node(floats_, levels(), 0);
    for (float& value : root) value *= 0.25f;
    return root;
  }
  std::vector<double> expected_doubles() const { return tree_node(doubles_, levels(), 0); }
  std::vector<Half> expected_halves() const { return tree_node(halves_, levels(), 0); }
  int count() const { return tree_.ranks; }
  const SumTree& tree() const { return tree_; }
  KernelDevice& device(int rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  const std::vector<std::vector<float>>& floats() const { return floats_; }

 private:
  int levels() const { return std::countr_zero(floats_.size()); }

  /// The last sum of a rank lies in home, which is its first place.
  void lay_out() {
    std::vector<Node> stack;
    std::uint64_t place = 1;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const bool last = i + 1 == nodes_.size() || nodes_[i + 1].rank != nodes_[i].rank;
      tree_.owners[i] = static_cast<std::uint8_t>(nodes_[i].rank);
      tree_.places[i] = regions_.home + (last ? 0 : place++) * layout_.place_bytes();
      if (last) place = 1;
      stack.push_back(nodes_[i]);
      for (; stack.size() > 1 && stack[stack.size() - 2].level == stack.back().level &&
             stack[stack.size() - 2].first % (2 << stack.back().level) == 0;
           ++tree_.merges[i]) {
        stack.pop_back();
        ++stack.back().level;
      }
    }
  }

  void make_region(Device device, int rank) {
    std::uint64_t bytes = regions_.home;
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].rank == rank) bytes += layout_.place_bytes();
    std::vector<std::byte> region(bytes);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].rank != rank) continue;
      const auto first = static_cast<std::size_t>(nodes_[i].first);
      const std::vector<float> floats = tree_node(floats_, nodes_[i].level, first);
      const std::vector<double> doubles = tree_node(doubles_, nodes_[i].level, first);
      const std::vector<Half> halves = tree_node(halves_, nodes_[i].level, first);
      const auto write = [&](const auto& values, std::uint64_t at) {
        std::ranges::copy(std::as_bytes(std::span(values)),
                          region.begin() + static_cast<std::ptrdiff_t>(tree_.places[i] + at));
      };
      write(floats, 0);
      write(doubles, layout_.doubles_at());
      write(halves, layout_.halves_at());
    }
    devices_.push_back(std::make_unique<KernelDevice>(device, 1));
    memory_.push_back(std::make_unique<DeviceArray<std::byte>>(*devices_.back(), region));
    regions_.bases[static_cast<std::size_t>(rank)] = memory_.back()->data();
  }

  Layout layout_;
  SumTree tree_;
  RankRegions regions_;
  std::vector<Node> nodes_;  // the partial sums
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<double>> doubles_;
  std::vector<std::vector<Half>> halves_;
  std::vector<std::unique_ptr<KernelDevice>> devices_;
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> memory_;
};

const std::vector<std::vector<int>> kDeals = {
    {1, 1},  {2, 2},    {1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {3, 1}, {1, 3}, {2, 1, 1},
    {10, 6}, {5, 1, 2}, {7, 5, 4},    {1, 2, 3, 4, 5, 6, 7, 4}};

TEST_P(RankSumsTest, AreWhatAHandComputes) {
  // Two ranks, one replica each: (x + y) / 4, with x and y from the generator; the first by hand below.
  Ranks ranks(device().exec().device, {1, 1}, {.floats = 5, .doubles = 3});
  ranks.run(1, 4);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<float> found = ranks.root<float>(rank);
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_EQ(found[i], 0.25f * (ranks.floats()[0][i] + ranks.floats()[1][i])) << "element " << i;
    EXPECT_EQ(ranks.root<double>(rank), ranks.expected_doubles());
  }
}

TEST_P(RankSumsTest, AreTheRootOfTheTreeOnEveryRank) {
  // The first size is sent whole, the others are divided; 200,003 floats end within a vector and within a share.
  for (const Layout& layout :
       {Layout{.floats = 1027, .doubles = 5, .halves = 333}, Layout{.floats = 131, .doubles = 40000},
        Layout{.floats = 200003, .doubles = 9}, Layout{.floats = 3, .doubles = 2, .halves = 300005}}) {
    for (const std::vector<int>& dealt : kDeals) {
      SCOPED_TRACE(::testing::Message() << dealt.size() << " ranks, " << layout.floats << " floats");
      Ranks ranks(device().exec().device, dealt, layout);
      ranks.run(1, 3);
      for (int rank = 0; rank < ranks.count(); ++rank) {
        ASSERT_EQ(ranks.root<float>(rank), ranks.expected_floats()) << "rank " << rank;
        ASSERT_EQ(ranks.root<double>(rank), ranks.expected_doubles()) << "rank " << rank;
        ASSERT_EQ(bits_of(ranks.root<Half>(rank)), bits_of(ranks.expected_halves())) << "rank " << rank;
      }
    }
  }
}

TEST_P(RankSumsTest, CanBeRepeated) {
  // Home has the sum of all after the first: of two ranks each further exchange doubles the doubles, and halves the
  // floats (times 1/4).
  for (const std::int64_t floats : {2000, 300000}) {
    Ranks ranks(device().exec().device, {1, 1}, {.floats = floats, .doubles = 2});
    const std::vector<double> once = ranks.expected_doubles();
    ranks.run(200, 5);
    for (int rank = 0; rank < 2; ++rank) {
      const std::vector<double> found = ranks.root<double>(rank);
      for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(found[i], std::ldexp(once[i], 199));
    }
    EXPECT_EQ(ranks.root<float>(0), ranks.root<float>(1));
  }
}

TEST_P(RankSumsTest, MeetRanksWaitsForAll) {
  Ranks ranks(device().exec().device, {1, 1, 1}, {.floats = 10});
  const auto came = [&](int rank, const std::uint32_t* failed) {
    ranks.meet(rank, failed);
    ranks.device(rank).synchronize();
  };
  // Ranks 0 and 1 come to five meetings; none of them returns from its last one before rank 2 has come, later, to it.
  std::array<std::atomic<int>, 3> returned = {};
  for (int meeting = 1; meeting <= 5; ++meeting) {
    std::vector<std::jthread> threads;
    for (const int rank : {0, 1})
      threads.emplace_back([&, rank] {
        came(rank, nullptr);
        ++returned[static_cast<std::size_t>(rank)];
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(returned[0], meeting - 1);
    EXPECT_EQ(returned[1], meeting - 1);
    came(2, nullptr);
    threads.clear();
    EXPECT_EQ(returned[0], meeting);
    EXPECT_EQ(returned[1], meeting);
  }
}

TEST_P(RankSumsTest, MeetRanksEndsWhereARankHasFailed) {
  auto pinned = make_pinned_source();
  auto* const failed = static_cast<std::uint32_t*>(pinned->acquire(4096));
  *failed = 1;
  Ranks ranks(device().exec().device, {1, 1}, {.floats = 10});
  ranks.meet(0, failed);  // rank 1 does not come
  ranks.device(0).synchronize();
  ranks.run(1, 1, failed);  // rank 0 has left for good: its exchange waits for nobody, nor does rank 1's
  EXPECT_TRUE(std::ranges::any_of(ranks.root<float>(0), [](float value) { return !std::isfinite(value); }));
  pinned->release(failed, 4096);
}

TEST_P(RankSumsTest, EndWhereARankHasFailed) {
  auto pinned = make_pinned_source();
  auto* const failed = static_cast<std::uint32_t*>(pinned->acquire(4096));
  *failed = 1;
  for (const std::int64_t floats : {100, 300000}) {
    Ranks ranks(device().exec().device, {1, 1, 2}, {.floats = floats, .doubles = 2});
    const auto not_finite = [](const auto& values) {
      return std::ranges::any_of(values, [](auto value) { return !std::isfinite(value); });
    };
    ranks.run(1, 2, failed, 1);
    for (const int rank : {0, 2}) EXPECT_TRUE(not_finite(ranks.root<float>(rank))) << "so that the update is skipped";
    const std::vector<double> before = ranks.root<double>(1);
    ranks.run(1, 2, failed);  // the missing rank comes late: the others have left for good
    const bool whole = floats == 100 && ranks.root<float>(1) == ranks.expected_floats();
    if (whole) {  // what fits the slots may have been sent to it before they left
      EXPECT_EQ(ranks.root<double>(1), ranks.expected_doubles());
      ranks.run(1, 2, failed);
    } else {
      EXPECT_EQ(ranks.root<double>(1)[1], before[1]) << "nothing of theirs";
    }
    EXPECT_TRUE(not_finite(ranks.root<float>(1))) << "it gives up, too, at the next exchange at the latest";
  }
  pinned->release(failed, 4096);
}

TEST_P(RankSumsTest, AreAddedWhereTheyWereSent) {
  for (const std::vector<int>& dealt : kDeals) {
    Ranks ranks(device().exec().device, dealt, {.floats = 1027});
    const SumTree& tree = ranks.tree();
    KernelDevice& kernels = ranks.device(0);
    std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
    std::vector<const void*> sums;
    std::vector<std::vector<float>> leaves;
    for (int i = 0; i < tree.sums; ++i) {
      leaves.push_back(uneven_values<float>(1028, 70 + static_cast<std::uint64_t>(i)));
      arrays.push_back(std::make_unique<DeviceArray<float>>(kernels, leaves.back()));
      sums.push_back(arrays.back()->data());
    }
    BANTAM_KERNEL(kernels.exec(), add_rank_sums, tree, DType::float32, 1027, sums, 0.5, arrays.back()->data());
    std::vector<std::vector<float>> stack;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      stack.push_back(leaves[i]);
      for (int merge = 0; merge < tree.merges[i]; ++merge) {
        for (std::size_t k = 0; k < 1027; ++k) stack[stack.size() - 2][k] += stack.back()[k];
        stack.pop_back();
      }
    }
    for (std::size_t k = 0; k < 1027; ++k) ASSERT_EQ(arrays.back()->download()[k], 0.5f * stack[0][k]);
  }
}

TEST(RankSumsCheckTest, NamesWhatItAccepts) {
  SumTree tree{.ranks = 2, .sums = 33};
  EXPECT_THROW(kernels::check_exchange(tree, {}), Error);
  tree.sums = 2;
  const std::vector<SumSpan> integers = {{.dtype = DType::int32, .elements = 4}};
  EXPECT_THROW(kernels::check_exchange(tree, integers), Error);
  EXPECT_THROW(kernels::check_exchange(tree, std::vector<SumSpan>(5)), Error);
  const std::vector<SumSpan> odd = {{.offset = 8, .elements = 4}};
  EXPECT_THROW(kernels::check_exchange(tree, odd), Error);
  EXPECT_EQ(kernels::bytes_of(std::vector<SumSpan>{{.elements = 5}, {.dtype = DType::float64, .elements = 1}}), 48u);
}

}  // namespace
}  // namespace bantam::testing::rank_sums_test

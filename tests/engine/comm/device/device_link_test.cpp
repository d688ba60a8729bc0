// Sums exchanged between the devices of ranks, which are threads: by memory that both reach, and by NCCL; descriptors
// sent between processes; layouts.
#include "bantam/engine/comm/device/device_link.h"

#include <array>
#include <cstring>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/engine/comm/device/descriptor_mail.h"
#include "bantam/engine/comm/device/peer_regions.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/memory/pages/shared_pages.h"
#include "tests/engine/comm/on_ranks.h"
#include "tests/engine/comm/tree_sums.h"

namespace bantam::device_link_test {
namespace {

using testing::nothing_thrown;
using testing::on_ranks;

/// The last sum of a rank lies in home, the others after it.
RegionLayout layout_of(const std::vector<ReplicaShare>& shares, std::uint64_t place_bytes) {
  RegionLayout layout{.shares = shares, .place_bytes = place_bytes};
  for (const ReplicaShare& share : shares) {
    const auto count = static_cast<int>(sums_of(share).size());
    std::vector<int>& places = layout.sum_places.emplace_back();
    for (int i = 0; i < count; ++i) places.push_back(i + 1 == count ? 0 : i + 1);
  }
  return layout;
}

constexpr std::uint64_t kSeed = 3;

/// One rank: connects, exchanges `floats` elements twice in a row, by kernels and by copies, and compares home with the
/// tree in sequence.
void expect_root(Mesh& mesh, int rank, Device device, const RegionLayout& layout, std::size_t floats,
                 const std::string& transport) {
  Runtime runtime({.threads = 1});
  const kernels::Exec exec = runtime.exec(device);
  const std::vector<ReplicaSum> own = sums_of(layout.shares[static_cast<std::size_t>(rank)]);
  const std::uint64_t bytes = layout.bytes(static_cast<int>(own.size()));
  auto* const region =
      static_cast<std::byte*>(runtime.allocator(device).allocate(bytes, exec.stream, {Category::other, "region"}));
  zero_bytes(region, bytes, exec.stream);
  {
    const auto link = connect_devices(mesh, exec,
                                      {.layout = layout,
                                       .region = region,
                                       .region_bytes = bytes,
                                       .largest_span = floats * 4,
                                       .transport = transport});
    for (int time = 0; time < 2; ++time) {
      for (std::size_t i = 0; i < own.size(); ++i) {
        const std::vector<float> sum = testing::tree_sum<float>(kSeed, own[i], floats);
        const int place = layout.sum_places[static_cast<std::size_t>(rank)][i];
        copy_bytes(region + layout.place_offset(place), sum.data(), floats * sizeof(float), exec.stream);
        synchronize(exec.stream);
      }
      barrier(mesh);
      link->exchange(exec, std::array{kernels::SumSpan{.elements = static_cast<std::int64_t>(floats)}}, time == 1);
      std::vector<float> found(floats);
      copy_bytes(found.data(), region + layout.place_offset(0), floats * sizeof(float), exec.stream);
      synchronize(exec.stream);
      int levels = 0;
      for (const ReplicaShare& last = layout.shares.back(); 1 << levels < last.first + last.count;) ++levels;
      EXPECT_EQ(found, testing::tree_sum<float>(kSeed, {0, levels}, floats)) << "rank " << rank << ", " << link->name();
      barrier(mesh);
    }
  }
  runtime.allocator(device).free(region, exec.stream);
}

void expect_roots(const std::function<Device(int)>& device_of, const std::vector<ReplicaShare>& shares,
                  const std::string& transport) {
  for (const std::size_t floats : {std::size_t{1000}, std::size_t{300'001}}) {
    RegionLayout layout = layout_of(shares, (floats * 4 + 255) / 256 * 256);
    layout.copy_bytes = (floats * 4 / shares.size() + 511) / 256 * 256;
    const auto ranks = static_cast<int>(shares.size());
    EXPECT_EQ(on_ranks(ranks, [&](Mesh& mesh,
                                  int rank) { expect_root(mesh, rank, device_of(rank), layout, floats, transport); }),
              nothing_thrown(ranks));
  }
}

TEST(DeviceLinkTest, ThreadsOfOneProcessorReachEachOther) {
  const auto device_of = [](int) { return Device::cpu(); };
  for (const auto& shares : {even_shares(4, 2), even_shares(4, 4), std::vector<ReplicaShare>{{0, 10}, {10, 6}}})
    expect_roots(device_of, shares, "");
}

TEST(DeviceLinkTest, GpusByPeerMemoryAndByNccl_cuda) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "two GPUs are needed; there are " << cuda_device_count();
  for (const char* const transport : {"peer", "nccl"}) {
    const auto device_of = [](int rank) { return Device::cuda(rank); };
    expect_roots(device_of, even_shares(4, 2), transport);
    expect_roots(device_of, {{0, 10}, {10, 6}}, transport);
    if (cuda_device_count() >= 4) expect_roots(device_of, even_shares(8, 4), transport);
  }
}

TEST(DeviceLinkTest, AWrongTransportIsNamedOnEveryRank) {
  const RegionLayout layout = layout_of(even_shares(2, 2), 256);
  const std::vector<std::string> thrown =
      on_ranks(2, [&](Mesh& mesh, int rank) { expect_root(mesh, rank, Device::cpu(), layout, 10, "pigeons"); });
  for (const std::string& message : thrown)
    EXPECT_NE(message.find("peer or nccl, got 'pigeons'"), std::string::npos) << message;
}

TEST(RegionLayoutTest, SaysWhereSumsLieAndWhenTheyAreAdded) {
  const RegionLayout layout = layout_of({{0, 3}, {3, 5}}, 512);  // 0 to 1, 2 | 3, 4 to 7
  EXPECT_EQ(layout.sums(), 4);
  const std::uint64_t header = kernels::RankRegion::header_bytes(4);
  EXPECT_EQ(layout.place_offset(0), header);
  EXPECT_EQ(layout.bytes(2), header + 1024);
  const kernels::SumTree tree = layout.tree();
  EXPECT_EQ(std::vector<int>(tree.owners.begin(), tree.owners.begin() + 4), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(std::vector<int>(tree.merges.begin(), tree.merges.begin() + 4), (std::vector<int>{0, 0, 2, 1}));
  EXPECT_EQ(std::vector<std::uint64_t>(tree.places.begin(), tree.places.begin() + 4),
            (std::vector<std::uint64_t>{header + 512, header, header + 512, header}));
  std::vector<ReplicaShare> many;
  for (int rank = 0; rank < 17; ++rank) many.push_back({rank, rank == 16 ? 16 : 1});
  EXPECT_THROW((void)layout_of(many, 256).tree(), ConfigError);
}

TEST(DescriptorMailTest, BringsDescriptorsAndWhoseTheyAre) {
  DescriptorMail left, right;
  EXPECT_NE(left.name(), right.name());
  EXPECT_FALSE(right.receive(0).has_value());
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  std::vector<FileDescriptor> letter;
  letter.emplace_back(ends[1]);
  const FileDescriptor reader(ends[0]);
  ASSERT_TRUE(left.send(right.name(), 7, 99, letter));
  letter.clear();
  const std::optional<DescriptorLetter> came = right.receive(1);
  ASSERT_TRUE(came.has_value());
  EXPECT_EQ(came->from, 7u);
  EXPECT_EQ(came->run, 99u);
  ASSERT_EQ(came->descriptors.size(), 1u);
  ASSERT_EQ(::write(came->descriptors[0].get(), "x", 1), 1);
  char read = 0;
  ASSERT_EQ(::read(reader.get(), &read, 1), 1);
  EXPECT_EQ(read, 'x');
  EXPECT_THROW((void)left.send("nobody has this name", 0, 0, {}), Error);
}

TEST(SharedPagesTest, AreOfGpusAlone) {
  int value = 0;
  EXPECT_EQ(pages_of(Device::cpu(), &value, sizeof(value)).page_bytes, 0u);
  EXPECT_EQ(pci_bus_of(Device::cpu()), "");
}

}  // namespace
}  // namespace bantam::device_link_test

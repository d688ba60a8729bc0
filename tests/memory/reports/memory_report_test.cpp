// The memory report: every line reconciles to the byte, and trim releases the bytes it names.
#include "bantam/memory/reports/memory_report.h"

#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include "bantam/base/json.h"
#include "bantam/base/philox.h"

namespace bantam::testing::memory_report_test {
namespace {

constexpr Device kMeta = Device::meta_of(Device::cpu());

/// An allocator after many calls: some memory is live, some cached, and whole regions are free.
class MemoryReportTest : public ::testing::Test {
 protected:
  MemoryReportTest()
      : allocator_(make_fake_source(), kMeta,
                   {.name = "cpu", .limit_bytes = 1u << 30, .first_region_bytes = 1u << 16}) {
    static constexpr const char* kOwners[] = {"stem", "block1/conv", "block1/norm",
                                              "a/very/long/path/of/layers/in/blocks/of/blocks"};
    PhiloxSequence random(philox_key(5, RandomPurpose::test));
    for (int i = 0; i < 300; ++i) {
      const auto category = static_cast<Category>(random.below(kCategories));
      live_.push_back(allocator_.allocate(1 + random.below(100'000), stream_, {category, kOwners[random.below(4)]}));
    }
    for (int i = 0; i < 260; ++i) {  // the newest, which lie in the last regions, so that some region is wholly free
      allocator_.free(live_.back(), stream_);
      live_.pop_back();
    }
    allocator_.free(live_[3], stream_);
    live_.erase(live_.begin() + 3);
  }
  Stream stream_{.device = kMeta};
  BfcAllocator allocator_;
  std::vector<void*> live_;
};

TEST_F(MemoryReportTest, AddsUpToTheByte) {
  const std::vector<OverheadLine> overhead = {{"CUDA context", 300'000'000}, {"cuBLAS", 33'554'432}};
  const MemoryReport report = memory_report(allocator_, overhead);
  const MemoryStats& stats = report.stats;
  EXPECT_EQ(report.total_bytes(), report.reserved_bytes() + 333'554'432u);
  EXPECT_EQ(report.reserved_bytes(), stats.in_use_bytes + report.cached_bytes());
  EXPECT_EQ(stats.in_use_bytes, stats.requested_bytes + report.rounding_bytes());
  EXPECT_GT(report.rounding_bytes(), 0u);
  EXPECT_EQ(stats.by_category.total(), stats.in_use_bytes);
  std::uint64_t holders = 0;
  for (const Holder& holder : report.holders) holders += holder.bytes;
  EXPECT_EQ(holders, stats.in_use_bytes);
}

TEST_F(MemoryReportTest, TrimGivesBackWhatTheReportSays) {
  const MemoryReport before = memory_report(allocator_);
  EXPECT_EQ(before.trimmable_bytes, allocator_.trimmable_bytes());
  ASSERT_GT(before.trimmable_bytes, 0u);
  ASSERT_LE(before.trimmable_bytes, before.cached_bytes());
  EXPECT_EQ(allocator_.trim(), before.trimmable_bytes);
  const MemoryReport after = memory_report(allocator_);
  EXPECT_EQ(after.trimmable_bytes, 0u);
  EXPECT_EQ(after.reserved_bytes(), before.reserved_bytes() - before.trimmable_bytes);
  EXPECT_EQ(after.stats.in_use_bytes, before.stats.in_use_bytes);
}

TEST_F(MemoryReportTest, RegionsAddUpToThePool) {
  const AllocatorSnapshot snapshot = allocator_.snapshot();
  std::uint64_t reserved = 0, end = 0;
  for (const MemoryRegion& region : snapshot.regions) {
    EXPECT_GE(region.address, end) << "sorted, apart";
    end = region.address + region.bytes;
    reserved += region.bytes;
  }
  EXPECT_EQ(reserved, snapshot.stats.pool_bytes);
  EXPECT_EQ(snapshot.regions.size(), snapshot.stats.regions);
}

TEST_F(MemoryReportTest, JsonSaysTheSame) {
  const MemoryReport report = memory_report(allocator_, std::vector<OverheadLine>{{"CUDA context", 1000}});
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["total_bytes"], 1000 + report.reserved_bytes());
  EXPECT_EQ(json["held_bytes"].get<std::uint64_t>(),
            json["in_use_bytes"].get<std::uint64_t>() + json["cached_bytes"].get<std::uint64_t>());
  EXPECT_EQ(json["in_use_bytes"].get<std::uint64_t>(),
            json["requested_bytes"].get<std::uint64_t>() + json["rounding_bytes"].get<std::uint64_t>());
  std::uint64_t categories = 0, holders = 0, at_peak = 0;
  for (const auto& [name, bytes] : json["by_category"].items()) categories += bytes.get<std::uint64_t>();
  for (const auto& [name, bytes] : json["by_category_at_peak"].items()) at_peak += bytes.get<std::uint64_t>();
  for (const auto& holder : json["holders"]) holders += holder["bytes"].get<std::uint64_t>();
  EXPECT_EQ(categories, json["in_use_bytes"].get<std::uint64_t>());
  EXPECT_EQ(holders, json["in_use_bytes"].get<std::uint64_t>());
  EXPECT_EQ(at_peak, json["peak_bytes"].get<std::uint64_t>());
  EXPECT_EQ(json["overhead"][0]["name"], "CUDA context");
}

TEST_F(MemoryReportTest, WordsFitIn80ColumnsAndNameTheLargestHolders) {
  const MemoryReport report =
      memory_report(allocator_, std::vector<OverheadLine>{{"CUDA context, modules, graphs and more", 123'456'789'012}});
  const std::string text = to_text(report, 3);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  for (const char* part :
       {"in use", "requested", "rounding", "cached", "\n  trim() releases", "CUDA context", "others", "limit"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(MemoryReport, OfNothingIsZero) {
  const BfcAllocator allocator(make_fake_source(), kMeta, {.name = "cuda:7"});
  const MemoryReport report = memory_report(allocator);
  EXPECT_EQ(report.total_bytes(), 0u);
  EXPECT_EQ(report.trimmable_bytes, 0u);
  EXPECT_TRUE(report.holders.empty());
  EXPECT_NE(to_text(report).find("cuda:7"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["in_use_bytes"], 0);
}

TEST_F(MemoryReportTest, NamesOfAnyBytesAreReported) {
  void* const block = allocator_.allocate(100, stream_, {Category::other, "caf\xe9"});
  const std::vector<OverheadLine> overhead = {{"caf\xe9", 7}};
  const std::string text = to_json(memory_report(allocator_, overhead));
  EXPECT_EQ(nlohmann::json::parse(text)["overhead"].at(0)["name"], "caf\xef\xbf\xbd");
  allocator_.free(block, stream_);
}

}  // namespace
}  // namespace bantam::testing::memory_report_test

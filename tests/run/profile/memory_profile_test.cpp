// Traced steps: their account agrees with the allocator and the plan, and addresses lie in a row.
#include "bantam/run/profile/memory_profile.h"

#include <numeric>

#include "bantam/base/error.h"
#include "bantam/run/profile/profile_headline.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::memory_profile_test {
namespace {

using MemoryProfileTest = RunTest;

TEST(AddressRow, PutsRangesInTheOrderOfTheirFirstUse) {
  const std::vector<MemoryRegion> regions = {{0x1000, 0x1000}, {0x9000, 0x2000}, {0xf000, 0x1000}};
  const std::vector<TraceEvent> events = {{.address = 0x9100, .bytes = 0x100},
                                          {.address = 0x5100, .bytes = 0x100},  // in no region: released since
                                          {.address = 0x1000, .bytes = 0x100},
                                          {.address = 0x5200, .bytes = 0x300}};
  const AddressRow row(regions, events);
  ASSERT_EQ(row.ranges().size(), 4u);
  EXPECT_EQ(row.ranges()[0].address, 0x9000u);
  EXPECT_EQ(row.ranges()[1].address, 0x5100u);
  EXPECT_EQ(row.ranges()[1].bytes, 0x400u) << "neighbours are one range";
  EXPECT_FALSE(row.ranges()[1].reserved);
  EXPECT_EQ(row.ranges()[2].address, 0x1000u);
  EXPECT_EQ(row.ranges()[3].address, 0xf000u) << "never used: last";
  EXPECT_EQ(row.offset(0x9100), 0x100u);
  EXPECT_EQ(row.offset(0x5200), 0x2100u);
  EXPECT_EQ(row.offset(0x1000), 0x2400u);
  EXPECT_EQ(row.offset(0xffff), 0x3400u + 0xfff);
  EXPECT_THROW((void)row.offset(0x3000), Error);
  EXPECT_THROW((void)row.offset(0x10), Error);
}

TEST_F(MemoryProfileTest, AgreesWithTheAllocatorAndThePlan) {
  const RunConfig config = tiny();
  const StepCase step{.batch = 8, .precision = config.precision};
  const MemoryProfile profile =
      profile_steps(config, step, {.first_step = 2, .last_step = 3, .threads = 1, .curve_batches = {4, 8}});
  EXPECT_EQ(profile.report.stats.peak_bytes, profile.planned_peak_bytes);
  EXPECT_EQ(profile.in_use.at(static_cast<std::size_t>(profile.peak_tick)), profile.planned_peak_bytes);
  EXPECT_EQ(profile.in_use.back(), profile.report.stats.in_use_bytes);
  ASSERT_EQ(profile.steps.size(), 3u);
  EXPECT_EQ(profile.step_at(0), 0) << "before the first step";
  EXPECT_EQ(profile.step_at(profile.steps[1].lower), 2);
  ASSERT_EQ(profile.curve.size(), 2u);
  EXPECT_LT(profile.curve[0].peak_bytes, profile.curve[1].peak_bytes);
  EXPECT_EQ(profile.curve[1].peak_bytes, profile.planned_peak_bytes);
  EXPECT_EQ(profile.model, "tiny");
  EXPECT_EQ(profile.device, Device::cpu());
}

TEST_F(MemoryProfileTest, AStandInTellsTheSame) {
  const RunConfig config = tiny();
  const StepCase step{.batch = 8, .precision = config.precision};
  const MemoryProfile planned = profile_steps(config, step, {.first_step = 1, .last_step = 2, .planned = true});
  EXPECT_EQ(planned.report.stats.peak_bytes, planned.planned_peak_bytes);
  EXPECT_EQ(planned.device, Device::meta_of(Device::cpu()));
}

TEST(ProfileHeadline, NamesTheLargestPartAndWhatSaves) {
  CategoryBytes at_peak;
  at_peak[Category::activation] = 3 << 20;
  at_peak[Category::parameter] = 1 << 20;
  const std::string plain = profile_headline(4 << 20, at_peak, {});
  EXPECT_NE(plain.find("75 %"), std::string::npos) << plain;
  EXPECT_NE(plain.find("are activations"), std::string::npos) << plain;
  const PlannedChange saves{.words = "recompute: cheap", .peak_bytes = 2 << 20, .is_recompute = true};
  const PlannedChange idle{.words = "recompute: all", .peak_bytes = 4 << 20, .is_recompute = true};
  const PlannedChange half{.words = "a batch of 4", .peak_bytes = 3 << 20};
  const std::string advised = profile_headline(4 << 20, at_peak, {saves, idle, half});
  EXPECT_NE(advised.find("recompute: cheap would need 2.00 MiB"), std::string::npos) << advised;
  EXPECT_EQ(advised.find("recompute: all"), std::string::npos) << advised;
  EXPECT_EQ(advised.find("a batch of 4"), std::string::npos) << advised;
  const std::string rest = profile_headline(4 << 20, at_peak, {idle, half});
  EXPECT_NE(rest.find("recompute would save next to nothing, a batch of 4 would need 3.00 MiB"), std::string::npos)
      << rest;
}

}  // namespace
}  // namespace bantam::run::memory_profile_test

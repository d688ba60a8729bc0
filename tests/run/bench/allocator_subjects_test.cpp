// What each allocator of the host made of a workload.
#include "bantam/run/bench/allocator_subjects.h"

#include <gtest/gtest.h>

namespace bantam::run::allocator_subjects_test {
namespace {

TEST(AllocatorSubjects, HostAllocatorsHoldWhatIsAlive) {
  const AllocatorWorkload workload = pair_workload();
  const std::vector<AllocatorRow> rows = measure_host(workload, 0.01);
  ASSERT_EQ(rows.size(), 3u);
  for (const AllocatorRow& row : rows) {
    EXPECT_EQ(row.error, "") << row.allocator;
    EXPECT_GT(row.ns_per_pair, 0) << row.allocator;
    EXPECT_GE(row.windows, 1) << row.allocator;
    EXPECT_TRUE(row.device.is_cpu());
  }
  EXPECT_GE(rows[0].peak_reserved_bytes, workload.peak_live_bytes) << rows[0].allocator;
}

TEST(AllocatorSubjects, AGpuThatIsNotThereIsSaidInItsRows) {
  const std::vector<AllocatorRow> rows = measure_cuda(pair_workload(), Device::cuda(cuda_device_count()), 0.01);
  ASSERT_FALSE(rows.empty());
  for (const AllocatorRow& row : rows) EXPECT_NE(row.error, "") << row.allocator;
}

}  // namespace
}  // namespace bantam::run::allocator_subjects_test

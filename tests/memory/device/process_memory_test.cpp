// What the system counts for this process: it sees memory come and go.
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "bantam/base/error.h"
#include "bantam/memory/device/device.h"

namespace bantam::process_memory_test {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

TEST(ProcessMemory, TheResidentSetFollowsTouchedPages) {
  const ProcessMeter meter(Device::cpu());
  const ProcessMemory before = meter.read();
  EXPECT_EQ(to_string(before.method), "resident set");
  EXPECT_GT(before.bytes, kMiB);
  constexpr std::size_t kBytes = 64 * kMiB;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  const ProcessMemory during = meter.read();
  EXPECT_GE(during.bytes, before.bytes + 60 * kMiB);
  EXPECT_GE(during.peak_bytes + kMiB, during.bytes) << "the system sums its counters up now and then only";
  munmap(memory, kBytes);
  EXPECT_LE(meter.read().bytes, during.bytes - 60 * kMiB);
  EXPECT_GE(meter.read().peak_bytes + kMiB, during.bytes);
}

TEST(ProcessMemory, SharesAreTheirDevices) { EXPECT_GT(ProcessMeter(Device::cpu().logical(1)).read().bytes, kMiB); }

TEST(ProcessMemory, ADeviceThatIsNotThereCannotBeAsked) {
  EXPECT_THROW(ProcessMeter(Device::cuda(cuda_device_count())), DeviceError);
  EXPECT_THROW(ProcessMeter(Device::meta_of(Device::cpu())), DeviceError);
  EXPECT_THROW((void)driver_process_bytes(Device::cuda(cuda_device_count()), 1), DeviceError);
}

// In another process name space NVML may list someone else under our number.
TEST(ProcessMemory, AFigureThatCannotBeOursIsRefused) {
  EXPECT_TRUE(is_own_figure(500 * kMiB, std::nullopt, 100 * kMiB));
  EXPECT_TRUE(is_own_figure(500 * kMiB, std::nullopt, 0)) << "the context alone";
  EXPECT_TRUE(is_own_figure(100 * kMiB, std::nullopt, 100 * kMiB));
  EXPECT_FALSE(is_own_figure(100 * kMiB - 1, std::nullopt, 100 * kMiB)) << "our pools hold more";
  EXPECT_FALSE(is_own_figure(500 * kMiB, 300 * kMiB, 100 * kMiB)) << "it was there before us";
  EXPECT_FALSE(is_own_figure(500 * kMiB, std::uint64_t{0}, 0));
}

TEST(ProcessMemory, LinesAddUp) {
  const std::vector<OverheadLine> lines = {{"a", 3}, {"b", 4}};
  EXPECT_EQ(total_bytes(lines), 7u);
  EXPECT_EQ(total_bytes({}), 0u);
}

}  // namespace
}  // namespace bantam::process_memory_test

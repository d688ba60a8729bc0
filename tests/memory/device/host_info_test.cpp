// The host's facts, read from made-up /proc and /sys folders.
#include "bantam/memory/device/host_info.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace bantam::host_info_test {
namespace {

class HostInfoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            (std::string("bantam_host_") + ::testing::UnitTest::GetInstance()->current_test_info()->name() +
             std::to_string(::getpid()));
    write("proc/meminfo", "MemTotal:       2000 kB\nMemFree:  10 kB\nMemAvailable:    1500 kB\n");
    write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU 9000\nprocessor\t: 1\nmodel name\t: other\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  HostInfo read() const { return read_host_info(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(HostInfoTest, reads_processor_and_memory) {
  const HostInfo info = read();
  EXPECT_EQ(info.processor, "Test CPU 9000");
  EXPECT_EQ(info.total_bytes, 2000u * 1024);
  EXPECT_EQ(info.free_bytes, 1500u * 1024);
  EXPECT_GE(info.processors, 1);
}

TEST_F(HostInfoTest, the_smallest_limit_of_the_group_and_those_above_holds) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  write("sys/fs/cgroup/a/memory.current", "400000\n");
  write("sys/fs/cgroup/memory.max", "1900000\n");
  const HostInfo info = read();
  EXPECT_EQ(info.total_bytes, 1000000u);
  EXPECT_EQ(info.free_bytes, 600000u);
}

TEST_F(HostInfoTest, version_one_limits_hold_too_and_use_above_the_limit_leaves_nothing) {
  write("proc/self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "600000\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const HostInfo info = read();
  EXPECT_EQ(info.total_bytes, 500000u);
  EXPECT_EQ(info.free_bytes, 0u);
}

TEST_F(HostInfoTest, threads_follow_the_processor_quota) {
  const int allowed = read().allowed_processors;
  EXPECT_EQ(read().processors, allowed);
  EXPECT_EQ(read().processor_quota, 0);
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
  EXPECT_EQ(read().processor_quota, 1.5);
  EXPECT_EQ(read().processors, std::min(allowed, 2));
  write("sys/fs/cgroup/a/cpu.max", "25000 50000\n");  // the group above allows less
  const HostInfo info = read();
  EXPECT_EQ(info.processor_quota, 0.5);
  EXPECT_EQ(info.processors, 1);
  EXPECT_EQ(info.allowed_processors, allowed);
  EXPECT_EQ(info.quota_file, root_.string() + "/sys/fs/cgroup/a/cpu.max");
  write("sys/fs/cgroup/a/cpu.max", "100000000 100000\n");  // more than there are
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(read().processors, allowed);
}

TEST_F(HostInfoTest, threads_follow_the_processor_quota_of_version_one) {
  const int allowed = read().allowed_processors;
  // In a container the path is the host's, and the mount begins at the container's group.
  write("proc/self/cgroup", "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read().processors, allowed);
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(read().processors, 1);
  EXPECT_EQ(read().quota_file, root_.string() + "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us");
  write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "50000\n");
  write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(read().processor_quota, 0.5);
}

TEST_F(HostInfoTest, page_cache_gives_way_and_swap_counts_apart) {
  write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1500 kB\nSwapFree: 100 kB\n");
  EXPECT_EQ(read().bound, root_.string() + "/proc/meminfo");
  EXPECT_EQ(read().swap_bytes, 100u * 1024);
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "1000000\n");
  write("sys/fs/cgroup/a/memory.current", "900000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 500000\ninactive_file 300000\nactive_file 50000\nfile 350000\n");
  write("sys/fs/cgroup/a/memory.swap.max", "70000\n");
  write("sys/fs/cgroup/a/memory.swap.current", "20000\n");
  HostInfo info = read();
  EXPECT_EQ(info.free_bytes, 1000000u - 900000 + 350000);
  EXPECT_EQ(info.swap_bytes, 50000u);
  EXPECT_EQ(info.bound, root_.string() + "/sys/fs/cgroup/a/memory.max");
  // Version 1 limits memory and swap together.
  write("proc/self/cgroup", "4:memory:/old\n");
  write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "1000000\n");
  write("sys/fs/cgroup/memory/old/memory.usage_in_bytes", "600000\n");
  write("sys/fs/cgroup/memory/old/memory.stat", "inactive_file 9\ntotal_inactive_file 100000\n");
  write("sys/fs/cgroup/memory/old/memory.memsw.limit_in_bytes", "1200000\n");
  write("sys/fs/cgroup/memory/old/memory.memsw.usage_in_bytes", "640000\n");
  info = read();
  EXPECT_EQ(info.free_bytes, 500000u);
  EXPECT_EQ(info.swap_bytes, 60000u);
}

TEST_F(HostInfoTest, absent_files_are_no_error) {
  const HostInfo info = read_host_info((root_ / "nothing").string());
  EXPECT_EQ(info.processor, "CPU");
  EXPECT_EQ(info.total_bytes, 0u);
  EXPECT_EQ(info.free_bytes, 0u);
  EXPECT_EQ(info.bound, "");
  EXPECT_GE(info.processors, 1);
}

TEST_F(HostInfoTest, reads_what_this_process_holds) {
  write("proc/self/status", "Name:\tx\nVmHWM:\t   300 kB\nVmRSS:\t   200 kB\n");
  write("proc/self/cgroup", "0::/jobs/one\n");
  write("sys/fs/cgroup/jobs/one/memory.current", "123456\n");
  const HostProcess process = read_host_process(root_.string());
  EXPECT_EQ(process.resident_bytes, 200u * 1024);
  EXPECT_EQ(process.peak_resident_bytes, 300u * 1024);
  EXPECT_EQ(process.group_bytes, 123456u);
  write("proc/self/cgroup", "4:memory:/old\n");
  write("sys/fs/cgroup/memory/old/memory.usage_in_bytes", "77\n");
  EXPECT_EQ(read_host_process(root_.string()).group_bytes, 77u);
  EXPECT_EQ(read_host_process((root_ / "nowhere").string()).resident_bytes, 0u);
}

}  // namespace
}  // namespace bantam::host_info_test

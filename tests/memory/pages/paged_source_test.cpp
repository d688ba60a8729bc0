// Pages can be used where they are mapped and only there, and the system really gets them back.
#include "bantam/memory/pages/paged_source.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam::paged_source_test {
namespace {

constexpr std::size_t kMiB = 1u << 20;

unsigned char* bytes_at(std::uintptr_t address) { return reinterpret_cast<unsigned char*>(address); }

// Whether the system accepts the address as readable: it is asked to read there, and answers instead of faulting.
bool readable(std::uintptr_t address) {
  int ends[2];
  if (pipe(ends) != 0) throw Error("no pipe");
  const bool yes = write(ends[1], bytes_at(address), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return yes;
}

std::size_t resident_bytes(AddressRange range) {
  const auto system_page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(range.bytes / system_page);
  EXPECT_EQ(mincore(bytes_at(range.begin), range.bytes, pages.data()), 0);
  std::size_t resident = 0;
  for (const unsigned char page : pages) resident += (page & 1) != 0 ? system_page : 0;
  return resident;
}

TEST(PagedSource, host_pages_are_usable_where_they_are_mapped_and_only_there) {
  const auto source = make_paged_host_source();
  ASSERT_NE(source, nullptr);
  const AddressRange all = source->addresses();
  const std::size_t page = source->page_bytes();
  EXPECT_EQ(page % static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), 0u);
  EXPECT_EQ(all.begin % source->growth_bytes(), 0u);
  EXPECT_GE(all.bytes, std::size_t{1} << 30);
  const std::uintptr_t at = all.begin + 5 * page;
  EXPECT_FALSE(readable(at));
  ASSERT_TRUE(source->map(at, 3 * page));
  std::memset(bytes_at(at), 0xa5, 3 * page);
  EXPECT_FALSE(readable(at - 1));
  EXPECT_FALSE(readable(at + 3 * page));
  source->unmap(at + page, page);
  EXPECT_FALSE(readable(at + page));
  EXPECT_FALSE(readable(at + 2 * page - 1));
  EXPECT_EQ(bytes_at(at)[page - 1], 0xa5);
  EXPECT_EQ(bytes_at(at)[2 * page], 0xa5);
  ASSERT_TRUE(source->map(at + page, page));
  EXPECT_EQ(bytes_at(at)[page], 0) << "the old contents are lost";
  source->unmap(at, 3 * page);
}

TEST(PagedSource, the_system_gets_host_pages_back) {
  const auto source = make_paged_host_source();
  ASSERT_NE(source, nullptr);
  const AddressRange range{source->addresses().begin, 64 * kMiB};
  ASSERT_TRUE(source->map(range.begin, range.bytes));
  EXPECT_EQ(resident_bytes(range), 0u) << "mapped, but nothing touched";
  std::memset(bytes_at(range.begin), 1, range.bytes);
  EXPECT_EQ(resident_bytes(range), range.bytes);
  source->unmap(range.begin + 8 * kMiB, 48 * kMiB);
  EXPECT_EQ(resident_bytes(range), 16 * kMiB);
  source->unmap(range.begin, 8 * kMiB);
  source->unmap(range.begin + 56 * kMiB, 8 * kMiB);
  EXPECT_EQ(resident_bytes(range), 0u);
}

// The number after `key` in /proc/FILE; -1 where there is none.
long long proc_number(const std::string& file, const std::string& key) {
  std::ifstream lines("/proc/" + file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  return -1;
}

// A huge page of which a part is dropped can stay whole, that part lost to everybody, until memory is short. No counter
// of the process tells, and the system's free memory moves with what others do: so the kernel is asked whether it split
// the pages, without which it cannot have got the parts back.
TEST(PagedSource, parts_of_huge_pages_are_free_to_the_system) {
  const auto source = make_paged_host_source();
  ASSERT_NE(source, nullptr);
  const AddressRange range{source->addresses().begin, 128 * kMiB};
  ASSERT_TRUE(source->map(range.begin, range.bytes));
  std::memset(bytes_at(range.begin), 1, range.bytes);
  const long long huge_kib = proc_number("self/smaps_rollup", "AnonHugePages:");
  const long long before = proc_number("vmstat", "thp_split_page ");
  for (std::uintptr_t at = range.begin; at < range.end(); at += 2 * kMiB)
    source->unmap(at + kMiB / 4, 2 * kMiB / 8 * 7);
  const long long split = proc_number("vmstat", "thp_split_page ") - before;
  EXPECT_EQ(resident_bytes(range), range.bytes / 8);
  for (std::uintptr_t at = range.begin; at < range.end(); at += 2 * kMiB) {
    EXPECT_EQ(bytes_at(at)[kMiB / 4 - 1], 1) << "what was kept is as it was";
    source->unmap(at, kMiB / 4);
  }
  if (huge_kib < 2048 || before < 0)
    GTEST_SKIP() << "the system gives no transparent huge pages here (" << huge_kib << " KiB), or does not count them";
  EXPECT_GE(split, huge_kib / 2048) << "huge pages of which parts were dropped";
}

std::size_t mappings_in(AddressRange range) {
  std::ifstream lines("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::uintptr_t begin = std::stoull(line, nullptr, 16);
    count += begin >= range.begin && begin < range.end() ? 1 : 0;
  }
  return count;
}

// 140,000 pages of which every second one goes would be more mappings than a process may have, threads' stacks
// included.
TEST(PagedSource, holes_are_bounded_mappings) {
  const auto source = make_paged_host_source();
  ASSERT_NE(source, nullptr);
  const std::uintptr_t begin = source->addresses().begin;
  const std::size_t page = source->page_bytes(),
                    pages = std::min<std::size_t>(140000, source->addresses().bytes / page);
  ASSERT_TRUE(source->map(begin, pages * page));
  for (const std::size_t p : {std::size_t{1}, pages / 2 | 1}) bytes_at(begin + p * page)[0] = 1;
  for (std::size_t p = 1; p < pages; p += 2) source->unmap(begin + p * page, page);
  EXPECT_LE(mappings_in(source->addresses()), 2100u);
  for (std::size_t p = 1; p < pages; p += 2)
    ASSERT_EQ(resident_bytes({begin + p * page, page}), 0u) << "hole " << p << " has not been released";
  std::thread([] {}).join();
  for (std::size_t p = 0; p < pages; p += 32) bytes_at(begin + p * page)[0] = 2;
  for (std::size_t p = 1; p < pages; p += 2) ASSERT_TRUE(source->map(begin + p * page, page));
  EXPECT_LE(mappings_in(source->addresses()), 10u) << "closed parts join again";
  for (std::size_t p = 0; p < pages; ++p) ASSERT_EQ(bytes_at(begin + p * page)[0], p % 32 == 0 ? 2 : 0) << p;
  for (std::size_t p = 0; p < pages; p += 2) source->unmap(begin + p * page, page);
  for (std::size_t p = 1; p < pages; p += 2) source->unmap(begin + p * page, page);
  EXPECT_EQ(mappings_in(source->addresses()), 1u);
  EXPECT_FALSE(readable(begin) || readable(begin + (pages - 1) * page))
      << "nothing is accessible where all is unmapped";
}

TEST(PagedSource, fake_pages_have_a_capacity_and_give_it_back) {
  const auto source = make_paged_fake_source({.page_bytes = 4096, .capacity = 40960, .address_bytes = 1 << 20});
  const std::uintptr_t begin = source->addresses().begin;
  EXPECT_EQ(source->addresses().bytes, 1u << 20);
  EXPECT_EQ(source->growth_bytes(), 4096u);
  EXPECT_TRUE(source->map(begin, 24576));
  EXPECT_FALSE(source->map(begin + 65536, 20480));
  EXPECT_TRUE(source->map(begin + 65536, 16384));
  source->unmap(begin, 4096);
  EXPECT_TRUE(source->map(begin, 4096));
  for (const std::size_t page : {std::size_t{0}, std::size_t{128}, std::size_t{3 * 4096}})
    EXPECT_THROW(make_paged_fake_source({.page_bytes = page}), Error) << page;
}

TEST(PagedSource, devices_and_their_stand_ins_have_the_same_pages) {
  const auto host = make_device_source(Device::cpu());
  const auto meta = make_device_source(Device::meta_of(Device::cpu()));
  const auto* host_pages = dynamic_cast<const PagedSource*>(host.get());
  const auto* meta_pages = dynamic_cast<const PagedSource*>(meta.get());
  ASSERT_TRUE(host_pages != nullptr && meta_pages != nullptr);
  EXPECT_EQ(meta_pages->page_bytes(), host_pages->page_bytes());
  EXPECT_EQ(meta_pages->growth_bytes(), host_pages->growth_bytes());
  const auto gpu = make_device_source(Device::meta_of(Device::cuda(3)));
  EXPECT_EQ(dynamic_cast<const PagedSource&>(*gpu).page_bytes(), 2 * kMiB);
  EXPECT_THROW(make_device_source(Device::cuda(cuda_device_count())), DeviceError);
}

}  // namespace
}  // namespace bantam::paged_source_test

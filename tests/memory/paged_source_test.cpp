// Pages can be used where they are mapped and only there, and the system really gets them back.
#include "bantam/memory/paged_source.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam {
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
  const AddressRange all = source->reserved();
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
  const AddressRange range{source->reserved().begin, 64 * kMiB};
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

TEST(PagedSource, fake_pages_have_a_capacity_and_give_it_back) {
  const auto source = make_paged_fake_source({.page_bytes = 4096, .capacity = 40960, .reserved = 1 << 20});
  const std::uintptr_t begin = source->reserved().begin;
  EXPECT_EQ(source->reserved().bytes, 1u << 20);
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
}  // namespace bantam

// Pages of host memory by mprotect and madvise, pages of CUDA virtual memory, and pages of nothing.
#include "bantam/memory/pages/paged_source.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/device/fake_addresses.h"
#include "bantam/memory/device/host_info.h"

namespace bantam {
namespace {

constexpr std::size_t kHostPage = std::size_t{64} << 10;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
/// Addresses reserved for each byte that a device has: holes between live pages then hardly ever are too short.
constexpr std::uint64_t kAddressesPerByte = 8;

constexpr std::uintptr_t align_up(std::uintptr_t value, std::size_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// The accessible parts of one range of addresses: sorted, none touching another.
class OpenParts {
 public:
  /// `most` parts fit without heap memory.
  explicit OpenParts(std::size_t most) { parts_.reserve(most); }

  std::uint64_t bytes() const { return bytes_; }
  bool empty() const { return parts_.empty(); }
  void clear() noexcept {
    parts_.clear();
    bytes_ = 0;
  }
  /// Allocates heap memory for one more part, where there is no room.
  void reserve_one() { parts_.reserve(parts_.size() + 1); }
  /// Joined with what `range` overlaps or touches. There is room for one part more.
  void add(AddressRange range) noexcept {
    const auto first = std::ranges::lower_bound(parts_, range.begin, {}, &AddressRange::end);
    const auto last = std::ranges::upper_bound(first, parts_.end(), range.end(), {}, &AddressRange::begin);
    const std::uintptr_t begin = first == last ? range.begin : std::min(range.begin, first->begin);
    const std::uintptr_t end = first == last ? range.end() : std::max(range.end(), std::prev(last)->end());
    bytes_ += end - begin;
    replace(first, last, {begin, end - begin}, {});
  }
  /// How many parts there are after `remove(range)`.
  std::size_t count_without(AddressRange range) const noexcept {
    const Cut cut = cut_of(range);
    return parts_.size() - cut.touched + (cut.head.bytes != 0 ? 1 : 0) + (cut.tail.bytes != 0 ? 1 : 0);
  }
  /// There is room for one part more.
  void remove(AddressRange range) noexcept {
    const Cut cut = cut_of(range);
    const auto first = parts_.begin() + static_cast<std::ptrdiff_t>(cut.first);
    bytes_ += cut.head.bytes + cut.tail.bytes;
    replace(first, first + static_cast<std::ptrdiff_t>(cut.touched), cut.head, cut.tail);
  }

 private:
  using Parts = std::vector<AddressRange>;
  /// The parts that a range overlaps, and what is left of them before and after it.
  struct Cut {
    std::size_t first = 0, touched = 0;
    AddressRange head, tail;
  };
  Cut cut_of(AddressRange range) const noexcept {
    const auto first = std::ranges::upper_bound(parts_, range.begin, {}, &AddressRange::end);
    const auto last = std::ranges::lower_bound(first, parts_.end(), range.end(), {}, &AddressRange::begin);
    Cut cut{static_cast<std::size_t>(first - parts_.begin()), static_cast<std::size_t>(last - first), {}, {}};
    if (first == last) return cut;
    if (first->begin < range.begin) cut.head = {first->begin, range.begin - first->begin};
    if (const std::uintptr_t end = std::prev(last)->end(); end > range.end())
      cut.tail = {range.end(), end - range.end()};
    return cut;
  }
  // Empty ranges are left out. The new parts' bytes have been added to the sum.
  void replace(Parts::iterator first, Parts::iterator last, AddressRange a, AddressRange b) noexcept {
    for (auto part = first; part != last; ++part) bytes_ -= part->bytes;
    for (const AddressRange range : {a, b}) {
      if (range.bytes == 0) continue;
      if (first == last)
        last = first = parts_.insert(first, range);
      else
        *first = range;
      ++first;
      last = std::max(first, last);
    }
    parts_.erase(first, last);
  }

  Parts parts_;
  std::uint64_t bytes_ = 0;
};

/// One mapping without access rights; rights are granted and revoked by the page. Unmapped pages are dropped at once.
///
/// The kernel cuts the mapping wherever rights change, and bounds a process' mappings (vm.max_map_count, 65,530), its
/// threads' stacks included. So there are at most kMostParts accessible parts: a hole that would make one more is
/// dropped too, but stays accessible. While there are such holes, huge pages are not wished for: the kernel would fill
/// the holes again to make some.
class HostPages final : public PagedSource {
 public:
  HostPages(AddressRange mapping, std::size_t page) : mapping_(mapping), page_(page), open_(kMostParts + 1) {
    range_.begin = align_up(mapping.begin, kHugePage);
    range_.bytes = (mapping.end() - range_.begin) / kHugePage * kHugePage;
    wish_for_huge_pages(true);
  }
  ~HostPages() override { (void)munmap(pointer(mapping_.begin), mapping_.bytes); }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  std::size_t page_bytes() const override { return page_; }
  std::size_t growth_bytes() const override { return std::max(page_, kHugePage); }
  AddressRange addresses() const override { return range_; }
  bool map(std::uintptr_t address, std::size_t bytes) override {
    open_.reserve_one();
    if (mprotect(pointer(address), bytes, PROT_READ | PROT_WRITE) != 0) {
      close({address, bytes});  // it may have changed a part before it failed
      return false;
    }
    open_.add({address, bytes});
    mapped_ += bytes;
    if (!huge_ && open_.bytes() == mapped_) wish_for_huge_pages(true);
    return true;
  }
  void unmap(std::uintptr_t address, std::size_t bytes) noexcept override {
    // A huge page of which a part is dropped stays whole until memory is short, the part included. MADV_FREE splits it.
    (void)madvise(pointer(address), bytes, MADV_FREE);
    (void)madvise(pointer(address), bytes, MADV_DONTNEED);
    mapped_ -= bytes;
    if (mapped_ != 0)
      close({address, bytes});
    else if (!open_.empty() && mprotect(pointer(range_.begin), range_.bytes, PROT_NONE) == 0)
      open_.clear();
    if (const bool holes = open_.bytes() != mapped_; holes == huge_) wish_for_huge_pages(!holes);
  }
  const char* name() const override { return "host pages"; }

 private:
  static constexpr std::size_t kMostParts = 1024;

  // Revokes access, unless that makes too many parts or the kernel refuses.
  void close(AddressRange range) noexcept {
    if (open_.count_without(range) <= kMostParts && mprotect(pointer(range.begin), range.bytes, PROT_NONE) == 0)
      open_.remove(range);
  }
  // Fewer faults where they are used; a wish only.
  void wish_for_huge_pages(bool wished) noexcept {
    huge_ = wished;
    (void)madvise(pointer(range_.begin), range_.bytes, wished ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }

  AddressRange mapping_;  // as the system gave it
  AddressRange range_;    // its aligned inside
  std::size_t page_;
  OpenParts open_;  // what is mapped, and holes that stay accessible
  std::uint64_t mapped_ = 0;
  bool huge_ = false;
};

class CudaPages final : public PagedSource {
 public:
  CudaPages(Device device, AddressRange range, std::size_t page)
      : device_(device), range_(range), page_(page), name_("pages of " + to_string(device)) {}
  ~CudaPages() override { cuda_backend::free_addresses(device_.index, range_.begin, range_.bytes); }
  CudaPages(const CudaPages&) = delete;
  CudaPages& operator=(const CudaPages&) = delete;

  std::size_t page_bytes() const override { return page_; }
  AddressRange addresses() const override { return range_; }
  bool map(std::uintptr_t address, std::size_t bytes) override {
    return cuda_backend::map_pages(device_.index, address, bytes, page_);
  }
  void unmap(std::uintptr_t address, std::size_t bytes) noexcept override {
    cuda_backend::unmap_pages(device_.index, address, bytes, page_);
  }
  const char* name() const override { return name_.c_str(); }

 private:
  Device device_;
  AddressRange range_;
  std::size_t page_;
  std::string name_;
};

class FakePagesSource final : public PagedSource {
 public:
  explicit FakePagesSource(const FakePages& pages) : pages_(pages) {
    if (!std::has_single_bit(pages.page_bytes) || pages.page_bytes < 256)
      throw Error("a page is a power of two of at least 256 bytes");
    pages_.growth_bytes = std::max(pages.growth_bytes, pages.page_bytes);
    pages_.address_bytes = pages.address_bytes / pages.page_bytes * pages.page_bytes;
  }
  std::size_t page_bytes() const override { return pages_.page_bytes; }
  std::size_t growth_bytes() const override { return pages_.growth_bytes; }
  AddressRange addresses() const override { return {kFakeAddresses, pages_.address_bytes}; }
  bool map(std::uintptr_t, std::size_t bytes) override {
    if (pages_.capacity != 0 && bytes > pages_.capacity - mapped_) return false;
    mapped_ += bytes;
    return true;
  }
  void unmap(std::uintptr_t, std::size_t bytes) noexcept override { mapped_ -= bytes; }
  const char* name() const override { return "fake pages"; }

 private:
  FakePages pages_;
  std::size_t mapped_ = 0;
};

std::size_t host_page() {
  const long system = sysconf(_SC_PAGESIZE);
  return std::max(kHostPage, system > 0 ? std::bit_ceil(static_cast<std::size_t>(system)) : kHostPage);
}

}  // namespace

std::unique_ptr<PagedSource> make_paged_host_source() {
  const std::uint64_t total = std::max<std::uint64_t>(read_host_info().total_bytes, std::uint64_t{1} << 30);
  // Less where the process may not have that many addresses (ulimit -v).
  for (std::uint64_t bytes = total * kAddressesPerByte; bytes >= total; bytes /= 2) {
    void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) continue;
    return std::make_unique<HostPages>(AddressRange{reinterpret_cast<std::uintptr_t>(address), bytes}, host_page());
  }
  return nullptr;
}

std::size_t cuda_page_bytes(Device device) {
  const std::size_t granularity = cuda_backend::page_granularity(device.index);
  return granularity == 0 ? 0 : std::max(kCudaPage, std::bit_ceil(granularity));
}

std::unique_ptr<PagedSource> make_paged_cuda_source(Device device) {
  cuda_backend::require(device);
  const std::size_t page = cuda_page_bytes(device);
  if (page == 0) return nullptr;
  const std::uint64_t total = cuda_backend::device_facts(device.index).total_bytes;
  for (std::uint64_t bytes = align_up(total * kAddressesPerByte, page); bytes >= total;
       bytes = align_up(bytes / 2, page))
    if (const std::uintptr_t address = cuda_backend::reserve_addresses(device.index, bytes, page); address != 0)
      return std::make_unique<CudaPages>(device, AddressRange{address, bytes}, page);
  return nullptr;
}

std::unique_ptr<PagedSource> make_paged_fake_source(const FakePages& pages) {
  return std::make_unique<FakePagesSource>(pages);
}

std::unique_ptr<MemorySource> make_device_source(Device device) {
  if (device.meta && device.kind == DeviceKind::cuda) return make_paged_fake_source({.page_bytes = kCudaPage});
  if (device.meta) return make_paged_fake_source({.page_bytes = host_page(), .growth_bytes = kHugePage});
  std::unique_ptr<MemorySource> pages;
  if (device.is_cuda())
    pages = make_paged_cuda_source(device);
  else
    pages = make_paged_host_source();
  if (pages != nullptr) return pages;
  if (device.is_cuda()) return make_cuda_source(device);
  return make_host_source();
}

}  // namespace bantam

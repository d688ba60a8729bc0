// PagedSource: addresses reserved once, memory mapped to them and unmapped page by page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bantam/memory/pages/region_source.h"

namespace bantam {

/// A contiguous address range.
struct AddressRange {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::uintptr_t end() const { return begin + bytes; }
};

/// One range of addresses, fixed for the source's life, of which any whole pages can be mapped to memory. The owner
/// unmaps all before it destroys the source. Not thread-safe: the allocator that owns it serialises calls.
class PagedSource : public MemorySource {
 public:
  /// The unit of mapping and unmapping: a power of two, at least 256.
  virtual std::size_t page_bytes() const = 0;
  /// Growth goes on to a multiple of this where limit and device allow: a power of two, at least a page. More than a
  /// page where larger aligned blocks are faster.
  virtual std::size_t growth_bytes() const { return page_bytes(); }
  /// All addresses; both ends lie on pages. The same for the source's life.
  virtual AddressRange addresses() const = 0;

  /// Maps memory to the whole pages from `address` on, none of which is mapped. False where the device has no more;
  /// then, and where it throws (a device that fails otherwise), nothing has changed.
  virtual bool map(std::uintptr_t address, std::size_t bytes) = 0;
  /// Unmaps whole mapped pages; their contents are lost. The caller has made sure that no work uses them.
  virtual void unmap(std::uintptr_t address, std::size_t bytes) noexcept = 0;
};

/// The properties of a fake paged source; sizes in bytes.
struct FakePages {
  std::size_t page_bytes = std::size_t{64} << 10;
  std::size_t growth_bytes = 0;  ///< 0: one page
  std::size_t capacity = 0;      ///< most ever mapped; 0: no bound
  std::size_t address_bytes = std::size_t{1} << 46;
};

/// Pageable host memory in pages of 64 KiB: small, so that small limits are used well and `trim` finds much; growth in
/// steps of 2 MiB all the same, because the kernel's huge pages need aligned ranges of that size. Uses some 2,050 of
/// the process' mappings at most (1,024 accessible parts): the memory of holes beyond that is released, but they stay
/// accessible. Null where no addresses can be reserved.
std::unique_ptr<PagedSource> make_paged_host_source();

/// Pages of CUDA devices are this large where their granularity allows it.
inline constexpr std::size_t kCudaPage = std::size_t{2} << 20;
/// The page size of the device's paged source; 0 where it has none.
std::size_t cuda_page_bytes(Device device);

/// CUDA virtual memory of `device`, in pages of 2 MiB (or the device's own, where larger). Null where the device or the
/// driver cannot; throws DeviceError without CUDA.
std::unique_ptr<PagedSource> make_paged_cuda_source(Device device);

/// Addresses without memory (never touched): for meta devices and tests.
std::unique_ptr<PagedSource> make_paged_fake_source(const FakePages& pages = {});

/// The memory source of a device's allocator: pages where there are any, else regions. A meta device gets a fake with
/// its target's pages, so that it grows and meets limits as the target does. Throws DeviceError where the device does
/// not exist.
std::unique_ptr<MemorySource> make_device_source(Device device);

}  // namespace bantam

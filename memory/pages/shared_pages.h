// Memory of one process that others read and write: pages of an allocator, passed on as file descriptors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bantam/memory/device/device.h"

namespace bantam {

/// Where a CUDA device is on the bus of its host, "0000:1b:00.0", however processes number it; empty for others.
std::string pci_bus_of(Device device);

/// The pages that a range of a device's memory lies in. Another process maps them by their descriptors, in their order.
struct PageRange {
  std::uintptr_t first = 0;      ///< address of the first page
  std::uint64_t page_bytes = 0;  ///< 0: the device's memory cannot be shared so
  std::uint64_t pages = 0;
  std::uint64_t offset = 0;  ///< of the range, from the first page on
};

/// Finds the pages of memory that a paged allocator of the device returned; none elsewhere: it cannot be exported.
PageRange pages_of(Device device, const void* address, std::uint64_t bytes);

/// A descriptor of page `page` of the range, which the caller closes; -1 where there is none to be had. The memory
/// lives as long as anybody has it mapped.
int export_page(Device device, const PageRange& range, std::uint64_t page);

/// Another process' pages, mapped side by side for a device of this one.
class ImportedPages {
 public:
  /// Reserves addresses only. Throws DeviceError where there are none.
  ImportedPages(Device device, std::uint64_t page_bytes, std::uint64_t pages);
  ~ImportedPages();
  ImportedPages(const ImportedPages&) = delete;
  ImportedPages& operator=(const ImportedPages&) = delete;

  /// Maps the next page; false where that cannot be. The descriptor stays the caller's.
  bool add(int descriptor);
  bool complete() const { return mapped_ == pages_; }
  /// Opens a complete range for the device. False where the device cannot reach that memory.
  bool open();
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  Device device_;
  std::uint64_t page_bytes_, pages_, mapped_ = 0;
  std::uintptr_t address_ = 0;
};

}  // namespace bantam

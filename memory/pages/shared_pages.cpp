// Pages by their descriptors: CUDA virtual memory.
#include "bantam/memory/pages/shared_pages.h"

#include "bantam/base/error.h"
#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/pages/paged_source.h"

namespace bantam {

std::string pci_bus_of(Device device) { return device.is_cuda() ? cuda_backend::pci_bus(device.index) : ""; }

PageRange pages_of(Device device, const void* address, std::uint64_t bytes) {
  if (!device.is_cuda()) return {};
  const std::uint64_t page = cuda_page_bytes(device);
  if (page == 0) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t first = begin / page * page;
  return {
      .first = first, .page_bytes = page, .pages = (begin + bytes - first + page - 1) / page, .offset = begin - first};
}

int export_page(Device device, const PageRange& range, std::uint64_t page) {
  return cuda_backend::export_page(device.index, range.first + page * range.page_bytes);
}

ImportedPages::ImportedPages(Device device, std::uint64_t page_bytes, std::uint64_t pages)
    : device_(device), page_bytes_(page_bytes), pages_(pages) {
  address_ = cuda_backend::reserve_addresses(device.index, pages * page_bytes, page_bytes);
  if (address_ == 0) throw DeviceError("no addresses for another rank's memory on " + to_string(device));
}

ImportedPages::~ImportedPages() {
  cuda_backend::unmap_pages(device_.index, address_, mapped_ * page_bytes_, page_bytes_);
  cuda_backend::free_addresses(device_.index, address_, pages_ * page_bytes_);
}

bool ImportedPages::add(int descriptor) {
  if (complete()) return false;
  if (!cuda_backend::import_page(device_.index, address_ + mapped_ * page_bytes_, page_bytes_, descriptor))
    return false;
  ++mapped_;
  return true;
}

bool ImportedPages::open() {
  return complete() && cuda_backend::open_imported_pages(device_.index, address_, pages_ * page_bytes_);
}

}  // namespace bantam

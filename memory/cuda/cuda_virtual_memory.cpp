// CUDA virtual memory: the driver's calls, got at run time, so that the program starts without a driver.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/cuda/current_device.h"
#include "bantam/memory/cuda/driver_entry.h"
#include "bantam/memory/device/cuda_backend.h"

namespace bantam::cuda_backend {
namespace {

/// Null pointers all, where the driver lacks one.
struct Driver {
  PFN_cuDeviceGet_v2000 device_get = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_attribute = nullptr;
  PFN_cuGetErrorName_v6000 error_name = nullptr;
  PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
  PFN_cuMemAddressReserve_v10020 reserve = nullptr;
  PFN_cuMemAddressFree_v10020 unreserve = nullptr;
  PFN_cuMemCreate_v10020 create = nullptr;
  PFN_cuMemRelease_v10020 release = nullptr;
  PFN_cuMemMap_v10020 map = nullptr;
  PFN_cuMemUnmap_v10020 unmap = nullptr;
  PFN_cuMemSetAccess_v10020 set_access = nullptr;
  PFN_cuMemRetainAllocationHandle_v11000 retain = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 export_handle = nullptr;
  PFN_cuMemImportFromShareableHandle_v10020 import_handle = nullptr;
};

Driver load() {
  Driver all;
  const bool complete =
      find_driver_entry("cuDeviceGet", 2000, all.device_get) &&
      find_driver_entry("cuDeviceGetAttribute", 2000, all.device_attribute) &&
      find_driver_entry("cuGetErrorName", 6000, all.error_name) &&
      find_driver_entry("cuMemGetAllocationGranularity", 10020, all.granularity) &&
      find_driver_entry("cuMemAddressReserve", 10020, all.reserve) &&
      find_driver_entry("cuMemAddressFree", 10020, all.unreserve) &&
      find_driver_entry("cuMemCreate", 10020, all.create) && find_driver_entry("cuMemRelease", 10020, all.release) &&
      find_driver_entry("cuMemMap", 10020, all.map) && find_driver_entry("cuMemUnmap", 10020, all.unmap) &&
      find_driver_entry("cuMemSetAccess", 10020, all.set_access) &&
      find_driver_entry("cuMemRetainAllocationHandle", 11000, all.retain) &&
      find_driver_entry("cuMemExportToShareableHandle", 10020, all.export_handle) &&
      find_driver_entry("cuMemImportFromShareableHandle", 10020, all.import_handle);
  return complete ? all : Driver{};
}

const Driver& driver() {
  static const Driver calls = load();
  return calls;
}

[[noreturn]] void fail(CUresult status, const char* call) {
  const char* name = nullptr;
  if (driver().error_name(status, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
  throw CudaError(fmt::format("{} failed: {}", call, name));
}

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  what.location.id = device;
  return what;
}

/// The same, of memory that other processes can map, where the device has such.
CUmemAllocationProp shareable_properties(int device) {
  CUmemAllocationProp what = properties(device);
  CUdevice number = 0;
  int supported = 0;
  if (driver().device_get(&number, device) == CUDA_SUCCESS &&
      driver().device_attribute(&supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, number) ==
          CUDA_SUCCESS &&
      supported != 0)
    what.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return what;
}

CUresult create_page(CUmemGenericAllocationHandle& handle, std::size_t page, const CUmemAllocationProp& what) {
  const CUresult created = driver().create(&handle, page, &what, 0);
  if (created == CUDA_SUCCESS || created == CUDA_ERROR_OUT_OF_MEMORY || what.requestedHandleTypes == 0) return created;
  const CUmemAllocationProp private_page = properties(what.location.id);  // sharing may be forbidden here
  return driver().create(&handle, page, &private_page, 0);
}

/// Maps memory to one page; false where there is no more. The mapping keeps the memory alive, so the handle is released
/// at once, and the memory when the page is unmapped.
bool map_page(const CUmemAllocationProp& what, std::uintptr_t address, std::size_t page) {
  CUmemGenericAllocationHandle handle{};
  const CUresult created = create_page(handle, page, what);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return false;
  if (created != CUDA_SUCCESS) fail(created, "cuMemCreate");
  const CUresult mapped = driver().map(address, page, 0, handle, 0);
  (void)driver().release(handle);
  if (mapped == CUDA_ERROR_OUT_OF_MEMORY) return false;
  if (mapped != CUDA_SUCCESS) fail(mapped, "cuMemMap");
  return true;
}

CUresult open_access(int device, std::uintptr_t address, std::size_t bytes) {
  CUmemAccessDesc access{};
  access.location = properties(device).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver().set_access(address, bytes, &access, 1);
}

/// Unmaps the pages mapped so far, unless `mapped` was reset.
class Rollback {
 public:
  Rollback(int device, std::uintptr_t address, std::size_t page) : device_(device), address_(address), page_(page) {}
  ~Rollback() { unmap_pages(device_, address_, mapped, page_); }
  Rollback(const Rollback&) = delete;
  Rollback& operator=(const Rollback&) = delete;
  std::size_t mapped = 0;

 private:
  int device_;
  std::uintptr_t address_;
  std::size_t page_;
};

}  // namespace

std::size_t page_granularity(int device) {
  if (driver().create == nullptr) return 0;
  const CurrentDevice scope(device);
  (void)cudaFree(nullptr);  // the driver's calls need the context that the runtime makes lazily
  (void)cudaGetLastError();
  CUdevice number = 0;
  int supported = 0;
  if (driver().device_get(&number, device) != CUDA_SUCCESS) return 0;
  if (driver().device_attribute(&supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, number) !=
          CUDA_SUCCESS ||
      supported == 0)
    return 0;
  const CUmemAllocationProp what = properties(device);
  std::size_t bytes = 0;
  return driver().granularity(&bytes, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS ? bytes : 0;
}

std::uintptr_t reserve_addresses(int device, std::size_t bytes, std::size_t page) {
  const CurrentDevice scope(device);
  CUdeviceptr address = 0;
  return driver().reserve(&address, bytes, page, 0, 0) == CUDA_SUCCESS ? static_cast<std::uintptr_t>(address) : 0;
}

void free_addresses(int, std::uintptr_t address, std::size_t bytes) noexcept {
  (void)driver().unreserve(address, bytes);
}

// One handle a page, so that each page can be unmapped by itself; access is set for the whole range in one call.
bool map_pages(int device, std::uintptr_t address, std::size_t bytes, std::size_t page) {
  const CurrentDevice scope(device);
  const CUmemAllocationProp what = shareable_properties(device);
  Rollback done(device, address, page);
  for (; done.mapped < bytes; done.mapped += page)
    if (!map_page(what, address + done.mapped, page)) return false;
  const CUresult status = open_access(device, address, bytes);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  if (status != CUDA_SUCCESS) fail(status, "cuMemSetAccess");
  done.mapped = 0;
  return true;
}

int export_page(int device, std::uintptr_t address) {
  if (driver().retain == nullptr) return -1;
  const CurrentDevice scope(device);
  CUmemGenericAllocationHandle handle{};
  if (driver().retain(&handle, reinterpret_cast<void*>(address)) != CUDA_SUCCESS) return -1;
  int descriptor = -1;
  const CUresult status = driver().export_handle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  (void)driver().release(handle);
  return status == CUDA_SUCCESS ? descriptor : -1;
}

bool import_page(int device, std::uintptr_t address, std::size_t page, int descriptor) {
  if (driver().import_handle == nullptr) return false;
  const CurrentDevice scope(device);
  CUmemGenericAllocationHandle handle{};
  void* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));  // as the driver wants it
  if (driver().import_handle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS) return false;
  const CUresult mapped = driver().map(address, page, 0, handle, 0);
  (void)driver().release(handle);
  return mapped == CUDA_SUCCESS;
}

bool open_imported_pages(int device, std::uintptr_t address, std::size_t bytes) {
  const CurrentDevice scope(device);
  return open_access(device, address, bytes) == CUDA_SUCCESS;
}

void unmap_pages(int device, std::uintptr_t address, std::size_t bytes, std::size_t page) noexcept {
  if (bytes == 0) return;
  int previous = device;
  (void)cudaGetDevice(&previous);
  if (previous != device) (void)cudaSetDevice(device);
  for (std::size_t at = 0; at < bytes; at += page) (void)driver().unmap(address + at, page);
  restore_device(previous);
}

}  // namespace bantam::cuda_backend

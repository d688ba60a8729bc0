// Stands in for the CUDA backend in builds without a toolkit: there are no devices, and nothing can be asked of them.
#include "bantam/memory/device/cuda_backend.h"

#include "bantam/base/error.h"
#include "bantam/memory/device/activity_trace.h"

namespace bantam::cuda_backend {
namespace {

[[noreturn]] void refuse() { throw DeviceError("this program was built without CUDA"); }

}  // namespace

const Availability& availability() {
  static const Availability none{0, "this program was built without CUDA"};
  return none;
}

DeviceFacts device_facts(int) { refuse(); }
DeviceFacts device_identity(int) { refuse(); }
std::string pci_bus(int) { refuse(); }
bool has_context(int) { refuse(); }
void make_context(int) { refuse(); }
std::optional<std::uint64_t> process_bytes(int, int) { return std::nullopt; }
std::optional<std::uint64_t> card_used_bytes(int) { return std::nullopt; }
int exchange_device(int) { refuse(); }
void restore_device(int) noexcept {}
void* stream_create(int, bool) { refuse(); }
void stream_destroy(int, void*) noexcept {}
void stream_synchronize(int, void*) { refuse(); }
void device_synchronize(int) { refuse(); }
int device_of_address(const void*) { return -1; }
void* event_create(int, bool) { refuse(); }
std::optional<double> event_seconds(void*, void*) { refuse(); }
void event_destroy(int, void*) noexcept {}
void event_record(int, void*, void*) { refuse(); }
void event_mark(int, void*, void*) { refuse(); }
bool event_done(void*) { refuse(); }
void event_synchronize(void*) { refuse(); }
void stream_wait(int, void*, void*) { refuse(); }
void* device_malloc(int, std::size_t) { refuse(); }
void device_free(int, void*) noexcept {}
void* pinned_malloc(std::size_t) { refuse(); }
void pinned_free(void*) noexcept {}
std::size_t page_granularity(int) { refuse(); }
std::uintptr_t reserve_addresses(int, std::size_t, std::size_t) { refuse(); }
void free_addresses(int, std::uintptr_t, std::size_t) noexcept {}
bool map_pages(int, std::uintptr_t, std::size_t, std::size_t) { refuse(); }
void unmap_pages(int, std::uintptr_t, std::size_t, std::size_t) noexcept {}
int export_page(int, std::uintptr_t) { return -1; }
bool import_page(int, std::uintptr_t, std::size_t, int) { return false; }
bool open_imported_pages(int, std::uintptr_t, std::size_t) { return false; }
std::uint64_t free_device_bytes(int) { refuse(); }
void* pool_create(int) { refuse(); }
void pool_destroy(void*) noexcept {}
void* pool_malloc(void*, std::size_t, void*) { refuse(); }
void pool_free(void*, void*) noexcept {}
std::uint64_t pool_peak_bytes(void*) { refuse(); }
void begin_capture(int, void*) { refuse(); }
Recorded end_capture(int, void*) { refuse(); }
void abandon_capture(int, void*) noexcept {}
std::int64_t captured_activities(int, void*) { refuse(); }
void range_push(const char*) noexcept {}
void range_pop() noexcept {}
std::string trace_unavailable() { return availability().reason; }
void trace_start() { refuse(); }
std::vector<DeviceActivity> trace_stop() { refuse(); }
void launch_recorded(int, void*, void*) { refuse(); }
void destroy_recorded(int, void*) noexcept {}
void copy_async(int, void*, const void*, std::size_t, void*) { refuse(); }
void zero_async(int, void*, std::size_t, void*) { refuse(); }

}  // namespace bantam::cuda_backend

// Internal: the few CUDA runtime calls that memory/ makes. ../cuda/ defines them, ../no_cuda/ where there is no
// toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bantam/memory/device/device.h"

namespace bantam {
struct DeviceActivity;
}

namespace bantam::cuda_backend {

/// How many devices can be used, and why none (empty where there are some).
struct Availability {
  int devices = 0;
  std::string reason;
};

struct DeviceFacts {
  std::string name;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  int compute_capability = 0;
  int multiprocessors = 0;
};

/// Asks the driver once a process; never throws for an absent driver or device.
const Availability& availability();

/// Throws DeviceError, saying why, unless `device` is a CUDA device of this machine. (Defined in device.cpp.)
void require(Device device);

// All others throw CudaError naming the call (DeviceError without CUDA), unless they are noexcept.
DeviceFacts device_facts(int device);

/// The facts of a device, without making a context on it; `free_bytes` is 0.
DeviceFacts device_identity(int device);

/// Where the device is on the bus, "0000:1b:00.0": the same in every process of a host.
std::string pci_bus(int device);

/// Whether this process has a context on the device, and making one.
bool has_context(int device);
void make_context(int device);

/// The driver's figure for process `pid` on the device (NVML); nullopt where there is no NVML, or it does not list that
/// process (it has no context there, or lives in another process name space).
std::optional<std::uint64_t> process_bytes(int device, int pid);
/// The bytes in use on the card by all processes (NVML), without making a context; nullopt where there is no NVML.
std::optional<std::uint64_t> card_used_bytes(int device);

/// Sets the calling thread's current device; returns the one before.
int exchange_device(int device);
void restore_device(int device) noexcept;

/// `urgent`: its kernels' blocks come before those of other streams.
void* stream_create(int device, bool urgent = false);
void stream_destroy(int device, void* stream) noexcept;
void stream_synchronize(int device, void* stream);

/// Blocks the host until all work of all streams of the device is done.
void device_synchronize(int device);
/// The CUDA device on which `address` is memory that the device can use (managed memory too); -1: none.
int device_of_address(const void* address);

void* event_create(int device, bool timed = false);
/// Between two timed events of the device; none where one of them has not been recorded, or is not done.
std::optional<double> event_seconds(void* begin, void* end);
void event_destroy(int device, void* event) noexcept;
void event_record(int device, void* event, void* stream);
/// A timed event; in recorded work it is recorded anew at each replay.
void event_mark(int device, void* event, void* stream);
bool event_done(void* event);
void event_synchronize(void* event);
void stream_wait(int device, void* stream, void* event);

/// Null where the device (or, pinned, the host) has no such memory.
void* device_malloc(int device, std::size_t bytes);
void device_free(int device, void* address) noexcept;
void* pinned_malloc(std::size_t bytes);
void pinned_free(void* address) noexcept;

// CUDA virtual memory (cuda_virtual_memory.cpp). Pages are `page` bytes, a multiple of the granularity.
/// The smallest page; 0 where the device or the driver has no virtual memory management.
std::size_t page_granularity(int device);
/// Reserves addresses without memory, aligned to a page; 0 where there are not so many.
std::uintptr_t reserve_addresses(int device, std::size_t bytes, std::size_t page);
/// Frees all that `reserve_addresses` returned; nothing is mapped there.
void free_addresses(int device, std::uintptr_t address, std::size_t bytes) noexcept;
/// Maps memory to whole pages, for reading and writing by `device`; false where it has no more. A failure changes
/// nothing.
bool map_pages(int device, std::uintptr_t address, std::size_t bytes, std::size_t page);
void unmap_pages(int device, std::uintptr_t address, std::size_t bytes, std::size_t page) noexcept;
/// A descriptor by which another process maps the page at `address` of map_pages; the caller closes it. -1 where the
/// device or the driver has no such.
int export_page(int device, std::uintptr_t address);
/// Maps another process' page, which is of any device, at `address`; false where that cannot be. Not to be used before
/// open_imported_pages has opened it for `device`, which is false where that cannot reach the page's memory.
bool import_page(int device, std::uintptr_t address, std::size_t page, int descriptor);
bool open_imported_pages(int device, std::uintptr_t address, std::size_t bytes);
/// Bytes of the device that nobody uses.
std::uint64_t free_device_bytes(int device);

/// A stream-ordered pool of the driver (cudaMallocAsync's) that keeps what is freed; null where the device has none.
/// For comparisons: no allocator of ours uses it.
void* pool_create(int device);
/// Work that uses the pool's memory must be done.
void pool_destroy(void* pool) noexcept;
/// Null where the device has no such memory.
void* pool_malloc(void* pool, std::size_t bytes, void* stream);
void pool_free(void* address, void* stream) noexcept;
/// Most bytes that the pool has reserved.
std::uint64_t pool_peak_bytes(void* pool);

// Recorded work of a stream (cuda/cuda_graph.cpp). Recording is thread-local: other threads are not restricted.
struct Recorded {
  void* executable = nullptr;
  std::int64_t kernels = 0;
};
void begin_capture(int device, void* stream);
/// The work recorded since, ready to launch; throws where something in between could not be recorded.
Recorded end_capture(int device, void* stream);
/// Ends a recording, whatever became of it, and drops it.
void abandon_capture(int device, void* stream) noexcept;
/// Kernels, copies and memsets recorded so far; 0 where nothing is being recorded.
std::int64_t captured_activities(int device, void* stream);
void launch_recorded(int device, void* executable, void* stream);
void destroy_recorded(int device, void* executable) noexcept;

// Ranges of the calling thread's work, for profilers (cuda/nvtx.cpp; trace_range.h).
void range_push(const char* name) noexcept;
void range_pop() noexcept;

// Traced activities (cuda/cupti.cpp; activity_trace.h).
std::string trace_unavailable();
void trace_start();
std::vector<DeviceActivity> trace_stop();

void copy_async(int device, void* to, const void* from, std::size_t bytes, void* stream);
void zero_async(int device, void* at, std::size_t bytes, void* stream);

}  // namespace bantam::cuda_backend

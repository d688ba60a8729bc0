// The only file that calls the CUDA runtime for memory, streams and events. The driver is loaded by the first call.
#include "bantam/memory/device/cuda_backend.h"

#include <array>

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/cuda/current_device.h"

namespace bantam::cuda_backend {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // the error is reported here; a later launch check must not see it again
  throw CudaError(fmt::format("{} failed: {}: {}", call, cudaGetErrorName(status), cudaGetErrorString(status)));
}

cudaStream_t as_stream(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t as_event(void* handle) { return static_cast<cudaEvent_t>(handle); }
cudaMemPool_t as_pool(void* handle) { return static_cast<cudaMemPool_t>(handle); }

// Whether a failed allocation only says that there is no such memory: absurd sizes are answered with "invalid value".
bool has_no_more(cudaError_t status) { return status == cudaErrorMemoryAllocation || status == cudaErrorInvalidValue; }

// The static runtime answers "insufficient driver" also where there is no driver at all; the driver's version tells
// them apart.
std::string reason_of(cudaError_t status) {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  (void)cudaGetLastError();
  if (driver == 0) return "no NVIDIA driver is installed";
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    return "the NVIDIA driver sees no CUDA device (or CUDA_VISIBLE_DEVICES hides it)";
  if (status == cudaErrorInsufficientDriver)
    return fmt::format("the NVIDIA driver is too old: it supports CUDA {}.{}, this program needs {}.{}", driver / 1000,
                       driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return fmt::format("CUDA cannot be used: cudaGetDeviceCount: {}: {}", cudaGetErrorName(status),
                     cudaGetErrorString(status));
}

Availability ask_driver() {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  (void)cudaGetLastError();
  if (status == cudaSuccess && devices > 0) return {devices, ""};
  return {0, reason_of(status)};
}

}  // namespace

const Availability& availability() {
  static const Availability answer = ask_driver();
  return answer;
}

DeviceFacts device_identity(int device) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {properties.name, properties.totalGlobalMem, 0, properties.major * 10 + properties.minor,
          properties.multiProcessorCount};
}

std::string pci_bus(int device) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
  return bus.data();
}

DeviceFacts device_facts(int device) {
  const CurrentDevice scope(device);
  DeviceFacts facts = device_identity(device);
  std::size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  facts.total_bytes = total_bytes;
  facts.free_bytes = free_bytes;
  return facts;
}

void make_context(int device) {
  const CurrentDevice scope(device);
  check(cudaFree(nullptr), "cudaFree(null)");
}

int exchange_device(int device) {
  int previous = 0;
  check(cudaGetDevice(&previous), "cudaGetDevice");
  if (previous != device) check(cudaSetDevice(device), "cudaSetDevice");
  return previous;
}

void restore_device(int device) noexcept {
  int current = device;
  if (cudaGetDevice(&current) == cudaSuccess && current != device) (void)cudaSetDevice(device);
}

void* stream_create(int device, bool urgent) {
  const CurrentDevice scope(device);
  cudaStream_t stream = nullptr;
  int least = 0, greatest = 0;
  if (urgent) check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), "cudaStreamCreateWithPriority");
  return stream;
}

void stream_destroy(int, void* stream) noexcept { (void)cudaStreamDestroy(as_stream(stream)); }

void stream_synchronize(int device, void* stream) {
  const CurrentDevice scope(device);
  check(cudaStreamSynchronize(as_stream(stream)), "cudaStreamSynchronize");
}

void device_synchronize(int device) {
  const CurrentDevice scope(device);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

int device_of_address(const void* address) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, address);
  if (status == cudaErrorInvalidValue) {
    (void)cudaGetLastError();  // an answer, no error
    return -1;
  }
  check(status, "cudaPointerGetAttributes");
  const bool usable = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return usable ? attributes.device : -1;
}

void* event_create(int device, bool timed) {
  const CurrentDevice scope(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreateWithFlags");
  return event;
}

std::optional<double> event_seconds(void* begin, void* end) {
  float milliseconds = 0;
  const cudaError_t status = cudaEventElapsedTime(&milliseconds, as_event(begin), as_event(end));
  if (status == cudaErrorInvalidResourceHandle || status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // an answer, no error
    return std::nullopt;
  }
  check(status, "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

void event_destroy(int, void* event) noexcept { (void)cudaEventDestroy(as_event(event)); }

void event_record(int device, void* event, void* stream) {
  const CurrentDevice scope(device);
  check(cudaEventRecord(as_event(event), as_stream(stream)), "cudaEventRecord");
}

void event_mark(int device, void* event, void* stream) {
  const CurrentDevice scope(device);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(as_stream(stream), &capture), "cudaStreamIsCapturing");
  const unsigned flags = capture == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  check(cudaEventRecordWithFlags(as_event(event), as_stream(stream), flags), "cudaEventRecordWithFlags");
}

bool event_done(void* event) {
  const cudaError_t status = cudaEventQuery(as_event(event));
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // "not ready" is an answer, no error
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

void event_synchronize(void* event) { check(cudaEventSynchronize(as_event(event)), "cudaEventSynchronize"); }

void stream_wait(int device, void* stream, void* event) {
  const CurrentDevice scope(device);
  check(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0), "cudaStreamWaitEvent");
}

void* device_malloc(int device, std::size_t bytes) {
  const CurrentDevice scope(device);
  void* address = nullptr;
  const cudaError_t status = cudaMalloc(&address, bytes);
  if (has_no_more(status)) {
    (void)cudaGetLastError();  // an answer, no error; a later launch check must not see it
    return nullptr;
  }
  check(status, "cudaMalloc");
  return address;
}

void device_free(int device, void* address) noexcept {
  int previous = device;
  (void)cudaGetDevice(&previous);
  if (previous != device) (void)cudaSetDevice(device);
  (void)cudaFree(address);
  restore_device(previous);
}

void* pinned_malloc(std::size_t bytes) {
  void* address = nullptr;
  const cudaError_t status = cudaHostAlloc(&address, bytes, cudaHostAllocPortable);
  if (has_no_more(status)) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaHostAlloc");
  return address;
}

void pinned_free(void* address) noexcept { (void)cudaFreeHost(address); }

std::uint64_t free_device_bytes(int device) {
  const CurrentDevice scope(device);
  std::size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return free_bytes;
}

void* pool_create(int device) {
  int supported = 0;
  check(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device), "cudaDeviceGetAttribute");
  if (supported == 0) return nullptr;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;  // device memory that stays where it is: the only kind
  properties.location = {.type = cudaMemLocationTypeDevice, .id = device};
  cudaMemPool_t pool = nullptr;
  check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
  std::uint64_t keep = ~std::uint64_t{0};
  const cudaError_t status = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
  if (status != cudaSuccess) (void)cudaMemPoolDestroy(pool);
  check(status, "cudaMemPoolSetAttribute");
  return pool;
}

void pool_destroy(void* pool) noexcept { (void)cudaMemPoolDestroy(as_pool(pool)); }

// The stream says which device: no current device is set, so that a call costs what it costs by itself.
void* pool_malloc(void* pool, std::size_t bytes, void* stream) {
  void* address = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&address, bytes, as_pool(pool), as_stream(stream));
  if (has_no_more(status)) {
    (void)cudaGetLastError();
    return nullptr;
  }
  check(status, "cudaMallocFromPoolAsync");
  return address;
}

void pool_free(void* address, void* stream) noexcept { (void)cudaFreeAsync(address, as_stream(stream)); }

std::uint64_t pool_peak_bytes(void* pool) {
  std::uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(as_pool(pool), cudaMemPoolAttrReservedMemHigh, &bytes), "cudaMemPoolGetAttribute");
  return bytes;
}

void copy_async(int device, void* to, const void* from, std::size_t bytes, void* stream) {
  const CurrentDevice scope(device);
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)), "cudaMemcpyAsync");
}

void zero_async(int device, void* at, std::size_t bytes, void* stream) {
  const CurrentDevice scope(device);
  check(cudaMemsetAsync(at, 0, bytes, as_stream(stream)), "cudaMemsetAsync");
}

}  // namespace bantam::cuda_backend

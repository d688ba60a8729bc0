// Memory and streams of the application: tensors over its buffers, allocators over its memory functions, its streams as
// values, and a runtime's pool for others.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/memory/pages/region_source.h"

struct bantam_pool;  // pool_functions.h

namespace bantam {

/// A stream of another library on `device`: a cudaStream_t on CUDA (null and 1: the legacy default stream; 2: the
/// calling thread's), ignored elsewhere. Equal handles are the same stream. Makes nothing and owns nothing: the stream
/// lives as long as it is used.
Stream external_stream(Device device, void* handle);

/// Makes the later work of `later` wait for the work of `earlier` so far, on the device; the host waits only where
/// `later` is the CPU's. Nothing where both are the same stream, or where `earlier` is no CUDA stream.
void order_streams(Stream earlier, Stream later);

/// Blocks the host until all work of all streams of `device` is done. Nothing for others than CUDA devices.
void synchronize_device(Device device);

/// A buffer of the application.
struct ExternalBuffer {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::float32;
  /// Where the work that uses it runs: Context::stream. The buffer is on its device.
  Stream stream;
  /// Called once, by the host, when the last tensor is gone: with `data`, and with `stream`, whose work so far may
  /// still use it (cudaFreeAsync, or synchronize first). Must not throw. Empty: the buffer outlives the tensors.
  std::function<void(void* data, Stream stream)> release = {};
};

/// A tensor over it, without a copy. Throws DeviceError where the driver knows the address as no memory of the stream's
/// device, ShapeError where it is no multiple of 16 on CUDA, of the element's size on the CPU, Error for null with
/// elements; then `release` is not called.
Tensor external_tensor(ExternalBuffer buffer);

/// The application's memory functions. Called by one thread at a time for an allocator, for whole regions (2 MiB, then
/// twice as much each time, or what a plan needs at once), not for tensors.
struct ExternalAllocator {
  Device device;  ///< which they serve
  /// `bytes` bytes for the device, aligned to 256, or null where there are no more. Work that `stream` orders before
  /// its use is waited for.
  void* (*allocate)(void* state, std::size_t bytes, void* stream) = nullptr;
  /// Frees what `allocate` returned, whole. No work uses it any more.
  void (*release)(void* state, void* address, std::size_t bytes, void* stream) = nullptr;
  void* state = nullptr;   ///< the first argument of both
  void* stream = nullptr;  ///< the last of both: a cudaStream_t, as in `external_stream`; null on the CPU
  std::string name = "application";
};

/// For RuntimeOptions::source: the allocator of `device` has its memory from these functions, those of other devices
/// from the system. Limits, reports, plans and trim work as ever. Neither function may throw. Throws ConfigError where
/// a function is missing.
///
///     Runtime runtime({.source = external_source({.device = device, .allocate = mine, .release = my_free})});
std::function<std::unique_ptr<MemorySource>(Device)> external_source(ExternalAllocator allocator);

/// The pool of `runtime` on `device` for others, by the functions of pool_functions.h: their memory comes from the
/// runtime's allocator, within its limits, and stands under `name` in its reports. bantam_pool_close ends it.
bantam_pool* share_pool(std::shared_ptr<Runtime> runtime, Device device, std::string_view name);

}  // namespace bantam

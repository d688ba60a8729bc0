// Streams, events and copies: the order in which a device does its work. On the CPU everything is done when a call
// returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bantam/memory/device/device.h"

namespace bantam {

/// A stream of work on one device, by value (not owning). Work on one stream runs in order. The default value is the
/// CPU's.
struct Stream {
  Device device;
  void* handle = nullptr;  ///< cudaStream_t on CUDA; null on the CPU and on meta devices
  std::uint32_t id = 0;    ///< distinct for each live stream of a device
};

/// Owns a stream. CUDA: non-blocking with respect to the legacy default stream.
class OwnedStream {
 public:
  explicit OwnedStream(Device device);
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept;
  OwnedStream& operator=(OwnedStream&&) = delete;
  Stream get() const { return stream_; }

 private:
  Stream stream_;
};

/// A point in a stream's work. Timing is off. Reusable: `record` moves it.
class Event {
 public:
  explicit Event(Device device);
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;

  void record(Stream stream);
  /// Whether the work before the last `record` is done; true where nothing was recorded, and always on the CPU.
  bool done() const;
  /// Makes later work of `stream` wait for it, without blocking the host; the CPU's stream is the host, and blocks.
  void make_wait(Stream stream) const;
  /// Blocks the host until it is done.
  void synchronize() const;

 private:
  Device device_;
  void* handle_ = nullptr;
};

/// Makes what the driver needs on a device before its first work (the CUDA context). A no-op for others.
void make_device_ready(Device device);

/// Blocks the host until all work of `stream` is done.
void synchronize(Stream stream);

/// Copies `bytes` between host and device or within one, in order of `stream` (whose device is the CUDA one, where one
/// is). Asynchronous on CUDA where host memory is pinned. A no-op on meta devices.
void copy_bytes(void* to, const void* from, std::size_t bytes, Stream stream);

/// Sets `bytes` bytes to zero, in order of `stream`. A no-op on meta devices.
void zero_bytes(void* at, std::size_t bytes, Stream stream);

/// Makes `device` the current CUDA device of this thread for a scope. A no-op for others.
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int previous_ = -1;
};

}  // namespace bantam

// Streams and events: handles of the CUDA backend on CUDA devices, nothing at all on the CPU and on meta devices.
#include <atomic>
#include <cstring>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/device/urgent_stream.h"

namespace bantam {
namespace {

// An identity only: nothing is read through it, so that runtimes in one process still do not see each other.
std::uint32_t next_stream_id() {
  static std::atomic<std::uint32_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed) + 1;  // 0 is the default stream's
}

}  // namespace

OwnedStream::OwnedStream(Device device) {
  stream_.device = device;
  if (device.is_cuda()) {
    cuda_backend::require(device);
    stream_.handle = cuda_backend::stream_create(device.index);
  }
  stream_.id = next_stream_id();
}

OwnedStream::~OwnedStream() {
  if (stream_.handle != nullptr) cuda_backend::stream_destroy(stream_.device.index, stream_.handle);
}

OwnedStream::OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, {})) {}

UrgentStream::UrgentStream(Device device) {
  cuda_backend::require(device);
  stream_ = {device, cuda_backend::stream_create(device.index, true), next_stream_id()};
}

UrgentStream::~UrgentStream() { cuda_backend::stream_destroy(stream_.device.index, stream_.handle); }

Event::Event(Device device) : device_(device) {
  if (!device.is_cuda()) return;
  cuda_backend::require(device);
  handle_ = cuda_backend::event_create(device.index);
}

Event::~Event() {
  if (handle_ != nullptr) cuda_backend::event_destroy(device_.index, handle_);
}

Event::Event(Event&& other) noexcept : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}

void Event::record(Stream stream) {
  if (handle_ == nullptr) return;
  if (stream.device != device_)
    throw DeviceError("an event of " + to_string(device_) + " cannot be recorded on a stream of " +
                      to_string(stream.device));
  cuda_backend::event_record(device_.index, handle_, stream.handle);
}

bool Event::done() const { return handle_ == nullptr || cuda_backend::event_done(handle_); }

void Event::make_wait(Stream stream) const {
  if (handle_ == nullptr) return;
  if (stream.device.is_cuda())
    cuda_backend::stream_wait(stream.device.index, stream.handle, handle_);
  else if (stream.device.is_cpu())
    synchronize();
}

void Event::synchronize() const {
  if (handle_ != nullptr) cuda_backend::event_synchronize(handle_);
}

void make_device_ready(Device device) {
  if (!device.is_cuda()) return;
  cuda_backend::require(device);
  cuda_backend::make_context(device.index);
}

void synchronize(Stream stream) {
  if (stream.device.is_cuda()) cuda_backend::stream_synchronize(stream.device.index, stream.handle);
}

void copy_bytes(void* to, const void* from, std::size_t bytes, Stream stream) {
  if (bytes == 0 || stream.device.meta) return;
  if (stream.device.is_cuda())
    cuda_backend::copy_async(stream.device.index, to, from, bytes, stream.handle);
  else
    std::memmove(to, from, bytes);
}

void zero_bytes(void* at, std::size_t bytes, Stream stream) {
  if (bytes == 0 || stream.device.meta) return;
  if (stream.device.is_cuda())
    cuda_backend::zero_async(stream.device.index, at, bytes, stream.handle);
  else
    std::memset(at, 0, bytes);
}

DeviceScope::DeviceScope(Device device) {
  if (!device.is_cuda()) return;
  cuda_backend::require(device);
  previous_ = cuda_backend::exchange_device(device.index);
}

DeviceScope::~DeviceScope() {
  if (previous_ >= 0) cuda_backend::restore_device(previous_);
}

}  // namespace bantam

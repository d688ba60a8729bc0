// Foreign streams have identities made from their handles; foreign regions are a source of an allocator.
#include "bantam/engine/interop/external_memory.h"

#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/pages/paged_source.h"

namespace bantam {
namespace {

// The legacy default stream's handle, which null means too.
constexpr std::uintptr_t kLegacy = 1;

// Numbers of our own streams count up from 1. Two foreign streams may share a number: the handles tell them apart.
constexpr std::uint32_t kForeign = 0x80000000u;

std::uint32_t number_of(std::uintptr_t handle) {
  const std::uint64_t mixed = static_cast<std::uint64_t>(handle) * 0x9e3779b97f4a7c15ull;
  return kForeign | static_cast<std::uint32_t>(mixed >> 33);
}

/// Regions by the application's functions.
class ExternalSource final : public RegionSource {
 public:
  explicit ExternalSource(ExternalAllocator allocator) : allocator_(std::move(allocator)) {}

  void* acquire(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* const address = allocator_.allocate(allocator_.state, bytes, allocator_.stream);
    // The application's memory may be usable only in order of its stream; ours is usable on every stream.
    if (address != nullptr) synchronize(external_stream(allocator_.device, allocator_.stream));
    return address;
  }
  void release(void* address, std::size_t bytes) noexcept override {
    allocator_.release(allocator_.state, address, bytes, allocator_.stream);
  }
  const char* name() const override { return allocator_.name.c_str(); }

 private:
  ExternalAllocator allocator_;
};

void check_buffer(const ExternalBuffer& buffer) {
  const Device device = buffer.stream.device;
  if (device.meta) throw DeviceError(fmt::format("external_tensor: {} has no memory", to_string(device)));
  if (buffer.shape.elements() == 0) return;
  if (buffer.data == nullptr) throw Error("external_tensor: null for a tensor " + to_string(buffer.shape));
  const std::size_t alignment = device.is_cuda() ? 16 : size_of(buffer.dtype);
  if (reinterpret_cast<std::uintptr_t>(buffer.data) % alignment != 0)
    throw ShapeError(fmt::format("external_tensor: the address of a {} tensor on {} is no multiple of {}",
                                 to_string(buffer.dtype), to_string(device), alignment));
  if (!device.is_cuda()) return;
  const int found = cuda_backend::device_of_address(buffer.data);
  if (found != device.index)
    throw DeviceError(fmt::format("external_tensor: the address is {}, the stream is of {}",
                                  found < 0 ? "no device memory" : fmt::format("memory of cuda:{}", found),
                                  to_string(device)));
}

}  // namespace

Stream external_stream(Device device, void* handle) {
  if (!device.is_cuda()) return {.device = device};
  auto value = reinterpret_cast<std::uintptr_t>(handle);
  if (value == 0) value = kLegacy;
  return {.device = device, .handle = reinterpret_cast<void*>(value), .id = number_of(value)};
}

void order_streams(Stream earlier, Stream later) {
  if (!earlier.device.is_cuda()) return;
  if (earlier.handle == later.handle && earlier.device.whole() == later.device.whole()) return;
  Event done(earlier.device);
  done.record(earlier);
  done.make_wait(later);
}

void synchronize_device(Device device) {
  if (device.is_cuda()) cuda_backend::device_synchronize(device.index);
}

Tensor external_tensor(ExternalBuffer buffer) {
  check_buffer(buffer);
  const std::size_t bytes = static_cast<std::size_t>(buffer.shape.elements()) * size_of(buffer.dtype);
  Storage::Deleter deleter;
  if (buffer.release)
    deleter = [release = std::move(buffer.release), stream = buffer.stream](void* data) { release(data, stream); };
  return {std::make_shared<Storage>(buffer.data, bytes, buffer.stream.device, std::move(deleter)), buffer.shape,
          buffer.dtype};
}

std::function<std::unique_ptr<MemorySource>(Device)> external_source(ExternalAllocator allocator) {
  if (allocator.allocate == nullptr || allocator.release == nullptr)
    throw ConfigError("external_source: an allocator needs both functions, allocate and release");
  return [allocator = std::move(allocator)](Device device) -> std::unique_ptr<MemorySource> {
    if (device == allocator.device) return std::make_unique<ExternalSource>(allocator);
    return make_device_source(device);
  };
}

}  // namespace bantam

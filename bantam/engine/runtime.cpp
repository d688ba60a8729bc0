// Lazily made devices, each with an allocator, a compute stream and library handles.
#include "bantam/engine/runtime.h"

#include <atomic>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/memory/paged_source.h"

namespace bantam {
namespace {

/// Everything that stands behind one device. Order matters: the stream outlives the allocator, whose frees it orders.
struct DeviceState {
  std::unique_ptr<OwnedStream> stream;
  std::unique_ptr<BfcAllocator> allocator;
  std::unique_ptr<kernels::DeviceLibraries> libraries;
};

using DeviceKey = std::tuple<DeviceKind, int, bool>;

}  // namespace

struct Runtime::Impl {
  RuntimeOptions options;
  int threads = 1;
  std::mutex guard;
  std::map<DeviceKey, DeviceState> devices;
  std::unique_ptr<BfcAllocator> pinned;
  std::set<std::string, std::less<>> names;
  std::atomic<std::uint64_t> next_value_id{1};

  DeviceState& state(Device device) {
    const std::lock_guard lock(guard);
    DeviceState& state = devices[{device.kind, device.index, device.meta}];
    if (state.allocator) return state;
    if (!device.meta) (void)device_info(device);  // throws where it does not exist
    AllocatorOptions allocator{.name = to_string(device), .growth = options.growth || device.meta};
    if (const auto limit = options.limits.find(to_string(device)); limit != options.limits.end())
      allocator.limit_bytes = limit->second;
    else if (!device.is_cuda())
      allocator.growth = true;  // only a device with a limit can take it all at once
    state.stream = std::make_unique<OwnedStream>(device);
    state.libraries = kernels::make_device_libraries(device);
    state.allocator = std::make_unique<BfcAllocator>(make_device_source(device), device, allocator);
    return state;
  }
};

Runtime::Runtime(RuntimeOptions options) : impl_(std::make_unique<Impl>()) {
  if (options.threads < 0) throw ConfigError(fmt::format("threads must not be negative, got {}", options.threads));
  impl_->threads = options.threads > 0 ? options.threads : std::max(1, device_info(Device::cpu()).multiprocessors);
  impl_->options = std::move(options);
}

Runtime::~Runtime() {
  try {
    for (auto& [key, state] : impl_->devices)
      if (state.stream) synchronize(state.stream->get());  // work under way still uses the memory
  } catch (const Error&) {                                 // a broken device has nothing under way
  }
}

BfcAllocator& Runtime::allocator(Device device) { return *impl_->state(device).allocator; }

MemoryReport Runtime::memory_report(Device device) { return bantam::memory_report(allocator(device)); }

BfcAllocator& Runtime::pinned_allocator() {
  const std::lock_guard lock(impl_->guard);
  if (!impl_->pinned)
    impl_->pinned = std::make_unique<BfcAllocator>(make_pinned_source(), Device::cpu(),
                                                   AllocatorOptions{.name = "pinned host memory"});
  return *impl_->pinned;
}

Stream Runtime::stream(Device device) { return impl_->state(device).stream->get(); }

kernels::Exec Runtime::exec(Device device) {
  DeviceState& state = impl_->state(device);
  return {device, state.stream->get(), impl_->threads, state.libraries.get()};
}

int Runtime::threads() const { return impl_->threads; }

const char* Runtime::intern(std::string_view text) {
  const std::lock_guard lock(impl_->guard);
  auto found = impl_->names.find(text);
  if (found == impl_->names.end()) found = impl_->names.emplace(text).first;
  return found->c_str();
}

std::uint64_t Runtime::new_value_id() { return impl_->next_value_id.fetch_add(1, std::memory_order_relaxed); }

void Runtime::log(std::string_view message) const {
  if (impl_->options.log) impl_->options.log(message);
}

}  // namespace bantam

// Blocks by address; a block that several streams use is freed after all of them.
#include "bantam/engine/interop/shared_pool.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/interop/external_memory.h"
#include "bantam/memory/device/same_stream.h"

namespace bantam {
namespace {

constexpr std::uintptr_t kCudaPerThreadStream = 2;
constexpr std::chrono::milliseconds kMeasureEvery{100};

Stream checked_stream(Device device, void* stream) {
  if (device.is_cuda() && reinterpret_cast<std::uintptr_t>(stream) == kCudaPerThreadStream)
    throw DeviceError("a pool cannot order frees by the per-thread default stream; expected a stream with a handle");
  return external_stream(device, stream);
}

}  // namespace

SharedPool::SharedPool(std::shared_ptr<Runtime> runtime, Device device, std::string_view name)
    : runtime_(std::move(runtime)),
      device_(device),
      allocator_(runtime_->allocator(device)),
      name_(runtime_->intern(name)) {}

void* SharedPool::allocate(std::size_t bytes, void* stream) {
  if (bytes == 0) return nullptr;
  const Stream order = checked_stream(device_, stream);
  void* const address = allocator_.allocate(bytes, order, {Category::other, name_});
  try {
    keep_to_limit();
    const std::lock_guard lock(guard_);
    blocks_.emplace(address, Block{order, {}});
  } catch (...) {
    allocator_.free(address, order);
    throw;
  }
  return address;
}

// The other library's kernels and workspaces are overhead, which nobody else measures while it works.
void SharedPool::keep_to_limit() {
  if (!device_.is_cuda()) return;
  const std::uint64_t changes = allocator_.stats().pool_changes;
  const Clock::time_point now = Clock::now();
  {
    const std::lock_guard lock(guard_);
    if (changes == pool_changes_ && now - measured_ < kMeasureEvery) return;
    pool_changes_ = changes;
    measured_ = now;
  }
  runtime_->refresh_limit(device_);
}

SharedPool::Block& SharedPool::block(void* address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) throw Error(fmt::format("{} is not in use in the pool for {}", address, name_));
  return found->second;
}

void SharedPool::free(void* address) {
  if (address == nullptr) return;
  Block used;
  {
    const std::lock_guard lock(guard_);
    used = std::move(block(address));
    blocks_.erase(address);
  }
  for (const Stream& other : used.others) order_streams(other, used.stream);
  allocator_.free(address, used.stream);
}

void SharedPool::use(void* address, void* stream) {
  const Stream order = checked_stream(device_, stream);
  const std::lock_guard lock(guard_);
  Block& used = block(address);
  const auto same = [&](const Stream& known) { return same_stream(known, order); };
  if (same(used.stream) || std::ranges::any_of(used.others, same)) return;
  used.others.push_back(order);
}

bool SharedPool::owns(const void* address) const {
  const std::lock_guard lock(guard_);
  return blocks_.contains(address);
}

std::size_t SharedPool::live() const {
  const std::lock_guard lock(guard_);
  return blocks_.size();
}

}  // namespace bantam

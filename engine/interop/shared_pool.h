// SharedPool: a runtime's pool whose memory another library uses, with the streams that use each block.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// Allocates from the allocator of `runtime`, which it keeps alive, for a library that knows addresses and streams
/// only. Under a limit of the process it measures the overhead again, a few times a second, since the other library's
/// kernels count, too. Thread-safe. All memory must be freed before it is destroyed.
class SharedPool {
 public:
  /// Throws what Runtime::allocator throws.
  SharedPool(std::shared_ptr<Runtime> runtime, Device device, std::string_view name);
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  /// For work on `stream` (external_stream). Null for 0 bytes. Throws OutOfMemory; DeviceError for the per-thread
  /// default stream, whose handle is another stream in each thread.
  void* allocate(std::size_t bytes, void* stream);
  /// Frees a block in order of all streams that use it. Null is allowed. Throws Error for an address that is not in use
  /// here; then nothing has changed.
  void free(void* address);
  /// Work on `stream` uses the block, too. Throws Error as `free` does.
  void use(void* address, void* stream);

  bool owns(const void* address) const;
  /// Blocks in use.
  std::size_t live() const;
  Device device() const { return device_; }
  Runtime& runtime() const { return *runtime_; }

 private:
  struct Block {
    Stream stream;
    std::vector<Stream> others;
  };
  using Clock = std::chrono::steady_clock;

  void keep_to_limit();
  Block& block(void* address);

  std::shared_ptr<Runtime> runtime_;
  Device device_;
  BfcAllocator& allocator_;
  const char* name_;
  mutable std::mutex guard_;
  std::unordered_map<const void*, Block> blocks_;
  Clock::time_point measured_ = Clock::now();
  std::uint64_t pool_changes_ = 0;
};

}  // namespace bantam

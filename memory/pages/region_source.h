// Raw memory for an allocator to carve. Here: whole regions, of host memory, cudaMalloc, pinned host memory, or fake.
#pragma once

#include <cstddef>
#include <memory>

#include "bantam/base/api.h"
#include "bantam/memory/device/device.h"

BANTAM_API_BEGIN
namespace bantam {

/// Where an allocator's memory comes from: a RegionSource or, internally, a PagedSource. Not thread-safe: the
/// allocator that owns it serialises calls.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// "host", "cudaMalloc cuda:0", …, for reports.
  virtual const char* name() const = 0;
};

/// A source of regions, each reserved and released whole.
class RegionSource : public MemorySource {
 public:
  /// A range of exactly `bytes` bytes, aligned to at least 256 (host: 4096), or null where the device has no more.
  /// Never throws for lack of memory.
  virtual void* acquire(std::size_t bytes) = 0;
  /// Releases a range that `acquire` returned, whole. The caller has made sure that no work uses it.
  virtual void release(void* address, std::size_t bytes) noexcept = 0;
};

/// Pageable host memory (anonymous mappings; the system allocates pages when they are touched).
std::unique_ptr<RegionSource> make_host_source();

/// cudaMalloc on `device`; throws DeviceError without CUDA.
std::unique_ptr<RegionSource> make_cuda_source(Device device);

/// Page-locked host memory, for copies that overlap with work; pageable memory where there is no CUDA device.
std::unique_ptr<RegionSource> make_pinned_source();

/// Addresses without memory (never touched): for meta devices and tests. `capacity` bytes in all, 0 for no bound.
std::unique_ptr<RegionSource> make_fake_source(std::size_t capacity = 0);

}  // namespace bantam
BANTAM_API_END

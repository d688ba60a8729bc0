// BlockCounters: zeroed counters on a device, by which the last block of a kernel detects that it is the last.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "bantam/memory/device/device.h"
#include "bantam/memory/pages/region_source.h"

namespace bantam::kernels::cuda {

/// A page of counters for each stream: kernels of one stream run one after another and may share it, those of two
/// streams may not. Every kernel resets the counters it used to 0 (atomicInc wraps around), so that nothing is set
/// between kernels. Thread-safe.
class BlockCounters {
 public:
  static constexpr std::size_t kCount = 1024;  ///< counters of a page

  explicit BlockCounters(Device device) : device_(device) {}
  ~BlockCounters();
  BlockCounters(const BlockCounters&) = delete;
  BlockCounters& operator=(const BlockCounters&) = delete;

  /// The page of `stream`, all 0 between kernels. The first call for a stream allocates device memory and waits until
  /// it is zeroed, which a stream that is being captured allows too. Throws OutOfMemory.
  unsigned* of(Stream stream);

 private:
  Device device_;
  std::mutex guard_;
  std::unique_ptr<RegionSource> source_;
  std::map<void*, unsigned*> pages_;
};

}  // namespace bantam::kernels::cuda

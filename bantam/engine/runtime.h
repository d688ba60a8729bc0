// Runtime: owns devices' allocators, streams, library handles, names and the log sink. Nothing is global: two runtimes
// in one process do not see each other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bantam/kernels/exec.h"
#include "bantam/memory/allocator.h"
#include "bantam/memory/memory_report.h"
#include "bantam/memory/stream.h"

namespace bantam {

/// How a runtime treats its devices.
struct RuntimeOptions {
  /// OpenMP threads of CPU kernels; 0: all processors this process may use. Results do not depend on it.
  int threads = 0;
  /// Most bytes a device's allocator holds, by device name ("cpu", "cuda:0"); devices not named have no limit.
  std::map<std::string, std::uint64_t> limits;
  /// true: memory is taken as it is needed; false: a device's whole limit at its first use (a limit is then required).
  bool growth = true;
  /// Receives one line a message; null: messages are dropped.
  std::function<void(std::string_view)> log;
};

/// One process-wide set of devices. Thread-safe. Must outlive every tensor made from it.
class Runtime {
 public:
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The device's allocator, made at first use. Throws DeviceError where the device does not exist.
  BfcAllocator& allocator(Device device);
  /// What the device's allocator holds, for whom, and what `trim` would give back. Thread-safe.
  MemoryReport memory_report(Device device);
  /// The allocator of page-locked host memory for copies to and from CUDA devices.
  BfcAllocator& pinned_allocator();
  /// The device's compute stream.
  Stream stream(Device device);
  /// What kernels need: device, compute stream, threads, libraries.
  kernels::Exec exec(Device device);
  int threads() const;
  /// A copy of `text` that lives as long as the runtime; equal texts give equal pointers.
  const char* intern(std::string_view text);
  /// A number never given before, for identities of values on tapes.
  std::uint64_t new_value_id();
  void log(std::string_view message) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam

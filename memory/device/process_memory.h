// What this process takes on a device beyond our own pools' count: asked of the driver, or of the system for the CPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bantam/memory/device/device.h"

namespace bantam {

/// A named part of what a process takes on a device besides the pools: "CUDA context", "cuDNN", … In bytes.
struct OverheadLine {
  std::string name;
  std::uint64_t bytes = 0;
  bool operator==(const OverheadLine&) const = default;
};

std::uint64_t total_bytes(std::span<const OverheadLine> lines);

/// How a process' bytes were told.
enum class ProcessMemoryMethod : std::uint8_t {
  driver,       ///< the driver's figure for this process (NVML)
  card,         ///< what the card has in use, less what others had before this process' first meter: what they take
                ///< later counts as ours, what they give back hides ours
  resident_set  ///< the CPU: pages of this process in memory, shared ones included
};

/// "driver", "card", "resident set".
std::string_view to_string(ProcessMemoryMethod method);

struct ProcessMemory {
  std::uint64_t bytes = 0;
  ProcessMemoryMethod method = ProcessMemoryMethod::resident_set;
  std::uint64_t peak_bytes = 0;   ///< CPU: the resident set's high-water mark; 0: not known
  std::uint64_t group_bytes = 0;  ///< CPU: what the process' control group holds, page cache included; 0: not known
};

/// Reads what this process takes on one device. Thread-safe. Copies read the same.
class ProcessMeter {
 public:
  /// Notes what others hold on the card, which needs no context: make it before the process' first use of the device.
  /// Throws DeviceError where the device does not exist (also for meta devices, on which nobody takes anything).
  explicit ProcessMeter(Device device);

  /// `pool_bytes`: what this process is known to hold there at least; the driver's figure is not taken below it. On a
  /// GPU about 30 µs. Makes a context where there is none and NVML cannot be asked.
  ProcessMemory read(std::uint64_t pool_bytes = 0) const;

 private:
  Device device_;
  std::uint64_t others_bytes_ = 0;
  std::optional<std::uint64_t> figure_before_context_;
};

/// Whether the driver's figure for our process number counts this process. NVML may list numbers of another process
/// name space, where ours is someone else's: who was listed under it before we had a context (`before_context`), or
/// holds less than our pools do, is not us.
bool is_own_figure(std::uint64_t figure_bytes, std::optional<std::uint64_t> before_context, std::uint64_t pool_bytes);

/// What the driver counts for another process on a CUDA device; nothing where it does not say. Makes no context.
std::optional<std::uint64_t> driver_process_bytes(Device device, int pid);

/// What all processes hold on a CUDA device's card; nothing where NVML cannot be asked. Makes no context.
std::optional<std::uint64_t> card_used_bytes(Device device);

}  // namespace bantam

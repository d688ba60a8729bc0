// Devices: their names, what is known of them, the memory of this process there beyond our own pools, and the order in
// which they do their work: streams, events, copies. A Device is a value; the Runtime owns its allocators and streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// A place where tensors live and kernels run: `cpu`, `cuda:N`, a *logical* device (`cuda:N/K`: share K of one that a
/// Runtime was told to split, with an allocator, a stream and a limit of its own), or a *meta* stand-in for one of
/// them: same shapes, same allocations (over fake memory), no kernel runs.
struct Device {
  static constexpr int kWhole = -1;

  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool meta = false;
  int share = kWhole;  ///< which share of the device; kWhole: the device itself

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {DeviceKind::cuda, index}; }
  /// The stand-in for `target`; a share's is that of its device.
  static constexpr Device meta_of(Device target) { return {target.kind, target.index, true}; }
  /// Share `k` of this device, and the device that a share is of.
  constexpr Device logical(int k) const { return {kind, index, meta, k}; }
  constexpr Device whole() const { return {kind, index, meta}; }
  constexpr bool is_logical() const { return share != kWhole; }
  constexpr bool is_cpu() const { return kind == DeviceKind::cpu && !meta; }
  constexpr bool is_cuda() const { return kind == DeviceKind::cuda && !meta; }
  constexpr bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:0", "cuda:0/1", "meta(cuda:0)".
std::string to_string(Device device);

/// Parses "cpu", "cuda" (index 0) or "cuda:N", each with or without a share ("/K"); throws DeviceError naming the text
/// and what is allowed.
Device parse_device(std::string_view text);

/// The facts of a device, for `bantam devices` and for kernels' choices. Sizes in bytes.
struct DeviceInfo {
  Device device;
  std::string name;  ///< "NVIDIA H200", "AMD EPYC …"
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  int compute_capability = 0;  ///< 90 for 9.0; 0 on the CPU
  int multiprocessors = 0;     ///< CPU: logical processors usable by this process
};

/// Whether this binary was built with the CUDA backend.
bool built_with_cuda();

/// Number of usable CUDA devices: 0 where there is no driver or no GPU. Never throws; the first call loads the driver.
int cuda_device_count();

/// Why `cuda_device_count()` is 0, in a sentence ("no NVIDIA driver is installed"), or "" where it is not.
std::string cuda_unavailable_reason();

/// The CPU first, then every CUDA device.
std::vector<DeviceInfo> list_devices();

/// Facts of one device; throws DeviceError where it does not exist.
DeviceInfo device_info(Device device);

/// A named part of a process' memory on a device besides the pools: "CUDA context", "cuDNN", … In bytes.
struct OverheadLine {
  std::string name;
  std::uint64_t bytes = 0;
  bool operator==(const OverheadLine&) const = default;
};

std::uint64_t total_bytes(std::span<const OverheadLine> lines);

/// How a process' bytes were measured.
enum class ProcessMemoryMethod : std::uint8_t {
  driver,       ///< the driver's figure for this process (NVML)
  card,         ///< what the card has in use, less what others used before this process' first meter: what they
                ///< allocate later counts as ours, what they free later is subtracted from ours
  resident_set  ///< the CPU: pages of this process in memory, shared ones included
};

/// "driver", "card", "resident set".
std::string_view to_string(ProcessMemoryMethod method);

/// The memory that a process uses on a device, its pools included. In bytes.
struct ProcessMemory {
  std::uint64_t bytes = 0;
  ProcessMemoryMethod method = ProcessMemoryMethod::resident_set;
  std::uint64_t peak_bytes = 0;   ///< CPU: the resident set's high-water mark; 0: not known
  std::uint64_t group_bytes = 0;  ///< CPU: what the process' control group holds, page cache included; 0: not known
};

/// Reads this process' memory on one device. Thread-safe. Copies read the same.
class ProcessMeter {
 public:
  /// Notes what others use of the card, which needs no context: make it before the process' first use of the device.
  /// Throws DeviceError where the device does not exist (also for meta devices, which have no memory).
  explicit ProcessMeter(Device device);

  /// `pool_bytes`: a lower bound of this process' bytes there; a driver's figure below it is ignored. On a GPU about 30
  /// µs. Makes a context where there is none and NVML cannot be asked.
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

/// The driver's figure for another process on a CUDA device; nullopt where it has none. Makes no context.
std::optional<std::uint64_t> driver_process_bytes(Device device, int pid);

/// The bytes in use on a CUDA device's card by all processes; nullopt without NVML. Makes no context.
std::optional<std::uint64_t> card_used_bytes(Device device);

// Streams, events and copies: the order in which a device does its work. On the CPU everything is done when a call
// returns.

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
BANTAM_API_END

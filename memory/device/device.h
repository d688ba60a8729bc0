// Names of devices and what is known of them. A Device is a value; the Runtime owns what stands behind it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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

/// What a device is, for `bantam devices` and for kernels' choices. Sizes in bytes.
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

}  // namespace bantam

// DeviceProfile: what is known of a device that need not be in this machine: memory, overhead and speed, for plans.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/dtype.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// Facts of one kind of device. Rates are what good kernels reach, not what data sheets promise.
struct DeviceProfile {
  std::string name;            ///< "h200"
  int compute_capability = 0;  ///< 90 for 9.0; 0: a CPU
  int multiprocessors = 0;
  std::uint64_t total_bytes = 0;
  /// A training process' memory besides its pools, as the limit counts it; none on a CPU.
  std::vector<OverheadLine> overhead;
  double copy_bytes_per_s = 0;     ///< bytes read plus bytes written
  double float32_flops_per_s = 0;  ///< of matrix products; a multiply-add is two
  double float16_flops_per_s = 0;  ///< also bfloat16's
  bool measured = false;           ///< false: an estimate, by rule from the device's size or data sheet
  /// Not empty: nobody said which card it is, and this one's rates stand in for it.
  std::string stand_in = {};

  double flops_per_s(DType dtype) const { return dtype == DType::float32 ? float32_flops_per_s : float16_flops_per_s; }
  /// "h200 (measured)", "t4 (estimate)", "a GPU of 8.00 GiB (stand-in)".
  std::string title() const;
};

/// A card by name in any spelling ("h200", "RTX 3060", "GeForce RTX 4070 Ti"; known_gpus.h), or nothing.
std::optional<DeviceProfile> find_device_profile(std::string_view name);
/// All names, in the table's order.
std::vector<std::string> device_profile_names();

/// The profile of a device: the CPU's estimate; for a CUDA device the named target that it is, else an estimate by its
/// multiprocessors; the h200's as a stand-in where the machine has no such device. Makes no context.
DeviceProfile profile_of(Device device);

/// A GPU of which only the memory is known, with the rates of a usual card that has about as much.
DeviceProfile stand_in_profile(std::uint64_t total_bytes);

/// An estimate for a GPU that no table knows, from its identity.
DeviceProfile estimate_profile(std::string name, int compute_capability, int multiprocessors,
                               std::uint64_t total_bytes);

/// Reads what `bantam devices --measure` writes (JSON), or a data sheet's five figures, written by hand (YAML or JSON):
///
///     memory: 12GiB
///     bandwidth_gb_per_s: 360
///     float16_tflops: 25.5   # dense matrix products, float32 sums
///     float32_tflops: 12.7
///     multiprocessors: 28
///
/// which makes an estimate. Throws ConfigError with the position of what is wrong.
DeviceProfile load_device_profile(const std::filesystem::path& path);

}  // namespace bantam

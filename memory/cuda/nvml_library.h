// NVML's interface, as far as it is used: the library comes with the driver, its header with the toolkit's optional
// parts, so that the few declarations stand where they are used. Its layouts are fixed: a changed one gets a new
// version and name.
#pragma once

#include <optional>

namespace bantam::cuda_backend {

using NvmlDevice = struct NvmlDeviceHandle*;
constexpr int kNvmlSuccess = 0;

/// The library, loaded and started once a process and left so: it holds nothing on any device.
class NvmlLibrary {
 public:
  static const NvmlLibrary& instance();

  /// `function`: the one of that name; false, and null, where there is no library or it lacks the function.
  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(address(name));
    return function != nullptr;
  }

  /// A CUDA device's handle; none where NVML does not know it. By the bus, not by number: CUDA_VISIBLE_DEVICES
  /// renumbers CUDA's devices, and not NVML's.
  std::optional<NvmlDevice> device(int cuda_device) const;

 private:
  NvmlLibrary();
  void* address(const char* name) const;

  void* library_ = nullptr;  ///< null where it cannot be used
  int (*find_by_pci_)(const char*, NvmlDevice*) = nullptr;
};

}  // namespace bantam::cuda_backend

#include "bantam/memory/cuda/nvml_library.h"

#include <array>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace bantam::cuda_backend {

NvmlLibrary::NvmlLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  int (*start)() = nullptr;
  if (!find("nvmlInit_v2", start) || !find("nvmlDeviceGetHandleByPciBusId_v2", find_by_pci_) || start() != kNvmlSuccess)
    library_ = nullptr;
}

const NvmlLibrary& NvmlLibrary::instance() {
  static const NvmlLibrary library;
  return library;
}

void* NvmlLibrary::address(const char* name) const { return library_ == nullptr ? nullptr : dlsym(library_, name); }

std::optional<NvmlDevice> NvmlLibrary::device(int cuda_device) const {
  if (library_ == nullptr) return std::nullopt;
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), cuda_device) != cudaSuccess) {
    (void)cudaGetLastError();  // an answer, no error
    return std::nullopt;
  }
  NvmlDevice found = nullptr;
  if (find_by_pci_(bus.data(), &found) != kNvmlSuccess) return std::nullopt;
  return found;
}

}  // namespace bantam::cuda_backend

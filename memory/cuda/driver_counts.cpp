// What the driver counts: NVML, loaded at run time, and whether a context exists. Nothing here makes a context.
#include <array>
#include <optional>
#include <vector>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "bantam/memory/cuda/driver_entry.h"
#include "bantam/memory/device/cuda_backend.h"

namespace bantam::cuda_backend {
namespace {

// NVML's interface, as far as it is used: the library comes with the driver, its header with the toolkit's optional
// parts, so that the few declarations stand here. Its layouts are fixed: a changed one gets a new version and name.
using NvmlDevice = struct NvmlDeviceHandle*;
constexpr int kNvmlSuccess = 0, kNvmlInsufficientSize = 7;
constexpr unsigned long long kNvmlNotAvailable = ~0ull;

struct NvmlProcessInfo {
  unsigned int pid;
  unsigned long long used_bytes;
  unsigned int gpu_instance, compute_instance;
};
static_assert(sizeof(NvmlProcessInfo) == 24);

struct NvmlMemory {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned int kNvmlMemoryVersion = sizeof(NvmlMemory) | (2u << 24);

/// The library, started once a process and left so: it holds nothing on any device.
class Nvml {
 public:
  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    int (*start)() = nullptr;
    const bool bound = bind(library, "nvmlInit_v2", start) &&
                       bind(library, "nvmlDeviceGetHandleByPciBusId_v2", find_by_pci_) &&
                       bind(library, "nvmlDeviceGetComputeRunningProcesses_v3", processes_) &&
                       bind(library, "nvmlDeviceGetMemoryInfo_v2", memory_);
    usable_ = bound && start() == kNvmlSuccess;
  }

  static const Nvml& instance() {
    static const Nvml nvml;
    return nvml;
  }

  /// By the bus, not by number: CUDA_VISIBLE_DEVICES renumbers CUDA's devices, and not NVML's.
  std::optional<NvmlDevice> find(int device) const {
    if (!usable_) return std::nullopt;
    std::array<char, 32> bus{};
    if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device) != cudaSuccess) {
      (void)cudaGetLastError();  // an answer, no error
      return std::nullopt;
    }
    NvmlDevice found = nullptr;
    if (find_by_pci_(bus.data(), &found) != kNvmlSuccess) return std::nullopt;
    return found;
  }

  std::vector<NvmlProcessInfo> processes(NvmlDevice device) const {
    std::vector<NvmlProcessInfo> list(16);
    for (int attempt = 0; attempt < 8; ++attempt) {  // others may start between two calls
      auto count = static_cast<unsigned int>(list.size());
      const int status = processes_(device, &count, list.data());
      if (status == kNvmlSuccess) {
        list.resize(count);
        return list;
      }
      if (status != kNvmlInsufficientSize) break;
      list.resize(count + 16);
    }
    return {};
  }

  std::optional<std::uint64_t> used(NvmlDevice device) const {
    NvmlMemory memory{.version = kNvmlMemoryVersion, .total = 0, .reserved = 0, .free = 0, .used = 0};
    if (memory_(device, &memory) != kNvmlSuccess) return std::nullopt;
    return memory.used;
  }

 private:
  template <class Function>
  static bool bind(void* library, const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, symbol));
    return function != nullptr;
  }

  bool usable_ = false;
  int (*find_by_pci_)(const char*, NvmlDevice*) = nullptr;
  int (*processes_)(NvmlDevice, unsigned int*, NvmlProcessInfo*) = nullptr;
  int (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
};

}  // namespace

std::optional<std::uint64_t> process_bytes(int device, int pid) {
  const Nvml& nvml = Nvml::instance();
  const std::optional<NvmlDevice> handle = nvml.find(device);
  if (!handle) return std::nullopt;
  for (const NvmlProcessInfo& process : nvml.processes(*handle))
    if (process.pid == static_cast<unsigned int>(pid) && process.used_bytes != kNvmlNotAvailable)
      return process.used_bytes;
  return std::nullopt;
}

std::optional<std::uint64_t> card_used_bytes(int device) {
  const Nvml& nvml = Nvml::instance();
  const std::optional<NvmlDevice> handle = nvml.find(device);
  return handle ? nvml.used(*handle) : std::nullopt;
}

bool has_context(int device) {
  PFN_cuDevicePrimaryCtxGetState_v7000 state = nullptr;
  if (!find_driver_entry("cuDevicePrimaryCtxGetState", 7000, state))
    return true;  // unknown: what is on the card may already be ours
  unsigned int flags = 0;
  int active = 0;
  return state(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

}  // namespace bantam::cuda_backend

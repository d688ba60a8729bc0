// Reads what the driver counts, and whether a context exists. Nothing here makes a context.
#include <optional>
#include <vector>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "bantam/memory/cuda/driver_entry.h"
#include "bantam/memory/cuda/nvml_library.h"
#include "bantam/memory/device/cuda_backend.h"

namespace bantam::cuda_backend {
namespace {

constexpr int kNvmlInsufficientSize = 7;
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

/// The functions of NVML that count memory.
class MemoryCounts {
 public:
  MemoryCounts() {
    const NvmlLibrary& library = NvmlLibrary::instance();
    usable_ = library.find("nvmlDeviceGetComputeRunningProcesses_v3", processes_) &&
              library.find("nvmlDeviceGetMemoryInfo_v2", memory_);
  }

  static const MemoryCounts& instance() {
    static const MemoryCounts counts;
    return counts;
  }

  std::optional<NvmlDevice> find(int device) const {
    return usable_ ? NvmlLibrary::instance().device(device) : std::nullopt;
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
  bool usable_ = false;
  int (*processes_)(NvmlDevice, unsigned int*, NvmlProcessInfo*) = nullptr;
  int (*memory_)(NvmlDevice, NvmlMemory*) = nullptr;
};

}  // namespace

std::optional<std::uint64_t> process_bytes(int device, int pid) {
  const MemoryCounts& counts = MemoryCounts::instance();
  const std::optional<NvmlDevice> handle = counts.find(device);
  if (!handle) return std::nullopt;
  for (const NvmlProcessInfo& process : counts.processes(*handle))
    if (process.pid == static_cast<unsigned int>(pid) && process.used_bytes != kNvmlNotAvailable)
      return process.used_bytes;
  return std::nullopt;
}

std::optional<std::uint64_t> card_used_bytes(int device) {
  const MemoryCounts& counts = MemoryCounts::instance();
  const std::optional<NvmlDevice> handle = counts.find(device);
  return handle ? counts.used(*handle) : std::nullopt;
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

// Links between the GPUs of this machine: how bytes get from one's memory to another's.
#pragma once

#include <string>
#include <vector>

namespace bantam {

/// A pair of GPUs, `from` < `to`, by their CUDA numbers. It holds in both directions.
struct GpuLink {
  int from = 0, to = 0;
  int nvlinks = 0;           ///< NVLinks that join the two, directly or through switches; 0: none, or not known
  std::string path;          ///< the way over PCIe: "PCIe switch" or "between NUMA nodes"; empty: not known
  bool peer_access = false;  ///< whether each can read and write the other's memory
  bool atomics = false;      ///< and whether atomic operations work there
  bool operator==(const GpuLink&) const = default;
};

/// Every pair of this machine's GPUs; none where there are fewer than two. NVLinks and paths are NVML's, which may be
/// missing. Makes no context. Throws CudaError.
std::vector<GpuLink> gpu_links();

/// Returns a name that no other GPU has, on any host: "GPU-8f6b…". Makes no context. Throws CudaError, DeviceError.
std::string gpu_identity(int device);

/// "18 NVLinks, peer access", "PCIe host bridge, no peer access".
std::string to_string(const GpuLink& link);

}  // namespace bantam

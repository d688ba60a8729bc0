// Peer access as CUDA knows it; NVLinks and the PCIe path as NVML does, which is loaded at run time.
#include "bantam/memory/device/links.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/memory/cuda/nvml_library.h"
#include "bantam/memory/device/cuda_backend.h"

namespace bantam {
namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw CudaError(fmt::format("{} failed: {}: {}", call, cudaGetErrorName(status), cudaGetErrorString(status)));
}

using cuda_backend::kNvmlSuccess;
using cuda_backend::NvmlDevice;
using cuda_backend::NvmlLibrary;

constexpr unsigned int kNvmlMostLinks = 18;          // of a GPU
constexpr int kNvmlEnabled = 1;                      // a value of nvmlEnableState_t
constexpr int kNvmlCapsNvlink = 2, kNvmlCapsOk = 0;  // values of nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t

struct NvmlPciInfo {
  std::array<char, 16> legacy_bus_id;
  unsigned int domain, bus, device, device_id, subsystem_id;
  std::array<char, 32> bus_id;
};
static_assert(sizeof(NvmlPciInfo) == 68);

/// nvmlGpuTopologyLevel_t.
std::string_view path_of(int level) {
  switch (level) {
    case 0:
      return "same board";
    case 10:
      return "PCIe switch";
    case 20:
      return "PCIe switches";
    case 30:
      return "PCIe host bridge";
    case 40:
      return "within a NUMA node";
    case 50:
      return "between NUMA nodes";
    default:
      return "";
  }
}

/// "00000000:3B:00.0" and "0000:3b:00.0" are the same.
std::string bus_name(std::string_view text) {
  std::string name(text.substr(0, text.find('\0')));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::size_t colon = name.find(':');
  return colon != std::string::npos && colon > 4 ? name.substr(colon - 4) : name;
}

std::string bus_of(int device) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device), "cudaDeviceGetPCIBusId");
  return bus.data();
}

/// The active NVLinks of one GPU, as far as they are known.
struct Nvlinks {
  int active = 0;
  std::vector<std::string> peers;  ///< the bus names at the other ends: GPUs or switches
};

/// The functions of NVML that describe links.
class LinkFacts {
 public:
  LinkFacts() {
    const NvmlLibrary& library = NvmlLibrary::instance();
    usable_ = library.find("nvmlDeviceGetTopologyCommonAncestor", common_ancestor_) &&
              library.find("nvmlDeviceGetP2PStatus", p2p_status_) &&
              library.find("nvmlDeviceGetNvLinkState", link_state_) &&
              library.find("nvmlDeviceGetNvLinkRemotePciInfo_v2", link_peer_);
  }

  /// Null where NVML does not know the device.
  NvmlDevice find(int device) const {
    return usable_ ? NvmlLibrary::instance().device(device).value_or(nullptr) : nullptr;
  }

  std::string path(NvmlDevice a, NvmlDevice b) const {
    int level = -1;
    return a != nullptr && b != nullptr && common_ancestor_(a, b, &level) == kNvmlSuccess ? std::string(path_of(level))
                                                                                          : "";
  }

  Nvlinks links(NvmlDevice device) const {
    Nvlinks links;
    for (unsigned int link = 0; device != nullptr && link < kNvmlMostLinks; ++link) {
      int state = 0;
      if (link_state_(device, link, &state) != kNvmlSuccess || state != kNvmlEnabled) continue;
      ++links.active;
      NvmlPciInfo peer{};
      if (link_peer_(device, link, &peer) == kNvmlSuccess)
        links.peers.push_back(bus_name(std::string_view(peer.bus_id.data(), peer.bus_id.size())));
    }
    return links;
  }

  bool by_nvlink(NvmlDevice a, NvmlDevice b) const {
    int status = -1;
    return a != nullptr && b != nullptr && p2p_status_(a, b, kNvmlCapsNvlink, &status) == kNvmlSuccess &&
           status == kNvmlCapsOk;
  }

 private:
  bool usable_ = false;
  int (*common_ancestor_)(NvmlDevice, NvmlDevice, int*) = nullptr;
  int (*p2p_status_)(NvmlDevice, NvmlDevice, int, int*) = nullptr;
  int (*link_state_)(NvmlDevice, unsigned int, int*) = nullptr;
  int (*link_peer_)(NvmlDevice, unsigned int, NvmlPciInfo*) = nullptr;
};

/// Direct ones; where there are none and the two are joined all the same, it is by switches, to which all links lead.
int nvlinks_between(const Nvlinks& a, const Nvlinks& b, const std::string& bus_of_b, bool joined) {
  const auto direct = std::ranges::count(a.peers, bus_of_b);
  if (direct > 0) return static_cast<int>(direct);
  return joined ? std::min(a.active, b.active) : 0;
}

bool attribute(cudaDeviceP2PAttr attribute, int from, int to) {
  int value = 0;
  check(cudaDeviceGetP2PAttribute(&value, attribute, from, to), "cudaDeviceGetP2PAttribute");
  return value != 0;
}

}  // namespace

std::vector<GpuLink> gpu_links() {
  std::vector<GpuLink> links;
  const int count = cuda_backend::availability().devices;
  if (count < 2) return links;
  const LinkFacts facts;
  std::vector<NvmlDevice> devices;
  std::vector<Nvlinks> nvlinks;
  for (int device = 0; device < count; ++device) {
    devices.push_back(facts.find(device));
    nvlinks.push_back(facts.links(devices.back()));
  }
  const auto at = [](int device) { return static_cast<std::size_t>(device); };
  for (int from = 0; from < count; ++from)
    for (int to = from + 1; to < count; ++to) {
      const NvmlDevice a = devices[at(from)], b = devices[at(to)];
      links.push_back(
          {.from = from,
           .to = to,
           .nvlinks = nvlinks_between(nvlinks[at(from)], nvlinks[at(to)], bus_name(bus_of(to)), facts.by_nvlink(a, b)),
           .path = facts.path(a, b),
           .peer_access =
               attribute(cudaDevP2PAttrAccessSupported, from, to) && attribute(cudaDevP2PAttrAccessSupported, to, from),
           .atomics = attribute(cudaDevP2PAttrNativeAtomicSupported, from, to)});
    }
  return links;
}

std::string gpu_identity(int device) {
  cuda_backend::require(Device::cuda(device));
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  std::string text = "GPU-";
  for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace bantam
